//! The bookstore's process, and the program that is compared: between the site and its database, or between
//! its visitors and the site.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use testbed::database::DatabaseServer;
use testbed::process::{self, free_port};

use super::control::{self, Control};
use super::plan::{Place, Plan, Site};
use crate::Error;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::load::Target;

/// How long the site may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP_BOUND: Duration = Duration::from_secs(10);

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

/// A site that is open for one cell. Dropping it ends the gate before the site, then the site, then what
/// stands behind the site.
pub(super) struct OpenSite {
    before: Option<Gatekeeper>,
    serving: Serving,
    behind: Option<Control>,
}

impl OpenSite {
    /// Opens a site with a variant in its place. `best` is the pool of a variant that has the best; the
    /// site's log goes into the directory. Blocks.
    ///
    /// # Errors
    /// If something doesn't start, or the variant has no business there.
    pub(super) fn open(
        (plan, site): (&Plan, &Site),
        (variant, best): (&str, Option<u32>),
        server: &DatabaseServer,
        (bookstore, directory): (&Path, &Path),
    ) -> Result<Self, Error> {
        let serve = |database: u16, connections: u32, prepares: bool| {
            let own = [("--connections", connections.to_string()), ("--prepared-statements", on(prepares))];
            serve(site, &server.url_through(database), own, bookstore, directory)
        };
        match site.place {
            Place::Database => {
                let behind = Control::open(plan, variant, best, site.connections as usize, server)?;
                // More would wait for ever where each has a session of its own: then the site's own pool is
                // what waits.
                let connections = behind.sessions.unwrap_or(u32::MAX).min(site.connections);
                let serving = serve(behind.port, connections, behind.follows_prepared())?;
                Ok(Self { before: None, serving, behind: Some(behind) })
            }
            Place::Site => {
                let serving = serve(server.port(), site.connections, true)?;
                let before = control::before_site(plan, variant, best, serving.port)?;
                Ok(Self { before, serving, behind: None })
            }
        }
    }

    /// Where its visitors go, on 127.0.0.1.
    pub(super) fn port(&self) -> u16 {
        self.before.as_ref().map_or(self.serving.port, Gatekeeper::port)
    }

    /// The site's own process.
    pub(super) fn pid(&self) -> u32 {
        self.serving.child.id()
    }

    /// Where others than the site connect to, for the site's database; `None` if nothing stands there.
    pub(super) fn database(&self) -> Option<&Target> {
        self.behind.as_ref().map(|control| &control.target)
    }

    /// The process of the program that is compared.
    pub(super) fn proxy(&self) -> Option<u32> {
        let before = self.before.as_ref().map(Gatekeeper::pid);
        before.or_else(|| self.behind.as_ref().and_then(Control::pid))
    }

    /// Where a gate tells what it has found.
    pub(super) fn admin_port(&self) -> Option<u16> {
        let before = self.before.as_ref().map(Gatekeeper::admin_port);
        before.or_else(|| self.behind.as_ref().and_then(Control::admin_port))
    }

    /// What the gate said of a key that has no effect.
    pub(super) fn ineffective(&self) -> Option<String> {
        let before = self.before.as_ref().and_then(Gatekeeper::ineffective);
        before.or_else(|| self.behind.as_ref().and_then(Control::ineffective))
    }

    /// Ends all.
    ///
    /// # Errors
    /// If the program is ending.
    pub(super) async fn close(self) -> Result<(), Error> {
        blocking(move || {
            drop(self);
            Ok(())
        })
        .await
    }

    /// What the gate wrote last, for an error.
    pub(super) fn log_tail(&self) -> String {
        let before = self.before.as_ref().map(Gatekeeper::log_tail);
        before.or_else(|| self.behind.as_ref().map(Control::log_tail)).unwrap_or_default()
    }
}

/// Sites that stay open from cell to cell. Variants with the same keys have one together.
#[derive(Default)]
pub(super) struct KeptOpen(Vec<(String, OpenSite)>);

impl KeptOpen {
    /// The site that stayed open for a variant, or for one with the same keys.
    pub(super) fn take(&mut self, plan: &Plan, variant: &str, best: Option<u32>) -> Option<OpenSite> {
        let at = self.0.iter().position(|(known, _)| control::are_alike(plan, known, variant, best))?;
        Some(self.0.swap_remove(at).1)
    }

    /// Lets a variant's site stay open.
    pub(super) fn put(&mut self, variant: &str, site: OpenSite) {
        self.0.push((variant.to_owned(), site));
    }
}

fn on(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

/// Starts the site with its database at this address, and options that the variant asks for.
fn serve<const N: usize>(
    site: &Site,
    database: &str,
    own: [(&str, String); N],
    bookstore: &Path,
    directory: &Path,
) -> Result<Serving, Error> {
    let (port, log) = (free_port()?, directory.join("site.log"));
    let file = File::create(&log).map_err(Error::io("writing the site's log"))?;
    let mut command = Command::new(bookstore);
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--database", database]);
    command.args(own.iter().flat_map(|(key, value)| [*key, value])).args(&site.serve);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let child = command.spawn().map_err(Error::io("starting the site"))?;
    let mut serving = Serving { child, port, log };
    process::wait_until_ready(&mut serving.child, START_BOUND, || process::accepts(port)).map_err(
        |problem| {
            let log = process::log_tail(&serving.log);
            testbed::Error::NotReady { server: "the bookstore".to_owned(), problem, log }
        },
    )?;
    Ok(serving)
}
