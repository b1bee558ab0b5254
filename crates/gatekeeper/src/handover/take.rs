//! The side of the successor: it asks the running gatekeeper for all, and says when it accepts clients.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use proxy::admin::HANDOVER_PROTOCOL;
use proxy::learned;
use proxy::postgres::Elsewhere;

use super::channel::{Channel, Message, Received};

/// The most sockets that are taken: a configuration has fewer gates.
const SOCKETS_MAX: usize = 1024;
/// The longest head of an answer, and the longest answer that is told, in bytes.
const ANSWER_BYTES_MAX: usize = 4096;
/// Cancel requests that wait to be passed on; more are dropped, as lost ones are.
const CANCELS_MAX: usize = 64;

type Cancel = (String, i32, Vec<u8>);

/// What a gate has learned, and the names of its types.
pub(crate) type Learned = (admission::Learned, Vec<std::sync::Arc<str>>);

/// What the running gatekeeper has given.
pub(crate) struct Inheritance {
    channel: Channel,
    sockets: Vec<(String, String, OwnedFd)>,
    learned: HashMap<String, Vec<u8>>,
    cancels: (SyncSender<Cancel>, Receiver<Cancel>),
    /// The running gatekeeper's process id and version.
    from: (u32, String),
}

impl Inheritance {
    /// Asks the gatekeeper that serves this socket. `None`: nobody does.
    ///
    /// # Errors
    /// It gives nothing, or can't be understood.
    pub(crate) fn ask(socket: &Path) -> Result<Option<Self>, String> {
        let shown = socket.display();
        let stream = match UnixStream::connect(socket) {
            Ok(stream) => stream,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(format!("the socket {shown} can't be opened: {error}")),
        };
        let lost = |error: io::Error| format!("the gatekeeper at {shown} was lost: {error}");
        let channel = switched(Channel::new, stream).map_err(lost)??;
        Self::receive(channel).map_err(lost)?.map(Some)
    }

    fn receive(mut channel: Channel) -> io::Result<Result<Self, String>> {
        let (mut sockets, mut learned) = (Vec::new(), HashMap::new());
        loop {
            let Received { message, body, socket } = channel.receive()?;
            match (message, socket) {
                (Message::Socket { configured, real }, Some(socket)) if sockets.len() < SOCKETS_MAX => {
                    sockets.push((configured, real, socket));
                }
                (Message::Learned { gate }, _) if learned.len() < SOCKETS_MAX => {
                    learned.insert(gate, body);
                }
                (Message::Offered { pid, version }, _) => {
                    let (cancels, from) = (sync_channel(CANCELS_MAX), (pid, version));
                    return Ok(Ok(Self { channel, sockets, learned, cancels, from }));
                }
                (Message::Refused { why }, _) => {
                    return Ok(Err(format!("the running gatekeeper refuses: {why}")));
                }
                _ => return Err(io::Error::other("it says what isn't understood")),
            }
        }
    }

    /// The running gatekeeper's process.
    pub(crate) const fn process(&self) -> u32 {
        self.from.0
    }

    /// The running gatekeeper, for the log.
    pub(crate) fn from(&self) -> String {
        format!("process {}, version {}", self.from.0, self.from.1)
    }

    /// The socket that listens on this address, if there was one.
    pub(crate) fn socket(&mut self, address: &str) -> Option<OwnedFd> {
        let found =
            self.sockets.iter().position(|(configured, real, _)| configured == address || real == address)?;
        Some(self.sockets.swap_remove(found).2)
    }

    /// What the gate of this name has learned.
    pub(crate) fn learned(&mut self, gate: &str) -> Option<Learned> {
        let document = self.learned.remove(gate)?;
        learned::read(&document)
            .inspect_err(|error| tracing::warn!(gate, %error, "what was learned can't be taken over"))
            .ok()
    }

    /// Where a gate's cancel requests with unknown keys go.
    pub(crate) fn cancels_of(&self, gate: &str) -> Elsewhere {
        let (gate, cancels) = (gate.to_owned(), self.cancels.0.clone());
        Box::new(move |process_id, secret| {
            // One that finds no room, or the other process ended, is lost.
            let _ = cancels.try_send((gate.clone(), process_id, secret.to_vec()));
        })
    }

    /// Says that this process accepts clients, and waits until the other accepts none.
    ///
    /// # Errors
    /// It goes on to accept them. If it has ended, it doesn't.
    pub(crate) fn accept(mut self) -> Result<(), String> {
        // Sockets that the configuration doesn't name any more.
        self.sockets.clear();
        let sent = self.channel.send(&Message::Accepting { pid: std::process::id() });
        let answer = sent.and_then(|()| self.channel.receive());
        match answer.map(|received| received.message) {
            Ok(Message::Yours) => {}
            Ok(Message::Refused { why }) => return Err(format!("the running gatekeeper refuses: {why}")),
            Ok(_) => return Err("the running gatekeeper says what isn't understood".to_owned()),
            Err(error) if is_gone(&error) => {
                tracing::warn!("the gatekeeper before this one has ended meanwhile");
                return Ok(());
            }
            Err(error) => return Err(format!("the running gatekeeper doesn't answer: {error}")),
        }
        let Self { mut channel, cancels: (sender, receiver), .. } = self;
        // Those of the gates are left.
        drop(sender);
        let pass_on = move || {
            for (gate, process_id, secret) in receiver {
                if channel.send(&Message::Cancel { gate, process_id, secret }).is_err() {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("handover".to_owned()).spawn(pass_on);
        if let Err(error) = started {
            tracing::warn!(%error, "cancel requests aren't passed on to the gatekeeper before this one");
        }
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Asks for the handover in HTTP, which ends with the head of the answer.
fn switched(
    channel: impl FnOnce(UnixStream) -> io::Result<Channel>,
    mut stream: UnixStream,
) -> io::Result<Result<Channel, String>> {
    stream.set_read_timeout(Some(super::channel::MESSAGE_TIMEOUT))?;
    stream.write_all(
        format!(
            "POST /takeover HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: {HANDOVER_PROTOCOL}\r\n\
             Content-Length: 0\r\n\r\n"
        )
        .as_bytes(),
    )?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    // Byte by byte: what follows belongs to the other protocol.
    while !head.ends_with(b"\r\n\r\n") && head.len() < ANSWER_BYTES_MAX {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    match head.split(' ').nth(1) {
        Some("101") => channel(stream).map(Ok),
        Some("404" | "405") => {
            Ok(Err("the running gatekeeper is of a version that hands nothing over: drain it \
                                       (gatekeeper drain --wait), and start this one"
                .to_owned()))
        }
        _ => {
            let mut why = String::new();
            let length = head.to_ascii_lowercase();
            let length = length.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            stream.take(length.min(ANSWER_BYTES_MAX as u64)).read_to_string(&mut why)?;
            Ok(Err(format!("the running gatekeeper refuses: {}", why.trim_end())))
        }
    }
}
