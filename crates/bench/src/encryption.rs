//! TLS for the clients of an experiment: a certificate made for it, and what trusts nothing else.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use crate::Error;

/// A certificate for this machine with its key, in files for as long as this lives.
#[derive(Debug)]
pub(crate) struct Identity {
    directory: TempDir,
    /// Trusts this certificate alone.
    pub(crate) trust: Trust,
}

impl Identity {
    /// Makes a certificate with its key.
    ///
    /// # Errors
    /// If it can't be made, or written.
    pub(crate) fn new() -> Result<Self, Error> {
        let failed =
            |error: &dyn std::fmt::Display| Error::Experiment(format!("making a certificate: {error}"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let rcgen::CertifiedKey { cert, signing_key } = made.map_err(|error| failed(&error))?;
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).map_err(|error| failed(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let directory = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
        let identity = Self { directory, trust: Trust(TlsConnector::from(Arc::new(config))) };
        write(&identity.certificate(), &cert.pem())?;
        write(&identity.key(), &signing_key.serialize_pem())?;
        Ok(identity)
    }

    /// The keys of a gate that has it.
    pub(crate) fn keys(&self) -> [(String, String); 2] {
        [("tls_cert", self.certificate()), ("tls_key", self.key())]
            .map(|(key, path)| (key.to_owned(), format!("{:?}", path.display().to_string())))
    }

    /// The certificate's file.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.path().join("gate.pem")
    }

    /// The key's file.
    pub(crate) fn key(&self) -> PathBuf {
        self.directory.path().join("gate.key")
    }
}

/// Writes what only its owner may read.
fn write(path: &std::path::Path, text: &str) -> Result<(), Error> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::io(format!("writing {}", path.display())))
}

/// What the driver connects with.
#[derive(Clone)]
pub(crate) struct Trust(TlsConnector);

impl std::fmt::Debug for Trust {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Trust")
    }
}

/// A socket with TLS.
pub(crate) struct Secured<S>(client::TlsStream<S>);

impl Trust {
    /// Speaks TLS over a stream to a server that has the certificate, at whatever address.
    pub(crate) async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<Secured<S>> {
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        self.0.connect(name, stream).await.map(Secured)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Trust {
    type Stream = Secured<S>;
    type TlsConnect = Self;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _: &str) -> io::Result<Self> {
        Ok(self.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Trust {
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.secure(stream).await })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
