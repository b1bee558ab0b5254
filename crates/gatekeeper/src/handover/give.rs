//! The side of the predecessor: it offers all, and goes on as ever until the successor accepts clients.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use proxy::Door;
use proxy::command::{Command, Commands};
use proxy::gate::Driver;
use proxy::learned;
use rustix::process::{Uid, geteuid};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::channel::{Channel, Message, Received};

/// How many cancel requests of the successor may be under way; more are dropped, as lost ones are.
const CANCELS_MAX: usize = 32;

/// A socket that listens.
pub(crate) enum Listening {
    /// A gate's; gone once that has stopped to listen.
    Gate(Door),
    /// The admin listener's.
    Admin(OwnedFd),
}

/// What there is to hand over.
#[derive(Default)]
pub(crate) struct Estate {
    /// Each with its address, as configured and real.
    pub(crate) sockets: Vec<(String, String, Listening)>,
    pub(crate) drivers: Vec<Arc<Driver>>,
    /// The gates that take cancel requests, by name.
    pub(crate) postgres: HashMap<String, proxy::postgres::Status>,
    /// Held while it is handed over.
    pub(crate) busy: Mutex<()>,
}

impl Estate {
    /// Offers all to the process at the other end, on a thread of its own.
    pub(crate) fn offer(self: &Arc<Self>, stream: UnixStream, commands: &Commands) {
        let (estate, commands, runtime) = (Arc::clone(self), commands.clone(), Handle::current());
        let give = move || {
            if let Err(error) = estate.give(stream, &commands, &runtime) {
                tracing::warn!("no successor has taken over, this process goes on: {error}");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("handover".to_owned()).spawn(give) {
            tracing::warn!(%error, "nothing can be handed over");
        }
    }

    fn give(&self, stream: UnixStream, commands: &Commands, runtime: &Handle) -> Result<(), String> {
        let lost = |error: io::Error| format!("it was lost: {error}");
        let mut channel = Channel::new(stream).map_err(lost)?;
        let Some(busy) = self.busy.try_lock() else {
            return refuse(&mut channel, "another successor is taking over".to_owned());
        };
        let user = channel.user().map_err(lost)?;
        if user != geteuid() && user != Uid::ROOT {
            let own = geteuid();
            return refuse(&mut channel, format!("only user {own} and root may take over, not user {user}"));
        }
        self.send_all(&mut channel)?;
        let Message::Accepting { pid } = channel.receive().map_err(lost)?.message else {
            return refuse(&mut channel, "it said something else than that it accepts clients".to_owned());
        };
        // One that has died since accepts nobody.
        if !channel.is_open() {
            return Err("it has ended".to_owned());
        }
        let (sender, answer) = oneshot::channel();
        let asked = commands.blocking_send(Command::HandOver(pid, sender)).is_ok();
        match answer.blocking_recv() {
            Ok(Ok(())) if asked => {}
            Ok(Err(why)) => return refuse(&mut channel, why),
            _ => return refuse(&mut channel, "this process has ended".to_owned()),
        }
        drop(busy);
        // Whether the successor hears of it or not: it has the sockets.
        if channel.send(&Message::Yours).and_then(|()| channel.wait_without_end()).is_ok() {
            self.take_cancels(&mut channel, runtime);
        }
        Ok(())
    }

    fn send_all(&self, channel: &mut Channel) -> Result<(), String> {
        let lost = |error: io::Error| format!("it was lost: {error}");
        for (configured, real, listening) in &self.sockets {
            let message = Message::Socket { configured: configured.clone(), real: real.clone() };
            let socket = match listening {
                Listening::Gate(door) => door.descriptor(),
                Listening::Admin(socket) => socket.try_clone().ok(),
            };
            let Some(socket) = socket else {
                return refuse(channel, format!("this process listens on {configured} no more"));
            };
            channel.send_with(&message, &[], Some(socket.as_fd())).map_err(lost)?;
        }
        for driver in &self.drivers {
            let (learned, labels) = driver.learned();
            let document = learned::write(driver.name(), SystemTime::now(), &learned, &labels);
            if document.len() <= learned::BYTES_MAX {
                let message = Message::Learned { gate: driver.name().to_owned() };
                channel.send_with(&message, &document, None).map_err(lost)?;
            }
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        channel.send(&Message::Offered { pid: std::process::id(), version }).map_err(lost)
    }

    /// Cancels what clients of the successor ask for, until either process ends.
    fn take_cancels(&self, channel: &mut Channel, runtime: &Handle) {
        let places = Arc::new(Semaphore::new(CANCELS_MAX));
        while let Ok(Received { message, .. }) = channel.receive() {
            let Message::Cancel { gate, process_id, secret } = message else { continue };
            let (gate, place) = (self.postgres.get(&gate).cloned(), Arc::clone(&places).try_acquire_owned());
            let (Some(gate), Ok(place)) = (gate, place) else { continue };
            runtime.spawn(async move {
                gate.cancel(process_id, &secret).await;
                drop(place);
            });
        }
    }
}

/// Tells the successor, and the log, why it gets nothing.
fn refuse(channel: &mut Channel, why: String) -> Result<(), String> {
    // It may have gone.
    let _ = channel.send(&Message::Refused { why: why.clone() });
    Err(why)
}
