//! A client of HTTP/2 that says frame by frame what a test wants, and nothing else.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// What may stand in one frame.
const FRAME_MAX: usize = 16_384;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Reads a frame and tells its kind.
fn read_frame(socket: &mut TcpStream) -> u8 {
    let mut head = [0; 9];
    socket.read_exact(&mut head).expect("a frame");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    socket.read_exact(&mut vec![0; length as usize]).expect("the rest of a frame");
    head[3]
}

/// One connection. Each stream is a POST to `/`.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn open(port: u16) -> Self {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("the listener accepts");
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it reads");
        socket.write_all(&frame(SETTINGS, 0, 0, &[])).expect("it reads");
        // A stream's window holds once the settings are acknowledged, the connection's once it is told.
        socket.write_all(&frame(SETTINGS, ACK, 0, &[])).expect("it reads");
        while read_frame(&mut socket) != WINDOW_UPDATE {}
        Self(socket)
    }

    /// Whether what was sent could be: a connection that is closed takes nothing.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// A stream with a field of so many bytes, whose body comes.
    pub(crate) fn begin(&mut self, stream: u32, filler: usize) -> bool {
        // POST, http, / of the static table; then literals: the authority, and a new name.
        let mut head = vec![0x83, 0x86, 0x84, 0x01, 4];
        head.extend_from_slice(b"site");
        head.extend_from_slice(b"\0\x08x-filler");
        // A length in the prefix of seven bits and what is over, seven bits at a time.
        let over = filler.checked_sub(127).expect("it is long");
        head.push(127);
        head.extend([(over & 127 | 128) as u8, (over >> 7 & 127 | 128) as u8, (over >> 14) as u8]);
        head.resize(head.len() + filler, b'x');
        self.send(&frame(HEADERS, END_HEADERS, stream, &head))
    }

    /// The first bytes of a head that is longer by one than they are.
    pub(crate) fn begin_head(&mut self, stream: u32, bytes: usize) -> bool {
        let mut head = frame(HEADERS, END_HEADERS, stream, &vec![b'x'; bytes + 1]);
        head.pop();
        self.send(&head)
    }

    /// Sends this many bytes of the body of a stream.
    pub(crate) fn data(&mut self, stream: u32, bytes: usize) -> bool {
        let frames = (0..bytes).step_by(FRAME_MAX);
        let all: Vec<u8> =
            frames.flat_map(|at| frame(DATA, 0, stream, &vec![b'x'; FRAME_MAX.min(bytes - at)])).collect();
        self.send(&all)
    }

    /// What has come since the last call, without waiting.
    pub(crate) fn heard(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        self.0.set_nonblocking(true).expect("a socket");
        // It may have been reset.
        let _ = self.0.read_to_end(&mut heard);
        heard
    }

    /// Gives it up.
    pub(crate) fn reset(&mut self, stream: u32) -> bool {
        self.send(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()))
    }
}
