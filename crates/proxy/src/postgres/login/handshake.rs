//! The server's side of a login: a fresh connection, from its start-up message to its first ReadyForQuery.

use std::io;

use bytes::{Bytes, BytesMut};
use wire::postgres::backend::{parse_backend_key, parse_error};
use wire::postgres::startup::write_startup;

use super::super::Settings;
use super::super::endpoint::{Encryption, Endpoint};
use super::super::message::{Message, Sender};
use super::super::refusal::Refusal;
use super::super::server::{Greeting, Server};
use crate::stream::Stream;
use crate::upstream::address::ConnectError;
use crate::upstream::health::Lack;

/// What a server says that starts, recovers or shuts down.
const CANNOT_CONNECT_NOW: &str = "57P03";
/// The most bytes of notices that are kept for the end of a login; more are lost.
const NOTICES_MAX: usize = 64 * 1024;

/// Takes the server's first word for a sign that it is there, or that it can't serve yet or any more.
fn note(settings: &Settings, first: &Message) {
    if first.tag() == b'E' {
        let error = parse_error(first.body());
        let why = String::from_utf8_lossy(error.message());
        if error.code() == CANNOT_CONNECT_NOW {
            return settings.health.failed(settings.named(), Lack::Answer, &why);
        }
    }
    settings.health.answered(settings.named());
}

/// A login that the server has accepted, but the client hasn't heard of.
pub(crate) struct Accepted {
    pub(crate) server: Server,
    /// To be told to the client behind AuthenticationOk.
    pub(crate) notices: BytesMut,
}

/// A connection to the server that is about to authenticate.
pub(crate) struct Handshake {
    pub(crate) stream: Stream,
    input: BytesMut,
    /// Its first answer, which was looked at before.
    first: Option<Message>,
    greeting: Greeting,
    notices: BytesMut,
}

impl Handshake {
    /// Connects, with TLS as the endpoint has it, and names the user and the database.
    pub(crate) async fn open<N: AsRef<str>, V: AsRef<str>>(
        settings: &Settings,
        parameters: &[(N, V)],
    ) -> Result<Self, Refusal> {
        let endpoint = Endpoint::new(settings);
        let mut ways = endpoint.ways().iter();
        loop {
            let Some(way) = ways.next() else { return Err(Refusal::ServerLost) };
            let is_last = ways.len() == 0;
            let stream = match endpoint.connect(*way).await {
                Ok(stream) => stream,
                Err(ConnectError::Tls { source, .. }) if !is_last => {
                    tracing::debug!(error = %source, "no TLS with the server, which is only preferred");
                    continue;
                }
                Err(error) => {
                    settings.health.failed(settings.named(), Lack::Connection, &error);
                    return Err(Refusal::Unreachable(error));
                }
            };
            // The other way would be this one again.
            let is_only = *way == Encryption::Offered && stream.encryption().is_none();
            let mut handshake = Self::begin(stream, parameters).await?;
            let first = handshake.next().await.map_err(|refusal| match refusal {
                Refusal::ServerErred => Refusal::NotPostgres,
                other => other,
            });
            let first = first.inspect_err(|error| {
                settings.health.failed(settings.named(), Lack::Answer, error);
            })?;
            if is_last || is_only || first.tag() != b'E' {
                note(settings, &first);
                handshake.first = Some(first);
                return Ok(handshake);
            }
        }
    }

    async fn begin<N: AsRef<str>, V: AsRef<str>>(
        mut stream: Stream,
        parameters: &[(N, V)],
    ) -> Result<Self, Refusal> {
        let mut out = BytesMut::new();
        write_startup(&mut out, parameters);
        stream.send(&out).await.map_err(|_| Refusal::ServerLost)?;
        let (input, notices) = (BytesMut::with_capacity(1024), BytesMut::new());
        Ok(Self { stream, input, first: None, greeting: Greeting::default(), notices })
    }

    /// The server's next message that isn't just to be noted: what it reports about itself is, and notices
    /// are kept until the client can understand them (some take none before AuthenticationOk).
    pub(crate) async fn next(&mut self) -> Result<Message, Refusal> {
        if let Some(message) = self.first.take() {
            return Ok(message);
        }
        loop {
            let message = Message::read(&mut self.stream, &mut self.input, Sender::Server).await;
            let message = message.map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => Refusal::ServerErred,
                _ => Refusal::ServerLost,
            })?;
            match message.tag() {
                b'S' => self.greeting.note_parameter(message.body()),
                b'K' => {
                    let (process_id, secret) =
                        parse_backend_key(message.body()).map_err(|_| Refusal::ServerErred)?;
                    self.greeting.process_id = process_id;
                    self.greeting.secret = Bytes::copy_from_slice(secret);
                }
                b'N' if self.notices.len() + message.bytes().len() <= NOTICES_MAX => {
                    self.notices.extend_from_slice(message.bytes());
                }
                // A version was never asked for; it says which one it speaks.
                b'N' | b'v' => {}
                b'R' | b'E' | b'Z' => return Ok(message),
                _ => return Err(Refusal::ServerErred),
            }
        }
    }

    /// The connection, after its ReadyForQuery.
    pub(crate) fn accepted(self) -> Accepted {
        let Self { stream, input, greeting, notices, .. } = self;
        Accepted { server: Server::new(stream, input, greeting), notices }
    }
}
