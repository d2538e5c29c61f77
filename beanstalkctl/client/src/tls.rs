//! TLS: whom the client trusts, and whom it shows itself as.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A TCP connection with TLS.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// The settings of connections with TLS.
#[derive(Debug, Clone)]
pub struct Tls(Arc<ClientConfig>);

/// A file of certificates, or of a key, cannot be used.
#[derive(Debug)]
pub struct TlsError {
    path: PathBuf,
    problem: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for TlsError {}

impl Tls {
    /// Trusts servers with a certificate of the authorities in the file `ca`. The server may ask for a certificate: that is
    /// the first of the files of `identity`, and the second is its key. All files are in PEM format.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn new(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let wrong = |path: &Path, problem: &dyn fmt::Display| TlsError {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| wrong(ca, &error))?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(ca, &error))?
            .with_webpki_verifier(verifier.build().map_err(|error| wrong(ca, &error))?);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let private_key =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &Pem(error)))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, private_key)
                    .map_err(|error| wrong(key, &error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Begins TLS with the server that is called `host`, and waits for the end of the handshake.
    pub(crate) fn begin(&self, host: &str, mut stream: TcpStream) -> io::Result<TlsStream> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(tls, stream))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found =
        read.and_then(|found| if found.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(found) });
    found.map_err(|error| TlsError { path: path.to_owned(), problem: Pem(error).to_string() })
}

/// What is wrong with a file.
struct Pem(pem::Error);

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            pem::Error::Io(error) => error.fmt(f),
            error => write!(f, "expected a file in PEM format: {error}"),
        }
    }
}
