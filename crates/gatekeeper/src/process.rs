//! The running process: gates, admin listener, signals and commands, from the start to the end.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use config::World;
use parking_lot::Mutex;
use proxy::admin::{Admin, Timeline};
use proxy::command::{Command, Commands};
use proxy::shutdown::{Phase, Shutdown, Trigger, shutdown};
use proxy::trace::Recording;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Sleep, sleep};

use crate::activation::Activated;
use crate::assemble::{Gates, Running, Start};
use crate::handover::{Estate, Inheritance, Program, upgrade};
use crate::log::SetLevel;
use crate::manager::Watchdog;
use crate::reload::Configuration;
use crate::signals::{Asked, Signals};
use crate::state::{self, StateFile};
use crate::{Failure, manager, memory};

mod admin;

/// How many commands of operators may wait for the process; one more waits where it was given.
const COMMANDS_MAX: usize = 8;

/// Where the listening sockets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// The service manager has opened them, or this process does.
    Opened,
    /// A gatekeeper that runs gives them, if one does.
    TakenOver,
}

/// Protects what the configuration says, until a signal, a command or an error ends it. `source`: the file
/// that it is read from again.
///
/// The first SIGTERM or SIGINT drains: no new clients, and transactions may end within `drain_timeout`. The
/// second cuts them off. SIGHUP reloads, SIGUSR2 upgrades.
pub(crate) async fn protect(
    (world, source): (World, Option<PathBuf>),
    (sockets, mut activated): (Sockets, Activated),
    (set_level, timeline): (SetLevel, Timeline),
) -> Result<(), Failure> {
    let signals =
        Signals::new().map_err(|error| Failure::Runtime(format!("cannot listen to signals: {error}")))?;
    let (trigger, phase) = shutdown();
    let (commands, asked) = mpsc::channel(COMMANDS_MAX);
    let admin = Admin::new(env!("CARGO_PKG_VERSION"));
    admin.show_timeline(timeline);
    admin.take_commands(commands.clone());
    admin.hand_over_with(phase.clone());
    proxy::memory::set_limit(memory::limit(&world));
    tokio::spawn(memory::give_back());
    let mut inheritance = match sockets {
        Sockets::Opened => None,
        Sockets::TakenOver => inherit(&world)?,
    };
    let listeners = admin::Listeners::open(&world, &admin, (inheritance.as_mut(), &mut activated)).await?;
    let start = Start {
        admin: &admin,
        phase: &phase,
        commands: &commands,
        inheritance: inheritance.as_mut(),
        activated: &mut activated,
    };
    let mut gates = Gates::start(&world, start).await?;
    activated.close();
    listeners.leave_to(&mut gates.estate);
    let serving = gates.serve();
    listeners.serve(&admin);
    admin.set_ready();
    if let Some(inheritance) = inheritance {
        admin.succeeds(inheritance.process());
        succeed(inheritance).await?;
    }
    manager::ready();
    tracing::info!("ready");
    let Gates { running, files, recordings, estate, .. } = gates;
    let process = Process {
        configuration: Configuration { world, source, set_level, admin: Arc::clone(&admin) },
        running,
        files: Arc::new(Mutex::new(files)),
        recordings,
        estate: Arc::new(estate),
        ending: Ending { admin, trigger, phase },
        commands,
        starting: Arc::default(),
    };
    process.run(serving, signals, asked).await
}

/// Asks the gatekeeper that runs for what it has.
fn inherit(world: &World) -> Result<Option<Inheritance>, Failure> {
    let Some(socket) = &world.admin.socket else {
        return Err(Failure::Usage(
            "--takeover takes the sockets over on the Unix socket of the admin listener, and the configuration \
             has none; set [admin] socket = \"/run/gatekeeper/admin.sock\""
                .to_owned(),
        ));
    };
    let inheritance = Inheritance::ask(socket).map_err(|why| {
        Failure::Runtime(format!("nothing was taken over, and the running gatekeeper goes on: {why}"))
    })?;
    match &inheritance {
        Some(inheritance) => {
            // Their files are the other process's until it accepts no more.
            proxy::leave_socket_files();
            tracing::info!(from = inheritance.from(), "takes the sockets over");
        }
        None => tracing::info!(socket = %socket.display(), "no gatekeeper runs there: starting as usual"),
    }
    Ok(inheritance)
}

/// Tells the gatekeeper before that this one serves.
async fn succeed(inheritance: Inheritance) -> Result<(), Failure> {
    let accepted = spawn_blocking(|| inheritance.accept()).await;
    accepted.unwrap_or_else(|error| Err(error.to_string())).map_err(Failure::Runtime)?;
    proxy::own_socket_files();
    Ok(())
}

/// All that runs.
struct Process {
    configuration: Configuration,
    running: Vec<Running>,
    files: Arc<Mutex<Vec<StateFile>>>,
    recordings: Vec<Recording>,
    estate: Arc<Estate>,
    ending: Ending,
    commands: Commands,
    /// Held while a successor may still be a child of this process.
    starting: Arc<tokio::sync::Mutex<()>>,
}

impl Process {
    async fn run(
        mut self,
        mut gates: JoinSet<Result<(), String>>,
        mut signals: Signals,
        mut asked: mpsc::Receiver<Command>,
    ) -> Result<(), Failure> {
        let mut result = Ok(());
        let files = Arc::clone(&self.files);
        let keeping = state::keep(&files);
        tokio::pin!(keeping);
        let (mut watchdog, mut patience) = (Watchdog::new(), Patience::default());
        loop {
            tokio::select! {
                ended = gates.join_next() => match ended {
                    None => break,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => result = self.ending.stop_all(error),
                    Some(Err(error)) => result = self.ending.stop_all(error.to_string()),
                },
                asked = signals.next() => match asked {
                    Asked::End(name) => self.ending.go_on(name),
                    // What is wrong is in the log.
                    Asked::Reload => _ = self.configuration.reload(&self.running),
                    Asked::Upgrade => self.upgrade(|outcome| match outcome {
                        Ok(done) => tracing::info!("{done}"),
                        Err(why) => tracing::error!("{why}"),
                    }),
                },
                Some(command) = asked.recv() => match command {
                    Command::Reload(answer) => _ = answer.send(self.configuration.reload(&self.running)),
                    Command::Shutdown => self.ending.drain("SHUTDOWN"),
                    Command::ShutdownNow => self.ending.abort("SHUTDOWN IMMEDIATE"),
                    Command::Upgrade(answer) => self.upgrade(|outcome| _ = answer.send(outcome)),
                    Command::Offer(stream) => self.estate.offer(stream, &self.commands),
                    Command::HandOver(pid, answer) => {
                        drop(self.starting.lock().await);
                        let done = self.hand_over(pid);
                        if done.is_ok() {
                            // The successor is the one that is to show life.
                            watchdog = Watchdog::none();
                            patience = Patience::of(self.configuration.world.handover_timeout);
                        }
                        // A thread waits for it.
                        let _ = answer.send(done);
                    }
                },
                () = &mut keeping => {}
                () = watchdog.beat() => {}
                () = patience.end() => {
                    patience = Patience::default();
                    self.ending.drain("handover_timeout");
                }
            }
        }
        state::write_all(&files).await;
        if self.ending.phase.phase() == Phase::HandedOver {
            self.ending.admin.answered().await;
        }
        // All that happened has happened: what is still under way to the file gets there.
        self.recordings.into_iter().for_each(Recording::finish);
        if result.is_ok() {
            tracing::info!("ended");
        }
        result
    }

    /// Starts the program that is installed now, and tells what has become of it.
    fn upgrade(&self, tell: impl FnOnce(Result<String, String>) + Send + 'static) {
        let (program, phase) = (Program::of_this_process(), self.ending.phase.clone());
        let (source, admin) = (self.configuration.source.clone(), &self.configuration.world.admin);
        if admin.socket.is_none() {
            return tell(Err(
                "an upgrade takes the Unix socket of the admin listener ([admin] socket), which \
                             this configuration doesn't have"
                    .to_owned(),
            ));
        }
        let starting = Arc::clone(&self.starting);
        tokio::spawn(async move { tell(upgrade(program, source, phase, starting).await) });
    }

    /// Leaves new clients, and what is written down, to the successor.
    fn hand_over(&mut self, pid: u32) -> Result<(), String> {
        if self.ending.phase.phase() != Phase::Running {
            return Err("this process ends already".to_owned());
        }
        proxy::leave_socket_files();
        manager::is_now(pid);
        self.ending.trigger.hand_over();
        self.ending.admin.set_draining();
        let (files, recordings) = (Arc::clone(&self.files), std::mem::take(&mut self.recordings));
        // Where waiting for a disk holds nobody up.
        spawn_blocking(move || {
            files.lock().clear();
            recordings.into_iter().for_each(Recording::finish);
        });
        tracing::info!(
            successor = pid,
            handover_timeout_seconds = self.configuration.world.handover_timeout.as_secs_f64(),
            "handed over: the successor accepts clients, and this process ends once its own have left"
        );
        Ok(())
    }
}

/// How long clients are still served that a successor hasn't got; without one, for ever.
#[derive(Default)]
struct Patience(Option<Pin<Box<Sleep>>>);

impl Patience {
    fn of(time: Duration) -> Self {
        Self(Some(Box::pin(sleep(time))))
    }

    /// Waits for its end. Cancel-safe.
    async fn end(&mut self) {
        match &mut self.0 {
            Some(sleep) => sleep.await,
            None => std::future::pending().await,
        }
    }
}

/// The end of the process, step by step.
struct Ending {
    admin: Arc<Admin>,
    trigger: Trigger,
    phase: Shutdown,
}

impl Ending {
    /// The next step.
    fn go_on(&self, why: &str) {
        if self.phase.phase() < Phase::Draining { self.drain(why) } else { self.abort(why) }
    }

    fn drain(&self, why: &str) {
        self.admin.set_draining();
        self.tell_manager();
        tracing::info!(signal = why, "draining: no new clients; a second signal ends at once");
        self.trigger.drain();
    }

    fn abort(&self, why: &str) {
        self.admin.set_draining();
        self.tell_manager();
        tracing::warn!(signal = why, "ending at once");
        self.trigger.abort();
    }

    /// A service manager hears of the end of what serves.
    fn tell_manager(&self) {
        if self.phase.phase() == Phase::Running {
            manager::stopping();
        }
    }

    /// One gate failed, so all end: half of what was asked for isn't what was asked for.
    fn stop_all(&self, error: String) -> Result<(), Failure> {
        self.trigger.abort();
        Err(Failure::Runtime(error))
    }
}
