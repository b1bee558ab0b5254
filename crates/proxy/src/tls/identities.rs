//! The gate's certificates towards clients. Of several, a client gets the one for the name that it asks for.

use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{File, FileFault, Identity, files, names, provider};

/// Certificates with their keys, at least one.
#[derive(Debug)]
pub(super) struct Identities {
    first: Arc<CertifiedKey>,
    others: Vec<Arc<CertifiedKey>>,
}

impl Identities {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with one of them; of several, which.
    pub(super) fn read(identities: &[Identity]) -> Result<Self, FileFault> {
        let several = identities.len() > 1;
        let mut all = identities.iter().map(|identity| {
            one(identity).map_err(|fault| if several { naming(fault, identity) } else { fault })
        });
        let none = || FileFault::new(File::Certificate, "is missing");
        Ok(Self { first: all.next().ok_or_else(none)??, others: all.collect::<Result<_, _>>()? })
    }

    /// The certificate for clients that ask for no name, or for an unknown one.
    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        // One without certificates is a fault of its file.
        self.first.cert.first().cloned().unwrap_or_else(|| Vec::new().into())
    }

    /// The first one for a name with whose key a client can do something, if there are several for it (an
    /// RSA key beside another, for old clients); the first of all, if none is for the name, since a client
    /// may take it.
    fn of(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> &Arc<CertifiedKey> {
        let asked = name.filter(|_| !self.others.is_empty());
        let host = asked.and_then(|name| DnsName::try_from(name).ok()).map(ServerName::DnsName);
        let fits = |identity: &&Arc<CertifiedKey>| {
            let certificate = identity.cert.first();
            host.as_ref()
                .is_some_and(|host| certificate.is_some_and(|certificate| names::is_for(certificate, host)))
        };
        let mut first = None;
        for identity in std::iter::once(&self.first).chain(&self.others).filter(fits) {
            if identity.key.choose_scheme(schemes).is_some() {
                return identity;
            }
            first.get_or_insert(identity);
        }
        first.unwrap_or(&self.first)
    }
}

impl ResolvesServerCert for Identities {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.of(hello.server_name(), hello.signature_schemes())))
    }
}

fn one(identity: &Identity) -> Result<Arc<CertifiedKey>, FileFault> {
    let (chain, key) = files::identity(identity)?;
    CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(files::mismatch)
}

fn naming(fault: FileFault, identity: &Identity) -> FileFault {
    let path = if fault.file == File::Key { &identity.key } else { &identity.certificate };
    FileFault { why: format!("{} ({})", fault.why, path.display()), ..fault }
}
