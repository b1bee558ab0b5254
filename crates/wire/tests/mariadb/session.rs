//! A client that speaks to a real server by the codec alone.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use bytes::BytesMut;
use wire::mysql::answer::{self, ErrPacket, OkPacket};
use wire::mysql::authentication::{self, Step};
use wire::mysql::capabilities::Capabilities;
use wire::mysql::codec::{self, Message, Sequence};
use wire::mysql::command::{self, Command, Query};
use wire::mysql::handshake::{self, Greeting, Response};
use wire::mysql::response::{Expect, Follower, PEEK, Part, Turn};
use wire::mysql::scramble::{caching_sha2, ed25519, native};

/// What every client of these tests agrees on.
pub(crate) const BASE: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::PLUGIN_AUTH_LENENC.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::MULTI_STATEMENTS.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::PS_MULTI_RESULTS.0
        | Capabilities::LOCAL_FILES.0
        | Capabilities::CONNECT_ATTRS.0
        | Capabilities::CONNECT_WITH_DB.0,
);

/// How a client proves who it is.
#[derive(Clone, Copy)]
pub(crate) enum Secret<'a> {
    Password(&'a str),
    /// Only what a valid proof of `mysql_native_password` gives.
    NativeKey(&'a native::Key),
}

/// An error that the server told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) code: u16,
    pub(crate) state: String,
    pub(crate) message: String,
}

impl Told {
    fn of(error: &ErrPacket<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let state = error.state.map(|state| text(state)).unwrap_or_default();
        Self { code: error.code, state, message: text(error.message) }
    }
}

/// A whole answer: each message with what the follower took it for.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) messages: Vec<(Part, Vec<u8>)>,
}

impl Answer {
    /// The rows of all text results, columns separated by tabs.
    pub(crate) fn rows(&self) -> String {
        let rows = self.messages.iter().filter(|(part, _)| *part == Part::Row);
        rows.map(|(_, payload)| text_row(payload)).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn count(&self, is: impl Fn(&Part) -> bool) -> usize {
        self.messages.iter().filter(|(part, _)| is(part)).count()
    }

    pub(crate) fn row(&self, at: usize) -> &[u8] {
        let mut rows = self.messages.iter().filter(|(part, _)| *part == Part::Row);
        &rows.nth(at).unwrap().1
    }

    pub(crate) fn error(&self) -> Told {
        let (part, payload) = self.messages.last().unwrap();
        assert!(matches!(part, Part::Error { .. }), "{part:?}");
        Told::of(&answer::parse_error(payload).unwrap())
    }

    /// The last message, which must be an OK packet.
    pub(crate) fn ok(&self, capabilities: Capabilities) -> OkPacket<'_> {
        let (part, payload) = self.messages.last().unwrap();
        assert!(matches!(part, Part::Ok(_)), "{part:?}");
        answer::parse_ok(payload, capabilities).unwrap()
    }
}

/// The length that begins `bytes`, and what follows it; `None` is NULL.
pub(crate) fn length(bytes: &[u8]) -> (Option<usize>, &[u8]) {
    let wide = |n: usize| {
        let mut word = [0; 8];
        word[..n].copy_from_slice(&bytes[1..=n]);
        (Some(usize::try_from(u64::from_le_bytes(word)).unwrap()), &bytes[1 + n..])
    };
    match bytes[0] {
        0xfb => (None, &bytes[1..]),
        0xfc => wide(2),
        0xfd => wide(3),
        0xfe => wide(8),
        small => (Some(usize::from(small)), &bytes[1..]),
    }
}

fn text_row(mut payload: &[u8]) -> String {
    let mut columns = Vec::new();
    while !payload.is_empty() {
        let (len, rest) = length(payload);
        let (text, rest) = rest.split_at(len.unwrap_or(0));
        columns.push(len.map_or("NULL".to_owned(), |_| String::from_utf8_lossy(text).into_owned()));
        payload = rest;
    }
    columns.join("\t")
}

pub(crate) struct Session {
    pub(crate) stream: UnixStream,
    /// What has arrived and isn't looked at yet.
    pub(crate) received: Vec<u8>,
    pub(crate) capabilities: Capabilities,
    /// The scramble and the proof of the login's last step.
    pub(crate) scramble: Vec<u8>,
    pub(crate) proof: Vec<u8>,
    pub(crate) connection: u32,
    pub(crate) switched: bool,
    /// The server has asked for the password itself.
    pub(crate) sent_password: bool,
}

impl Session {
    pub(crate) fn login(
        socket: &Path,
        of_user: (&str, Secret<'_>),
        wanted: Capabilities,
    ) -> Result<Self, Told> {
        Self::login_over(UnixStream::connect(socket).unwrap(), of_user, wanted)
    }

    /// Logs in over a connected socket, which may be one of TCP: to the descriptor it is all the same.
    pub(crate) fn login_over(
        stream: UnixStream,
        of_user: (&str, Secret<'_>),
        wanted: Capabilities,
    ) -> Result<Self, Told> {
        Self::try_login_over(stream, of_user, wanted).expect("the server answers")
    }

    /// Logs in over a socket that may be closed at any time.
    pub(crate) fn try_login_over(
        stream: UnixStream,
        (user, secret): (&str, Secret<'_>),
        wanted: Capabilities,
    ) -> io::Result<Result<Self, Told>> {
        let mut session = Self {
            stream,
            received: Vec::new(),
            capabilities: wanted,
            scramble: Vec::new(),
            proof: Vec::new(),
            connection: 0,
            switched: false,
            sent_password: false,
        };
        let (first, due) = session.message(handshake::MAX_HANDSHAKE)?;
        let greeting = match handshake::parse_greeting(&first).unwrap() {
            Greeting::Handshake(greeting) => greeting,
            Greeting::Refused(error) => return Ok(Err(Told::of(&error))),
        };
        let plugin = std::str::from_utf8(greeting.plugin).unwrap().to_owned();
        session.connection = greeting.connection;
        session.capabilities = wanted & greeting.capabilities;
        assert_eq!(session.capabilities, wanted, "the server can do all of it");
        session.scramble = greeting.scramble.clone();
        session.proof = prove(&plugin, secret, &greeting.scramble);
        let mut attributes = BytesMut::new();
        handshake::push_attribute(&mut attributes, b"program_name", b"wire");
        let mut out = BytesMut::new();
        let response = Response {
            capabilities: session.capabilities,
            max_packet: 1 << 24,
            collation: 45,
            user: user.as_bytes(),
            proof: &session.proof,
            database: Some(b"witness"),
            plugin: plugin.as_bytes(),
            attributes: Some(&attributes),
            zstd_level: None,
        };
        handshake::write_response(&mut out, due, &response);
        session.stream.write_all(&out)?;
        Ok(session.finish_login(secret)?.map(|()| session))
    }

    /// Answers the plug-ins until the server has decided.
    fn finish_login(&mut self, secret: Secret<'_>) -> io::Result<Result<(), Told>> {
        loop {
            let (payload, due) = self.message(authentication::MAX_STEP)?;
            match authentication::parse_step(&payload).unwrap() {
                Step::Ok => return Ok(Ok(())),
                Step::Error(error) => return Ok(Err(Told::of(&error))),
                Step::Switch { plugin, data } => {
                    self.switched = true;
                    self.scramble = data.to_vec();
                    self.proof = prove(std::str::from_utf8(plugin).unwrap(), secret, data);
                    let mut out = BytesMut::new();
                    codec::write(&mut out, due, &self.proof);
                    self.stream.write_all(&out)?;
                }
                Step::More([caching_sha2::FAST]) => {}
                Step::More(data) => {
                    assert_eq!(data, [caching_sha2::FULL]);
                    let Secret::Password(password) = secret else { panic!("only a password can be sent") };
                    self.sent_password = true;
                    let mut out = BytesMut::new();
                    codec::write(&mut out, due, &caching_sha2::in_clear(password.as_bytes()));
                    self.stream.write_all(&out)?;
                }
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; 1 << 20];
        let len = self.stream.read(&mut chunk)?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed the connection"));
        }
        self.received.extend_from_slice(&chunk[..len]);
        Ok(())
    }

    fn message(&mut self, max: usize) -> io::Result<(Vec<u8>, Sequence)> {
        loop {
            if let Some(Message { next, len, payload, .. }) = codec::message(&self.received, max).unwrap() {
                let payload = payload.into_owned();
                self.received.drain(..len);
                return Ok((payload, next));
            }
            self.receive()?;
        }
    }

    pub(crate) fn command(&mut self, command: &Command<'_>) -> Answer {
        self.command_with_file(command, &[])
    }

    pub(crate) fn query(&mut self, sql: &str) -> Answer {
        self.command(&Command::Query(Query { attributes: &[], sql: sql.as_bytes() }))
    }

    /// Sends a command and follows its answer; a file that the server asks for is sent in these pieces.
    pub(crate) fn command_with_file(&mut self, command: &Command<'_>, file: &[&[u8]]) -> Answer {
        self.try_command(command, file).expect("the server answers")
    }

    /// Sends a command over a connection that may be closed at any time, and follows its answer.
    pub(crate) fn try_command(&mut self, command: &Command<'_>, file: &[&[u8]]) -> io::Result<Answer> {
        let mut out = BytesMut::new();
        let due = command::write(&mut out, command, self.capabilities);
        self.stream.write_all(&out)?;
        self.follow(command.expects().unwrap(), due, file)
    }

    pub(crate) fn follow(&mut self, expect: Expect, due: Sequence, file: &[&[u8]]) -> io::Result<Answer> {
        let mut follower = Follower::new(expect, self.capabilities, due);
        let mut messages: Vec<(Part, Vec<u8>)> = Vec::new();
        loop {
            match follower.turn() {
                Turn::Over => break,
                Turn::Server => {}
                Turn::Client => {
                    self.send_file(&mut follower, file);
                    continue;
                }
            }
            let packet = loop {
                let found = codec::packet(&self.received);
                if let Some(packet) = found.filter(|packet| packet.len() <= self.received.len()) {
                    if self.has_good_bye() {
                        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server has ended"));
                    }
                    break packet;
                }
                self.receive()?;
            };
            let payload = packet.payload(&self.received).unwrap();
            let part = follower.server(packet, &payload[..payload.len().min(PEEK)]).unwrap();
            if part == Part::Continued {
                messages.last_mut().unwrap().1.extend_from_slice(payload);
            } else {
                messages.push((part, payload.to_vec()));
            }
            self.received.drain(..packet.len());
        }
        assert!(self.received.is_empty() || self.has_good_bye(), "something came behind the end");
        Ok(Answer { messages })
    }

    /// Whether an error has arrived that answers nothing: the server ends.
    fn has_good_bye(&self) -> bool {
        codec::packet(&self.received).is_some_and(|packet| {
            packet.sequence == Sequence(0) && self.received.get(4) == Some(&answer::ERROR)
        })
    }

    fn send_file(&mut self, follower: &mut Follower, file: &[&[u8]]) {
        for piece in file.iter().chain([&&[][..]]) {
            let mut out = BytesMut::new();
            codec::write(&mut out, follower.due(), piece);
            let mut rest = &out[..];
            while let Some(packet) = codec::packet(rest) {
                follower.client(packet).unwrap();
                rest = &rest[packet.len()..];
            }
            self.send(&out);
        }
    }

    /// Changes the user within the connection, with an empty proof that the server has to ask for again.
    pub(crate) fn change_user(&mut self, user: &str, secret: Secret<'_>) -> Result<(), Told> {
        self.change_user_in(user, secret, ("witness", 45))
    }

    /// Changes the user within the connection, and uses a database and a collation from then on.
    pub(crate) fn change_user_in(
        &mut self,
        user: &str,
        secret: Secret<'_>,
        (database, collation): (&str, u16),
    ) -> Result<(), Told> {
        let mut out = BytesMut::new();
        let change = command::ChangeUser {
            user: user.as_bytes(),
            proof: &[],
            database: database.as_bytes(),
            collation: Some(collation),
            plugin: Some(b"mysql_native_password"),
            attributes: None,
        };
        command::write(&mut out, &Command::ChangeUser(change), self.capabilities);
        self.send(&out);
        self.finish_login(secret).expect("the server answers")
    }

    /// Whether the server is where we are: it answers a ping with one packet.
    pub(crate) fn ping(&mut self) {
        let answer = self.command(&Command::Ping);
        assert!(matches!(answer.messages[..], [(Part::Ok(_), _)]), "{answer:?}");
    }
}

fn prove(plugin: &str, secret: Secret<'_>, scramble: &[u8]) -> Vec<u8> {
    match (plugin, secret) {
        (_, Secret::Password("")) => Vec::new(),
        (caching_sha2::NAME, Secret::Password(password)) => {
            caching_sha2::prove(&caching_sha2::key(password.as_bytes()), scramble).to_vec()
        }
        (native::NAME, Secret::Password(password)) => {
            native::prove(&native::key(password.as_bytes()), scramble).to_vec()
        }
        (native::NAME, Secret::NativeKey(key)) => native::prove(key, scramble).to_vec(),
        (ed25519::NAME, Secret::Password(password)) => ed25519::prove(password.as_bytes(), scramble).to_vec(),
        _ => panic!("the server asked for {plugin}"),
    }
}
