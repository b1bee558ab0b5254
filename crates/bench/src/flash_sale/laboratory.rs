//! The set-up of the flash sale: the private server with the shop, the gatekeepers, the application's pools,
//! and one measured turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testbed::database::DatabaseServer;

use super::{Compare, FlashSaleOptions};
use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::load::{
    Client, ClosedOutcome, ConnectionPool, CpuMeter, FamilyMeter, Mix, OpenOutcome, OpenRun, ProcessorMeter,
    Progress, Target, run_closed,
};
use crate::shop;
use crate::stats::Summary;
use crate::table::count;

/// Server connections beyond the application's own: two gates' budgets, logins on their way, and ours.
const SPARE_CONNECTIONS: usize = 150;
/// How long every variant is warmed up, so that the server's processes know the tables.
const WARM_UP: Duration = Duration::from_millis(500);
/// How often the passing line is renewed.
const DISPLAY_INTERVAL: Duration = Duration::from_millis(200);
/// One way to the database.
#[derive(Debug)]
pub(super) struct Variant {
    /// What tables and plots call it.
    pub(super) label: String,
    /// What it gives, in a few words.
    pub(super) note: String,
    pool: Arc<ConnectionPool>,
    gatekeeper: Option<Gatekeeper>,
}

/// What one turn gave.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) outcome: OpenOutcome,
    pub(super) summary: Summary,
    /// Processors that the server used while requests arrived and were served.
    pub(super) server_cpu: f64,
    /// Requests answered per second of the server's processor time.
    pub(super) efficiency: f64,
    /// Processors that the gatekeeper used.
    pub(super) gate_cpu: f64,
    /// How much of the server's processor others used.
    pub(super) disturbance: f64,
}

/// Everything that runs. The variants come first so that they are gone before the server stops.
pub(super) struct Laboratory {
    pub(super) variants: Vec<Variant>,
    pub(super) admin: Client,
    pub(super) mix: Arc<Mix>,
    /// How long one report takes alone.
    pub(super) report_alone: Duration,
    /// The server's processor, if it has one of its own.
    server_cpu: Option<usize>,
    server: DatabaseServer,
}

impl Laboratory {
    pub(super) async fn set_up(options: &FlashSaleOptions, display: &Display) -> Result<Self, Error> {
        let start = Instant::now();
        display.now(format!("starting a private {}", options.database.name()));
        let server_cpu = options.server_cpu;
        let server =
            shop::start_server(options.database, options.connections + SPARE_CONNECTIONS, server_cpu).await?;
        let target = Target::parse(&server.url())?;
        let admin = target.connect().await?;
        display.now("filling the shop");
        shop::create(&admin).await?;
        let (report_rows, report_alone) = shop::calibrate(&admin).await?;
        let mix = Arc::new(shop::mix(options.database, report_rows)?);
        let mut laboratory = Self { variants: Vec::new(), admin, mix, report_alone, server_cpu, server };
        laboratory.add_direct(options, display).await?;
        match options.compare {
            Compare::Gates => {
                let plain = [("order", "\"fifo\""), ("long_limit", "\"none\""), ("capacity", "\"none\"")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()));
                laboratory
                    .add_gate("gate, FIFO", "what a plain pool gives", &plain, options, display)
                    .await?;
                laboratory.add_default_gate(options, display).await?;
            }
            Compare::Gate => laboratory.add_default_gate(options, display).await?,
            Compare::ClientPool(size) => {
                let pool = ConnectionPool::open(target, size).await?;
                laboratory.add("pool in the client", "a plain pool", pool, None).await?;
            }
        }
        let place = match server_cpu {
            Some(cpu) => format!("pinned to processor {cpu}"),
            None => "sharing the only processor with the client".to_owned(),
        };
        display.say(&format!(
            "  {} {} is up, {place}, with a shop of 10,000 articles ({:.0} s).",
            options.database.name(),
            laboratory.server.version()?,
            start.elapsed().as_secs_f64()
        ));
        Ok(laboratory)
    }

    async fn add_direct(&mut self, options: &FlashSaleOptions, display: &Display) -> Result<(), Error> {
        display.now(format!("opening {} connections straight to the database", options.connections));
        let pool = ConnectionPool::open(Target::parse(&self.server.url())?, options.connections).await?;
        self.add("direct", "no gate", pool, None).await
    }

    async fn add_default_gate(&mut self, options: &FlashSaleOptions, display: &Display) -> Result<(), Error> {
        let keys: Vec<String> =
            options.gate_keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        let note = if keys.is_empty() { "without settings".to_owned() } else { keys.join(", ") };
        self.add_gate("gate", &note, &options.gate_keys, options, display).await
    }

    async fn add_gate(
        &mut self,
        label: &str,
        note: &str,
        keys: &[(String, String)],
        options: &FlashSaleOptions,
        display: &Display,
    ) -> Result<(), Error> {
        display.now(format!("opening {} connections to the gate ({note})", options.gate_connections));
        let (upstream, keys) = (self.server.upstream(), keys.to_vec());
        let gatekeeper = blocking(move || Gatekeeper::start_before(&upstream, &keys)).await?;
        let target = Target::parse(&self.server.url_through(gatekeeper.port()))?;
        let pool = ConnectionPool::open(target, options.gate_connections).await.map_err(|error| {
            Error::Experiment(format!("{error}; the gatekeeper's log:\n{}", gatekeeper.log_tail()))
        })?;
        self.add(label, note, pool, Some(gatekeeper)).await
    }

    async fn add(
        &mut self,
        label: &str,
        note: &str,
        pool: Arc<ConnectionPool>,
        gatekeeper: Option<Gatekeeper>,
    ) -> Result<(), Error> {
        run_closed(&pool, &self.mix, pool.size(), WARM_UP, 0).await?;
        self.variants.push(Variant { label: label.to_owned(), note: note.to_owned(), pool, gatekeeper });
        Ok(())
    }

    /// A closed loop of direct clients.
    pub(super) async fn closed_loop(&self, clients: usize, window: Duration) -> Result<ClosedOutcome, Error> {
        run_closed(&self.variants[0].pool, &self.mix, clients, window, 1).await
    }

    /// One turn: the server put in order, then the arrivals.
    pub(super) async fn open_loop(
        &self,
        variant: &Variant,
        run: &OpenRun,
        place: &str,
        left: Duration,
        display: &Display,
    ) -> Result<Measured, Error> {
        display.now(format!("{place} putting the shop in order"));
        shop::restore(&self.admin).await?;
        let progress = Arc::new(Progress::default());
        let start = Instant::now();
        let server = FamilyMeter::start(self.server.pid());
        let gate = variant.gatekeeper.as_ref().map(|gatekeeper| CpuMeter::start(&[gatekeeper.pid()]));
        let processor = self.server_cpu.map(ProcessorMeter::start);
        let mut turn = std::pin::pin!(run.run(&variant.pool, &progress));
        let outcome = loop {
            tokio::select! {
                outcome = &mut turn => break outcome?,
                () = tokio::time::sleep(DISPLAY_INTERVAL) => display.now(format!(
                    "{place} answered {:>7}   waiting {:>6}   about {:.0} s left",
                    count(progress.completed() as f64),
                    count(progress.backlog() as f64),
                    left.saturating_sub(start.elapsed()).as_secs_f64(),
                )),
            }
        };
        let server_cpu = server.share();
        let summary = Summary::of(&outcome, run.mix.types().len());
        Ok(Measured {
            efficiency: summary.overall.completed as f64 / server.used().as_secs_f64().max(1e-9),
            summary,
            server_cpu,
            gate_cpu: gate.map_or(0.0, |meter| meter.share()),
            disturbance: processor.map_or(0.0, |meter| (meter.share() - server_cpu).max(0.0)),
            outcome,
        })
    }
}
