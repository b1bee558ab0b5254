//! What is done on a connection when its session ends, and when another session begins on it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wire::mysql::command::Command;

use super::channel::Lost;
use super::server::{Point, Server};

impl Server {
    /// Begins a reset, whose answer is read by the next session. A lock of the session's ends now, also one
    /// that the gate hasn't seen. Fails if the reset can't be sent at once.
    pub(super) fn release(&mut self) -> Result<(), Lost> {
        self.due += self.put(&Command::ResetConnection);
        self.at = Point::default();
        self.statements.clear();
        match pin!(self.channel.flush()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Err(Lost::Late),
        }
    }
}
