//! What the server shows to its clients, and what it asks of them, from files.
//!
//! Owns: reading and checking the files. Everything is checked before anything is used, so a start or a reload
//! either has all of it or none.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::crypto::ring::{self, Ticketer};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use super::x509;
use crate::os::secret_file;

/// The longest file of certificates, or of a key.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The longest file of revocation lists: a list of a large authority has some hundred thousand entries.
const MAX_CRL_BYTES: usize = 32 << 20;

/// The files that the command line names.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate of the server, and behind it those that lead to its authority.
    pub certificate: PathBuf,
    /// The key of the first of them.
    pub key: PathBuf,
    /// The authorities of which each client must have a certificate; `None` asks clients for none.
    pub client_ca: Option<PathBuf>,
    /// Which certificates of clients were revoked.
    pub crl: Option<PathBuf>,
}

/// What handshakes need, once the files were read and checked.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(super) config: Arc<ServerConfig>,
    /// When the certificate of the server expires, in seconds since 1970.
    pub(super) expires_at_s: u64,
    /// What an operator should know of the files although they can be used.
    pub warnings: Vec<String>,
}

/// Why a file cannot be used.
#[derive(Debug)]
pub struct CredentialError {
    flag: &'static str,
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Read(io::Error),
    Pem(pem::Error),
    Missing(&'static str),
    /// The key is not that of the certificate.
    WrongKey,
    /// What TLS says against the contents.
    Rejected(Box<dyn StdError + Send + Sync>),
}

impl fmt::Display for CredentialError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: ", self.flag, self.path.display())?;
        match &self.problem {
            Problem::Read(error) => write!(out, "{error}"),
            Problem::Pem(error) => write!(out, "expected a file in PEM format: {error}"),
            Problem::Missing(what) => {
                write!(out, "found no {what} in it, expected a file in PEM format with -----BEGIN lines")
            }
            Problem::WrongKey => write!(
                out,
                "this is not the key of the first certificate in --tls-cert: name the key of that certificate, or put \
                 its certificate first"
            ),
            Problem::Rejected(error) => write!(out, "cannot be used: {error}"),
        }
    }
}

impl StdError for CredentialError {}

/// A file with the flag that names it.
#[derive(Clone, Copy)]
struct Named<'a> {
    flag: &'static str,
    path: &'a Path,
}

impl Named<'_> {
    fn wrong(self, problem: Problem) -> CredentialError {
        CredentialError { flag: self.flag, path: self.path.to_owned(), problem }
    }

    fn rejected(self, error: impl StdError + Send + Sync + 'static) -> CredentialError {
        self.wrong(Problem::Rejected(Box::new(error)))
    }

    fn read(self, max_bytes: usize) -> Result<secret_file::SecretFile, CredentialError> {
        secret_file::read(self.path, max_bytes).map_err(|error| self.wrong(Problem::Read(error)))
    }

    /// All that the file has of a kind, which is at least one.
    fn all<T: PemObject>(self, bytes: &[u8], what: &'static str) -> Result<Vec<T>, CredentialError> {
        let found: Result<Vec<T>, _> = T::pem_slice_iter(bytes).collect();
        match found {
            Ok(found) if found.is_empty() => Err(self.wrong(Problem::Missing(what))),
            Ok(found) => Ok(found),
            Err(error) => Err(self.wrong(Problem::Pem(error))),
        }
    }
}

impl Files {
    /// Reads and checks all files. `wall_ns` is the time on the machine's clock, in nanoseconds since 1970.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn load(&self, wall_ns: u64) -> Result<Credentials, CredentialError> {
        let now_s = wall_ns / 1_000_000_000;
        let mut warnings = Vec::new();
        let certificates = Named { flag: "--tls-cert", path: &self.certificate };
        let chain: Vec<CertificateDer<'static>> =
            certificates.all(&certificates.read(MAX_FILE_BYTES)?.bytes, "certificate")?;
        let expires_at_s = expiry(certificates, &chain, now_s, &mut warnings)?;
        let (key_file, key) = self.key(&mut warnings)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| certificates.rejected(error))?;
        let builder = match self.client_verifier(now_s, &mut warnings)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                key_file.wrong(Problem::WrongKey)
            }
            rustls::Error::InvalidCertificate(_) => certificates.rejected(error),
            error => key_file.rejected(error),
        })?;
        // Sessions are resumed by tickets, so the server holds nothing for a client that has left. The keys of the tickets
        // are made here: after a reload, a client shows its certificate again, which may have been revoked.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Ticketer::new().map_err(|error| certificates.rejected(error))?;
        Ok(Credentials { config: Arc::new(config), expires_at_s, warnings })
    }

    fn key(
        &self,
        warnings: &mut Vec<String>,
    ) -> Result<(Named<'_>, PrivateKeyDer<'static>), CredentialError> {
        let file = Named { flag: "--tls-key", path: &self.key };
        let read = file.read(MAX_FILE_BYTES)?;
        if read.is_readable_by_all {
            warnings.push(format!(
                "--tls-key {}: everybody on this machine can read it (chmod 600)",
                file.path.display()
            ));
        }
        if read.bytes.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED) {
            return Err(
                file.wrong(Problem::Rejected("a key with a passphrase: remove it (openssl pkey)".into()))
            );
        }
        let key = file.all(&read.bytes, "private key")?.swap_remove(0);
        Ok((file, key))
    }

    /// What checks the certificates of clients, if they need one.
    fn client_verifier(
        &self,
        now_s: u64,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, CredentialError> {
        let Some(path) = &self.client_ca else { return Ok(None) };
        let authorities = Named { flag: "--tls-client-ca", path };
        let certificates: Vec<CertificateDer<'static>> =
            authorities.all(&authorities.read(MAX_FILE_BYTES)?.bytes, "certificate")?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| authorities.rejected(error))?;
        }
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()));
        let mut last = authorities;
        if let Some(path) = &self.crl {
            last = Named { flag: "--tls-crl", path };
            let lists: Vec<CertificateRevocationListDer<'static>> =
                last.all(&last.read(MAX_CRL_BYTES)?.bytes, "revocation list (X509 CRL)")?;
            for list in &lists {
                warn_if_outdated(last, list, now_s, warnings)?;
            }
            builder = builder.with_crls(lists);
        }
        builder.build().map(Some).map_err(|error| last.rejected(error))
    }
}

/// What the PEM of a key with a passphrase contains, in both of its forms.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// When the first certificate of the chain expires. A certificate that is not valid now is worth a warning, and no
/// more: the clock of the machine may be wrong, and the clients decide.
fn expiry(
    file: Named<'_>,
    chain: &[CertificateDer<'_>],
    now_s: u64,
    warnings: &mut Vec<String>,
) -> Result<u64, CredentialError> {
    let first = chain.first().ok_or_else(|| file.wrong(Problem::Missing("certificate")))?;
    let (begin, end) = x509::validity(first).map_err(|error| file.rejected(error))?;
    let path = file.path.display();
    if end.as_secs() < now_s {
        warnings.push(format!("--tls-cert {path}: expired at {}; clients will refuse it", time(end)));
    } else if begin.as_secs() > now_s {
        warnings
            .push(format!("--tls-cert {path}: valid from {} on; clients will refuse it now", time(begin)));
    }
    Ok(end.as_secs())
}

/// A revocation list that should have been replaced still says who was revoked, so it is used with a warning: without
/// it everybody would get in, and to refuse everybody would stop the work of all.
fn warn_if_outdated(
    file: Named<'_>,
    list: &[u8],
    now_s: u64,
    warnings: &mut Vec<String>,
) -> Result<(), CredentialError> {
    let next_update = x509::next_update(list).map_err(|error| file.rejected(error))?;
    if let Some(next) = next_update.filter(|next| next.as_secs() < now_s) {
        let path = file.path.display();
        warnings.push(format!("--tls-crl {path}: a newer list was due at {}; fetch it", time(next)));
    }
    Ok(())
}

/// A time since 1970, for people.
fn time(since_1970: Duration) -> String {
    // The formatter has no word for a year beyond 9999.
    UNIX_EPOCH.checked_add(since_1970).filter(|_| since_1970.as_secs() < 253_402_300_800).map_or_else(
        || "a time beyond the year 9999".to_owned(),
        |at| humantime::format_rfc3339_seconds(at).to_string(),
    )
}
