//! The gate's own side of TLS towards the server.

use std::sync::Arc;
use std::{fmt, io};

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::verifier::{Name, Verifier};
use super::{File, FileFault, HTTP, HTTP_1, PROTOCOL, Upstream, UpstreamMode, files, provider};
use crate::stream::{Encrypted, Stream};

/// Makes handshakes with the server. The files are read once; a reload makes a new connector.
pub struct Connector {
    mode: UpstreamMode,
    config: Arc<ClientConfig>,
    /// The configuration for a connection that will be upgraded to another protocol: it offers no HTTP/2,
    /// whose connections can't be upgraded.
    upgrading: Arc<ClientConfig>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connector").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Connector {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn new(settings: &Upstream) -> Result<Self, FileFault> {
        let config = read(settings, &[PROTOCOL])?;
        Ok(Self { mode: settings.mode, upgrading: Arc::clone(&config), config })
    }

    /// Reads the files, for a service that speaks HTTP.
    ///
    /// # Errors
    /// What is wrong with one of the files.
    pub fn for_http(settings: &Upstream) -> Result<Self, FileFault> {
        let config = read(settings, &HTTP)?;
        let mut upgrading = ClientConfig::clone(&config);
        upgrading.alpn_protocols.retain(|protocol| protocol == HTTP_1);
        Ok(Self { mode: settings.mode, config, upgrading: Arc::new(upgrading) })
    }

    /// How much TLS is demanded of the server.
    pub(crate) fn mode(&self) -> UpstreamMode {
        self.mode
    }

    /// Does a handshake with a host.
    ///
    /// # Errors
    /// What the server, or its certificate, did wrong.
    pub(crate) async fn connect(&self, socket: TcpStream, host: &str) -> io::Result<Stream> {
        Ok(Stream::tls(Encrypted::of_server(self.handshake(socket, host).await?)))
    }

    /// Does a handshake with a host over any byte stream.
    ///
    /// # Errors
    /// What the server, or its certificate, did wrong.
    pub(crate) async fn handshake<S>(&self, socket: S, host: &str) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        handshake(&self.config, socket, host).await
    }

    /// Does a handshake with a host over a byte stream that is to be upgraded to another protocol.
    ///
    /// # Errors
    /// What the server, or its certificate, did wrong.
    pub(crate) async fn handshake_for_upgrade<S>(&self, socket: S, host: &str) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        handshake(&self.upgrading, socket, host).await
    }
}

async fn handshake<S>(config: &Arc<ClientConfig>, socket: S, host: &str) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    TlsConnector::from(Arc::clone(config)).connect(name, socket).await.map_err(advised)
}

/// What a handshake's failure says, and what to do about the certificate.
fn advised(error: io::Error) -> io::Error {
    let fault = error.get_ref().and_then(|fault| fault.downcast_ref());
    let advice = match fault {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "upstream_tls_ca must hold the certificate of the authority that signed the server's"
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "upstream must name the server as its certificate does",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {advice}"))
}

fn read(settings: &Upstream, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, FileFault> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let verifier = match &settings.ca {
        // Without an authority the certificate isn't verified: that stops eavesdroppers only.
        None => Verifier::lenient(algorithms),
        Some(path) => {
            let name = if settings.mode == UpstreamMode::VerifyFull { Name::Verified } else { Name::Ignored };
            Verifier::new(files::authorities(path)?, name, algorithms)
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| FileFault::new(File::Authority, error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = files::identity(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(files::mismatch)?
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
