//! The first packets of a connection: requests for encryption, a cancel request, or the start-up message.
//!
//! TLS begins after an SSLRequest, or at once ("direct", PostgreSQL 17); the first byte tells which. A client
//! may ask for TLS and for GSSAPI encryption once each, in either order. GSSAPI is always declined, and the
//! client goes on.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::sync::OwnedSemaphorePermit;
use wire::postgres::startup::{
    OPTION_PREFIX, PROTOCOL_3_0, PROTOCOL_3_2, Startup, TLS_HANDSHAKE, parameter, parse, protocol_options,
    user, write_negotiate_protocol_version,
};

use super::super::cancel::KeyLength;
use super::super::refusal::Refusal;
use super::super::{Settings, Shared, replication};
use super::End;
use crate::stream::Stream;
use crate::tls::{Acceptor, DownstreamMode, common_name, speaks_postgres};

/// Room for the first packet of nearly every client.
const INPUT_BYTES: usize = 256;

/// What a client asks for when it wants a session.
pub(super) struct Wish {
    /// Without `_pq_.` options.
    pub(super) parameters: Vec<(String, String)>,
    /// The longest cancel key that the client understands.
    pub(super) key_length: KeyLength,
    pub(super) client_place: OwnedSemaphorePermit,
}

/// A client that hasn't said yet what it wants.
pub(super) struct Opening<'a> {
    shared: &'a Arc<Shared>,
    settings: Arc<Settings>,
    /// Absent only within a TLS handshake, or after one that failed.
    pub(super) client: Option<Stream>,
    /// Read from the client and not yet looked at.
    pub(super) input: BytesMut,
}

impl<'a> Opening<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, client: Stream) -> Self {
        Self {
            shared,
            settings: shared.settings(),
            client: Some(client),
            input: BytesMut::with_capacity(INPUT_BYTES),
        }
    }

    /// Reads first packets until one asks for a session.
    pub(super) async fn run(&mut self) -> Result<Wish, End> {
        if let Some(acceptor) = &self.settings.tls.clone() {
            self.begin_direct(acceptor).await?;
        }
        let (mut ssl_asked, mut gss_asked) = (self.is_encrypted(), false);
        loop {
            match self.first_packet().await? {
                Startup::Ssl if !ssl_asked => {
                    ssl_asked = true;
                    self.answer_ssl().await?;
                }
                Startup::GssEncryption if !gss_asked => {
                    gss_asked = true;
                    self.refuse_what_follows()?;
                    self.send(b"N").await?;
                }
                // Asking twice is no client's way.
                Startup::Ssl | Startup::GssEncryption => return Err(End::Silent),
                // In the clear whatever the mode: libpq before PostgreSQL 17 knows no other way.
                Startup::Cancel { process_id, secret } => {
                    return Err(End::Cancel { process_id, secret });
                }
                Startup::Session { minor, parameters } => return self.wish(minor, parameters).await,
            }
        }
    }

    fn client(&mut self) -> Result<&mut Stream, End> {
        self.client.as_mut().ok_or(End::Silent)
    }

    fn is_encrypted(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.encryption().is_some())
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.client()?.send(bytes).await.map_err(|_| End::Silent)
    }

    /// Direct TLS: a handshake from the first byte. It must name the protocol, so that nobody can have a
    /// browser's or another server's client speak to us.
    async fn begin_direct(&mut self, acceptor: &Acceptor) -> Result<(), End> {
        let Some(Stream::Tcp(socket)) = &self.client else { return Ok(()) };
        let mut first = [0];
        match socket.peek(&mut first).await {
            Ok(1) if first[0] == TLS_HANDSHAKE => self.encrypt(acceptor).await?,
            Ok(1) => return Ok(()),
            _ => return Err(End::Silent),
        }
        let agreed = self.client.as_ref().and_then(Stream::encryption).is_some_and(speaks_postgres);
        if agreed { Ok(()) } else { Err(End::Silent) }
    }

    async fn answer_ssl(&mut self) -> Result<(), End> {
        self.refuse_what_follows()?;
        match &self.settings.tls.clone() {
            Some(acceptor) if matches!(self.client, Some(Stream::Tcp(_))) => {
                self.send(b"S").await?;
                self.encrypt(acceptor).await
            }
            _ => self.send(b"N").await,
        }
    }

    /// Bytes behind a request for encryption and before our answer must not be read as if they had come
    /// encrypted: somebody in the middle may have put them there (CVE-2021-23214).
    fn refuse_what_follows(&self) -> Result<(), End> {
        if self.input.is_empty() { Ok(()) } else { Err(End::Silent) }
    }

    async fn encrypt(&mut self, acceptor: &Acceptor) -> Result<(), End> {
        let Some(Stream::Tcp(socket)) = self.client.take() else { return Err(End::Silent) };
        let gate = &self.settings.name;
        match acceptor.accept(socket).await {
            Ok(stream) => {
                self.client = Some(stream);
                Ok(())
            }
            Err(error) => {
                // rustls has told the client as far as TLS has words for it.
                tracing::info!(gate, %error, "TLS handshake failed");
                Err(End::Silent)
            }
        }
    }

    async fn first_packet(&mut self) -> Result<Startup, End> {
        loop {
            match parse(&self.input) {
                Ok(Some((startup, length))) => {
                    let _ = self.input.split_to(length);
                    return Ok(startup);
                }
                Ok(None) => {}
                Err(error) if error.is_silent() => return Err(End::Silent),
                Err(error) => return Err(Refusal::Startup(error).into()),
            }
            let client = self.client.as_mut().ok_or(End::Silent)?;
            match client.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return Err(End::Silent),
                Ok(_) => {}
            }
        }
    }

    async fn wish(&mut self, minor: u16, mut parameters: Vec<(String, String)>) -> Result<Wish, End> {
        let settings = Arc::clone(&self.settings);
        // Visitors of the console aren't clients: a full gate lets its operator in.
        let knocks = settings.console.is_asked_for(parameter(&parameters, "database"));
        let place = if knocks { None } else { self.shared.clients.try_take() };
        if place.is_none() && !knocks {
            return Err(Refusal::TooManyClients(settings.max_clients).into());
        }
        self.demand_tls(user(&parameters))?;
        let options = protocol_options(&parameters);
        // 3.1 was never given out: a client that asks for it gets 3.0. The console is the gate's own.
        let newest = match minor {
            0 | 1 => PROTOCOL_3_0,
            _ if knocks => PROTOCOL_3_2,
            _ => self.shared.spoken.newest(),
        };
        let key_length = if newest == PROTOCOL_3_0 { KeyLength::Short } else { KeyLength::Long };
        if newest & 0xffff != u32::from(minor) || !options.is_empty() {
            let mut out = BytesMut::new();
            write_negotiate_protocol_version(&mut out, newest, &options);
            self.send(&out).await?;
        }
        parameters.retain(|(name, _)| !name.starts_with(OPTION_PREFIX));
        let Some(client_place) = place else { return Err(End::Knocks(parameters)) };
        if settings.shares_connections() && replication::is_asked_for(&parameters) {
            return Err(Refusal::Replication.into());
        }
        Ok(Wish { parameters, key_length, client_place })
    }

    /// Whether the connection is as encrypted, and the client as certified, as `tls_mode` wants it.
    fn demand_tls(&self, user: &str) -> Result<(), Refusal> {
        let (Some(acceptor), Some(client)) = (&self.settings.tls, &self.client) else { return Ok(()) };
        let mode = acceptor.mode();
        match client {
            // Its bytes never leave the machine.
            Stream::Unix(_) => Ok(()),
            Stream::Tcp(_) if mode >= DownstreamMode::Require => Err(Refusal::TlsRequired),
            Stream::Tcp(_) => Ok(()),
            Stream::Tls(stream) if mode == DownstreamMode::VerifyFull => {
                let name = stream.peer_certificate().and_then(common_name);
                if name.as_deref() == Some(user) {
                    Ok(())
                } else {
                    Err(Refusal::CertificateName { name, user: user.to_owned() })
                }
            }
            Stream::Tls(_) => Ok(()),
        }
    }
}
