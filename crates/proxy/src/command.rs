//! What a console asks of the whole process: the code that assembled the process receives it, and answers.

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
}
