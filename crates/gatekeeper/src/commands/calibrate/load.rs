//! The command that sends requests: started for each measurement, ended after it with all that it has
//! started itself.
//!
//! It leads a process group of its own, so that a script's children end with it and a Ctrl-C reaches only
//! us, who set things right first.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use crate::Failure;

/// How long it may take to end by itself once it was told to.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of what it says on standard error is kept, in bytes: the last of it.
const WORDS_BYTES_MAX: usize = 2_048;

/// The load command, running. Dropping it kills it.
pub(super) struct Load {
    child: Child,
    group: Option<Pid>,
    /// How long it must run.
    needed: Duration,
    words: Arc<Mutex<VecDeque<u8>>>,
}

impl Load {
    /// Starts the load; it must run for so long.
    pub(super) fn start(command: &[OsString], needed: Duration) -> Result<Self, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::Usage("there is no load command; write it behind --".to_owned()));
        };
        let mut command = std::process::Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.process_group(0);
        let mut child = Command::from(command).spawn().map_err(|error| {
            Failure::Usage(format!("cannot start {}: {error}", program.to_string_lossy()))
        })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let words = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(said) = child.stderr.take() {
            tokio::spawn(listen(said, Arc::clone(&words)));
        }
        Ok(Self { child, group, needed, words })
    }

    /// Whether it still runs, as it must.
    pub(super) async fn check(&mut self, elapsed: Duration) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status, elapsed).await),
            Err(error) => Err(Failure::Runtime(format!("the load command can't be asked: {error}"))),
        }
    }

    async fn ended(&self, status: ExitStatus, elapsed: Duration) -> Failure {
        // What it said last may still be under way.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let words: Vec<u8> = self.words.lock().iter().copied().collect();
        let words = String::from_utf8_lossy(&words);
        let mut message = format!(
            "the load command ended after {:.1} s ({status}); each measurement takes {:.1} s of it (--warm-up and \
             --window)",
            elapsed.as_secs_f64(),
            self.needed.as_secs_f64()
        );
        if !words.trim().is_empty() {
            message += &format!("; it said last:\n{}", words.trim());
        }
        Failure::Runtime(message)
    }

    /// Ends the load, and what it has started.
    pub(super) async fn end(mut self) {
        self.tell(Signal::TERM);
        let _ = timeout(END_TIMEOUT, self.child.wait()).await;
        self.kill();
        // Reaped, so that its connections are closed before the next one begins.
        let _ = timeout(END_TIMEOUT, self.child.wait()).await;
    }

    fn kill(&mut self) {
        self.tell(Signal::KILL);
        self.group = None;
    }

    fn tell(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Nobody is left of it: then there is nothing to end.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Keeps the last of what it says.
async fn listen(mut said: ChildStderr, words: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = [0; 1_024];
    while let Ok(count @ 1..) = said.read(&mut buffer).await {
        let mut words = words.lock();
        words.extend(&buffer[..count]);
        let surplus = words.len().saturating_sub(WORDS_BYTES_MAX);
        words.drain(..surplus);
    }
}

/// Runs a command of a shell to its end.
pub(super) async fn prepare(command: &str) -> Result<(), Failure> {
    let mut shell = std::process::Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null());
    let status = Command::from(shell).kill_on_drop(true).status().await;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Runtime(format!("the command of --before failed ({status}): {command}"))),
        Err(error) => Err(Failure::Runtime(format!("the command of --before can't be started: {error}"))),
    }
}
