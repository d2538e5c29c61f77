//! Certificates for the tests, and clients that speak TLS.
//!
//! Owns: an authority and its certificates, which each test program makes, and a bridge by which any client of plain
//! bytes talks to a TLS listener.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use beanstalkd::tls::{Acceptor, CredentialFiles};
use beanstalkd_os::clock::wall_time_ns;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, SignatureAlgorithm,
    date_time_ymd,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use crate::PATIENCE;

/// `der` as PEM.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// An authority that issues certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub struct Identity {
    /// The certificate, in DER.
    pub certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

/// The contents of a certificate.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    /// The common name, and a DNS name.
    pub name: &'a str,
    /// The number by which it can be revoked.
    pub serial: u64,
    /// The last day is the first of January of this year.
    pub until: i32,
    /// The kind of its key.
    pub algorithm: &'static SignatureAlgorithm,
}

impl Leaf<'_> {
    /// A certificate for `name` that does not expire soon.
    pub fn of(name: &str) -> Leaf<'_> {
        Leaf { name, serial: 1000, until: 4000, algorithm: &rcgen::PKCS_ECDSA_P256_SHA256 }
    }
}

impl Authority {
    /// A new authority.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("there are random numbers");
        Self(CertifiedIssuer::self_signed(Self::params(name), key).expect("the parameters are right"))
    }

    /// A new authority with a certificate of this one.
    pub fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().expect("there are random numbers");
        Self(CertifiedIssuer::signed_by(Self::params(name), key, &self.0).expect("the parameters are right"))
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", self.0.der())
    }

    /// A certificate with a new key.
    pub fn issue(&self, leaf: Leaf<'_>) -> Identity {
        let key = KeyPair::generate_for(leaf.algorithm).expect("there are random numbers");
        self.issue_for(leaf, &key)
    }

    /// A certificate with a new key that expires at `end`, to the second.
    pub fn issue_until(&self, leaf: Leaf<'_>, end: SystemTime) -> Identity {
        let key = KeyPair::generate_for(leaf.algorithm).expect("there are random numbers");
        let mut params = Self::params_of(leaf);
        params.not_after =
            date_time_ymd(1970, 1, 1) + end.duration_since(UNIX_EPOCH).expect("it is after 1970");
        self.sign(&params, &key)
    }

    /// A certificate for `key`.
    pub fn issue_for(&self, leaf: Leaf<'_>, key: &KeyPair) -> Identity {
        self.sign(&Self::params_of(leaf), key)
    }

    fn params_of(leaf: Leaf<'_>) -> CertificateParams {
        let mut params = CertificateParams::new([leaf.name.to_owned()]).expect("it is a DNS name");
        params.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
        params.distinguished_name.push(DnType::CommonName, leaf.name);
        params.serial_number = Some(SerialNumber::from(leaf.serial));
        params.not_after = date_time_ymd(leaf.until, 1, 1);
        params
    }

    fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Identity {
        let certificate = params.signed_by(key, &self.0).expect("the parameters are right");
        Identity { certificate: certificate.der().clone(), key: key.serialize_der() }
    }

    /// A list of revoked certificates, as PEM. A newer list is due in the first days of the year `next_update`.
    pub fn revoke(&self, serials: &[u64], next_update: i32) -> String {
        let revoked = |&serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        pem("X509 CRL", list.signed_by(&self.0).expect("the parameters are right").der())
    }

    /// The settings of a client that trusts this authority alone and shows `identity`, if there is one.
    pub fn client(
        &self,
        identity: Option<&Identity>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("it is a certificate");
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("the versions are known")
            .with_webpki_verifier(verifier.build().expect("there is an authority"));
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(vec![identity.certificate.clone()], identity.private_key())
                .expect("the key belongs to the certificate"),
        })
    }
}

impl Identity {
    /// The certificate, as PEM.
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// The key, as PEM in PKCS#8.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone().into())
    }

    /// Writes both files into `directory`, and returns the flags that name them.
    pub fn write(&self, directory: &Path) -> io::Result<[String; 4]> {
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.join(name));
        std::fs::write(&certificate, self.certificate_pem())?;
        std::fs::write(&key, self.key_pem())?;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Ok(["--tls-cert".into(), text(&certificate), "--tls-key".into(), text(&key)])
    }
}

/// The authority of all servers that a test does not give another one.
pub fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| Authority::new("tests of beanstalkd"))
}

/// The certificate of these servers, for "localhost".
pub fn server_identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| authority().issue(Leaf::of("localhost")))
}

/// An acceptor with this certificate, for servers without a process.
///
/// # Panics
/// If there is no temporary directory.
pub fn acceptor() -> Rc<Acceptor> {
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    server_identity().write(directory.path()).expect("files can be written");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let files = CredentialFiles { certificate, key, client_ca: None, crl: None };
    Acceptor::new(files.load(wall_time_ns()).expect("the files are right"))
}

/// The settings of their clients.
pub fn usual_client() -> &'static Arc<ClientConfig> {
    static CLIENT: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    CLIENT.get_or_init(|| authority().client(None, rustls::ALL_VERSIONS))
}

/// Begins TLS over `socket`, which is blocking, and returns when the client has done its part of the handshake.
pub fn handshake(mut socket: &TcpStream, config: &Arc<ClientConfig>) -> io::Result<ClientConnection> {
    let name = ServerName::try_from("localhost").expect("it is a name");
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut socket)?;
    }
    Ok(tls)
}

/// A client that has done its part of the handshake, with its socket.
pub fn open(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let tls = handshake(&socket, config)?;
    Ok(StreamOwned::new(tls, socket))
}

/// Connects with TLS, and returns a socket for plain bytes. A thread passes them on in both directions. When the client
/// half-closes, only TLS reports it to the server.
pub fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<(UnixStream, Progress)> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let tls = handshake(&socket, config)?;
    socket.set_nonblocking(true)?;
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let progress = Progress::default();
    let bridge = Bridge {
        tls,
        socket,
        plain: ours,
        from_client: 0,
        progress: progress.clone(),
        to_client: Vec::new(),
        client_ended: false,
    };
    std::thread::spawn(move || bridge.run());
    Ok((theirs, progress))
}

/// The progress of a bridge with the bytes that its client sends. The client waits for it after each write, so that the
/// bytes of two clients arrive in the order in which they were sent, as without a bridge.
#[derive(Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// In place of a count: the bridge has ended, or the server takes no more for now.
    const STOPPED: u64 = u64::MAX;

    /// Waits until the server's socket has the first `count` bytes, or the bridge has stopped.
    pub fn wait_for(&self, count: u64) {
        while self.0.load(Ordering::Acquire) < count {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    fn set(&self, count: u64) {
        self.0.store(count, Ordering::Release);
    }
}

/// Passes bytes on between a client and a server with TLS.
struct Bridge {
    tls: ClientConnection,
    socket: TcpStream,
    plain: UnixStream,
    /// How many bytes were read from the client.
    from_client: u64,
    progress: Progress,
    /// Plaintext that the client has not taken.
    to_client: Vec<u8>,
    client_ended: bool,
}

impl Bridge {
    /// Runs until either side has closed. An error is the end, too: the client sees its socket close.
    fn run(mut self) {
        while let Ok(true) = self.turn() {}
        self.progress.set(Progress::STOPPED);
    }

    /// Passes on the available bytes; returns whether there may be more.
    fn turn(&mut self) -> io::Result<bool> {
        let reads = !self.client_ended && !self.tls.wants_write();
        let when = |holds: bool, flags: PollFlags| if holds { flags } else { PollFlags::empty() };
        let plain = when(reads, PollFlags::IN) | when(!self.to_client.is_empty(), PollFlags::OUT);
        let wire =
            when(self.to_client.is_empty(), PollFlags::IN) | when(self.tls.wants_write(), PollFlags::OUT);
        let mut polled = [PollFd::new(&self.plain, plain), PollFd::new(&self.socket, wire)];
        poll(&mut polled, None)?;
        let is_gone = polled[0].revents().contains(PollFlags::HUP);
        if reads {
            self.read_client()?;
        }
        while self.tls.wants_write() && done(self.tls.write_tls(&mut self.socket))?.is_some() {}
        self.progress.set(if self.tls.wants_write() { Progress::STOPPED } else { self.from_client });
        if is_gone && self.client_ended {
            return Ok(false);
        }
        if self.to_client.is_empty() && !self.read_server()? {
            // The client reads the rest, and then the end.
            self.progress.set(Progress::STOPPED);
            self.plain.set_nonblocking(false)?;
            self.plain.write_all(&self.to_client)?;
            return Ok(false);
        }
        if let Some(count) = done((&self.plain).write(&self.to_client))? {
            self.to_client.drain(..count);
        }
        Ok(true)
    }

    fn read_client(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match done((&self.plain).read(&mut buffer))? {
            None => {}
            Some(0) => {
                self.client_ended = true;
                self.tls.send_close_notify();
            }
            Some(count) => {
                self.from_client += count as u64;
                self.tls.writer().write_all(&buffer[..count])?;
            }
        }
        Ok(())
    }

    /// Returns whether the server may send more.
    fn read_server(&mut self) -> io::Result<bool> {
        match done(self.tls.read_tls(&mut self.socket))? {
            None => return Ok(true),
            Some(0) => return Ok(false),
            Some(_) => {}
        }
        let state = self.tls.process_new_packets().map_err(io::Error::other)?;
        let mut plaintext = vec![0; state.plaintext_bytes_to_read()];
        self.tls.reader().read_exact(&mut plaintext)?;
        self.to_client.append(&mut plaintext);
        Ok(!state.peer_has_closed())
    }
}

/// `None` if a call would have to wait.
fn done(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
