//! The transport of a load and of the floor: a socket, plain or with TLS.
//!
//! Owns: the bytes between plaintext and socket. Works with blocking sockets and with others.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use beanstalkd_testkit::tls;
use rustls::client::Resumption;
use rustls::{ClientConfig, Connection};

/// A single call takes all that a connection sends at depth 256.
const MAX_READ_BYTES: usize = 128 * 1024;

thread_local! {
    /// The ciphertext of a read, for all connections.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; MAX_READ_BYTES].into_boxed_slice());
}

/// A socket, plain or with TLS.
pub enum Wire<S> {
    /// Plain.
    Plain(S),
    /// With TLS.
    Tls(Box<Tls<S>>),
}

/// A socket with TLS.
pub struct Tls<S> {
    socket: S,
    tls: Connection,
    /// The last read of the socket has filled the room that it had.
    has_more: bool,
}

impl<S: Read + Write> Wire<S> {
    /// TLS over `socket`.
    pub fn with_tls(socket: S, tls: impl Into<Connection>) -> Self {
        Self::Tls(Box::new(Tls { socket, tls: tls.into(), has_more: false }))
    }

    /// Whether the socket may have more after a read of `count` bytes into `room`.
    pub fn may_have_more(&self, count: usize, room: usize) -> bool {
        match self {
            Self::Plain(_) => count == room,
            Self::Tls(tls) => tls.has_more,
        }
    }

    /// This connection over another form of the socket.
    pub fn map<T>(self, convert: impl FnOnce(S) -> T) -> Wire<T> {
        match self {
            Self::Plain(socket) => Wire::Plain(convert(socket)),
            Self::Tls(tls) => {
                let Tls { socket, tls, has_more } = *tls;
                Wire::Tls(Box::new(Tls { socket: convert(socket), tls, has_more }))
            }
        }
    }

    /// The socket.
    pub fn socket(&mut self) -> &mut S {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => &mut tls.socket,
        }
    }
}

/// A client with TLS that has done its part of the handshake. It never resumes a session.
pub fn connect(address: SocketAddr) -> io::Result<Wire<TcpStream>> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let tls = tls::handshake(&socket, &settings())?;
    Ok(Wire::with_tls(socket, tls))
}

fn settings() -> Arc<ClientConfig> {
    thread_local! {
        static SETTINGS: Arc<ClientConfig> = {
            let mut settings = ClientConfig::clone(tls::usual_client());
            settings.resumption = Resumption::disabled();
            Arc::new(settings)
        };
    }
    SETTINGS.with(Arc::clone)
}

impl<S: Read + Write> Tls<S> {
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                // The rest is sent when the poll reports room.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_plaintext(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.tls.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Reads once from the socket; the plaintext has room in a buffer of [`MAX_READ_BYTES`].
    fn receive(&mut self, buffer: &mut [u8], mut filled: usize) -> io::Result<Option<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            // Of a record that has come in part, the plaintext comes with this read.
            let most = (buffer.len() - filled).saturating_sub(17 * 1024).clamp(4096, scratch.len());
            let count = self.socket.read(&mut scratch[..most])?;
            self.has_more = count == most;
            if count == 0 {
                return Ok(None);
            }
            let mut wire = &scratch[..count];
            while !wire.is_empty() {
                self.tls.read_tls(&mut wire)?;
                self.tls.process_new_packets().map_err(io::Error::other)?;
                filled += self.take_plaintext(&mut buffer[filled..])?;
            }
            self.send()?;
            Ok(Some(filled))
        })
    }
}

impl<S: Read + Write> Read for Tls<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = self.take_plaintext(buffer)?;
        self.has_more |= filled > 0;
        while filled == 0 {
            match self.receive(buffer, filled)? {
                None => break,
                Some(count) => filled = count,
            }
        }
        Ok(filled)
    }
}

impl<S: Read + Write> Read for Wire<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl<S: Read + Write> Write for Wire<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(tls) => {
                let count = tls.tls.writer().write(bytes)?;
                tls.send()?;
                if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.send(),
        }
    }
}
