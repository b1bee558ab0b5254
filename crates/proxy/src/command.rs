//! What an operator asks of the whole process: the code that assembled the process receives it, and answers.

use std::os::unix::net::UnixStream;

use tokio::sync::{mpsc, oneshot};

/// The way to the process. Bounded; a console that finds it full waits.
pub type Commands = mpsc::Sender<Command>;

/// What a console asks for.
#[derive(Debug)]
pub enum Command {
    /// To read the configuration again. What was done, or why nothing was.
    Reload(oneshot::Sender<Result<String, String>>),
    /// To end as after the first signal: no new clients, transactions may end.
    Shutdown,
    /// To end at once.
    ShutdownNow,
    /// To start the program that is installed now as its successor. Who serves then, or why nobody else does.
    Upgrade(oneshot::Sender<Result<String, String>>),
    /// To offer its sockets to the process at the other end.
    Offer(UnixStream),
    /// To leave new clients to the process of this id, which accepts them. `Err` says why it doesn't.
    HandOver(u32, oneshot::Sender<Result<(), String>>),
}
