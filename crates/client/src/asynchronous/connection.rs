//! A connection: sends commands and receives their replies, in the order of the commands.
//!
//! Owns: the socket. Its [`Engine`] has the next step, the bytes to send and the received bytes.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

#[cfg(feature = "tokio-tls")]
use beanstalkd_protocol::Command;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{sleep, timeout, timeout_at};

use crate::address::Address;
use crate::core::engine::Engine;
use crate::drivers::connect;
use crate::error::is_closed;

/// The stream of a connection.
trait AsyncStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> AsyncStream for S {}

/// A connection to a server, on which any [`Request`] can be sent.
pub struct Connection {
    /// The connection without its socket. A worker and a pool use it, too.
    pub(crate) engine: Engine,
    stream: Option<Pin<Box<dyn AsyncStream>>>,
    address: Address,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

// Also imports `Connector`, `Duration`, `EngineStep`, `Error` and `Goal`.
crate::drivers::calls::calls!(asynchronous);

impl Connection {
    /// Connects. The connect and each wait for the next byte time out after 60 seconds. A [`Connector`] has more
    /// settings.
    pub async fn open(address: &Address) -> Result<Self, Error> {
        Connector::new().open_async(address).await
    }

    pub(crate) async fn connect(address: &Address, connector: Connector) -> Result<Self, Error> {
        let (engine, address) = (Engine::new(connector)?, address.clone());
        let mut connection = Self { engine, stream: None, address };
        connection.drive(Goal::Greeting).await?;
        Ok(connection)
    }

    /// Whether the server has neither closed the connection nor sent an unexpected byte.
    pub(crate) async fn is_alive(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        // The byte that it reads is lost, but in that case the connection is not used any more.
        let mut byte = [0];
        let is_silent = |context: &mut Context<'_>| {
            Poll::Ready(stream.as_mut().poll_read(context, &mut ReadBuf::new(&mut byte)).is_pending())
        };
        poll_fn(is_silent).await
    }

    async fn open_stream(&mut self) -> Result<(), Error> {
        let deadline = self.engine.max_timeout().and_then(|timeout| now().checked_add(timeout));
        let opening = async { Ok(open(&self.address, &self.engine.connector, deadline).await) };
        let late = |late: Error| Err(io::Error::new(io::ErrorKind::TimedOut, late.to_string()));
        let opened = within(deadline, opening).await.unwrap_or_else(late);
        self.stream = Some(opened.map_err(|source| Error::connect(&self.address, source))?);
        self.engine.opened();
        Ok(())
    }

    async fn write(&mut self, goal: Goal) -> Result<(), Error> {
        within(self.engine.deadline(EngineStep::Write, goal, now()), self.write_some()).await
    }

    async fn read(&mut self, goal: Goal, missing: usize) -> Result<(), Error> {
        within(self.engine.deadline(EngineStep::Read(missing), goal, now()), self.read_some(missing)).await
    }

    /// Cancel-safe: if the future is dropped, either nothing was written, or the bytes count as sent.
    async fn write_some(&mut self) -> Result<(), Error> {
        let stream = self.stream.as_mut().ok_or(Error::Closed)?;
        let unsent = self.engine.exchange.unsent();
        let (offered, written) = (unsent.len(), stream.write(unsent).await);
        let written = match written {
            Ok(bytes) => {
                self.engine.exchange.sent(bytes);
                stream.flush().await
            }
            Err(error) => {
                // TLS may have sent a part of them before it failed, and does not say which.
                if self.engine.connector.uses_tls(&self.address) {
                    self.engine.exchange.sent(offered);
                }
                Err(error)
            }
        };
        match written {
            Err(error) if is_closed(&error) => self.engine.exchange.close_for_writes(),
            other => other?,
        }
        Ok(())
    }

    /// Reads what has arrived, or waits for it.
    async fn read_some(&mut self, missing: usize) -> Result<(), Error> {
        let stream = self.stream.as_mut().ok_or(Error::Closed)?;
        // The caller of a write may have gone before its flush. A closed connection is read to its end.
        if let Err(error) = stream.flush().await
            && !is_closed(&error)
        {
            return Err(error.into());
        }
        match stream.read(self.engine.exchange.room(missing)).await {
            Ok(0) => Err(Error::Closed),
            Err(error) if is_closed(&error) => Err(Error::Closed),
            other => {
                self.engine.exchange.received(other?);
                Ok(())
            }
        }
    }
}

/// The time of tokio, which tests can stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The result of `step`, or [`Error::TimedOut`].
async fn within<T>(
    deadline: Option<Instant>,
    step: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match deadline {
        Some(deadline) => timeout_at(deadline.into(), step).await.unwrap_or(Err(Error::TimedOut)),
        None => step.await,
    }
}

#[cfg_attr(not(feature = "tls"), allow(unused_variables, reason = "only TLS has settings"))]
async fn open(
    address: &Address,
    connector: &Connector,
    deadline: Option<Instant>,
) -> io::Result<Pin<Box<dyn AsyncStream>>> {
    match address {
        Address::Unix(path) => Ok(Box::pin(connect_unix(path).await?)),
        Address::Tcp { host, port } => {
            let addresses: Vec<_> = lookup_host((host.as_str(), *port)).await?.collect();
            let stream = connect_to_one(&addresses, deadline).await?;
            connect::configure_tcp(&stream)?;
            #[cfg(feature = "tokio-tls")]
            if let Some(tls) = &connector.tls {
                return Ok(Box::pin(tls.begin_async(host, stream, speaks_protocol(host, *port)).await?));
            }
            #[cfg(all(feature = "tls", not(feature = "tokio-tls")))]
            if connector.tls.is_some() {
                return Err(io::Error::other(
                    "TLS with tokio needs the feature tokio-tls of beanstalk-client",
                ));
            }
            Ok(Box::pin(stream))
        }
    }
}

/// Connects to a unix socket. While the backlog of its listener is full, the system refuses the connect, and cannot say
/// when there is room.
async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    const PAUSE: Duration = Duration::from_millis(10);
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
            connected => return connected,
        }
    }
}

pub(crate) async fn connect_to_one(
    addresses: &[SocketAddr],
    deadline: Option<Instant>,
) -> io::Result<TcpStream> {
    connect::connect_to_one!(asynchronous, addresses, deadline, now, connect_within)
}

async fn connect_within(address: SocketAddr, limit: Option<Duration>) -> io::Result<TcpStream> {
    let connected = TcpStream::connect(address);
    match limit {
        Some(limit) => timeout(limit, connected).await?,
        None => connected.await,
    }
}

/// Whether a port speaks the protocol without TLS; a second connection tries that.
#[cfg(feature = "tokio-tls")]
async fn speaks_protocol(host: &str, port: u16) -> bool {
    const PATIENCE: Duration = Duration::from_secs(2);
    let address = Address::Tcp { host: host.to_owned(), port };
    // A future that contains itself needs a place of its own.
    let opened = Box::pin(Connection::connect(&address, Connector::plain(Some(PATIENCE))));
    match opened.await {
        Ok(mut connection) => Box::pin(connection.call(Command::ListTubeUsed)).await.is_ok(),
        Err(_) => false,
    }
}
