//! Certificates and keys from PEM files.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{File, FileFault, Identity};
use crate::ordinary;

/// The longest file, in bytes: a bundle of all public authorities has a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate's chain and its key.
pub(super) fn identity(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), FileFault> {
    Ok((certificates(&identity.certificate, File::Certificate)?, key(&identity.key)?))
}

/// All certificates of a file, at least one.
pub(super) fn certificates(path: &Path, file: File) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    certificates_in(&read(path).map_err(|error| unreadable(file, &error))?, file)
}

/// All certificates of what a file holds, at least one.
pub(super) fn certificates_in(pem: &[u8], file: File) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(FileFault::new(file, "holds no certificate")
            .hint("it must be a PEM file with a section BEGIN CERTIFICATE")),
        Ok(found) => Ok(found),
        Err(error) => Err(FileFault::new(file, format!("isn't a PEM file: {error}"))),
    }
}

/// The certificates of a file that others are signed by; and as they are, since a certificate that is
/// itself in the file is trusted, too.
pub(super) fn authorities(
    path: &Path,
) -> Result<(Arc<RootCertStore>, Vec<CertificateDer<'static>>), FileFault> {
    let certificates = certificates(path, File::Authority)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| {
            FileFault::new(File::Authority, format!("holds a certificate that can't be used: {error}"))
        })?;
    }
    Ok((Arc::new(roots), certificates))
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, FileFault> {
    let fault = |why: String| FileFault::new(File::Key, why);
    let mut source = ordinary::open(path).map_err(|error| unreadable(File::Key, &error))?;
    let metadata = source.metadata().map_err(|error| unreadable(File::Key, &error))?;
    // The server's own rule: the key belongs to the user that runs it or to root, which may let a group read.
    let allowed = if metadata.uid() == 0 { 0o640 } else { 0o600 };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & !allowed != 0 {
        return Err(fault(format!("can be read or written by others (its mode is {mode:04o})"))
            .hint(format!("chmod 0600 {}", path.display())));
    }
    key_in(&read_open(&mut source).map_err(|error| unreadable(File::Key, &error))?)
}

/// The key in what a file holds.
pub(super) fn key_in(pem: &[u8]) -> Result<PrivateKeyDer<'static>, FileFault> {
    let fault = |why: String| FileFault::new(File::Key, why);
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) => Ok(key),
        Err(_) if is_encrypted(pem) => Err(fault("is encrypted with a passphrase".to_owned())
            .hint("decrypt it: openssl pkey -in KEY -out NEW (and chmod 0600 NEW)")),
        Err(error) => Err(fault(format!("holds no private key: {error}"))
            .hint("it must be a PEM file with a section BEGIN PRIVATE KEY")),
    }
}

/// What rustls says of a certificate and a key together.
pub(super) fn mismatch(error: rustls::Error) -> FileFault {
    match error {
        rustls::Error::InconsistentKeys(_) => FileFault::new(File::Key, "isn't the key of the certificate")
            .hint("the two files must belong together; of a chain, the server's own certificate comes first"),
        rustls::Error::InvalidCertificate(error) => {
            FileFault::new(File::Certificate, format!("holds a certificate that can't be used: {error:?}"))
        }
        error => FileFault::new(File::Key, format!("can't be used: {error}")),
    }
}

fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_open(&mut ordinary::open(path)?)
}

fn read_open(source: &mut fs::File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn unreadable(file: File, error: &io::Error) -> FileFault {
    FileFault::new(file, format!("cannot be read: {error}"))
}
