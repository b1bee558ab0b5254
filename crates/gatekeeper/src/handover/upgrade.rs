//! The start of a successor by the running process: in its own control group, with its user, environment and
//! arguments, as a service manager wants it.
//!
//! Not as its child, though: a manager only sees the end of its own children, and would never start a
//! successor again that is killed while its predecessor lives. So a process in between starts it and ends at
//! once, and the manager gets the orphan. The predecessor sees the successor's end by a socket that is the
//! successor's standard input.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::{env, process};

use proxy::shutdown::{Phase, Shutdown};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long the successor's look at the configuration may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
const FLAG: &str = "--takeover";
/// The command of the process in between.
const START: &str = "start-successor";
/// The longest that it has to say, in bytes: a process id, or why there is none.
const SAID_BYTES_MAX: usize = 1024;

/// How this process was started.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    args: Vec<OsString>,
}

impl Program {
    /// The program of this process: by the path that it was called by, where another version may lie later.
    pub(crate) fn of_this_process() -> Self {
        let mut args = env::args_os();
        let called = args.next().map(PathBuf::from).filter(|path| path.components().count() > 1);
        let path = called.and_then(|path| std::path::absolute(path).ok()).or_else(|| env::current_exe().ok());
        let mut args: Vec<_> = args.collect();
        if !args.iter().any(|arg| arg == FLAG) {
            args.push(FLAG.into());
        }
        Self { path: path.unwrap_or_default(), args }
    }
}

/// Starts the program that lies there now. Returns once it serves, or why it doesn't; then nothing has
/// changed. `starting` is held as long as the successor may still be a child of this process.
pub(crate) async fn upgrade(
    program: Program,
    configuration: Option<PathBuf>,
    phase: Shutdown,
    starting: Arc<Mutex<()>>,
) -> Result<String, String> {
    if phase.phase() != Phase::Running {
        return Err("this process ends already: nothing is started".to_owned());
    }
    let shown = program.path.display();
    if let Some(file) = &configuration {
        check(&program.path, file).await?;
    }
    let held = starting.lock().await;
    let (mut successor, pid) = start(&program)
        .await
        .map_err(|error| format!("{shown} can't be started: {error}; nothing has changed"))?;
    drop(held);
    tracing::info!(program = %shown, pid, "a successor starts");
    tokio::select! {
        biased;
        () = phase.handed_over() => {
            Ok(format!("process {pid} accepts clients; process {} ends with its last one, or after handover_timeout",
                process::id()))
        }
        // It says nothing there, and closes it with its end.
        _ = successor.read_u8() => {
            Err(format!("{shown} has ended, its log says why; nothing has changed"))
        }
    }
}

/// The other end of the successor's standard input, and its process id.
async fn start(program: &Program) -> io::Result<(tokio::net::UnixStream, String)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut ours = tokio::net::UnixStream::from_std(ours)?;
    // This very program: where it was, another may lie now.
    let mut between = Command::new("/proc/self/exe");
    between.arg(START).arg(&program.path).args(&program.args).stdin(Stdio::from(OwnedFd::from(theirs)));
    // It names this process; the successor is to show life, too.
    between.env_remove("WATCHDOG_PID");
    let ended = between.status().await?;
    // It holds the other end.
    drop(between);
    let mut said = [0; SAID_BYTES_MAX];
    let length = ours.read(&mut said).await?;
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    if ended.success() { Ok((ours, said)) } else { Err(io::Error::other(said)) }
}

/// The process in between: starts the successor, and says its process id or what is wrong on the standard
/// input that both share.
pub(crate) fn start_successor(program: &Path, args: &[OsString]) -> Result<(), String> {
    let started = process::Command::new(program).args(args).spawn();
    let said = started.as_ref().map_or_else(ToString::to_string, |successor| successor.id().to_string());
    let tell = || UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?).write_all(said.as_bytes());
    tell().map_err(|error: io::Error| error.to_string())?;
    started.map(drop).map_err(|_| String::new())
}

/// Has the program look at the configuration.
async fn check(program: &Path, file: &Path) -> Result<(), String> {
    let shown = program.display();
    let mut check = Command::new(program);
    check.arg("check").arg(file).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(CHECK_TIMEOUT, check.output())
        .await
        .map_err(|_| format!("{shown} takes too long to check the configuration; nothing has changed"))?
        .map_err(|error| format!("{shown} can't be started: {error}; nothing has changed"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{shown} finds the configuration wrong; nothing has changed:\n{}", said.trim_end()))
}
