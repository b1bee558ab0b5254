//! One session of a script: it speaks a turn, waits for every answer that the turn must have, and keeps
//! what it heard.
//!
//! Which answers a turn must have follows from the protocol and from the answers before. The session keeps
//! a queue of what is still due. It waits while something is due that the server may not keep back: the
//! answer to a Sync, a Flush, a simple query, a function call, or the Execute of a COPY.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use wire::postgres::backend::{parse_backend_key, parse_error, parse_parameter_status};
use wire::postgres::codec::backend_frame;
use wire::postgres::startup::write_startup;

use crate::script::Message;

/// An answer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Parse,
    Bind,
    /// A statement's parameters are described before its columns.
    Describe,
    Close,
    Execute(Copies),
    Query,
    Function,
    Flush,
    Sync,
    CopyData,
    CopyEnd,
}

/// Whether an Execute is of a COPY FROM STDIN, which asks for its data at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    In,
    Not,
}

/// Where the session is in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Plain,
    /// Behind an error in a batch: all is dropped up to the Sync.
    Skipping,
    /// The server reads copy data.
    Copying,
    /// The connection has ended, or no answer came.
    Over,
}

/// A session and all that it heard.
pub(crate) struct Session {
    stream: TcpStream,
    input: BytesMut,
    due: VecDeque<Due>,
    phase: Phase,
    /// The status at the last ReadyForQuery.
    status: u8,
    /// Something of a batch was answered since.
    in_batch: bool,
    /// Texts by the statement's name, and by the portal's.
    statements: HashMap<String, String>,
    portals: HashMap<String, String>,
    process_id: i32,
    /// The answers, in words.
    pub(crate) heard: Vec<String>,
    /// Notifications come when they come.
    pub(crate) notified: Vec<String>,
    /// The parameters that it was told of last.
    pub(crate) told: BTreeMap<String, String>,
}

impl Session {
    /// Connects and logs in.
    pub(crate) fn login(port: u16, user: &str, database: &str, patience: Duration) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the listener accepts");
        stream.set_read_timeout(Some(patience)).expect("a time-out is set");
        stream.set_nodelay(true).expect("small writes go at once");
        let mut session = Self {
            stream,
            input: BytesMut::new(),
            due: VecDeque::from([Due::Sync]),
            phase: Phase::Plain,
            status: b'I',
            in_batch: false,
            statements: HashMap::new(),
            portals: HashMap::new(),
            process_id: 0,
            heard: Vec::new(),
            notified: Vec::new(),
            told: BTreeMap::new(),
        };
        let mut startup = BytesMut::new();
        write_startup(
            &mut startup,
            &[("user", user), ("database", database), ("application_name", "script")],
        );
        session.stream.write_all(&startup).expect("the listener reads");
        session.listen();
        assert_eq!(session.heard, ["Z(I)"], "the login succeeds");
        session.heard.clear();
        session
    }

    /// Whether no server connection is needed between this turn and the next one.
    pub(crate) fn rests(&self) -> bool {
        self.status == b'I' && self.due.is_empty() && self.phase == Phase::Plain && !self.in_batch
    }

    /// Whether the connection has ended, or an answer never came.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Says a turn, and hears what must be answered before the next one.
    pub(crate) fn say(&mut self, messages: &[Message]) {
        self.heard.push("|".to_owned());
        let bytes: Vec<u8> = messages.iter().flat_map(Message::bytes).collect();
        messages.iter().for_each(|message| self.expect(message));
        if self.stream.write_all(&bytes).is_err() {
            self.phase = Phase::Over;
        }
        self.listen();
    }

    /// Whatever it was in the middle of, that ends: the connection rests afterwards.
    pub(crate) fn finish(&mut self) {
        if self.phase == Phase::Copying {
            self.say(&[Message::CopyFail("the end".to_owned())]);
        }
        if !self.due.is_empty() || self.phase == Phase::Skipping || self.in_batch {
            self.say(&[Message::Sync]);
        }
    }

    /// Takes over what another session heard, whose place it takes.
    pub(crate) fn take_over(&mut self, other: &mut Self) {
        other.leave();
        self.heard = std::mem::take(&mut other.heard);
        self.heard.push("again".to_owned());
    }

    /// Says good-bye, and waits until the other side has closed the connection: it has given its locks back
    /// then, and nobody shares the session's prepared statements any more.
    fn leave(&mut self) {
        // An error says that the other side was quicker.
        let _ = self.stream.write_all(&Message::Again.bytes());
        while let Ok(1..) = self.stream.read(&mut [0; 1024]) {}
    }

    /// Leaves, and returns all that it heard.
    pub(crate) fn all(mut self) -> String {
        self.leave();
        let told: Vec<_> = self.told.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}\nnotified {:?}\ntold {}", self.heard.join(" "), self.notified, told.join(" "))
    }

    fn expect(&mut self, message: &Message) {
        let due = match message {
            Message::Query(_) => Due::Query,
            Message::Parse { name, sql } => {
                self.statements.insert(name.clone(), sql.to_ascii_lowercase());
                Due::Parse
            }
            Message::Bind { portal, statement, .. } => {
                let text = self.statements.get(statement).cloned().unwrap_or_default();
                self.portals.insert(portal.clone(), text);
                Due::Bind
            }
            Message::DescribeStatement(_) | Message::DescribePortal(_) => Due::Describe,
            Message::CloseStatement(_) | Message::ClosePortal(_) => Due::Close,
            Message::Execute { portal, .. } => {
                let copies = self.portals.get(portal).is_some_and(|text| text.contains("from stdin"));
                Due::Execute(if copies { Copies::In } else { Copies::Not })
            }
            Message::Function { .. } => Due::Function,
            // What no table takes fails at once, and ends the copy.
            Message::CopyData(row) if row.starts_with("bad") => Due::CopyEnd,
            Message::CopyData(_) => Due::CopyData,
            Message::CopyDone | Message::CopyFail(_) => Due::CopyEnd,
            Message::Flush => Due::Flush,
            Message::Sync => Due::Sync,
            Message::Again => return,
            Message::Raw { tag, .. } => match tag {
                'Q' => Due::Query,
                'P' => Due::Parse,
                'B' => Due::Bind,
                'D' => Due::Describe,
                'C' => Due::Close,
                'E' => Due::Execute(Copies::Not),
                'F' => Due::Function,
                'd' => Due::CopyData,
                'c' | 'f' => Due::CopyEnd,
                // A malformed one is an error.
                'H' => Due::Describe,
                _ => Due::Sync,
            },
        };
        self.due.push_back(due);
        self.drop_what_is_not_answered();
    }

    /// Takes off the queue what the server doesn't answer where it is now.
    fn drop_what_is_not_answered(&mut self) {
        while let Some(first) = self.due.front() {
            let dropped = match self.phase {
                Phase::Plain => matches!(first, Due::Flush | Due::CopyData | Due::CopyEnd),
                Phase::Skipping => *first != Due::Sync,
                Phase::Copying | Phase::Over => break,
            };
            if !dropped {
                return;
            }
            self.due.pop_front();
        }
        if self.phase == Phase::Copying {
            // The server takes no notice of these while it reads data.
            let ignored = |due: &Due| matches!(due, Due::Sync | Due::Flush | Due::CopyData);
            let start = self.copy_start();
            let end = self.due.iter().skip(start).position(|due| !ignored(due));
            self.due.drain(start..end.map_or(self.due.len(), |end| start + end));
        }
    }

    /// Where in the queue a copy's own messages begin: a simple query stays due behind its copy.
    fn copy_start(&self) -> usize {
        usize::from(self.due.front() == Some(&Due::Query))
    }

    /// Whether the server answers something without being asked again.
    fn must_hear(&self) -> bool {
        match self.phase {
            Phase::Over => false,
            Phase::Copying => self.due.len() > self.copy_start(),
            Phase::Plain | Phase::Skipping => self.due.iter().any(|due| {
                let shown = [Due::Query, Due::Function, Due::Flush, Due::Sync, Due::Execute(Copies::In)];
                shown.contains(due)
            }),
        }
    }

    fn listen(&mut self) {
        while self.must_hear() {
            match self.message() {
                Ok(Some((tag, body))) => self.hear(tag, &body),
                Ok(None) => {
                    self.heard.push("closed".to_owned());
                    self.phase = Phase::Over;
                }
                Err(problem) => {
                    self.heard.push(problem);
                    self.phase = Phase::Over;
                }
            }
        }
    }

    /// The next message; `None` is the end of the connection.
    fn message(&mut self) -> Result<Option<(u8, Vec<u8>)>, String> {
        loop {
            if let Some(frame) = backend_frame(&self.input).map_err(|error| error.to_string())? {
                if let Some(body) = frame.body(&self.input).map(<[u8]>::to_vec) {
                    self.input.advance(frame.len);
                    return Ok(Some((frame.tag, body)));
                }
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return Ok(None);
                }
                Err(_) => return Err("no answer".to_owned()),
            }
        }
    }

    fn hear(&mut self, tag: u8, body: &[u8]) {
        match tag {
            b'R' => return,
            b'K' => {
                self.process_id =
                    parse_backend_key(body).map(|(process_id, _)| process_id).unwrap_or_default();
                return;
            }
            b'S' => {
                if let Ok((name, value)) = parse_parameter_status(body) {
                    self.told.insert(name.to_owned(), value.to_owned());
                }
                return;
            }
            b'A' => {
                let from = i32::from_be_bytes([body[0], body[1], body[2], body[3]]);
                let whose = if from == self.process_id { "own" } else { "other" };
                self.notified.push(format!("{whose} {}", readable(&body[4..])));
                return;
            }
            _ => self.heard.push(word(tag, body)),
        }
        match tag {
            b'E' => self.failed(parse_error(body).is_fatal()),
            b'Z' => {
                self.status = body[0];
                (self.phase, self.in_batch) = (Phase::Plain, false);
                self.due.pop_front();
            }
            b'G' => self.begin_copy(),
            b'1' | b'2' | b'3' | b'n' | b'T' | b'C' | b'I' | b's' if self.phase == Phase::Copying => {
                self.end_copy();
            }
            // A query is answered by its ReadyForQuery, a statement's parameters don't end its description.
            b'1' | b'2' | b'3' | b'n' | b'T' | b'C' | b'I' | b's'
                if !matches!(self.due.front(), Some(Due::Query)) =>
            {
                self.in_batch = true;
                self.due.pop_front();
            }
            _ => {}
        }
        self.drop_what_is_not_answered();
    }

    fn begin_copy(&mut self) {
        self.phase = Phase::Copying;
        if let Some(Due::Execute(_)) = self.due.front() {
            self.due.pop_front();
            self.in_batch = true;
        }
    }

    /// The copy's command has ended, well or not.
    fn end_copy(&mut self) {
        self.phase = Phase::Plain;
        let start = self.copy_start();
        let end = self.due.iter().position(|due| *due == Due::CopyEnd).map_or(start, |end| end + 1);
        self.due.drain(start..end.max(start));
    }

    fn failed(&mut self, fatal: bool) {
        if fatal {
            self.phase = Phase::Over;
            return;
        }
        if self.phase == Phase::Copying {
            self.end_copy();
            if self.due.front() == Some(&Due::Query) {
                return;
            }
            (self.phase, self.in_batch) = (Phase::Skipping, true);
        } else if !matches!(self.due.front(), Some(Due::Query | Due::Function | Due::Sync)) {
            (self.phase, self.in_batch) = (Phase::Skipping, true);
        }
    }
}

/// An answer as a word.
fn word(tag: u8, body: &[u8]) -> String {
    match tag {
        b'E' | b'N' => {
            let fields = parse_error(body);
            let more = [(b'V', "severity"), (b'D', "detail"), (b'H', "hint"), (b'P', "position")];
            let more = more.into_iter().filter_map(|(field, name)| Some((name, fields.get(field)?)));
            let more: String = more.map(|(name, value)| format!(" {name}={}", readable(value))).collect();
            format!("{}({} {}{more})", tag as char, fields.code(), readable(fields.message()))
        }
        b'D' => format!("D({})", columns(body).join(",")),
        b'T' => format!("T({})", described(body)),
        b'C' | b'Z' => format!("{}({})", tag as char, readable(body)),
        b't' | b'V' | b'd' | b'G' | b'H' => format!("{}({})", tag as char, readable(body)),
        _ => (tag as char).to_string(),
    }
}

fn readable(bytes: &[u8]) -> String {
    bytes.strip_suffix(b"\0").unwrap_or(bytes).escape_ascii().to_string()
}

/// The values of a row.
fn columns(body: &[u8]) -> Vec<String> {
    let (mut rest, mut values) = (&body[2..], Vec::new());
    while rest.len() >= 4 {
        let Ok(length) = usize::try_from(rest.get_i32()) else {
            values.push("null".to_owned());
            continue;
        };
        values.push(rest[..length].escape_ascii().to_string());
        rest.advance(length);
    }
    values
}

/// The names and types of a row's columns; tables have other numbers on another server.
fn described(body: &[u8]) -> String {
    let (mut rest, mut columns) = (&body[2..], Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let name = rest[..end].escape_ascii().to_string();
        let types = &rest[end + 1 + 6..end + 1 + 10];
        columns.push(format!("{name}:{}", i32::from_be_bytes([types[0], types[1], types[2], types[3]])));
        rest = &rest[end + 1 + 18..];
    }
    columns.join(",")
}
