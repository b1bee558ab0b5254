//! A client that says exactly what a test wants, and tells what it hears as a line of text.
//!
//! An answer is a word: `1` `2` `3` (parsed, bound, closed), `t` `T` `n` (described), `D(a,b)` a row,
//! `C(INSERT 0 1)` a command's end, `I` an empty query, `s` a suspended portal, `E(53300)` an error and
//! `F(57P01)` a fatal one, `N(01000)` a notice, `G` `H` the begin of a copy, `d` `c` its data and end,
//! `V(x)` a function's value, `Z(I)` ready and idle. ParameterStatus is left out. `closed` is the end of
//! the connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use wire::postgres::backend::{parse_backend_key, parse_error};
use wire::postgres::codec::{HEADER_LEN, backend_frame};
use wire::postgres::frontend::{self, Target};
use wire::postgres::startup::{write_cancel, write_startup};

/// How long an answer may take. Only a hang takes so long.
const READ_BOUND: Duration = Duration::from_secs(60);

/// Writes messages into a buffer of their own.
fn written(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    write(&mut out);
    out.to_vec()
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    written(|out| frontend::write_query(out, sql.as_bytes()))
}

pub(crate) fn parse(name: &str, sql: &str) -> Vec<u8> {
    written(|out| frontend::write_parse(out, name.as_bytes(), sql.as_bytes(), &[]))
}

/// Bind of a statement without parameters to the unnamed portal.
pub(crate) fn bind(name: &str) -> Vec<u8> {
    written(|out| frontend::write_bind(out, b"", name.as_bytes(), frontend::NO_VALUES))
}

pub(crate) fn describe(name: &str) -> Vec<u8> {
    written(|out| frontend::write_describe(out, Target::Statement, name.as_bytes()))
}

/// Execute of the unnamed portal.
pub(crate) fn execute() -> Vec<u8> {
    written(|out| frontend::write_execute(out, b"", 0))
}

/// Bind of the unnamed statement to a named portal.
pub(crate) fn bind_to(portal: &str) -> Vec<u8> {
    crate::support::raw::message(b'B', &[portal.as_bytes(), b"\0\0\0\0\0\0\0\0"].concat())
}

/// Execute of a named portal for so many rows.
pub(crate) fn fetch(portal: &str, rows: u32) -> Vec<u8> {
    crate::support::raw::message(b'E', &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat())
}

pub(crate) fn close(name: &str) -> Vec<u8> {
    written(|out| frontend::write_close(out, Target::Statement, name.as_bytes()))
}

pub(crate) fn sync() -> Vec<u8> {
    written(frontend::write_sync)
}

pub(crate) fn flush() -> Vec<u8> {
    written(frontend::write_flush)
}

pub(crate) fn terminate() -> Vec<u8> {
    written(frontend::write_terminate)
}

pub(crate) fn copy_done() -> Vec<u8> {
    crate::support::raw::message(b'c', b"")
}

pub(crate) fn copy_fail(reason: &str) -> Vec<u8> {
    crate::support::raw::message(b'f', format!("{reason}\0").as_bytes())
}

pub(crate) fn copy_data(data: &str) -> Vec<u8> {
    crate::support::raw::message(b'd', data.as_bytes())
}

/// A start-up message of any version.
pub(crate) fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut message = written(|out| write_startup(out, parameters));
    message[4..8].copy_from_slice(&version.to_be_bytes());
    message
}

/// Bind and Execute of a prepared statement.
pub(crate) fn use_of(name: &str) -> Vec<u8> {
    [bind(name), execute()].concat()
}

/// Parse, Bind and Execute of the unnamed statement.
pub(crate) fn group(sql: &str) -> Vec<u8> {
    [parse("", sql), use_of("")].concat()
}

/// Parse, Bind, Execute and Sync of the unnamed statement.
pub(crate) fn synced(sql: &str) -> Vec<u8> {
    [group(sql), sync()].concat()
}

pub(crate) trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

/// The fields of the last error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) severity: String,
    pub(crate) message: String,
    pub(crate) detail: String,
    pub(crate) hint: String,
}

/// One session.
pub(crate) struct Client {
    stream: Box<dyn Duplex>,
    input: BytesMut,
    /// The last error, or notice.
    pub(crate) said: Said,
    /// What a cancel request must name.
    pub(crate) key: (i32, Vec<u8>),
    /// The process id in the last notification.
    pub(crate) notifier: i32,
}

impl Client {
    /// Speaks over a connection that stands.
    pub(crate) fn over(stream: impl Duplex + 'static) -> Self {
        let (input, said, key) = (BytesMut::new(), Said::default(), (0, Vec::new()));
        Self { stream: Box::new(stream), input, said, key, notifier: 0 }
    }

    /// Connects by TCP without a word.
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the listener accepts");
        stream.set_read_timeout(Some(READ_BOUND)).expect("a time-out is set");
        stream.set_nodelay(true).expect("small writes go at once");
        Self::over(stream)
    }

    /// Connects to a Unix socket without a word.
    pub(crate) fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the listener accepts");
        stream.set_read_timeout(Some(READ_BOUND)).expect("a time-out is set");
        Self::over(stream)
    }

    /// Connects by TCP and logs in.
    pub(crate) fn login(port: u16, user: &str, database: &str) -> Self {
        let mut client = Self::connect(port);
        let answers = client.start(user, database);
        assert_eq!(answers, "Z(I)", "the login: {:?}", client.said);
        client
    }

    /// Says who it is, and returns what follows AuthenticationOk.
    pub(crate) fn start(&mut self, user: &str, database: &str) -> String {
        self.start_with(&[("user", user), ("database", database)])
    }

    /// Logs in with these start-up parameters.
    pub(crate) fn start_with(&mut self, parameters: &[(&str, &str)]) -> String {
        self.send(&written(|out| write_startup(out, parameters)));
        self.answers()
    }

    /// Logs in with a version of the protocol.
    pub(crate) fn start_version(&mut self, version: u32, user: &str, database: &str) -> String {
        self.send(&startup(version, &[("user", user), ("database", database)]));
        self.answers()
    }

    /// The next byte, which is no message.
    pub(crate) fn byte(&mut self) -> String {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).expect("an answer");
        char::from(byte[0]).to_string()
    }

    /// Asks, by a connection of its own, that what this session does is canceled. Returns when that has
    /// been done.
    pub(crate) fn cancel(&self, port: u16) {
        let mut canceler = Self::connect(port);
        canceler.send(&written(|out| write_cancel(out, self.key.0, &self.key.1)));
        assert_eq!(canceler.answer(), "closed");
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the other side reads");
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> String {
        loop {
            let Some((tag, body)) = self.message() else { return "closed".to_owned() };
            if let Some(word) = self.word(tag, &body) {
                return word;
            }
        }
    }

    /// The next message; `None` is the end of the connection.
    fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(frame) = backend_frame(&self.input).expect("a well-formed answer") {
                if let Some(body) = frame.body(&self.input).map(<[u8]>::to_vec) {
                    assert_eq!(body.len() + HEADER_LEN, frame.len);
                    self.input.advance(frame.len);
                    return Some((frame.tag, body));
                }
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return None;
                }
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// The next answers, up to ReadyForQuery or the end.
    pub(crate) fn answers(&mut self) -> String {
        let mut words = vec![self.answer()];
        while !words.last().is_some_and(|word| word.starts_with("Z(") || word == "closed") {
            words.push(self.answer());
        }
        words.join(" ")
    }

    /// The next so many answers.
    pub(crate) fn next(&mut self, count: usize) -> String {
        (0..count).map(|_| self.answer()).collect::<Vec<_>>().join(" ")
    }

    /// Sends, and returns the answers up to ReadyForQuery.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> String {
        self.send(bytes);
        self.answers()
    }

    /// Runs a simple query.
    pub(crate) fn query(&mut self, sql: &str) -> String {
        self.ask(&query(sql))
    }

    /// Runs a simple query that must succeed.
    pub(crate) fn run(&mut self, sql: &str) {
        let answers = self.query(sql);
        assert!(!answers.contains("E(") && !answers.contains("F("), "{sql}: {answers} {:?}", self.said);
    }

    /// The first column of a simple query's rows.
    pub(crate) fn column(&mut self, sql: &str) -> Vec<String> {
        self.send(&query(sql));
        let mut rows = Vec::new();
        loop {
            let word = self.answer();
            assert!(!word.starts_with("E("), "{sql}: {:?}", self.said);
            if let Some(row) = word.strip_prefix("D(").and_then(|row| row.strip_suffix(')')) {
                rows.push(row.split(',').next().unwrap_or_default().to_owned());
            } else if word.starts_with("Z(") || word == "closed" {
                return rows;
            }
        }
    }

    /// What a simple query returns: for each row its columns' names and values, null as `null`.
    pub(crate) fn rows(&mut self, sql: &str) -> Vec<Vec<(String, String)>> {
        self.send(&query(sql));
        let (mut names, mut rows): (Vec<String>, Vec<_>) = (Vec::new(), Vec::new());
        loop {
            let Some((tag, body)) = self.message() else { panic!("{sql}: closed") };
            match tag {
                b'T' => names = columns(&body),
                b'D' => rows.push(names.iter().cloned().zip(values(&body[2..])).collect()),
                b'Z' => return rows,
                b'C' | b'S' | b'N' => {}
                _ => panic!("{sql}: {:?}", String::from_utf8_lossy(&body)),
            }
        }
    }

    /// The names of the columns that the next answers describe, up to ReadyForQuery.
    pub(crate) fn columns_told(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        while let Some((tag, body)) = self.message() {
            match tag {
                b'T' => names = columns(&body),
                b'Z' => break,
                b'E' => panic!("{:?}", String::from_utf8_lossy(&body)),
                _ => {}
            }
        }
        names
    }

    /// Begins a transaction and has it take a server connection.
    pub(crate) fn hold(&mut self) {
        assert_eq!(self.query("BEGIN"), "C(BEGIN) Z(T)");
        assert_eq!(self.query("SELECT 'held'"), "T D(held) C(SELECT 1) Z(T)");
    }

    /// Ends it.
    pub(crate) fn let_go(&mut self) {
        assert_eq!(self.query("COMMIT"), "C(COMMIT) Z(I)");
    }

    fn word(&mut self, tag: u8, mut body: &[u8]) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        Some(match tag {
            b'S' | b'R' => return None,
            b'K' => {
                let (process_id, secret) = parse_backend_key(body).expect("a key");
                self.key = (process_id, secret.to_vec());
                return None;
            }
            b'E' | b'N' => {
                let fields = parse_error(body);
                let optional = |field: Option<&[u8]>| field.map(text).unwrap_or_default();
                self.said = Said {
                    severity: fields.severity().to_owned(),
                    message: text(fields.message()),
                    detail: optional(fields.detail()),
                    hint: optional(fields.hint()),
                };
                let letter = if fields.is_fatal() { 'F' } else { tag as char };
                format!("{letter}({})", fields.code())
            }
            b'A' => {
                self.notifier = body.get_i32();
                "A".to_owned()
            }
            b'D' => format!("D({})", values(&body[2..]).join(",")),
            b'V' => format!("V({})", values(body).join(",")),
            b'C' | b'Z' => format!("{}({})", tag as char, text(body)),
            _ => (tag as char).to_string(),
        })
    }
}

/// Values with their lengths before them; NULL is `null`.
pub(crate) fn values(mut rest: &[u8]) -> Vec<String> {
    let mut values = Vec::new();
    while rest.len() >= 4 {
        let Ok(length) = usize::try_from(rest.get_i32()) else {
            values.push("null".to_owned());
            continue;
        };
        values.push(String::from_utf8_lossy(&rest[..length]).into_owned());
        rest.advance(length);
    }
    values
}

/// The names in a RowDescription.
fn columns(body: &[u8]) -> Vec<String> {
    let (mut rest, mut names) = (&body[2..], Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = &rest[end + 1 + 18..];
    }
    names
}
