//! A client's connection that may break at any moment, on either side and in either direction: nothing here
//! fails because of it.
//!
//! What is heard are the words of `gate::client`, with two differences: notices are left out, and `d(text)`
//! has its copy data with it. A challenge is answered where it is heard.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use rustix::net::sockopt::set_socket_linger;
use wire::postgres::authentication::{SaslInitial, write_sasl_initial, write_sasl_response};
use wire::postgres::backend::{Authentication, parse_authentication, parse_backend_key, parse_error};
use wire::postgres::codec::backend_frame;
use wire::postgres::startup::{write_cancel, write_ssl_request};

use crate::gate::DATABASE;
use crate::gate::client::{self, query, terminate, values};
use crate::mode::{Door, PASSWORD, Wire};
use crate::support::chance::Chance;

/// How long an answer may take. Only a hang takes so long.
const READ_BOUND: Duration = Duration::from_secs(60);

/// How often a client that gave up repeats it.
const MOMENT: Duration = Duration::from_millis(20);

/// How many things a failure's message remembers.
const RECENT_MAX: usize = 40;

/// How a statement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// With all that was expected.
    Whole,
    /// With an error, after a part of what was expected; its code, and the status of the ReadyForQuery
    /// behind it.
    Error(String, String),
    /// With the end of the connection; the code of the last word, if there was one.
    Closed(Option<String>),
}

/// How a client ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Death {
    /// The connection is reset: the client's process was killed with answers unread, or its machine is gone.
    Reset,
    /// The connection is closed in both directions.
    Close,
    /// The client says nothing more, and would still read.
    HalfClose,
    /// It says good-bye, as a proper client.
    GoodBye,
}

/// Where a client connects to.
#[derive(Clone)]
pub(crate) enum Place {
    /// A port, in the clear.
    Port(u16),
    /// The gate of the moment, with TLS.
    Encrypted(Arc<Door>),
}

impl Place {
    /// The gate of the moment, with TLS or without.
    pub(crate) fn any(door: &Arc<Door>, chance: &mut Chance) -> Self {
        if chance.once_in(2) { Self::Encrypted(Arc::clone(door)) } else { Self::Port(door.port()) }
    }

    /// Connects without a word of PostgreSQL's.
    fn connect(&self) -> Option<Wire> {
        let (port, door) = match self {
            Self::Port(port) => (*port, None),
            Self::Encrypted(door) => (door.port(), Some(door)),
        };
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(READ_BOUND)).ok()?;
        stream.set_nodelay(true).ok()?;
        let Some(door) = door else { return Some(Wire::Clear(stream)) };
        let mut request = BytesMut::new();
        write_ssl_request(&mut request);
        stream.write_all(&request).ok()?;
        let mut answer = [0];
        // A gate that ends may have no answer any more, or that it ends: an error in the clear.
        stream.read_exact(&mut answer).ok()?;
        if answer == *b"E" {
            return None;
        }
        assert_eq!(answer, *b"S", "the answer to an SSLRequest");
        // The handshake is done by the first that is sent or read.
        Some(Wire::Encrypted(Box::new(door.authority.connect(stream, None, None))))
    }
}

pub(crate) struct Line {
    wire: Wire,
    input: BytesMut,
    scram: Option<ScramSha256>,
    pub(crate) key: (i32, Vec<u8>),
    place: Place,
    /// How many bytes were heard as words.
    pub(crate) heard_bytes: usize,
    /// What was said and heard last, for a failure's message.
    recent: VecDeque<String>,
}

impl Line {
    /// Connects without a word; `None` if nobody listens.
    pub(crate) fn connect(place: Place) -> Option<Self> {
        let wire = place.connect()?;
        let (input, key, recent) = (BytesMut::new(), (0, Vec::new()), VecDeque::new());
        Some(Self { wire, input, scram: None, key, place, heard_bytes: 0, recent })
    }

    /// Connects and logs in; `None` if that fails.
    pub(crate) fn login(place: Place, user: &str) -> Option<Self> {
        let mut line = Self::connect(place)?;
        line.send(&startup(user));
        (line.hear(&["Z(I)"]) == Heard::Whole).then_some(line)
    }

    /// Sends as much as the other side takes; the answers tell whether it was heard.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.remember(format!("> {}", bytes[..bytes.len().min(200)].escape_ascii()));
        self.wire.send(bytes);
    }

    fn remember(&mut self, what: String) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(what);
    }

    /// Hears exactly these words, or a beginning of them and then an error or the end. Anything else is
    /// somebody else's, and fails.
    pub(crate) fn hear(&mut self, expected: &[&str]) -> Heard {
        for expected in expected {
            let Some(word) = self.word() else { return Heard::Closed(None) };
            if word == *expected {
                continue;
            }
            let code = |word: &str| word[2..word.len() - 1].to_owned();
            if word.starts_with("F(") {
                assert_eq!(self.word(), None, "something follows {word}");
                return Heard::Closed(Some(code(&word)));
            }
            assert!(word.starts_with("E("), "expected {expected}, and was told {word}");
            return match self.word() {
                Some(ready) if ready.starts_with("Z(") => Heard::Error(code(&word), code(&ready)),
                None => Heard::Closed(Some(code(&word))),
                // As PostgreSQL ends a connection whose client has broken the protocol.
                Some(last) => {
                    assert!(last.starts_with("F("), "{last} follows {word}");
                    Heard::Closed(Some(code(&last)))
                }
            };
        }
        Heard::Whole
    }

    /// Sends, and hears.
    pub(crate) fn ask(&mut self, bytes: &[u8], expected: &[&str]) -> Heard {
        self.send(bytes);
        self.hear(expected)
    }

    /// The first column of a query's rows; `None` if it fails.
    pub(crate) fn column(&mut self, sql: &str) -> Option<Vec<String>> {
        self.send(&query(sql));
        let mut rows = Vec::new();
        loop {
            let word = self.word()?;
            if let Some(row) = word.strip_prefix("D(").and_then(|row| row.strip_suffix(')')) {
                rows.push(row.to_owned());
            } else if word.starts_with("Z(") {
                return Some(rows);
            } else if word.starts_with("E(") || word.starts_with("F(") {
                return None;
            }
        }
    }

    /// The next word; `None`: the connection has ended.
    pub(crate) fn word(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = backend_frame(&self.input).expect("a well-formed answer") {
                if let Some(body) = frame.body(&self.input).map(<[u8]>::to_vec) {
                    self.input.advance(frame.len);
                    self.heard_bytes += frame.len;
                    if let Some(word) = self.read_as(frame.tag, &body) {
                        self.remember(word.clone());
                        return Some(word);
                    }
                    continue;
                }
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.wire.read(&mut buffer, READ_BOUND) {
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                count > 0
            }
            Err(error) => {
                assert!(!is_time_out(&error), "no answer, and no end of the connection");
                false
            }
        }
    }

    /// Reads some bytes of whatever comes, without looking at them.
    pub(crate) fn sip(&mut self) {
        self.is_answered();
    }

    fn read_as(&mut self, tag: u8, body: &[u8]) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        Some(match tag {
            b'R' => {
                self.challenged(body);
                return None;
            }
            b'S' | b'N' => return None,
            b'K' => {
                let (process_id, secret) = parse_backend_key(body).expect("a key");
                self.key = (process_id, secret.to_vec());
                return None;
            }
            b'E' => {
                let fields = parse_error(body);
                format!("{}({})", if fields.is_fatal() { 'F' } else { 'E' }, fields.code())
            }
            b'D' => format!("D({})", values(&body[2..]).join(",")),
            b'C' | b'Z' | b'd' => format!("{}({})", tag as char, text(body)),
            _ => (tag as char).to_string(),
        })
    }

    /// Answers what a login is asked for.
    fn challenged(&mut self, body: &[u8]) {
        let mut out = BytesMut::new();
        match parse_authentication(body).expect("a challenge") {
            Authentication::Sasl { .. } => {
                let scram = ScramSha256::new(PASSWORD.as_bytes(), ChannelBinding::unsupported());
                let initial = SaslInitial { mechanism: b"SCRAM-SHA-256", data: Some(scram.message()) };
                write_sasl_initial(&mut out, &initial);
                self.scram = Some(scram);
            }
            Authentication::SaslContinue(data) => {
                let scram = self.scram.as_mut().expect("an exchange has begun");
                scram.update(data).expect("a challenge to us");
                write_sasl_response(&mut out, scram.message());
            }
            Authentication::SaslFinal(data) => {
                let mut scram = self.scram.take().expect("an exchange has begun");
                scram.finish(data).expect("the signature of a server with the secret");
            }
            Authentication::Ok => {}
            other => panic!("asked for {other:?}"),
        }
        if !out.is_empty() {
            self.send(&out);
        }
    }

    /// Asks that what this session does is canceled. Returns when that has been done: later it could hit
    /// what this session does next.
    pub(crate) fn cancel(&self) {
        let mut request = BytesMut::new();
        write_cancel(&mut request, self.key.0, &self.key.1);
        if let Some(mut canceler) = Self::connect(self.place.clone()) {
            canceler.send(&request);
            assert_eq!(canceler.word(), None, "an answer to a cancel request");
        }
    }

    /// Whether something has come, after a moment at most.
    pub(crate) fn is_answered(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.wire.read(&mut buffer, MOMENT) {
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) => !is_time_out(&error) || !self.input.is_empty(),
        }
    }

    /// Ends.
    pub(crate) fn die(mut self, death: Death) {
        match death {
            Death::Reset => {
                let _ = set_socket_linger(self.wire.tcp(), Some(Duration::ZERO));
            }
            Death::Close => {}
            Death::GoodBye => self.send(&terminate()),
            Death::HalfClose => {
                self.wire.end();
                // To the end of whatever is still said.
                while self.word().is_some() {}
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:#?}", self.recent);
        }
    }
}

impl Death {
    pub(crate) fn any(chance: &mut Chance) -> Self {
        *chance.choose(&[Self::Reset, Self::Reset, Self::Close, Self::Close, Self::HalfClose, Self::GoodBye])
    }
}

fn is_time_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// A start-up message.
pub(crate) fn startup(user: &str) -> Vec<u8> {
    client::startup(3 << 16, &[("user", user), ("database", DATABASE)])
}
