//! Messages between a gatekeeper and its successor, on a Unix socket: each a frame of two lengths, JSON and a
//! body, some with a file descriptor (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recv, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// How long the other side may take for a message. A successor builds all its gates in this time.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest message without its body, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The lengths of text and body, four bytes each.
const HEAD_BYTES: usize = 8;

/// What one side tells the other. Another form takes another version of the protocol.
#[derive(Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub(super) enum Message {
    /// The socket that comes with it listens on this address: as configured, and really.
    Socket { configured: String, real: String },
    /// The body is what this gate has learned.
    Learned { gate: String },
    /// Nothing more is offered.
    Offered { pid: u32, version: String },
    /// The predecessor gives nothing.
    Refused { why: String },
    /// The successor accepts clients.
    Accepting { pid: u32 },
    /// The predecessor accepts none any more.
    Yours,
    /// A cancel request of PostgreSQL whose key no session of the successor has.
    Cancel { gate: String, process_id: i32, secret: Vec<u8> },
}

/// A message with what came with it.
pub(super) struct Received {
    pub(super) message: Message,
    pub(super) body: Vec<u8>,
    pub(super) socket: Option<OwnedFd>,
}

/// One side's end.
pub(super) struct Channel(UnixStream);

impl Channel {
    /// A channel over this stream, which waits within [`MESSAGE_TIMEOUT`].
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
        stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        Ok(Self(stream))
    }

    /// Waits for the next message for as long as it takes.
    pub(super) fn wait_without_end(&self) -> io::Result<()> {
        self.0.set_read_timeout(None)
    }

    /// The user at the other end.
    pub(super) fn user(&self) -> io::Result<rustix::process::Uid> {
        Ok(rustix::net::sockopt::socket_peercred(&self.0)?.uid)
    }

    /// Whether the other side is still there.
    pub(super) fn is_open(&self) -> bool {
        let mut byte = [0];
        !matches!(recv(&self.0, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((_, 0)))
    }

    pub(super) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.send_with(message, &[], None)
    }

    /// Sends a message with a body, and a descriptor.
    pub(super) fn send_with(
        &mut self,
        message: &Message,
        body: &[u8],
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
        let head = [length(&text)?.to_be_bytes(), length(body)?.to_be_bytes()].concat();
        let sockets: Vec<_> = socket.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(io::Error::other("a descriptor has no room in its message"));
        }
        let sent = sendmsg(self.0.as_fd(), &[IoSlice::new(&head)], &mut control, SendFlags::NOSIGNAL)?;
        self.0.write_all(&head[sent..])?;
        self.0.write_all(&text)?;
        self.0.write_all(body)
    }

    /// The next message.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
        let mut head = [0; HEAD_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut head)];
        let received = recvmsg(self.0.as_fd(), parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        if received == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let mut socket = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut sockets) = message {
                socket = sockets.next();
            }
        }
        self.0.read_exact(&mut head[received..])?;
        let [a, b, c, d, e, f, g, h] = head;
        let [text, body] = [[a, b, c, d], [e, f, g, h]].map(|bytes| u32::from_be_bytes(bytes) as usize);
        if text > TEXT_BYTES_MAX || body > proxy::learned::BYTES_MAX {
            return Err(io::Error::other("a message is too long"));
        }
        let (mut text, mut content) = (vec![0; text], vec![0; body]);
        self.0.read_exact(&mut text)?;
        self.0.read_exact(&mut content)?;
        Ok(Received { message: serde_json::from_slice(&text)?, body: content, socket })
    }
}
