//! Certificates made for a test: an authority, what it signs, and clients that trust it.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A certificate and its key, as PEM.
pub(crate) struct Certificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// An authority that signs certificates, with a directory for files.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: String,
    directory: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_key(name, KeyPair::generate().expect("a key"))
    }

    /// One that signs with this key, and so in its way.
    pub(crate) fn with_key(name: &str, key: KeyPair) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let authority = Self { issuer: Issuer::new(params, key), certificate, directory };
        authority.file("ca.pem", &authority.certificate, 0o644);
        authority
    }

    /// A certificate for hosts (by alternative names) whose subject has this common name.
    pub(crate) fn issue(&self, common_name: &str, hosts: &[&str]) -> Certificate {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names of hosts");
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Certificate { certificate, key: key.serialize_pem() }
    }

    /// Its own certificate and key, for a server of the same name.
    pub(crate) fn itself(&self) -> Certificate {
        Certificate { certificate: self.certificate.clone(), key: self.issuer.key().serialize_pem() }
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).expect("the file is written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode is set");
        path
    }

    /// Writes `NAME.pem` and `NAME.key`, and returns their paths.
    pub(crate) fn files(&self, name: &str, of: &Certificate) -> (PathBuf, PathBuf) {
        (
            self.file(&format!("{name}.pem"), &of.certificate, 0o644),
            self.file(&format!("{name}.key"), &of.key, 0o600),
        )
    }

    /// Its own certificate.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A TLS connection over a socket, to a server that this authority has signed.
    pub(crate) fn connect(
        &self,
        socket: TcpStream,
        protocol: Option<&str>,
        identity: Option<&Certificate>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("a certificate");
        roots.add(own).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certificate =
                    CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("a certificate");
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(vec![certificate], key).expect("an identity")
            }
        };
        config.alpn_protocols = protocol.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::new(config), name).expect("a session");
        StreamOwned::new(session, socket)
    }
}
