//! The gate's own side of TLS towards clients.

use std::sync::Arc;
use std::{fmt, io};

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::identities::Identities;
use super::{Downstream, DownstreamMode, File, FileFault, HTTP, PROTOCOL, files, provider};
use crate::stream::{Encrypted, Stream};

/// Takes clients' handshakes, with what the files held when it was made. New files make a new one.
pub struct Acceptor {
    mode: DownstreamMode,
    config: Arc<ServerConfig>,
    certificate: Arc<CertificateDer<'static>>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Acceptor").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// What is asked of clients.
    pub(crate) fn mode(&self) -> DownstreamMode {
        self.mode
    }

    /// Does a handshake.
    ///
    /// # Errors
    /// What the client, or its certificate, did wrong; or that it has gone.
    pub(crate) async fn accept(&self, socket: TcpStream) -> io::Result<Stream> {
        let stream = self.handshake(socket).await?;
        Ok(Stream::tls(Encrypted::of_client(stream, Arc::clone(&self.certificate))))
    }

    /// Does a handshake over any byte stream.
    ///
    /// # Errors
    /// What the client, or its certificate, did wrong; or that the client has gone.
    pub(crate) async fn handshake<S>(&self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(Arc::clone(&self.config)).accept(socket).await
    }
}

/// Whether a connection has agreed on PostgreSQL's protocol by name.
pub(crate) fn speaks_postgres(stream: &Encrypted) -> bool {
    stream.protocol() == Some(PROTOCOL)
}

impl Acceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn new(settings: &Downstream) -> Result<Self, FileFault> {
        Self::speaking(settings, &[PROTOCOL])
    }

    /// Reads the files, for clients that speak HTTP.
    ///
    /// # Errors
    /// What is wrong with one of the files.
    pub fn for_http(settings: &Downstream) -> Result<Self, FileFault> {
        Self::speaking(settings, &HTTP)
    }

    fn speaking(settings: &Downstream, protocols: &[&[u8]]) -> Result<Self, FileFault> {
        let identities = Identities::read(&settings.identities)?;
        let certificate = Arc::new(identities.certificate());
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| FileFault::new(File::Certificate, error.to_string()))?;
        let builder = match &settings.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let (roots, _) = files::authorities(path)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = if settings.mode >= DownstreamMode::VerifyCa {
                    verifier
                } else {
                    verifier.allow_unauthenticated()
                };
                let verifier =
                    verifier.build().map_err(|error| FileFault::new(File::Authority, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(identities));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { mode: settings.mode, config: Arc::new(config), certificate })
    }
}
