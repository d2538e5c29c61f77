//! The files that a connection to the database needs: authorities, and a password.

use std::path::Path;
use std::sync::Arc;

use log::warn;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::StoreError;
use crate::database_url::DatabaseTls;
use crate::os::secret_file;

/// The longest file of authorities.
const MAX_ROOTS_BYTES: usize = 4 << 20;
/// The longest file with a password.
const MAX_PASSWORD_BYTES: usize = 4096;
/// Where systems have the authorities that they trust.
const SYSTEM_ROOTS: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// What verifies the certificates of the database; `None` if they are not asked for.
pub(super) fn config(tls: &DatabaseTls) -> Result<Option<Arc<ClientConfig>>, StoreError> {
    let DatabaseTls::VerifyFull { roots } = tls else { return Ok(None) };
    let path = match roots {
        Some(path) => path.as_path(),
        None => SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists()).ok_or_else(|| {
            StoreError::File(
                "this system has no file of authorities: name one with sslrootcert=FILE".to_owned(),
            )
        })?,
    };
    let wrong = |reason: &dyn std::fmt::Display| {
        StoreError::File(format!("sslrootcert={}: {reason}", path.display()))
    };
    let file = secret_file::read(path, MAX_ROOTS_BYTES).map_err(|error| wrong(&error))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&file.bytes) {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        // The bundles of systems have some that are of no use.
        if let Err(error) = store.add(certificate)
            && roots.is_some()
        {
            return Err(wrong(&error));
        }
    }
    if store.is_empty() {
        return Err(wrong(&"found no certificate in it, expected a file in PEM format"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(Some(Arc::new(config)))
}

pub(super) fn password_of(path: &Path) -> Result<String, StoreError> {
    let wrong = |reason: &dyn std::fmt::Display| {
        StoreError::File(format!("--store-password-file {}: {reason}", path.display()))
    };
    let file = secret_file::read(path, MAX_PASSWORD_BYTES).map_err(|error| wrong(&error))?;
    if file.is_readable_by_all {
        warn!("--store-password-file {}: every user of this machine can read it", path.display());
    }
    let text = String::from_utf8(file.bytes).map_err(|_| wrong(&"expected text in UTF-8"))?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(wrong(&"expected the password in its first line"));
    }
    Ok(line.to_owned())
}
