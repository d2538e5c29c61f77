//! A connection: sends commands and receives their replies, in the order of the commands.
//!
//! Owns: the socket. Its [`Engine`] has the next step, the bytes to send and the received bytes.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use beanstalkd_protocol::Reply;
use beanstalkd_types::tube_name::TubeName;

use super::stream::{BlockingStream, Closer};
use crate::address::Address;
use crate::connector::Connector;
use crate::core::data::Extensions;
use crate::core::engine::{Engine, EngineStep, Goal, Preliminary};
use crate::core::exchange::Answer;
use crate::core::jittered;
use crate::core::pipeline::{Pipeline, Refusals, Wait};
use crate::core::request::Request;
use crate::error::{Error, is_closed};

/// A connection to a server, on which any [`Request`] can be sent.
#[derive(Debug)]
pub struct Connection {
    /// The connection without its socket. A worker and a pool use it, too.
    pub(crate) engine: Engine,
    stream: Option<BlockingStream>,
    /// `None` for a socket from the caller, which cannot be opened again.
    address: Option<Address>,
    /// The system's time-outs of a read and of a write, as far as they were set.
    read_timeout: Option<Option<Duration>>,
    write_timeout: Option<Option<Duration>>,
}

impl Connection {
    /// Connects. The connect and each wait for the next byte time out after 60 seconds. A [`Connector`] has more
    /// settings.
    pub fn open(address: &Address) -> Result<Self, Error> {
        Connector::new().open(address)
    }

    pub(crate) fn connect(address: &Address, connector: Connector) -> Result<Self, Error> {
        let mut connection = Self::of(Engine::new(connector)?, None, Some(address.clone()));
        connection.drive(Goal::Greeting)?;
        Ok(connection)
    }

    fn of(engine: Engine, stream: Option<BlockingStream>, address: Option<Address>) -> Self {
        Self { engine, stream, address, read_timeout: None, write_timeout: None }
    }

    /// Uses a connected unix socket. It does not ask for extensions before it uses them.
    pub fn over_unix(stream: UnixStream) -> Self {
        Self::of(Engine::of_open(), Some(BlockingStream::Unix(stream)), None)
    }

    /// Sets the time-out of each wait for the next byte; `None` means no limit. For a reserve, its own wait is added.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.engine.connector.timeout = timeout;
    }

    /// Returns a handle that closes this connection from another thread. It does not close the next one, if the client
    /// connects again.
    pub fn closer(&self) -> Result<Closer, Error> {
        let stream = self.stream.as_ref().ok_or(Error::Closed)?;
        Ok(stream.closer()?)
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
    pub(crate) fn is_alive(&mut self) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.is_silent().unwrap_or(false))
    }

    /// The extensions of the server, which is asked once on each connection.
    pub fn known_extensions(&mut self) -> Result<&Extensions, Error> {
        if self.engine.extensions().is_none() {
            self.prepare(Preliminary::Extensions)?;
        }
        self.engine.extensions().ok_or(Error::Closed)
    }

    /// Makes a request of the connection itself. Returns whether a job that the connection has answers the caller.
    fn prepare(&mut self, preliminary: Preliminary) -> Result<bool, Error> {
        self.engine.begin_as(preliminary)?;
        self.drive(Goal::Reply)?;
        let answered = self.engine.handle_answer(preliminary);
        if answered.as_ref().is_err_and(Error::is_end_of_connection) {
            self.hang_up();
        }
        answered
    }

    /// Handles the error of a request: ends a connection that is out of step, and finds out whether a server that has
    /// refused the request does not have its extension.
    pub(crate) fn explain(&mut self, extension: Option<&'static str>, error: Error) -> Error {
        if error.is_end_of_connection() {
            self.hang_up();
        }
        if self.engine.may_lack_extension(extension, &error) {
            // If the server does not answer, its refusal is all that is known.
            let _ = self.known_extensions();
        }
        self.engine.explain(extension, error)
    }

    /// Sends a command and waits for its reply. Replies that an earlier caller has not waited for are skipped.
    pub fn call<'a>(&mut self, request: impl Into<Request<'a>>) -> Result<Reply<'_>, Error> {
        self.answer_to(request.into()).map(|(reply, _)| reply)
    }

    pub(crate) fn answer_to(&mut self, request: Request<'_>) -> Result<Answer<'_>, Error> {
        while let Some(preliminary) = self.engine.preliminary(&request)? {
            if self.prepare(preliminary)? {
                return self.engine.exchange.strays.take();
            }
        }
        self.engine.begin_with(&request)?;
        self.drive(Goal::Reply)?;
        self.engine.reply()
    }

    /// Sends many commands without waiting for each reply, and passes the result of each to `each`, in the order of the
    /// commands, with their positions. A refusal is an error there: a job that is too big, or that a server in drain
    /// mode does not accept, is [`Error::Refused`]. A caller who does not look at the results may lose jobs. With
    /// [`Connector::reconnect`], a lost connection is not an error: the commands that must not be sent again have the
    /// result [`Error::Unconfirmed`].
    ///
    /// # Errors
    /// If the connection is lost. Only the commands whose results `each` got are known to be executed.
    pub fn send_all<'a>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
        each: impl FnMut(usize, Result<Reply<'_>, Error>),
    ) -> Result<(), Error> {
        self.send_each(requests, Refusals::AreErrors, each)
    }

    /// Sends many commands without waiting for each reply. `each` gets the replies in the order of the commands, with
    /// their positions: also those that refuse the command. After an error, only the commands whose replies it got are
    /// known to be executed.
    ///
    /// # Errors
    /// If the connection is lost; otherwise the first result that is not a reply.
    pub fn pipeline<'a>(
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
        sent?;
        first
    }

    /// Sends many commands as [`Self::pipeline`] does, and returns what `read` returns for each reply.
    ///
    /// # Errors
    /// As those of [`Self::pipeline`].
    pub fn call_all<'a, T>(
        &mut self,
        requests: impl IntoIterator<Item = impl Into<Request<'a>>>,
        mut read: impl FnMut(Reply<'_>) -> T,
    ) -> Result<Vec<T>, Error> {
        let mut results = Vec::new();
        self.pipeline(requests, |_, reply| results.push(read(reply)))?;
        Ok(results)
    }

    fn send_each<'a>(
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
                        self.drive(Goal::Reply)?;
                        pipeline.arrived(&mut self.engine)?;
                    }
                    Wait::Preliminary(preliminary) => {
                        let prepared = self.prepare(preliminary);
                        pipeline.prepared(&mut self.engine, prepared)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives the next reply. After [`Error::TimedOut`], a further call waits for the same reply again.
    pub fn receive(&mut self) -> Result<Reply<'_>, Error> {
        self.drive(Goal::Reply)?;
        self.engine.reply().map(|(reply, _)| reply)
    }

    /// Takes the steps of the engine until the goal is reached.
    fn drive(&mut self, goal: Goal) -> Result<(), Error> {
        self.engine.begin_steps(Instant::now);
        let mut pause = Duration::ZERO;
        loop {
            self.engine.expire(Instant::now);
            let taken = match self.engine.step(goal) {
                Ok(EngineStep::Done) => return Ok(()),
                Ok(EngineStep::Open) => {
                    std::thread::sleep(jittered(pause));
                    self.open_stream()
                }
                Ok(EngineStep::Write) => self.write_some(),
                Ok(step @ EngineStep::Read(missing)) => {
                    let now = Instant::now();
                    let deadline = self.engine.deadline(step, goal, now);
                    self.read_until(deadline, now, missing)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                let failed = self.engine.failed(error, Instant::now());
                if !self.engine.is_open() {
                    self.stream = None;
                }
                pause = failed?;
            }
        }
    }

    fn open_stream(&mut self) -> Result<(), Error> {
        let address = self.address.as_ref().ok_or(Error::Closed)?;
        let opened = BlockingStream::open(address, &self.engine.connector, self.engine.max_timeout());
        self.stream = Some(opened.map_err(|source| Error::connect(address, source))?);
        (self.read_timeout, self.write_timeout) = (None, None);
        self.engine.opened();
        Ok(())
    }

    fn write_some(&mut self) -> Result<(), Error> {
        let stream = self.stream.as_mut().ok_or(Error::Closed)?;
        let timeout = self.engine.max_timeout();
        if self.write_timeout != Some(timeout) {
            stream.socket().set_write_timeout(timeout.map(at_least_a_millisecond))?;
            self.write_timeout = Some(timeout);
        }
        let taken = stream.flush().and_then(|()| stream.write(self.engine.exchange.unsent()));
        let written = taken.and_then(|bytes| {
            // TLS has them, whatever becomes of the flush: the next write or read sends what is left.
            self.engine.exchange.sent(bytes);
            stream.flush()
        });
        match written {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_closed(&error) => self.engine.exchange.is_closed_for_writes = true,
            other => other?,
        }
        Ok(())
    }

    /// Reads what has arrived, or waits for it, for the usual time-out at most, which the system has already. A reserve
    /// that may wait longer reads again.
    fn read_until(&mut self, deadline: Option<Instant>, now: Instant, missing: usize) -> Result<(), Error> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        let usual = self.engine.max_timeout();
        match self.read_some(missing, left.into_iter().chain(usual).min()) {
            Err(Error::TimedOut) if deadline.is_none_or(|deadline| Instant::now() < deadline) => Ok(()),
            read => read,
        }
    }

    /// Reads what has arrived, or waits for it.
    fn read_some(&mut self, missing: usize, left: Option<Duration>) -> Result<(), Error> {
        let stream = self.stream.as_mut().ok_or(Error::Closed)?;
        if self.read_timeout != Some(left) {
            stream.socket().set_read_timeout(left.map(at_least_a_millisecond))?;
            self.read_timeout = Some(left);
        }
        match stream.as_read().read(self.engine.exchange.room(missing)) {
            Ok(0) => Err(Error::Closed),
            Err(error) if is_closed(&error) => Err(Error::Closed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => {
                self.engine.exchange.received(other?);
                Ok(())
            }
        }
    }
}

/// A time-out for the system, which refuses zero.
fn at_least_a_millisecond(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}
