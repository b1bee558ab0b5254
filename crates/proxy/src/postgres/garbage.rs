//! Bodies of fuzz targets for what is private here: an exchange whose client and server say anything at any
//! time, and texts that only a server sends; logins and the console in files of their own.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use wire::postgres::backend::Status;
use wire::postgres::codec::{HEADER_LEN, backend_frame, frontend_frame};

use super::batch;
use super::exchange::{Exchange, Scope};
use super::message::{Message, Sender};
use super::parameters::Parameters;
use super::pins::Pins;
use super::prepared::Registry;
use super::restore;
use super::settings::{ServerState, SessionSettings};
use super::state::State;
use super::transaction::Transaction;

mod console;
mod login;

pub use console::console;
pub use login::{rows, sasl_initial, scram, users};

/// Type bytes that a client's messages are made with.
const CLIENT_TAGS: &[u8] = b"QPBDECHSFdcf";
/// Type bytes that a server's messages are made with.
const SERVER_TAGS: &[u8] = b"123CDEGHINSTVWZdcnstA";

/// What an exchange works on.
struct Scene {
    session: State,
    transaction: Transaction,
    server: ServerState,
    parameters: Parameters,
    exchange: Exchange,
    /// Up to the client's Sync everything is dropped.
    skipping: bool,
    is_gone: bool,
    /// The client's messages of a batch that isn't complete.
    batch: BytesMut,
    to_server: BytesMut,
    to_client: BytesMut,
}

/// One dialogue after another over one server connection. Each step is a byte that chooses the side and the
/// message, a length, and so many bytes for a body. Whatever is said, both sides must get nothing but whole
/// messages.
pub fn exchange(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let mut scene = Scene::new(first & 1 == 0);
    while let [choice, length, body @ ..] = rest {
        let (body, behind) = body.split_at(body.len().min(usize::from(*length)));
        rest = behind;
        if !scene.step(*choice, body) {
            return;
        }
    }
}

/// What an idle server connection says, and what a login reads.
pub fn idle_server(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let mut input = BytesMut::from(data);
    let sender = if first & 1 == 0 { Sender::Server } else { Sender::Client };
    let mut parameters = Parameters::default();
    while let Ok(Some(message)) = Message::take(&mut input, sender) {
        assert_eq!(message.bytes().len(), message.body().len() + HEADER_LEN);
        if message.tag() == b'S' {
            parameters.note(message.body());
        }
    }
    let mut other = parameters.clone();
    assert!(other.unite(&mut parameters) && parameters.iter().count() <= data.len());
}

/// Rows and copy data that pass without being looked at: whole messages, and no others.
pub fn passing(data: &[u8]) {
    let passing = super::forward::passing(data);
    let mut rest = &data[..passing];
    while let Ok(Some(frame)) = backend_frame(rest) {
        assert!(matches!(frame.tag, b'D' | b'd') && frame.len <= rest.len());
        rest = &rest[frame.len..];
    }
    assert!(rest.is_empty(), "messages pass as a whole");
}

/// What a server's machine says of its processors.
pub fn cores(data: &[u8]) {
    let found = super::cores::cores(&String::from_utf8_lossy(data));
    assert!(found.is_none_or(|cores| cores > 0));
}

impl Scene {
    fn new(shared: bool) -> Self {
        let mut reported = Parameters::default();
        for (name, value) in
            [("standard_conforming_strings", "on"), ("TimeZone", "UTC"), ("application_name", "a'\\b")]
        {
            reported.set(name, value);
        }
        let registry: Arc<Registry> = Arc::default();
        let settings = SessionSettings::new(reported);
        let pins = Pins::new(Arc::default(), Arc::default());
        Self {
            session: State::new("g".into(), "d".into(), settings, shared, registry, pins),
            transaction: Transaction::default(),
            server: ServerState::default(),
            parameters: Parameters::default(),
            exchange: Exchange::default(),
            skipping: false,
            is_gone: false,
            batch: BytesMut::new(),
            to_server: BytesMut::new(),
            to_client: BytesMut::new(),
        }
    }

    /// `false`: the connection would be closed.
    fn step(&mut self, choice: u8, body: &[u8]) -> bool {
        let index = usize::from(choice & 0x1f);
        let goes_on = match choice >> 5 {
            0..=2 => self.client(CLIENT_TAGS[index % CLIENT_TAGS.len()], body),
            3..=5 => self.server(SERVER_TAGS[index % SERVER_TAGS.len()], body),
            // The client pauses.
            6 if index % 2 == 0 => {
                self.exchange.end_early(&mut self.to_server);
                true
            }
            6 => {
                if self.exchange.may_be_kept_back() {
                    self.exchange.flush(&mut self.to_server);
                }
                true
            }
            // It is gone for good.
            _ => {
                self.is_gone = true;
                self.exchange.abandon(&mut self.to_server);
                !self.exchange.is_done()
            }
        };
        self.check();
        goes_on
    }

    fn client(&mut self, tag: u8, body: &[u8]) -> bool {
        let mut frame = BytesMut::new();
        frame.put_u8(tag);
        frame.put_u32(u32::try_from(body.len() + 4).expect("a step is short"));
        frame.put_slice(body);
        let Ok(Some(_)) = frontend_frame(&frame) else { return true };
        if self.is_gone {
            return true;
        }
        if self.skipping {
            self.skipping = tag != b'S';
            return true;
        }
        if !self.exchange.is_done() {
            return !self.exchange.wants_client() || self.forward(&frame);
        }
        if self.batch.is_empty() && matches!(tag, b'd' | b'c' | b'f') {
            return true;
        }
        if self.batch.is_empty() && matches!(tag, b'Q' | b'F') {
            self.begin(Exchange::new([].into(), &Transaction::Idle));
            return self.forward(&frame);
        }
        self.batch.extend_from_slice(&frame);
        if !matches!(tag, b'S' | b'H' | b'Q' | b'F') {
            return true;
        }
        let bytes = self.batch.split();
        let batch = batch::read(&self.session, &bytes);
        if batch.is_control {
            let answer =
                batch::answer_locally(&mut self.session, &mut self.transaction, &bytes, &batch.parsed);
            if let Some(answered) = answer {
                self.to_client.extend_from_slice(&answered.out);
                self.skipping = answered.skips;
                return true;
            }
        }
        self.begin(Exchange::new(batch.parsed, &self.transaction));
        let mut rest = &bytes[..];
        while let Ok(Some(frame)) = frontend_frame(rest) {
            if !self.forward(&rest[..frame.len]) {
                return false;
            }
            rest = &rest[frame.len..];
        }
        true
    }

    fn begin(&mut self, exchange: Exchange) {
        self.exchange = exchange;
        let mut scope =
            Scope { session: &mut self.session, server: &mut self.server, parameters: &mut self.parameters };
        self.exchange.begin(&mut scope, self.transaction.deferred(), &mut self.to_server);
    }

    fn forward(&mut self, frame: &[u8]) -> bool {
        let mut scope =
            Scope { session: &mut self.session, server: &mut self.server, parameters: &mut self.parameters };
        let mut goes_on = true;
        if frame[0] == b'Q' && !self.exchange.is_copy_in() {
            let analysis = scope.session.analyze_query(frame);
            self.exchange.query(&mut scope, frame, analysis, &mut self.to_server);
        } else {
            goes_on = self.exchange.client_frame(&mut scope, frame, &mut self.to_server).is_ok();
        }
        self.exchange.answer_locally(&mut self.to_client);
        goes_on
    }

    fn server(&mut self, tag: u8, body: &[u8]) -> bool {
        let mut frame = BytesMut::new();
        frame.put_u8(tag);
        frame.put_u32(u32::try_from(body.len() + 4).expect("a step is short"));
        frame.put_slice(body);
        let Ok(Some(_)) = backend_frame(&frame) else { return true };
        let mut scope =
            Scope { session: &mut self.session, server: &mut self.server, parameters: &mut self.parameters };
        let exchange = &mut self.exchange;
        if exchange.server_frame(&mut scope, &frame, &mut self.to_client, &mut self.to_server).is_err() {
            return false;
        }
        if self.is_gone {
            exchange.abandon(&mut self.to_server);
            self.to_client.clear();
        }
        if exchange.is_done() {
            self.skipping |= std::mem::take(&mut exchange.client_owes_sync);
            let status = exchange.status.unwrap_or(Status::Idle);
            self.transaction =
                if status == Status::Idle { Transaction::Idle } else { Transaction::Open(status) };
            self.settle();
            return !self.is_gone;
        }
        true
    }

    /// What the next client would find, and the session on its next connection.
    fn settle(&mut self) {
        let settings = &self.session.settings;
        if let Some(plan) = restore::plan(settings, (&self.parameters, &self.server), false) {
            assert!(plan.texts().all(|sql| !sql.contains('\0')), "{plan:?}");
            self.server.settings.clone_from(settings.book.settings());
        }
        self.session.settings.tell(&self.parameters, &mut self.to_client);
    }

    /// Both sides get whole messages.
    fn check(&mut self) {
        let to_server = self.to_server.split();
        let mut rest = &to_server[..];
        while !rest.is_empty() {
            let frame = frontend_frame(rest).expect("the server gets messages").expect("whole ones");
            assert!(frame.body(rest).is_some(), "the server gets whole messages");
            rest = &rest[frame.len..];
        }
        let to_client = self.to_client.split();
        let mut rest = &to_client[..];
        while !rest.is_empty() {
            let frame = backend_frame(rest).expect("the client gets messages").expect("whole ones");
            assert!(frame.body(rest).is_some(), "the client gets whole messages");
            rest = &rest[frame.len..];
        }
    }
}
