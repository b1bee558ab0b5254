//! `bookstore browse`: emulated browsers that visit a shop, and tell how it served them.
//!
//! Each browser is a task: it thinks, opens a page as its mix says, verifies what comes, and thinks again.
//! Nothing of it is kept but counts. Chance comes from one seed; a browser's way through the shop depends
//! on it and on how its requests ended, not on the time they took.

mod browser;
mod connection;
mod cookies;
mod crowd;
mod flags;
mod forms;
mod images;
mod lateness;
mod pace;
mod page;
mod plan;
mod progress;
mod record;
mod summary;
mod table;
mod visitor;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::Error;
use crate::interaction::Interaction;
use crate::names::Scale;
use browser::Setting;
use connection::{Line, TcpConnector};
use record::Record;
use visitor::Request;

pub use connection::{Connector, Opening, Stream};
pub use flags::Options;
pub use lateness::{MEAN_BOUND, MEAN_SHARE, P99_BOUND, P99_SHARE, PROCESSOR_BOUND};
pub use pace::{Pace, Span};
pub use plan::{Load, Phase, PhaseFlag, Plan};
pub use summary::{
    Client, Complaint, Counts, Figures, ImageFigures, Little, PageFigures, Percentiles, PhaseSummary,
    Present, SecondSummary, Settings, Summary, Sums,
};

/// The exit status of a client that was the bottleneck.
const BOTTLENECK: u8 = 2;
/// The exit status if answers were wrong or requests failed.
const WRONG: u8 = 3;
/// How long the shop may take to tell its scale.
const SCALE_BOUND: Duration = Duration::from_secs(30);
/// The longest answer to that question.
const SCALE_BYTES: usize = 4_096;

/// Visits a shop as the flags say, and writes what came of it. Exit status: 0 all went well; 2 the client
/// was the bottleneck; 3 answers were wrong or requests failed, which weighs more than 2.
///
/// # Errors
///
/// If flags don't fit together, the shop doesn't tell its scale, or a file can't be read or written.
pub async fn run(options: Options) -> Result<ExitCode, Error> {
    let run = tokio::task::spawn_blocking(move || options.on_own_threads());
    match run.await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(Error::Plan(error.to_string())),
        },
    }
}

/// Visits a site, and tells what came of it. It is the caller's runtime whose `threads` the lateness is
/// judged by.
pub async fn visit(plan: &Plan, connector: Arc<dyn Connector>, scale: Scale, threads: usize) -> Summary {
    let record = Arc::new(Record::new(plan.phases.len()));
    recorded(plan, connector, scale, threads, record).await
}

async fn recorded(
    plan: &Plan,
    connector: Arc<dyn Connector>,
    scale: Scale,
    threads: usize,
    record: Arc<Record>,
) -> Summary {
    let site = format!("http://{}", connector.host());
    let setting = Setting {
        connector,
        scale,
        keeps_mix: plan.keeps_mix,
        pace: plan.pace,
        patience: plan.patience,
        image_connections: plan.image_connections,
        seed: plan.seed,
        record: Arc::clone(&record),
    };
    crowd::visit(&plan.phases, plan.most_present, Arc::new(setting)).await;
    let counted = record.lock();
    Summary::new(site, plan, scale, threads, &counted)
}

impl Options {
    fn on_own_threads(self) -> Result<ExitCode, Error> {
        let plan = self.plan()?;
        // Every browser keeps a connection. If this fails, connecting fails at some point, and is counted so.
        let _ = rlimit::increase_nofile_limit(u64::MAX);
        let runtime = match self.threads {
            0 | 1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
            threads => {
                tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()
            }
        };
        let runtime = runtime.map_err(Error::io("starting threads"))?;
        let summary = runtime.block_on(async {
            let connector: Arc<dyn Connector> = Arc::new(self.connector().await?);
            let scale = match (self.items, self.customers) {
                (Some(items), Some(customers)) => Scale { items, customers },
                (items, customers) => {
                    let told = ask_scale(&connector).await?;
                    Scale {
                        items: items.unwrap_or(told.items),
                        customers: customers.unwrap_or(told.customers),
                    }
                }
            };
            let record = Arc::new(Record::new(plan.phases.len()));
            let shown = tokio::spawn(progress::show(plan.phases.clone(), Arc::clone(&record)));
            let visits = recorded(&plan, connector, scale, self.threads.max(1), record);
            let summary = tokio::select! {
                summary = visits => Ok(summary),
                _ = tokio::signal::ctrl_c() => Err(Error::Plan("interrupted".to_owned())),
            };
            shown.abort();
            summary
        })?;
        // Browsers may still wait for a page that the site never sends.
        runtime.shutdown_background();
        print!("{}", table::of(&summary));
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&summary)
                .map_err(|error| Error::Plan(format!("writing the summary: {error}")))?;
            std::fs::write(path, text).map_err(Error::io(format!("writing {}", path.display())))?;
        }
        Ok(self.exit_status(&summary))
    }

    fn exit_status(&self, summary: &Summary) -> ExitCode {
        let counts = summary.total.counts;
        if counts.failed + counts.wrong > 0 && !self.allow_errors {
            ExitCode::from(WRONG)
        } else if summary.client_was_the_bottleneck {
            ExitCode::from(BOTTLENECK)
        } else {
            ExitCode::SUCCESS
        }
    }

    async fn connector(&self) -> Result<TcpConnector, Error> {
        let site = |why: &str| Error::Plan(format!("--site {}: {why}", self.site));
        let uri: http::Uri = self.site.parse().map_err(|error| site(&format!("{error}")))?;
        if uri.scheme_str() != Some("http") {
            return Err(site("only http:// is spoken"));
        }
        let authority = uri.authority().ok_or_else(|| site("no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((host, authority.port_u16().unwrap_or(80))).await;
        let mut found = found.map_err(|error| site(&error.to_string()))?;
        let address = found.next().ok_or_else(|| site("the host has no address"))?;
        Ok(TcpConnector { address, host: authority.as_str().to_owned() })
    }
}

async fn ask_scale(connector: &Arc<dyn Connector>) -> Result<Scale, Error> {
    let request = Request { interaction: Interaction::Home, path: "/scale".to_owned(), form: None };
    let mut answer = Vec::new();
    let mut line = Line::new(Arc::clone(connector));
    let mut read = |piece: &[u8]| {
        answer.extend_from_slice(&piece[..piece.len().min(SCALE_BYTES - answer.len())]);
    };
    let head = timeout(SCALE_BOUND, line.exchange(&request, None, &mut read)).await;
    let hint = "asking the shop for /scale (or say --items and --customers)";
    match head {
        Err(_) => Err(Error::Plan(format!("{hint}: no answer in {} s", SCALE_BOUND.as_secs()))),
        Ok(Err(reason)) => Err(Error::Plan(format!("{hint}: {reason}"))),
        Ok(Ok(head)) if head.status != 200 => Err(Error::Plan(format!("{hint}: status {}", head.status))),
        Ok(Ok(_)) => serde_json::from_slice(&answer).map_err(|error| Error::Plan(format!("{hint}: {error}"))),
    }
}
