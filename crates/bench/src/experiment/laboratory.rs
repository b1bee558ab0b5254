//! The laboratory of experiments whose load is statements: a private server, and one measured cell at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testbed::confinement::{Bounds, Confinement, ENVIRONMENT, Share};
use testbed::database::DatabaseServer;
use testbed::postgres::{Authentication, Durability, PrivateServerOptions};
use testbed::process::allowed_cpus;
use testbed::{pgbouncer, pgpool};
use tokio::task::JoinHandle;

use super::cell::{Cell, Figures, Measured, Population, queued_in_client};
use super::control::Control;
use super::learned::Looks;
use super::machine::Machine;
use super::meter::{Used, Whose, used};
use super::plan::{
    Bystanders, Connect, Form, Load, Plan, Request, Server, Show, Tables, Unit as RequestUnit,
};
use super::runner::Laboratory;
use super::schedule::moments;
use crate::blocking::blocking;
use crate::load::{
    Client, Connecting, ConnectionPool, Crowd, CrowdOutcome, Draw, Group, Mix, OpenRun, Record, RequestType,
    Schedule, Served, Target, Unit,
};
use crate::{Error, gatekeeper, shop};

/// Server connections beyond the clients' own: logins on their way through a gate, and ours.
const SPARE_CONNECTIONS: usize = 150;
/// Where the tables are: pgpool-II keeps no connections to a database that is called `postgres`.
const DATABASE: &str = "shop";
/// A server that should notice clients which left, while it waits for locks.
const NOTICES: (&str, &str) = ("client_connection_check_interval", "200ms");
/// Over how long a server's part of a processor is counted: it is to be slow, and not to stand still for
/// long.
const SERVER_PERIOD: Duration = Duration::from_millis(10);
/// How often a server that fell while it was put in order is waited for.
const REVIVALS_MAX: usize = 5;
/// How long a server that has lost a process may take until it answers again.
const RECOVERY_BOUND: Duration = Duration::from_secs(30);
/// How often it is asked.
const RECOVERY_INTERVAL: Duration = Duration::from_millis(100);

/// What it all runs on, with this server.
///
/// # Errors
/// If the server doesn't tell its version, or there is no gatekeeper.
pub(super) fn machine(server: &DatabaseServer) -> Result<Machine, Error> {
    let number = server.version()?;
    Ok(Machine::here(
        (server.database(), number),
        pgbouncer::installed(),
        pgpool::installed(),
        gatekeeper::identity()?,
    ))
}

/// A private server, and what is asked of it.
pub struct Statements {
    plan: Plan,
    form: Form,
    clients: Arc<Mix>,
    bystanders: Option<Arc<Mix>>,
    /// The server's processor, if it has one of its own.
    server_cpu: Option<usize>,
    admin: Client,
    // Before the groups that it is in: those can only be removed when the server has ended.
    server: DatabaseServer,
    confinement: Option<Confinement>,
}

impl Statements {
    /// Starts the server and fills its tables.
    ///
    /// # Errors
    /// If something doesn't start, a statement of the plan is wrong, or its memory can't be bounded here.
    pub async fn set_up(plan: &Plan, form: &Form, server_cpu: Option<usize>) -> Result<Self, Error> {
        let (database, options) = (plan.server.database, options(plan, form, server_cpu));
        let server = blocking(move || Ok(DatabaseServer::start(database, &options)?)).await?;
        let admin = Target::parse(&server.url())?.connect().await?;
        if plan.workload.tables == Tables::Shop {
            shop::create(&admin).await?;
        }
        for sql in &plan.workload.setup {
            shop::batch(&admin, &format!("setting up with `{sql}`"), sql).await?;
        }
        let shops = match plan.workload.tables {
            Tables::Shop => Some(shop::mix(database, shop::report_rows(&admin).await?)?),
            Tables::None => None,
        };
        let mix = |requests: &[Request]| mix(requests, shops.as_ref()).map(Arc::new);
        let confinement = confine(&server, &plan.server)?;
        Ok(Self {
            clients: mix(&plan.workload.request)?,
            bystanders: plan.workload.bystanders.as_ref().map(|others| mix(&others.request)).transpose()?,
            plan: plan.clone(),
            form: form.clone(),
            server_cpu,
            admin,
            server,
            confinement,
        })
    }

    /// What it all runs on.
    ///
    /// # Errors
    /// If the server doesn't tell its version, or there is no gatekeeper.
    pub fn machine(&self) -> Result<Machine, Error> {
        machine(&self.server)
    }

    /// Brings the server to rest, alive, with the tables in order. What the last cell left behind may still
    /// run, and bring the server down meanwhile.
    async fn put_in_order(&mut self) -> Result<(), Error> {
        for _ in 0..REVIVALS_MAX {
            match self.end_and_reset().await {
                Err(_) if !self.answers().await => self.revive().await?,
                ended => return ended,
            }
        }
        self.end_and_reset().await
    }

    async fn answers(&self) -> bool {
        shop::batch(&self.admin, "asking whether it answers", "SELECT 1").await.is_ok()
    }

    async fn end_and_reset(&self) -> Result<(), Error> {
        // Sessions that the last cell left behind: clients that gave up are gone, but their transactions may
        // still wait.
        shop::end_others(&self.admin).await?;
        shop::come_to_rest(&self.admin).await?;
        if self.plan.workload.tables == Tables::Shop {
            shop::restore(&self.admin).await?;
        }
        for sql in &self.plan.workload.reset {
            shop::batch(&self.admin, &format!("resetting with `{sql}`"), sql).await?;
        }
        Ok(())
    }

    /// Waits until a server that has lost a process answers again; one that has ended is started anew.
    async fn revive(&mut self) -> Result<(), Error> {
        let target = Target::parse(&self.server.url())?;
        let deadline = Instant::now() + RECOVERY_BOUND;
        loop {
            if let Ok(admin) = target.connect().await {
                self.admin = admin;
                return Ok(());
            }
            if Instant::now() >= deadline || self.server.has_ended() {
                break;
            }
            tokio::time::sleep(RECOVERY_INTERVAL).await;
        }
        self.server.restart()?;
        // The new one isn't in the old one's groups, which are empty now.
        self.confinement = None;
        self.confinement = confine(&self.server, &self.plan.server)?;
        self.admin = target.connect().await?;
        Ok(())
    }

    /// Asks what must hold after a cell.
    async fn check(&self, cell: &Cell) -> Result<(), Error> {
        for check in &self.plan.workload.check {
            let asked = self.admin.column(&check.sql).await;
            let rows = asked.map_err(Error::database(format!("asking whether {}", check.says)))?;
            // PostgreSQL's word for it, or MariaDB's.
            if !matches!(rows.first().map(String::as_str), Some("t" | "1")) {
                let place = format!("{} {}", cell.variant, cell.load.phrase());
                return Err(Error::Experiment(format!("{place}: it doesn't hold that {}", check.says)));
            }
        }
        Ok(())
    }

    fn groups(&self, target: &Target, variant: &str, clients: usize) -> Vec<Group> {
        let workload = &self.plan.workload;
        let mix = Arc::clone(&self.clients);
        let own = Group { target: target.clone(), mix, clients, think: workload.think.0 };
        let there = workload.bystanders.iter().filter(|others| others.are_beside(variant));
        let others = there.zip(&self.bystanders).map(|(others, mix)| group(others, target, mix));
        std::iter::once(own).chain(others).collect()
    }

    /// Measures within the window what everybody but the client uses.
    fn meters(&self, counted: Instant, window: Duration, control: &Control) -> JoinHandle<Used> {
        let whose = Whose {
            server: self.server.pid(),
            server_cpu: self.server_cpu,
            proxy: control.pid(),
            admin_port: control.admin_port(),
            clients: Vec::new(),
            looks: Looks::None,
            with_anatomy: self.plan.shows(Show::Anatomy),
        };
        whose.measure(counted, window)
    }

    async fn closed(
        &self,
        (control, variant): (&Control, &str),
        clients: usize,
        seed: u64,
    ) -> Result<Measured, Error> {
        let workload = &self.plan.workload;
        let crowd = Crowd {
            groups: self.groups(&control.target, variant, clients),
            connecting: match control.connect(workload.connect) {
                Connect::Once => Connecting::Once,
                Connect::ForEachRequest => Connecting::ForEach,
            },
            timeout: workload.timeout.0,
            warm_up: self.form.warm_up.0,
            window: self.form.window.0,
            drain: self.form.drain.0,
            seed,
        };
        let mut meters = None;
        let outcome = crowd.run(|counted| meters = Some(self.meters(counted, crowd.window, control))).await?;
        let figures = figures(&outcome, &crowd);
        let used = used(meters).await?;
        Ok(Measured {
            clients: figures.first().copied().unwrap_or_default(),
            bystanders: figures.get(1).copied(),
            client_cpu: outcome.client_cpu,
            late_seconds: outcome.lag_p99.as_secs_f64(),
            first_failure: outcome.first_failure,
            ..used.measured()
        })
    }

    async fn open(&self, control: &Control, rate: f64, seed: u64) -> Result<Measured, Error> {
        let times = (self.form.warm_up.0, self.form.window.0);
        let run = OpenRun {
            mix: Arc::clone(&self.clients),
            schedule: Arc::new(Schedule::poisson(&self.clients, rate, times.0 + times.1, seed)?),
            timeout: self.plan.workload.timeout.0,
        };
        let pool = ConnectionPool::open(control.target.clone(), control.open_connections()).await?;
        let meters = self.meters(Instant::now() + times.0, times.1, control);
        let outcome = run.run(&pool).await?;
        let used = used(Some(meters)).await?;
        let dues = run.schedule.arrivals().iter().map(|arrival| arrival.due);
        let requests = &self.plan.workload.request;
        let is_short = |record: &&Record| requests[usize::from(record.request_type)].short;
        let short: Vec<Record> = outcome.records.iter().filter(is_short).copied().collect();
        Ok(Measured {
            clients: Figures::of(&outcome.records, times, run.timeout, None),
            short: (!short.is_empty()).then(|| Figures::of(&short, times, run.timeout, None)),
            moments: moments(&outcome.records, times.0 + times.1, run.timeout),
            client_queue_seconds: queued_in_client(dues.zip(outcome.waits.iter().copied()), times),
            client_cpu: outcome.client_cpu,
            late_seconds: outcome.lag_p99.as_secs_f64(),
            rate: Some(rate),
            first_failure: outcome.first_failure,
            ..used.measured()
        })
    }
}

impl Laboratory for Statements {
    async fn measure(
        &mut self,
        cell: &Cell,
        best: Option<u32>,
        rate: Option<f64>,
    ) -> Result<Measured, Error> {
        self.put_in_order().await?;
        let killed = self.confinement.as_ref().map_or(0, Confinement::kills);
        let clients = match cell.load {
            Load::Clients(clients) => {
                clients + self.plan.workload.bystanders.as_ref().map_or(0, |others| others.clients)
            }
            _ => super::plan::OPEN_PROXIED,
        };
        // Starting a proxy takes a tenth of a second; there is nothing else to do meanwhile.
        let control = Control::open(&self.plan, &cell.variant, best, clients, &self.server)?;
        let seed = u64::from(cell.repetition) << 32;
        let measured = match cell.load {
            Load::Clients(clients) => self.closed((&control, &cell.variant), clients, seed).await,
            Load::Overload(factor) => {
                let rate = rate.ok_or_else(|| Error::Experiment("nothing was calibrated".to_owned()))?;
                self.open(&control, rate * factor, seed).await
            }
            Load::Busy(_) | Load::Schedule | Load::Phase(_) => {
                Err(Error::Experiment("this load is for the browsers of a site".to_owned()))
            }
        };
        let measured = measured.map_err(|error| {
            let (log, server) = (control.log_tail(), self.server.log_tail());
            Error::Experiment(format!("{}: {error}\n{log}\nthe server's log:\n{server}", cell.variant))
        })?;
        if let Some(said) = control.ineffective() {
            return Err(Error::Experiment(format!("{}: its gate said: {said}", cell.variant)));
        }
        drop(control);
        let kills = self.confinement.as_ref().map_or(0, Confinement::kills).saturating_sub(killed);
        // A postmaster that loses a process ends all the others, and with them our own connection.
        let alive = kills == 0 && !self.admin.is_closed();
        if alive {
            self.check(cell).await?;
        }
        let client_processors = allowed_cpus().len();
        Ok(Measured { kills, alive, pool: best, client_processors, ..measured })
    }

    fn adopt(&mut self, plan: &Plan, form: &Form) {
        (self.plan, self.form) = (plan.clone(), form.clone());
    }
}

/// Bystanders, as clients of whatever stands at the target.
pub(super) fn group(others: &Bystanders, target: &Target, mix: &Arc<Mix>) -> Group {
    let target = others.application.as_deref().map_or_else(|| target.clone(), |name| target.of(name));
    Group { target, mix: Arc::clone(mix), clients: others.clients, think: others.think.0 }
}

/// What each group of a crowd met.
pub(super) fn figures(outcome: &CrowdOutcome, crowd: &Crowd) -> Vec<Figures> {
    let of = |(served, group): (&Served, &Group)| {
        let population = Population { clients: group.clients, think: group.think };
        Figures::of(&served.records, (crowd.warm_up, crowd.window), crowd.timeout, Some(population))
    };
    outcome.groups.iter().zip(&crowd.groups).map(of).collect()
}

/// Bounds what a server may use, once its tables are there.
///
/// # Errors
/// If the plan bounds it, and that can't be done here.
pub(super) fn confine(server: &DatabaseServer, bounds: &Server) -> Result<Option<Confinement>, Error> {
    let processor = bounds.processors.map(|part| Share { part, period: SERVER_PERIOD });
    let bounds = Bounds { memory: bounds.memory.map(|most| most.0), processor };
    Ok(Confinement::hold(&server.processes(), &bounds)?)
}

/// The server of a plan, for the connections of its own clients.
pub(super) fn options(plan: &Plan, form: &Form, cpu: Option<usize>) -> PrivateServerOptions {
    let others = plan.workload.bystanders.as_ref().map_or(0, |others| others.clients);
    let own = || form.clients.iter().copied().max().unwrap_or(0);
    let closed = plan.workload.site.as_ref().map_or_else(own, |site| site.connections as usize);
    let open = if form.overload.is_empty() { 0 } else { super::plan::OPEN_DIRECT };
    let connections = closed.max(open) + others + SPARE_CONNECTIONS;
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let settings = shop::SERVER_SETTINGS.into_iter().chain([NOTICES]).map(own);
    let environment = if plan.server.memory.is_some() { &ENVIRONMENT[..] } else { &[] };
    PrivateServerOptions {
        database: DATABASE,
        durability: Durability::Durable,
        max_connections: u32::try_from(connections).unwrap_or(u32::MAX),
        cpu,
        // Hundreds of logins with password checks for each cell would take longer than the cell.
        authentication: Authentication::Trust,
        settings: settings
            .chain(plan.server.settings.iter().map(|(name, value)| (name.clone(), value.clone())))
            .collect(),
        environment: environment.iter().copied().map(own).collect(),
        ..PrivateServerOptions::default()
    }
}

/// Request types of a plan; those without statements are the shop's.
pub(super) fn mix(requests: &[Request], shops: Option<&Mix>) -> Result<Mix, Error> {
    let types = requests.iter().map(|request| {
        let found = shops
            .filter(|_| request.statements.is_empty())
            .and_then(|mix| mix.types().iter().find(|known| known.name == request.name));
        if let Some(known) = found {
            return Ok(known.clone().weighing(request.weight).retrying(&request.retry));
        }
        let draws: Vec<Draw> = request.draw.iter().map(|drawn| drawn.draw).collect();
        let statements: Vec<&str> = request.statements.iter().map(String::as_str).collect();
        let unit = match request.unit {
            RequestUnit::Statements => Unit::Statements,
            RequestUnit::Transaction => Unit::Transaction,
            RequestUnit::Serializable => Unit::Serializable,
        };
        Ok(RequestType::new(&request.name, request.weight, unit, &draws, &statements)?
            .retrying(&request.retry))
    });
    Mix::new(types.collect::<Result<_, Error>>()?)
}
