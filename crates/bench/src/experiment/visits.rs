//! The laboratory of experiments whose load is visits: the bookstore's site over a private server, and
//! emulated browsers.
//!
//! Site and browsers are processes of the `bookstore` binary, on the client's processor; what is
//! compared stands where the plan says (`site`). After each cell, or after the last, the shop's books must
//! balance (`bookstore check`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::confinement::Confinement;
use testbed::database::DatabaseServer;
use testbed::process::{self, allowed_cpus, find_binary};

use super::cell::{Cell, ErrandFigures, Measured};
use super::laboratory::{self, confine, machine, options};
use super::learned::Looks;
use super::machine::Machine;
use super::meter::{Whose, used};
use super::plan::{Audit, Form, Load, Plan, Show, Site};
use super::runner::Laboratory;
use super::schedule;
use super::site::{KeptOpen, OpenSite};
use super::told::Told;
use crate::blocking::blocking;
use crate::load::{self, Client, Connecting, Target};
use crate::{Error, shop};

/// The environment variable that names the bookstore's binary.
const BINARY_VARIABLE: &str = "BOOKSTORE_BIN";
/// How long browsers may take to end when they are asked to.
const STOP_BOUND: Duration = Duration::from_secs(10);
/// How much longer than its cell a crowd of browsers may take.
const BROWSE_BOUND: Duration = Duration::from_secs(120);
/// How long visits without thinking are on average, in seconds.
const ALONE_VISIT: f64 = 2.5;
/// The longest visit, in mean ones, as in the specification (TPC-W 1.8, clause 6.1.9).
const VISIT_CAP: u32 = 4;
/// Exit statuses of `bookstore browse` that say something of the site or of itself, and leave figures.
/// (Flags that it doesn't know end it with 2, too, and leave none.)
const TOLD: [i32; 3] = [0, 2, 3];

/// A site, and its visitors.
pub struct Visits {
    plan: Plan,
    form: Form,
    site: Site,
    bookstore: PathBuf,
    server_cpu: Option<usize>,
    kept: KeptOpen,
    admin: Client,
    // Before the groups that it is in: those can only be removed when the server has ended.
    server: DatabaseServer,
    _confinement: Option<Confinement>,
    directory: TempDir,
}

/// The browsers that visit the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowd {
    /// Always so many.
    Steady(usize),
    /// By the form's schedule.
    Scheduled,
    /// A single visitor who doesn't think.
    Alone,
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
        let (database, options) = (plan.server.database, options(plan, form, server_cpu));
        let server = blocking(move || Ok(DatabaseServer::start(database, &options)?)).await?;
        let mut fill = Command::new(&bookstore);
        fill.args(["populate", "--no-images", "--quiet", "--database"]).arg(server.url());
        let browsers = form.filled_for.unwrap_or(site.browsers);
        fill.args(["--browsers", &browsers.to_string(), "--items", &site.items.to_string()]);
        blocking(move || succeed(&mut fill, "bookstore populate")).await?;
        let admin = Target::parse(&server.url())?.connect().await?;
        for sql in &plan.workload.setup {
            shop::batch(&admin, &format!("setting up with `{sql}`"), sql).await?;
        }
        let directory = tempfile::Builder::new()
            .prefix("visits-")
            .tempdir()
            .map_err(Error::io("creating a temporary directory"))?;
        let (plan, form, site) = (plan.clone(), form.clone(), site.clone());
        let _confinement = confine(&server, &plan.server)?;
        let kept = KeptOpen::default();
        Ok(Self { plan, form, site, bookstore, server_cpu, kept, admin, server, _confinement, directory })
    }

    /// What it all runs on.
    ///
    /// # Errors
    /// If the server doesn't tell its version, or there is no gatekeeper.
    pub fn machine(&self) -> Result<Machine, Error> {
        machine(&self.server)
    }

    /// The crowd of browsers, started.
    fn browse(&self, site: u16, crowd: Crowd, seed: u64, told: &Path) -> Result<Child, Error> {
        let millis = |time: Duration| format!("{}ms", time.as_millis());
        let mut command = Command::new(&self.bookstore);
        command.args(["browse", "--allow-errors", "--site", &format!("http://127.0.0.1:{site}")]);
        command.args(["--mix", &self.site.mix, "--seed", &seed.to_string()]);
        command.args(["--think-scale", &self.site.think_scale.to_string()]);
        command.args(["--timeout", &millis(self.plan.workload.timeout.0)]);
        let (warm_up, window) = (millis(self.form.warm_up.0), millis(self.form.window.0));
        match crowd {
            Crowd::Steady(browsers) => {
                command.args(["--browsers", &browsers.to_string()]);
                command.args(["--warm-up", &warm_up, "--duration", &window]);
            }
            Crowd::Scheduled => {
                let path = self.directory.path().join("schedule.toml");
                let text = schedule::file(&self.form.schedule, &self.site.mix);
                fs::write(&path, text).map_err(Error::io("writing the browsers' schedule"))?;
                command.arg("--schedule").arg(path).args(["--keep-mix", "--warm-up", "0s"]);
            }
            Crowd::Alone => {
                command.args(["--browsers", "1", "--think-mean", "0s", "--think-cap", "0s"]);
                command.args(["--warm-up", &warm_up, "--duration", &window]);
            }
        }
        if let Some(mean) = visit_lasts(&self.site, crowd) {
            let cap = mean.saturating_mul(VISIT_CAP);
            command.args(["--session-mean", &millis(mean), "--session-cap", &millis(cap)]);
        }
        command.arg("--json").arg(told);
        let log = File::create(told.with_extension("log")).map_err(Error::io("writing the browsers' log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(Error::io("starting the browsers"))
    }

    /// Those who use the database beside the site, for as long as a crowd of browsers that has come.
    fn others(
        &self,
        site: &OpenSite,
        variant: &str,
        crowd: Crowd,
        seed: u64,
    ) -> Result<Option<load::Crowd>, Error> {
        let there = self.plan.workload.bystanders.as_ref().filter(|others| others.are_beside(variant));
        let (Some(others), Some(target), Crowd::Steady(_)) = (there, site.database(), crowd) else {
            return Ok(None);
        };
        let mix = Arc::new(laboratory::mix(&others.request, None)?);
        Ok(Some(load::Crowd {
            groups: vec![laboratory::group(others, target, &mix)],
            connecting: Connecting::Once,
            timeout: self.plan.workload.timeout.0,
            warm_up: self.form.warm_up.0,
            window: self.form.window.0,
            drain: self.form.drain.0,
            seed,
        }))
    }

    /// The errand of those, and how many requests it has.
    fn errand(&self, site: &OpenSite, variant: &str) -> Result<Option<(load::Group, usize)>, Error> {
        let others = self.plan.workload.bystanders.as_ref();
        let asked = others.and_then(|others| Some((others, others.errand_beside(variant)?)));
        let (Some((others, requests)), Some(target)) = (asked, site.database()) else { return Ok(None) };
        let mix = Arc::new(laboratory::mix(&others.request, None)?);
        Ok(Some((laboratory::group(others, target, &mix), requests)))
    }

    async fn visited(
        &self,
        (site, variant): (&OpenSite, &str),
        crowd: Crowd,
        (seed, alone): (u64, Option<Duration>),
    ) -> Result<Measured, Error> {
        let told = self.directory.path().join("visits.json");
        // What the cell before left there isn't to be taken for this one's.
        remove(&told)?;
        let begin = Instant::now();
        let mut browsers = self.browse(site.port(), crowd, seed, &told)?;
        let whose = Whose {
            server: self.server.pid(),
            server_cpu: self.server_cpu,
            proxy: site.proxy(),
            admin_port: site.admin_port(),
            clients: vec![site.pid(), browsers.id()],
            with_anatomy: self.plan.shows(Show::Anatomy),
            looks: if self.plan.shows(Show::Convergence) { Looks::AllAlong } else { Looks::Twice },
        };
        let (warm_up, window) = match crowd {
            Crowd::Scheduled => (Duration::ZERO, schedule::lasts(&self.form.schedule)),
            Crowd::Steady(_) | Crowd::Alone => (self.form.warm_up.0, self.form.window.0),
        };
        let meters = whose.measure(begin + warm_up, window);
        let bound = warm_up + window + self.plan.workload.timeout.0 + BROWSE_BOUND;
        let others = self.others(site, variant, crowd, seed)?;
        let beside = async {
            match &others {
                Some(others) => others.run(|_| ()).await.map(|outcome| Some((outcome, others))),
                None => Ok(None),
            }
        };
        let errand = async {
            let Some((group, requests)) = self.errand(site, variant)? else { return Ok(None) };
            tokio::time::sleep_until((begin + warm_up).into()).await;
            tokio::time::timeout(window, load::run_errand(&group, requests)).await.ok().transpose()
        };
        let ended = blocking(move || {
            let status = process::wait_for_exit(&mut browsers, bound);
            if status.is_none() {
                process::end(&mut browsers, &[(Signal::TERM, STOP_BOUND)]);
            }
            Ok(status.and_then(|status| status.code()))
        });
        let (ended, beside, errand) = tokio::join!(ended, beside, errand);
        let (ended, beside, errand) = (ended?, beside?, errand?);
        let used = used(Some(meters)).await?;
        if !has_told(ended, &told) {
            let output = process::log_tail(&told.with_extension("log"));
            return Err(testbed::Error::Program { program: "bookstore browse".to_owned(), output }.into());
        }
        let text = fs::read_to_string(&told).map_err(Error::io("reading what the browsers tell"))?;
        let told: Told = serde_json::from_str(&text)
            .map_err(|error| Error::Experiment(format!("what the browsers tell can't be read: {error}")))?;
        let mut measured = match crowd {
            Crowd::Scheduled => told.scheduled(used.measured(), self.site.place),
            Crowd::Steady(_) | Crowd::Alone => told.beside(used.measured(), self.site.place),
        };
        measured.errand = alone.map(|alone| ErrandFigures {
            alone_seconds: alone.as_secs_f64(),
            beside_seconds: errand.map(|took| took.as_secs_f64()),
        });
        let Some((outcome, others)) = beside else { return Ok(measured) };
        Ok(Measured {
            bystanders: laboratory::figures(&outcome, others).first().copied(),
            client_cpu: measured.client_cpu + outcome.client_cpu,
            first_failure: outcome.first_failure,
            ..measured
        })
    }

    async fn put_in_order(&self) -> Result<(), Error> {
        shop::come_to_rest(&self.admin).await?;
        for sql in &self.plan.workload.reset {
            shop::batch(&self.admin, &format!("resetting with `{sql}`"), sql).await?;
        }
        shop::settle(&self.admin).await
    }

    fn open(&self, variant: &str, best: Option<u32>) -> Result<OpenSite, Error> {
        let places = (self.bookstore.as_path(), self.directory.path());
        OpenSite::open((&self.plan, &self.site), (variant, best), &self.server, places)
    }

    /// A site for a variant: one that stayed open, or a new one. One that is to stay open is visited once
    /// before anything counts, so that its gate has learned.
    async fn site(
        &mut self,
        (variant, best): (&str, Option<u32>),
        (crowd, seed): (Crowd, u64),
    ) -> Result<OpenSite, Error> {
        if let Some(site) = self.kept.take(&self.plan, variant, best) {
            return Ok(site);
        }
        let site = self.open(variant, best)?;
        if self.form.kept_open {
            self.visited((&site, variant), crowd, (seed, None)).await?;
            self.put_in_order().await?;
        }
        Ok(site)
    }

    /// Opens the site for a variant, and lets the browsers come.
    async fn cell(
        &mut self,
        (variant, best): (&str, Option<u32>),
        crowd: Crowd,
        seed: u64,
    ) -> Result<Measured, Error> {
        self.put_in_order().await?;
        let mut site = self.site((variant, best), (crowd, seed)).await?;
        let mut alone = None;
        if let Some((group, requests)) = self.errand(&site, variant)? {
            alone = Some(load::run_errand(&group, requests).await?);
            if !self.form.kept_open {
                site.close().await?;
                site = self.open(variant, best)?;
            }
            self.put_in_order().await?;
        }
        let measured = self.visited((&site, variant), crowd, (seed, alone)).await;
        let measured = measured
            .map_err(|error| Error::Experiment(format!("{variant}: {error}\n{}", site.log_tail())))?;
        if let Some(said) = site.ineffective() {
            return Err(Error::Experiment(format!("{variant}: its gate said: {said}")));
        }
        if self.form.kept_open {
            self.kept.put(variant, site);
        } else {
            site.close().await?;
        }
        if self.site.audit == Audit::AfterEachCell {
            self.check().await?;
        }
        Ok(Measured { alive: true, pool: best, client_processors: allowed_cpus().len(), ..measured })
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
        let crowd = match cell.load {
            Load::Clients(browsers) => Crowd::Steady(browsers),
            Load::Schedule => Crowd::Scheduled,
            Load::Busy(_) | Load::Overload(_) | Load::Phase(_) => {
                return Err(Error::Experiment("a site is visited in a closed loop".to_owned()));
            }
        };
        self.cell((&cell.variant, best), crowd, 1 + u64::from(cell.repetition)).await
    }

    async fn alone(&mut self, variant: &str) -> Result<Option<Measured>, Error> {
        self.cell((variant, None), Crowd::Alone, 1).await.map(Some)
    }

    async fn finish(&mut self) -> Result<(), Error> {
        match self.site.audit {
            Audit::AfterEachCell => Ok(()),
            Audit::AtTheEnd => self.check().await,
        }
    }

    fn adopt(&mut self, plan: &Plan, form: &Form) {
        (self.plan, self.form) = (plan.clone(), form.clone());
    }
}

/// Whether browsers that ended so have left figures in this file.
fn has_told(status: Option<i32>, told: &Path) -> bool {
    status.is_some_and(|status| TOLD.contains(&status)) && told.is_file()
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Runs a command that must succeed.
fn succeed(command: &mut Command, program: &str) -> Result<(), Error> {
    let output = command.stdin(Stdio::null()).output().map_err(Error::io(format!("running {program}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(testbed::Error::Program {
        program: program.to_owned(),
        output: String::from_utf8_lossy(&text).into_owned(),
    }
    .into())
}

/// How long a visit lasts on average, before it is scaled; `None`: as long as the specification says.
fn visit_lasts(site: &Site, crowd: Crowd) -> Option<Duration> {
    match crowd {
        // About as many pages as those of a visitor who thinks: carts are as full.
        Crowd::Alone => {
            let lasts = Duration::try_from_secs_f64(ALONE_VISIT / site.think_scale);
            Some(lasts.unwrap_or(Duration::MAX))
        }
        Crowd::Steady(_) | Crowd::Scheduled => site.session_mean.map(|mean| mean.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::experiment::words::Time;

    #[test]
    fn figures_of_the_cell_before_are_not_taken_for_those_of_browsers_that_left_none() {
        let directory = tempfile::tempdir().unwrap();
        let told = directory.path().join("visits.json");
        remove(&told).unwrap();
        fs::write(&told, "{}").unwrap();
        assert!(has_told(Some(0), &told) && has_told(Some(3), &told));
        assert!(!has_told(Some(1), &told) && !has_told(None, &told));
        remove(&told).unwrap();
        // Flags that it doesn't know end it so.
        assert!(!has_told(Some(2), &told));
    }

    #[test]
    fn a_visit_lasts_as_long_as_the_plan_says_or_the_specification() {
        let site =
            json!({ "browsers": 10, "items": 100, "connections": 20, "mix": "shopping", "think_scale": 0.1 });
        let mut site: Site = serde_json::from_value(site).unwrap();
        assert_eq!(visit_lasts(&site, Crowd::Steady(10)), None);
        site.session_mean = Some(Time(Duration::from_secs(36_000)));
        assert_eq!(visit_lasts(&site, Crowd::Steady(10)), Some(Duration::from_secs(36_000)));
        assert_eq!(visit_lasts(&site, Crowd::Scheduled), Some(Duration::from_secs(36_000)));
        assert_eq!(visit_lasts(&site, Crowd::Alone), Some(Duration::from_secs(25)));
        site.think_scale = f64::MIN_POSITIVE;
        assert_eq!(visit_lasts(&site, Crowd::Alone), Some(Duration::MAX));
    }
}
