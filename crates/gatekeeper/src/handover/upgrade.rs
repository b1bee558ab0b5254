//! The start of a successor by the running process: in its own control group, with its user, environment and
//! arguments, as a service manager wants it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use proxy::shutdown::{Phase, Shutdown};
use tokio::process::Command;
use tokio::time::timeout;

/// How long the successor's look at the configuration may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
const FLAG: &str = "--takeover";

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
/// changed.
pub(crate) async fn upgrade(
    program: Program,
    configuration: Option<PathBuf>,
    phase: Shutdown,
) -> Result<String, String> {
    if phase.phase() != Phase::Running {
        return Err("this process ends already: nothing is started".to_owned());
    }
    let shown = program.path.display();
    if let Some(file) = &configuration {
        check(&program.path, file).await?;
    }
    let mut child = Command::new(&program.path)
        .args(&program.args)
        // It names this process; the successor is to show life, too.
        .env_remove("WATCHDOG_PID")
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("{shown} can't be started: {error}; nothing has changed"))?;
    let pid = child.id().unwrap_or_default();
    tracing::info!(program = %shown, pid, "a successor starts");
    tokio::select! {
        biased;
        () = phase.handed_over() => {
            Ok(format!("process {pid} accepts clients; process {} ends with its last one, or after handover_timeout",
                std::process::id()))
        }
        ended = child.wait() => {
            let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(format!("{shown} has ended ({ended}), its log says why; nothing has changed"))
        }
    }
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
