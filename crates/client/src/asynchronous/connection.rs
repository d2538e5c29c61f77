//! A connection: sends commands and receives their replies, in the order of the commands.
//!
//! Owns: the socket. Its [`Engine`] has the next step, the bytes to send and the received bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

#[cfg(feature = "tokio-tls")]
use beanstalkd_protocol::Command;
use beanstalkd_protocol::Reply;
use beanstalkd_types::tube_name::TubeName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout_at};

use crate::address::Address;
use crate::connector::{Connector, configure_tcp};
use crate::core::data::Extensions;
use crate::core::engine::{Engine, EngineStep, Goal, Preliminary};
use crate::core::exchange::Answer;
use crate::core::jittered;
use crate::core::pipeline::{Pipeline, Refusals, Wait};
use crate::core::request::Request;
use crate::error::{Error, is_closed};

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

    /// Sets the time-out of each wait for the next byte; `None` means no limit. For a reserve, its own wait is added.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.engine.connector.timeout = timeout;
    }

    /// Whether the next put goes into this tube.
    pub fn uses(&self, tube: &TubeName) -> bool {
        self.engine.exchange.state.uses(tube)
    }

    /// Sets the extensions of the server, so that the connection does not request them.
    pub fn set_extensions(&mut self, extensions: Extensions) {
        self.engine.set_extensions(extensions);
    }

    /// Closes the connection. With [`Connector::reconnect`], the next command opens another one.
    pub fn hang_up(&mut self) {
        self.stream = None;
        self.engine.hang_up();
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

    /// The extensions of the server, which is asked once on each connection.
    pub async fn known_extensions(&mut self) -> Result<&Extensions, Error> {
        if self.engine.extensions().is_none() {
            self.prepare(Preliminary::Extensions).await?;
        }
        self.engine.extensions().ok_or(Error::Closed)
    }

    /// Makes a request of the connection itself. Returns whether a job that the connection has answers the caller.
    async fn prepare(&mut self, preliminary: Preliminary) -> Result<bool, Error> {
        self.engine.begin_as(preliminary)?;
        self.drive(Goal::Reply).await?;
        let answered = self.engine.handle_answer(preliminary);
        if answered.as_ref().is_err_and(Error::is_end_of_connection) {
            self.hang_up();
        }
        answered
    }

    /// Handles the error of a request: ends a connection that is out of step, and finds out whether a server that has
    /// refused the request does not have its extension.
    pub(crate) async fn explain(&mut self, extension: Option<&'static str>, error: Error) -> Error {
        if error.is_end_of_connection() {
            self.hang_up();
        }
        if self.engine.may_lack_extension(extension, &error) {
            // If the server does not answer, its refusal is all that is known.
            let _ = self.known_extensions().await;
        }
        self.engine.explain(extension, error)
    }

    /// Sends a command and waits for its reply. Replies that an earlier caller has not waited for are skipped.
    pub async fn call<'a>(&mut self, request: impl Into<Request<'a>>) -> Result<Reply<'_>, Error> {
        self.answer_to(request.into()).await.map(|(reply, _)| reply)
    }

    pub(crate) async fn answer_to(&mut self, request: Request<'_>) -> Result<Answer<'_>, Error> {
        while let Some(preliminary) = self.engine.preliminary(&request)? {
            if self.prepare(preliminary).await? {
                return self.engine.exchange.strays.take();
            }
        }
        self.engine.begin_with(&request)?;
        self.drive(Goal::Reply).await?;
        self.engine.reply()
    }

    /// Sends many commands without waiting for each reply; a refusal is an error. See
    /// [`send_all`](crate::Connection::send_all) of the blocking client.
    pub async fn send_all<'a>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
        each: impl FnMut(usize, Result<Reply<'_>, Error>),
    ) -> Result<(), Error> {
        self.send_each(requests, Refusals::AreErrors, each).await
    }

    /// Sends many commands without waiting for each reply; a refusal is a reply. See
    /// [`pipeline`](crate::Connection::pipeline) of the blocking client.
    pub async fn pipeline<'a>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
        mut each: impl FnMut(usize, Reply<'_>),
    ) -> Result<(), Error> {
        let mut first = Ok(());
        let sent = self.send_each(requests, Refusals::AreReplies, |position, result| match result {
            Ok(reply) => each(position, reply),
            Err(error) if first.is_ok() => first = Err(error),
            Err(_) => {}
        });
        sent.await?;
        first
    }

    /// Sends many commands as [`Self::pipeline`] does, and returns what `read` returns for each reply.
    pub async fn call_all<'a, T>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
        mut read: impl FnMut(Reply<'_>) -> T,
    ) -> Result<Vec<T>, Error> {
        let mut results = Vec::new();
        self.pipeline(requests, |_, reply| results.push(read(reply))).await?;
        Ok(results)
    }

    async fn send_each<'a>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
        refusals: Refusals,
        each: impl FnMut(usize, Result<Reply<'_>, Error>),
    ) -> Result<(), Error> {
        self.engine.begin()?;
        let mut pipeline = Pipeline::new(refusals, each);
        for request in requests.into_iter().map(|request| Some(request.into())).chain([None]) {
            while let Some(wait) = pipeline.next_wait(&mut self.engine, request.as_ref())? {
                match wait {
                    Wait::Result => {
                        self.drive(Goal::Reply).await?;
                        pipeline.arrived(&mut self.engine)?;
                    }
                    Wait::Preliminary(preliminary) => {
                        let prepared = self.prepare(preliminary).await;
                        pipeline.prepared(&mut self.engine, prepared)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives the next reply. After [`Error::TimedOut`], a further call waits for the same reply again.
    pub async fn receive(&mut self) -> Result<Reply<'_>, Error> {
        self.drive(Goal::Reply).await?;
        self.engine.reply().map(|(reply, _)| reply)
    }

    /// Takes the steps of the engine until the goal is reached.
    async fn drive(&mut self, goal: Goal) -> Result<(), Error> {
        self.engine.begin_steps(now);
        let mut pause = Duration::ZERO;
        loop {
            self.engine.expire(now);
            let taken = match self.engine.step(goal) {
                Ok(EngineStep::Done) => return Ok(()),
                Ok(EngineStep::Open) => {
                    sleep(jittered(pause)).await;
                    self.open_stream().await
                }
                Ok(step @ EngineStep::Write) => {
                    within(self.engine.deadline(step, goal, now()), self.write_some()).await
                }
                Ok(step @ EngineStep::Read(missing)) => {
                    within(self.engine.deadline(step, goal, now()), self.read_some(missing)).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                let failed = self.engine.failed(error, now());
                if !self.engine.is_open() {
                    self.stream = None;
                }
                pause = failed?;
            }
        }
    }

    async fn open_stream(&mut self) -> Result<(), Error> {
        let deadline = self.engine.max_timeout().and_then(|timeout| now().checked_add(timeout));
        let opening = async { Ok(open(&self.address, &self.engine.connector).await) };
        let late = |late: Error| Err(io::Error::new(io::ErrorKind::TimedOut, late.to_string()));
        let opened = within(deadline, opening).await.unwrap_or_else(late);
        self.stream = Some(opened.map_err(|source| Error::connect(&self.address, source))?);
        self.engine.opened();
        Ok(())
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
            Err(error) if is_closed(&error) => self.engine.exchange.is_closed_for_writes = true,
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
async fn open(address: &Address, connector: &Connector) -> io::Result<Pin<Box<dyn AsyncStream>>> {
    match address {
        Address::Unix(path) => Ok(Box::pin(UnixStream::connect(path).await?)),
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            configure_tcp(&stream)?;
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
