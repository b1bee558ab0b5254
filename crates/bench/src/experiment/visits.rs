//! The laboratory of experiments whose load is visits: the bookstore's site over a private PostgreSQL, and emulated browsers.
//!
//! Site and browsers are processes of the `bookstore` binary, on the client's processor; whoever is compared stands between the
//! site and its database. After each cell the shop's books must balance (`bookstore check`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Deserialize;
use tempfile::TempDir;
use tokio_postgres::Client;

use super::cell::{Cell, Figures, Measured, TypeFigures};
use super::control::Control;
use super::laboratory::{machine, options};
use super::machine::Machine;
use super::meter::{Whose, used};
use super::plan::{Form, Load, Plan, Site};
use super::runner::Laboratory;
use crate::load::Target;
use crate::postgres::PrivateServer;
use crate::process::{self, allowed_cpus, blocking, find_binary, free_port};
use crate::{Error, shop};

/// The environment variable that names the bookstore's binary.
const BINARY_VARIABLE: &str = "BOOKSTORE_BIN";
/// How long the site may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP_BOUND: Duration = Duration::from_secs(10);
/// How much longer than its cell a crowd of browsers may take.
const BROWSE_BOUND: Duration = Duration::from_secs(120);
/// Exit statuses of `bookstore browse` that say something of the site or of itself, and leave figures.
const TOLD: [i32; 3] = [0, 2, 3];

/// A site, and who visits it.
pub struct Visits {
    plan: Plan,
    form: Form,
    site: Site,
    bookstore: PathBuf,
    server_cpu: Option<usize>,
    admin: Client,
    server: PrivateServer,
    directory: TempDir,
}

/// The site's process. Dropping it ends it.
struct Serving {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Drop for Serving {
    fn drop(&mut self) {
        process::end(&mut self.child, &[(Signal::TERM, STOP_BOUND)]);
    }
}

impl Visits {
    /// Starts the server and fills the shop.
    ///
    /// # Errors
    /// If something doesn't start, or there is no bookstore.
    pub async fn set_up(
        plan: &Plan,
        site: &Site,
        form: &Form,
        server_cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let bookstore = find_binary("bookstore", BINARY_VARIABLE)?;
        let options = options(plan, form, server_cpu);
        let server = blocking(move || PrivateServer::start(&options)).await?;
        let mut fill = Command::new(&bookstore);
        fill.args(["populate", "--no-images", "--quiet", "--database"]).arg(server.url());
        fill.args(["--browsers", &site.browsers.to_string(), "--items", &site.items.to_string()]);
        blocking(move || succeed(&mut fill, "bookstore populate")).await?;
        let admin = Target::parse(&server.dsn())?.connect().await?;
        let directory = tempfile::Builder::new()
            .prefix("visits-")
            .tempdir()
            .map_err(Error::io("creating a temporary directory"))?;
        let (plan, form, site) = (plan.clone(), form.clone(), site.clone());
        Ok(Self { plan, form, site, bookstore, server_cpu, admin, server, directory })
    }

    /// What it all runs on.
    ///
    /// # Errors
    /// If the server doesn't tell its version, or there is no gatekeeper.
    pub fn machine(&self) -> Result<Machine, Error> {
        machine(&self.server)
    }

    /// The site, with its database behind this control.
    fn serve(&self, control: &Control) -> Result<Serving, Error> {
        let (port, log) = (free_port()?, self.directory.path().join("site.log"));
        let file = File::create(&log).map_err(Error::io("writing the site's log"))?;
        let mut command = Command::new(&self.bookstore);
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--database").arg(self.server.url_through(control.port));
        // More would wait for ever where each has a session of its own: then the site's own pool is what waits.
        let connections = control.sessions.unwrap_or(u32::MAX).min(self.site.connections);
        command.args(["--connections", &connections.to_string()]).args(&self.site.serve);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(Error::io("starting the site"))?;
        let mut serving = Serving { child, port, log };
        process::wait_until_ready(&mut serving.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| {
                let log = process::log_tail(&serving.log);
                Error::NotReady { server: "the bookstore".to_owned(), problem, log }
            },
        )?;
        Ok(serving)
    }

    /// The crowd of browsers, started.
    fn browse(&self, site: u16, browsers: usize, seed: u64, told: &Path) -> Result<Child, Error> {
        let seconds = |time: Duration| format!("{}ms", time.as_millis());
        let mut command = Command::new(&self.bookstore);
        command.args(["browse", "--allow-errors", "--site", &format!("http://127.0.0.1:{site}")]);
        command.args(["--browsers", &browsers.to_string(), "--mix", &self.site.mix]);
        command.args(["--think-scale", &self.site.think_scale.to_string(), "--seed", &seed.to_string()]);
        command.args(["--warm-up", &seconds(self.form.warm_up.0)]);
        command.args(["--duration", &seconds(self.form.window.0)]);
        command.args(["--timeout", &seconds(self.plan.workload.timeout.0)]);
        command.arg("--json").arg(told);
        let log = File::create(told.with_extension("log")).map_err(Error::io("writing the browsers' log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(Error::io("starting the browsers"))
    }

    async fn visited(&self, control: &Control, browsers: usize, seed: u64) -> Result<Measured, Error> {
        let serving = self.serve(control)?;
        let told = self.directory.path().join("visits.json");
        let begin = Instant::now();
        let mut crowd = self.browse(serving.port, browsers, seed, &told)?;
        let whose = Whose {
            server: self.server.pid(),
            server_cpu: self.server_cpu,
            is_steady: true,
            proxy: control.pid(),
            admin_port: control.admin_port(),
            clients: vec![serving.child.id(), crowd.id()],
        };
        let (warm_up, window) = (self.form.warm_up.0, self.form.window.0);
        let meters = whose.measure(begin + warm_up, window);
        let bound = warm_up + window + self.plan.workload.timeout.0 + BROWSE_BOUND;
        let ended = blocking(move || {
            let status = process::wait_for_exit(&mut crowd, bound);
            if status.is_none() {
                process::end(&mut crowd, &[(Signal::TERM, STOP_BOUND)]);
            }
            Ok(status.and_then(|status| status.code()))
        })
        .await?;
        let used = used(Some(meters)).await?;
        if !ended.is_some_and(|status| TOLD.contains(&status)) {
            let output = process::log_tail(&told.with_extension("log"));
            return Err(Error::Program { program: "bookstore browse".to_owned(), output });
        }
        blocking(move || {
            drop(serving);
            Ok(())
        })
        .await?;
        let text = fs::read_to_string(&told).map_err(Error::io("reading what the browsers tell"))?;
        let told: Told = serde_json::from_str(&text)
            .map_err(|error| Error::Experiment(format!("what the browsers tell can't be read: {error}")))?;
        Ok(Measured {
            client_cpu: used.clients,
            proxy_cpu: used.proxy,
            server_cpu: used.server,
            others_cpu: used.others,
            capacity: used.capacity,
            ..told.measured()
        })
    }

    /// Whether the shop's books balance.
    async fn check(&self) -> Result<(), Error> {
        let mut command = Command::new(&self.bookstore);
        command.args(["check", "--database"]).arg(self.server.url());
        blocking(move || succeed(&mut command, "bookstore check")).await
    }
}

impl Laboratory for Visits {
    async fn measure(
        &mut self,
        cell: &Cell,
        best: Option<u32>,
        _rate: Option<f64>,
    ) -> Result<Measured, Error> {
        let Load::Clients(browsers) = cell.load else {
            return Err(Error::Experiment("a site is visited in a closed loop".to_owned()));
        };
        shop::come_to_rest(&self.admin).await?;
        shop::batch(&self.admin, "writing what is dirty", "CHECKPOINT").await?;
        let connections = self.site.connections as usize;
        let control = Control::open(&self.plan, &cell.variant, best, connections, &self.server)?;
        let measured = self.visited(&control, browsers, 1 + u64::from(cell.repetition)).await;
        let measured = measured.map_err(|error| {
            Error::Experiment(format!("{}: {error}\n{}", cell.variant, control.log_tail()))
        })?;
        drop(control);
        self.check().await?;
        Ok(Measured { alive: true, pool: best, client_processors: allowed_cpus().len(), ..measured })
    }
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command, program: &str) -> Result<(), Error> {
    let output = command.stdin(Stdio::null()).output().map_err(Error::io(format!("running {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(Error::Program { program: program.to_owned(), output: String::from_utf8_lossy(&text).into_owned() })
}

/// What `bookstore browse --json` tells, as far as it is of use here. Times are in seconds.
#[derive(Debug, Deserialize)]
struct Told {
    total: Total,
}

#[derive(Debug, Deserialize)]
struct Total {
    wips: f64,
    counts: Counts,
    response: Percentiles,
    all_requests: Percentiles,
    interactions: Vec<Page>,
    little: Little,
    client: ToldOfClient,
}

#[derive(Debug, Deserialize)]
struct Counts {
    done: u64,
    rejected: u64,
    timed_out: u64,
    failed: u64,
    wrong: u64,
    unfinished: u64,
}

#[derive(Debug, Deserialize)]
struct Percentiles {
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

#[derive(Debug, Deserialize)]
struct Page {
    code: String,
    counts: Counts,
    response: Percentiles,
}

#[derive(Debug, Deserialize)]
struct Little {
    residual: f64,
}

#[derive(Debug, Deserialize)]
struct ToldOfClient {
    lateness: Percentiles,
}

impl Told {
    fn measured(&self) -> Measured {
        let Total { wips, counts, response, all_requests, interactions, little, client } = &self.total;
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let all =
            [counts.done, counts.rejected, counts.timed_out, counts.failed, counts.wrong, counts.unfinished];
        let types = interactions.iter().filter(|page| page.counts.done > 0).map(|page| TypeFigures {
            name: page.code.clone(),
            completed: page.counts.done,
            in_time_seconds: page.response.mean,
        });
        Measured {
            clients: Figures {
                throughput: *wips,
                in_time_seconds: response.mean,
                all_seconds: all_requests.mean,
                p50_seconds: all_requests.p50,
                p95_seconds: all_requests.p95,
                p99_seconds: all_requests.p99,
                under_way: all.into_iter().map(count).sum(),
                timed_out: count(counts.timed_out),
                refused: count(counts.rejected),
                failed: count(counts.failed + counts.wrong),
                retries: 0,
                residual: Some(little.residual),
            },
            types: types.collect(),
            late_seconds: client.lateness.p99,
            ..Measured::default()
        }
    }
}
