//! The certificate of the server, and the verification of its clients, from files.
//!
//! Owns: reading and checking the files. There are three parts: the certificate with its key, the authorities of
//! clients, and the revocation lists. A start needs all of them. In a reload, a part with bad files stays as it was,
//! and does not prevent the replacement of the others: a file that revokes rights must not wait for a key.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use super::sessions::{TicketMaker, Verifier};
use super::x509;
use crate::os::secret_file;

/// The longest file of certificates, or of a key.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The longest file of revocation lists: a list of a large authority has some hundred thousand entries.
const MAX_CRL_BYTES: usize = 32 << 20;

/// The files that the command line names.
#[derive(Clone, Debug)]
pub struct CredentialFiles {
    /// The certificate of the server, followed by the certificates that lead to its authority.
    pub certificate: PathBuf,
    /// The key of the first of them.
    pub key: PathBuf,
    /// The authorities that issue the certificates of clients; if `None`, clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The revocation lists for certificates of clients.
    pub crl: Option<PathBuf>,
}

/// The settings of handshakes, from files that have been read and checked.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub(super) config: Arc<ServerConfig>,
    /// The verifier of the certificates of clients; `None` if clients need no certificate.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    parts: Parts,
    /// Warnings for the operator about files that can still be used.
    pub warnings: Vec<String>,
}

/// The contents of the files, which a reload replaces part by part.
#[derive(Clone, Debug)]
struct Parts {
    key: Arc<CertifiedKey>,
    /// When the certificate of the server expires, in seconds since 1970.
    expires_at_s: u64,
    authorities: Option<Arc<RootCertStore>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
}

impl Credentials {
    /// When the certificate of the server expires, in seconds since 1970.
    pub(super) fn expires_at_s(&self) -> u64 {
        self.parts.expires_at_s
    }
}

/// The reason why a file cannot be used.
#[derive(Debug)]
pub struct CredentialError {
    flag: &'static str,
    path: PathBuf,
    fault: CredentialFault,
}

#[derive(Debug)]
enum CredentialFault {
    Read(io::Error),
    Pem(pem::Error),
    Missing(&'static str),
    /// The key does not belong to the certificate.
    WrongKey,
    /// The error of rustls about the contents.
    Rejected(Box<dyn StdError + Send + Sync>),
}

impl CredentialError {
    /// The file and the reason, if the system refused to read it.
    #[must_use]
    pub fn unreadable(&self) -> Option<(&Path, &io::Error)> {
        if let CredentialFault::Read(error) = &self.fault { Some((&self.path, error)) } else { None }
    }
}

impl fmt::Display for CredentialError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: ", self.flag, self.path.display())?;
        match &self.fault {
            CredentialFault::Read(error) => write!(out, "{error}"),
            // The library shows the bytes of a line as numbers.
            CredentialFault::Pem(pem::Error::MissingSectionEnd { end_marker: label }) => {
                let label = label.escape_ascii();
                write!(out, "expected a file in PEM format: found no -----END {label}-----")
            }
            CredentialFault::Pem(pem::Error::IllegalSectionStart { line }) => {
                let line = line.trim_ascii().escape_ascii();
                write!(out, "expected a file in PEM format: found {line} without ----- at its end")
            }
            CredentialFault::Pem(error) => write!(out, "expected a file in PEM format: {error}"),
            CredentialFault::Missing(what) => {
                write!(out, "found no {what} in it, expected a file in PEM format with -----BEGIN lines")
            }
            CredentialFault::WrongKey => write!(
                out,
                "this is not the key of the first certificate in --tls-cert: name the key of that certificate, or put \
                 its certificate first"
            ),
            CredentialFault::Rejected(error) => write!(out, "cannot be used: {error}"),
        }
    }
}

impl StdError for CredentialError {}

/// A file with its flag.
#[derive(Clone, Copy)]
struct NamedFile<'a> {
    flag: &'static str,
    path: &'a Path,
}

impl NamedFile<'_> {
    fn wrong(self, fault: CredentialFault) -> CredentialError {
        CredentialError { flag: self.flag, path: self.path.to_owned(), fault }
    }

    fn rejected(self, error: impl StdError + Send + Sync + 'static) -> CredentialError {
        self.wrong(CredentialFault::Rejected(Box::new(error)))
    }

    fn read(self, max_bytes: usize) -> Result<secret_file::SecretFile, CredentialError> {
        secret_file::read(self.path, max_bytes).map_err(|error| self.wrong(CredentialFault::Read(error)))
    }

    /// All items of one kind in the file; at least one.
    fn all<T: PemObject>(self, bytes: &[u8], what: &'static str) -> Result<Vec<T>, CredentialError> {
        let found: Result<Vec<T>, _> = T::pem_slice_iter(bytes).collect();
        match found {
            Ok(found) if found.is_empty() => Err(self.wrong(CredentialFault::Missing(what))),
            Ok(found) => Ok(found),
            Err(error) => Err(self.wrong(CredentialFault::Pem(error))),
        }
    }
}

impl CredentialFiles {
    /// The paths with their flags.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let always = [("--tls-cert", &self.certificate), ("--tls-key", &self.key)];
        let clients = [("--tls-client-ca", &self.client_ca), ("--tls-crl", &self.crl)];
        let clients = clients.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        always.into_iter().chain(clients).map(|(flag, path)| (flag, path.as_path()))
    }

    /// Reads and checks all files. `wall_ns` is the time on the machine's clock, in nanoseconds since 1970.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn load(&self, wall_ns: u64) -> Result<Credentials, CredentialError> {
        let now_s = wall_ns / 1_000_000_000;
        let mut warnings = Vec::new();
        let (key, expires_at_s) = self.server_key(now_s, &mut warnings)?;
        let (authorities, lists) = (self.authorities()?, self.lists(now_s, &mut warnings)?);
        self.assemble(Parts { key, expires_at_s, authorities, lists }, warnings)
    }

    /// Reads all files again. Returns the credentials to use from now on, and the errors of bad files. A part with bad
    /// files stays as in `before`.
    pub fn reload(&self, before: &Credentials, wall_ns: u64) -> (Credentials, Vec<CredentialError>) {
        let now_s = wall_ns / 1_000_000_000;
        let (mut warnings, mut errors) = (Vec::new(), Vec::new());
        let mut parts = before.parts.clone();
        match self.server_key(now_s, &mut warnings) {
            Ok((key, expires_at_s)) => (parts.key, parts.expires_at_s) = (key, expires_at_s),
            Err(error) => errors.push(error),
        }
        match self.authorities() {
            Ok(authorities) => parts.authorities = authorities,
            Err(error) => errors.push(error),
        }
        match self.lists(now_s, &mut warnings) {
            Ok(lists) => parts.lists = lists,
            Err(error) => errors.push(error),
        }
        // The lists are the last part that rustls can refuse, so a part that was accepted with the former lists is
        // accepted again.
        let with_former_lists = Parts { lists: before.parts.lists.clone(), ..parts.clone() };
        let mut assembled = self.assemble(parts, warnings);
        if let Err(error) = assembled {
            errors.push(error);
            assembled = self.assemble(with_former_lists, Vec::new());
        }
        (assembled.unwrap_or_else(|_| before.clone()), errors)
    }

    fn assemble(&self, parts: Parts, warnings: Vec<String>) -> Result<Credentials, CredentialError> {
        let certificates = NamedFile { flag: "--tls-cert", path: &self.certificate };
        let verifier = self.client_verifier(&parts)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| certificates.rejected(error))?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::new(Verifier::of(Arc::clone(verifier)))),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&parts.key))));
        // Sessions are resumed by tickets, so the server stores nothing for a client that has disconnected. The keys of
        // the tickets are made here: after a reload, a client must show its certificate again, which may have been
        // revoked.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::new(TicketMaker::new().map_err(|error| certificates.rejected(error))?);
        Ok(Credentials { config: Arc::new(config), verifier, parts, warnings })
    }

    /// The certificate of the server with its key, and the time at which it expires, in seconds since 1970.
    fn server_key(
        &self,
        now_s: u64,
        warnings: &mut Vec<String>,
    ) -> Result<(Arc<CertifiedKey>, u64), CredentialError> {
        let certificates = NamedFile { flag: "--tls-cert", path: &self.certificate };
        let chain: Vec<CertificateDer<'static>> =
            certificates.all(&certificates.read(MAX_FILE_BYTES)?.bytes, "certificate")?;
        let expires_at_s = expiry(certificates, &chain, now_s, warnings)?;
        let (key_file, key) = self.key(warnings)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let key = key.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                key_file.wrong(CredentialFault::WrongKey)
            }
            rustls::Error::InvalidCertificate(_) => certificates.rejected(error),
            error => key_file.rejected(error),
        })?;
        Ok((Arc::new(key), expires_at_s))
    }

    fn key(
        &self,
        warnings: &mut Vec<String>,
    ) -> Result<(NamedFile<'_>, PrivateKeyDer<'static>), CredentialError> {
        let file = NamedFile { flag: "--tls-key", path: &self.key };
        let read = file.read(MAX_FILE_BYTES)?;
        if read.is_readable_by_all {
            warnings.push(format!(
                "--tls-key {}: everybody on this machine can read it (chmod o-r)",
                file.path.display()
            ));
        }
        if read.bytes.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED) {
            return Err(file.wrong(CredentialFault::Rejected(
                "the key has a passphrase: remove it with `openssl pkey`".into(),
            )));
        }
        let key = file.all(&read.bytes, "private key")?.swap_remove(0);
        Ok((file, key))
    }

    /// The authorities of clients, if clients need a certificate.
    fn authorities(&self) -> Result<Option<Arc<RootCertStore>>, CredentialError> {
        let Some(path) = &self.client_ca else { return Ok(None) };
        let file = NamedFile { flag: "--tls-client-ca", path };
        let certificates: Vec<CertificateDer<'static>> =
            file.all(&file.read(MAX_FILE_BYTES)?.bytes, "certificate")?;
        let mut authorities = RootCertStore::empty();
        for certificate in certificates {
            authorities.add(certificate).map_err(|error| file.rejected(error))?;
        }
        Ok(Some(Arc::new(authorities)))
    }

    /// The revocation lists.
    fn lists(
        &self,
        now_s: u64,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, CredentialError> {
        let Some(path) = &self.crl else { return Ok(Vec::new()) };
        let file = NamedFile { flag: "--tls-crl", path };
        let lists: Vec<CertificateRevocationListDer<'static>> =
            file.all(&file.read(MAX_CRL_BYTES)?.bytes, "revocation list (X509 CRL)")?;
        for list in &lists {
            warn_if_outdated(file, list, now_s, warnings)?;
        }
        Ok(lists)
    }

    /// The verifier of the certificates of clients, if they need one.
    fn client_verifier(&self, parts: &Parts) -> Result<Option<Arc<dyn ClientCertVerifier>>, CredentialError> {
        let (Some(path), Some(authorities)) = (&self.client_ca, &parts.authorities) else { return Ok(None) };
        let last = match &self.crl {
            Some(path) => NamedFile { flag: "--tls-crl", path },
            None => NamedFile { flag: "--tls-client-ca", path },
        };
        let provider = Arc::new(ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(Arc::clone(authorities), provider)
            .with_crls(parts.lists.iter().cloned())
            .build()
            .map(Some)
            .map_err(|error| last.rejected(error))
    }
}

/// A word in the PEM of a key with a passphrase, in both of its formats.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// When the first certificate of the chain expires. If a certificate is not valid now, this only warns: the clock of
/// the machine may be wrong, and the clients decide.
fn expiry(
    file: NamedFile<'_>,
    chain: &[CertificateDer<'_>],
    now_s: u64,
    warnings: &mut Vec<String>,
) -> Result<u64, CredentialError> {
    let first = chain.first().ok_or_else(|| file.wrong(CredentialFault::Missing("certificate")))?;
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

/// A revocation list that should have been replaced is used with a warning, because it still says which certificates
/// were revoked: without the list every client would be accepted, and to refuse every client would stop all work.
fn warn_if_outdated(
    file: NamedFile<'_>,
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

/// A time since 1970, in readable form.
fn time(since_1970: Duration) -> String {
    // The formatter cannot print a year after 9999.
    UNIX_EPOCH.checked_add(since_1970).filter(|_| since_1970.as_secs() < 253_402_300_800).map_or_else(
        || "a time beyond the year 9999".to_owned(),
        |at| humantime::format_rfc3339_seconds(at).to_string(),
    )
}
