//! A connection: sends commands and receives their replies, in the order of the commands.
//!
//! Owns: the socket. Its [`Engine`] has the next step, the bytes to send and the received bytes.

use std::io;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Instant;

use super::stream::{BlockingStream, Closer, at_least_a_millisecond};
use crate::address::Address;
use crate::core::engine::Engine;
use crate::error::is_closed;

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

// Also imports `Connector`, `Duration`, `EngineStep`, `Error` and `Goal`.
crate::drivers::calls::calls!(blocking);

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

    /// Uses a connected unix socket. It does not ask for extensions before it uses them: call
    /// [`Self::known_extensions`] or [`Self::set_extensions`] first if the server may lack some.
    pub fn over_unix(stream: UnixStream) -> Self {
        Self::of(Engine::of_open(), Some(BlockingStream::Unix(stream)), None)
    }

    /// Returns a handle that closes this connection from another thread. It does not close the next one, if the client
    /// connects again.
    pub fn closer(&self) -> Result<Closer, Error> {
        let stream = self.stream.as_ref().ok_or(Error::Closed)?;
        Ok(stream.closer()?)
    }

    /// Whether the server has neither closed the connection nor sent an unexpected byte.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.stream.as_mut().is_some_and(|stream| stream.is_silent().unwrap_or(false))
    }

    fn open_stream(&mut self) -> Result<(), Error> {
        let address = self.address.as_ref().ok_or(Error::Closed)?;
        let opened = BlockingStream::open(address, &self.engine.connector, self.engine.max_timeout());
        self.stream = Some(opened.map_err(|source| Error::connect(address, source))?);
        (self.read_timeout, self.write_timeout) = (None, None);
        self.engine.opened();
        Ok(())
    }

    /// Writes what has not been sent, for the usual time-out at most, which the system has.
    fn write(&mut self, _: Goal) -> Result<(), Error> {
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
            Err(error) if is_closed(&error) => self.engine.exchange.close_for_writes(),
            other => other?,
        }
        Ok(())
    }

    /// Reads what has arrived, or waits for it, for the usual time-out at most, which the system has already. A reserve
    /// that may wait longer reads again.
    fn read(&mut self, goal: Goal, missing: usize) -> Result<(), Error> {
        let now = now();
        let deadline = self.engine.deadline(EngineStep::Read(missing), goal, now);
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

fn now() -> Instant {
    Instant::now()
}
