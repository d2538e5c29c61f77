//! TLS: the authorities that the client trusts, and the client's own certificate.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A TCP connection with TLS.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// How long a server may be silent in the handshake before the client tries whether it speaks the protocol without TLS.
const SILENCE: Duration = Duration::from_secs(1);

/// The server speaks the protocol without TLS.
#[derive(Debug)]
pub(crate) struct NotTls;

impl fmt::Display for NotTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server speaks the protocol without TLS")
    }
}

impl std::error::Error for NotTls {}

/// Whether the error of a handshake can come from a server without TLS: an answer that is not TLS, or the end.
fn is_no_tls(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let is_end = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
    is_end || matches!(tls, Some(rustls::Error::InvalidMessage(_)))
}

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
    /// Trusts servers with a certificate from the authorities in the file `ca` or, without a file, from the authorities
    /// of the system. If the server asks for a certificate, it gets the one in the first file of `identity`, whose key
    /// is in the second file. All files are in PEM format.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn new(ca: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let wrong = |path: &Path, problem: &dyn fmt::Display| TlsError {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        let mut roots = RootCertStore::empty();
        match ca {
            None => roots.add_parsable_certificates(authorities_of_system()?),
            Some(ca) => certificates(ca)?
                .into_iter()
                .try_for_each(|certificate| roots.add(certificate))
                .map(|()| (0, 0))
                .map_err(|error| wrong(ca, &error))?,
        };
        let ca = ca.unwrap_or(Path::new(SYSTEM));
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

    /// Begins TLS with the server named `host`, as [`Self::begin`] does, with tokio.
    #[cfg(feature = "tokio-tls")]
    pub(crate) async fn begin_async(
        &self,
        host: &str,
        stream: tokio::net::TcpStream,
        is_plain: impl Future<Output = bool>,
    ) -> io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.0));
        let mut handshake = connector.connect(name, stream);
        let failed = match tokio::time::timeout(SILENCE, &mut handshake).await {
            Ok(Err(error)) if is_no_tls(&error) => Some(error),
            Ok(ended) => return ended,
            Err(_) => None,
        };
        match failed {
            _ if is_plain.await => Err(io::Error::other(NotTls)),
            Some(error) => Err(error),
            None => handshake.await,
        }
    }

    /// Begins TLS with the server named `host`, and waits for the end of the handshake, until the deadline at the
    /// latest. If the server is silent for [`SILENCE`], or answers with something other than TLS, calls `is_plain`
    /// once; if that returns true, the error is `NotTls`.
    pub(crate) fn begin(
        &self,
        host: &str,
        mut stream: TcpStream,
        deadline: Option<Instant>,
        is_plain: impl Fn() -> bool,
    ) -> io::Result<TlsStream> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        let mut handshake = Handshake { max_silence: Some(SILENCE), ..Handshake::new(&mut stream, deadline) };
        let mut was_asked = false;
        while tls.is_handshaking() {
            let Err(error) = tls.complete_io(&mut handshake) else { continue };
            let is_silent = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
            if !is_silent && !is_no_tls(&error) {
                return Err(error);
            }
            let is_first = !std::mem::replace(&mut was_asked, true) && handshake.left().is_ok();
            if is_first && is_plain() {
                return Err(io::Error::other(NotTls));
            }
            if !is_first || !is_silent {
                return Err(error);
            }
            handshake.max_silence = None;
        }
        Ok(StreamOwned::new(tls, stream))
    }
}

/// The socket of a connection that is being opened: each read and each write has the time until the deadline, so that a
/// server that sends a byte now and then is given up.
pub(crate) struct Handshake<'a> {
    stream: &'a mut TcpStream,
    deadline: Option<Instant>,
    /// The time limit of one read.
    max_silence: Option<Duration>,
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(stream: &'a mut TcpStream, deadline: Option<Instant>) -> Self {
        Self { stream, deadline, max_silence: None }
    }

    /// The time until the deadline; `None` if there is none.
    fn left(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Handshake<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.left()?;
        self.stream.set_read_timeout(left.into_iter().chain(self.max_silence).min())?;
        self.stream.read(bytes)
    }
}

impl Write for Handshake<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The place of the authorities of the system in messages.
const SYSTEM: &str = "the certificates of the system";

fn authorities_of_system() -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let problem = found.errors.first().map_or("there are none".to_owned(), ToString::to_string);
    if found.certs.is_empty() {
        Err(TlsError {
            path: SYSTEM.into(),
            problem: format!("{problem}; name a file with the authorities to trust"),
        })
    } else {
        Ok(found.certs)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found =
        read.and_then(|found| if found.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(found) });
    found.map_err(|error| TlsError { path: path.to_owned(), problem: Pem(error).to_string() })
}

/// The error in a file.
struct Pem(pem::Error);

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let pem::Error::Io(error) = &self.0 {
            error.fmt(f)
        } else {
            write!(f, "expected a file in PEM format: {}", self.0)
        }
    }
}
