//! The verification of the certificate of the database.

use std::path::Path;
use std::sync::Arc;

use log::warn;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::StoreError;
use crate::database_url::DatabaseTls;
use crate::os::secret_file;

/// The longest file of authorities.
const MAX_ROOTS_BYTES: usize = 4 << 20;
/// The files in which systems keep their trusted authorities.
const SYSTEM_ROOTS: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The settings that encrypt connections and verify the certificates of the database; `None` for plain text.
pub(super) fn config(tls: &DatabaseTls) -> Result<Option<Arc<ClientConfig>>, StoreError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::File(error.to_string()))?;
    let lax = |authorities| Arc::new(LaxVerifier { authorities, provider: Arc::clone(&provider) });
    let verifier = match tls {
        DatabaseTls::Off => return Ok(None),
        DatabaseTls::VerifyFull { roots } => {
            let config = builder.with_root_certificates(read_roots(roots.as_deref())?);
            return Ok(Some(Arc::new(config.with_no_client_auth())));
        }
        DatabaseTls::VerifyCa { roots } => {
            let store = Arc::new(read_roots(Some(roots))?);
            let authorities = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(&provider));
            lax(Some(authorities.build().map_err(|error| StoreError::File(error.to_string()))?))
        }
        DatabaseTls::Require => {
            warn!(
                "sslmode=require: anybody on the way to the database can pose as it; sslmode=verify-full verifies its \
                 certificate"
            );
            lax(None)
        }
    };
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok(Some(Arc::new(config)))
}

/// The authorities in a file, or those of the system.
fn read_roots(roots: Option<&Path>) -> Result<RootCertStore, StoreError> {
    let path = match roots {
        Some(path) => path,
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
        // The bundles of systems contain some that cannot be used.
        if let Err(error) = store.add(certificate)
            && roots.is_some()
        {
            return Err(wrong(&error));
        }
    }
    if store.is_empty() {
        return Err(wrong(&"found no certificate in it, expected a file in PEM format"));
    }
    Ok(store)
}

/// Verifies what libpq's words `require` and `verify-ca` require, but not the name.
#[derive(Debug)]
struct LaxVerifier {
    /// The authorities: one of them must have signed the certificate; `None` if any certificate is accepted.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for LaxVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        // The name is checked last: with this answer, everything else is verified.
        match authorities.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
