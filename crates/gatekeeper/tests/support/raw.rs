//! A client that speaks PostgreSQL's protocol byte by byte, so that it can also speak it wrongly.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// How long an answer may take. Only a hang takes so long.
const READ_BOUND: Duration = Duration::from_secs(60);
/// The longest message that a server sends in these tests, in bytes.
const MESSAGE_MAX: usize = 16 << 20;
/// The tags that a server may send after a login.
const BACKEND_TAGS: &[u8] = b"123ACDEGHIKNRSTVWZcdnstv";

/// The parts of a protocol 3.0 message: a tag, its own length, and the body.
pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a test's message is short");
    [&[tag], length.to_be_bytes().as_slice(), body].concat()
}

/// A simple query.
pub(crate) fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

/// Parse and Bind of the unnamed statement and portal, without Sync.
pub(crate) fn parse_and_bind(text: &str) -> Vec<u8> {
    let parse = message(b'P', &[b"\0", text.as_bytes(), b"\0\0\0"].concat());
    [parse, message(b'B', b"\0\0\0\0\0\0\0\0")].concat()
}

/// A whole extended batch.
pub(crate) fn batch(text: &str) -> Vec<u8> {
    let rest = [message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
    [parse_and_bind(text), rest].concat()
}

/// A start-up message of protocol 3.0.
pub(crate) fn startup(user: &str) -> Vec<u8> {
    let body = format!("user\0{user}\0database\0postgres\0application_name\0garbage\0\0");
    untagged(&[&0x0003_0000_u32.to_be_bytes(), body.as_bytes()].concat())
}

/// A message of the time before the login: no tag.
pub(crate) fn untagged(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a test's message is short");
    [length.to_be_bytes().as_slice(), body].concat()
}

/// A connection that may break every rule.
pub(crate) struct Raw {
    stream: TcpStream,
}

impl Raw {
    /// Connects without a word.
    pub(crate) fn connect(port: u16) -> Self {
        Self::try_connect(port).expect("the listener accepts")
    }

    /// Connects without a word; `None` if nobody listens.
    pub(crate) fn try_connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(READ_BOUND)).expect("a time-out is set");
        stream.set_write_timeout(Some(READ_BOUND)).expect("a time-out is set");
        stream.set_nodelay(true).expect("small writes go at once");
        Some(Self { stream })
    }

    /// Connects and logs in as a user whom the server lets in without a challenge.
    pub(crate) fn login(port: u16, user: &str) -> Self {
        let mut raw = Self::connect(port);
        assert!(raw.send(&startup(user)), "the start-up message is taken");
        raw.expect_ready(b'I');
        raw
    }

    /// A second handle of the connection, so that one thread can write while another one reads.
    pub(crate) fn twin(&self) -> Self {
        Self { stream: self.stream.try_clone().expect("a descriptor") }
    }

    /// Sends bytes; `false` if the other side has closed.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(error) if is_close(error.kind()) => false,
            Err(error) => panic!("sending hangs: {error}"),
        }
    }

    /// Sends bytes one at a time.
    pub(crate) fn dribble(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().all(|byte| self.send(&[*byte]))
    }

    /// Reads one byte, as the answer to an SSLRequest.
    pub(crate) fn read_byte(&mut self) -> u8 {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).expect("an answer of one byte");
        byte[0]
    }

    /// Reads one message; `None` if the other side has closed.
    pub(crate) fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        if !self.fill(&mut header) {
            return None;
        }
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let tag = header[0];
        assert!(BACKEND_TAGS.contains(&tag), "an answer with tag {tag:#04x} ({:?})", tag as char);
        assert!((4..MESSAGE_MAX).contains(&length), "an answer {:?} of {length} bytes", tag as char);
        let mut body = vec![0; length - 4];
        self.fill(&mut body).then_some((tag, body))
    }

    /// Fills a buffer; `false` if the other side closed before.
    fn fill(&mut self, buffer: &mut [u8]) -> bool {
        match self.stream.read_exact(buffer) {
            Ok(()) => true,
            Err(error) if is_close(error.kind()) => false,
            Err(error) => panic!("no answer and no close: {error}"),
        }
    }

    /// Reads messages until this tag, and returns all tags with it.
    pub(crate) fn read_until(&mut self, tag: u8) -> Vec<u8> {
        let mut tags = Vec::new();
        while tags.last() != Some(&tag) {
            let (next, body) = self.read().unwrap_or_else(|| panic!("closed before {:?}", tag as char));
            assert!(next != b'E' || tag == b'E', "an error before {:?}: {}", tag as char, fields(&body));
            tags.push(next);
        }
        tags
    }

    /// Reads until ReadyForQuery and asserts the transaction's state.
    pub(crate) fn expect_ready(&mut self, state: u8) {
        loop {
            let (tag, body) = self.read().expect("an answer");
            assert!(tag != b'E' || state == b'E', "an error: {}", fields(&body));
            if tag == b'Z' {
                assert_eq!(body, [state], "the transaction's state is {:?}", body[0] as char);
                return;
            }
        }
    }

    /// Runs a simple query that succeeds and leaves this transaction state.
    pub(crate) fn run(&mut self, text: &str, state: u8) {
        assert!(self.send(&query(text)), "{text}: closed");
        self.expect_ready(state);
    }

    /// Says no more, and reads what is still said until the close: a series of whole messages, each well
    /// formed.
    pub(crate) fn end(&mut self) {
        // An error says that the other side was quicker.
        let _ = self.stream.shutdown(Shutdown::Write);
        while self.read().is_some() {}
    }

    /// Like `end`, before the login: an encryption request may have been answered with one byte.
    pub(crate) fn end_before_login(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut byte = [0];
        while self.fill(&mut byte) {
            if byte == *b"N" {
                // The refusal of encryption, or a notice, which these logins don't cause.
                continue;
            }
            let mut length = [0; 4];
            if !self.fill(&mut length) {
                return;
            }
            if byte == *b"E" && length.is_ascii() && length[0] != 0 {
                // To versions before 3.0 a server answers in their own form: text without a length.
                while self.fill(&mut byte) {}
                return;
            }
            let length = u32::from_be_bytes(length) as usize;
            assert!(BACKEND_TAGS.contains(&byte[0]), "an answer with tag {:#04x}", byte[0]);
            assert!((4..MESSAGE_MAX).contains(&length), "an answer of {length} bytes");
            if !self.fill(&mut vec![0; length - 4]) {
                return;
            }
        }
    }
}

/// An error's fields, readable.
fn fields(body: &[u8]) -> String {
    String::from_utf8_lossy(body).replace('\0', " | ")
}

fn is_close(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
