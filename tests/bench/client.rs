//! A blocking client, for the steps of a row outside its measured part.
//!
//! Owns: one connection. Rows never use it where its own speed would change a figure.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::wire::{self, Wire};

/// How long a server may take to answer before the row counts as failed. A sync of a slow disk under load
/// takes seconds, so this is longer than any reply of a working server.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where a server listens for a load.
#[derive(Clone, Copy)]
pub enum Endpoint {
    /// Without TLS.
    Plain(SocketAddr),
    /// With TLS.
    Tls(SocketAddr),
}

/// A connection that sends a command and waits for its reply.
pub struct Client<S = TcpStream> {
    stream: BufReader<S>,
    line: Vec<u8>,
}

impl Client {
    /// Connects to a server that is already accepting.
    pub fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::over(stream))
    }

    /// A second handle on the connection, for writing while another thread reads.
    pub fn writer(&self) -> Result<TcpStream, Failure> {
        Ok(self.stream.get_ref().try_clone()?)
    }
}

impl Client<Wire<TcpStream>> {
    /// Connects as the server listens.
    pub fn connect_to(server: Endpoint) -> Result<Self, Failure> {
        let mut wire = match server {
            Endpoint::Plain(address) => {
                return Ok(Self::over(Wire::Plain(Client::connect(address)?.into_stream())));
            }
            Endpoint::Tls(address) => wire::connect(address)?,
        };
        wire.socket().set_read_timeout(Some(PATIENCE))?;
        Ok(Self::over(wire))
    }
}

impl<S: Read + Write> Client<S> {
    fn over(stream: S) -> Self {
        Self { stream: BufReader::new(stream), line: Vec::new() }
    }

    /// Sends `bytes` as they are.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    /// The next line, with its line end.
    pub fn line(&mut self) -> Result<&[u8], Failure> {
        self.line.clear();
        match self.stream.read_until(b'\n', &mut self.line)? {
            0 => Err(Failure::Closed),
            _ => Ok(&self.line),
        }
    }

    /// Reads one line and fails unless it begins with `start`.
    pub fn expect(&mut self, start: &str) -> Result<(), Failure> {
        let line = self.line()?;
        if line.starts_with(start.as_bytes()) { Ok(()) } else { Err(unexpected(line)) }
    }

    /// A number among the server's stats.
    pub fn stat(&mut self, key: &str) -> Result<usize, Failure> {
        let stats = self.data("stats")?;
        let value = String::from_utf8_lossy(&stats)
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")?.parse().ok());
        value.ok_or_else(|| Failure::Reply(format!("stats without {key}")))
    }

    /// Asks for the stats until `is_enough` holds for the number under `key`.
    pub fn await_stat(&mut self, key: &str, is_enough: impl Fn(usize) -> bool) -> Result<(), Failure> {
        let started = Instant::now();
        while !is_enough(self.stat(key)?) {
            if started.elapsed() > PATIENCE {
                return Err(Failure::Silent);
            }
        }
        Ok(())
    }

    /// Sends `command`, and returns the data that follows the OK.
    pub fn data(&mut self, command: &str) -> Result<Vec<u8>, Failure> {
        self.send(format!("{command}\r\n").as_bytes())?;
        self.read_data()
    }

    /// Reads the next reply, and returns the data that follows its OK.
    pub fn read_data(&mut self) -> Result<Vec<u8>, Failure> {
        let line = self.line()?;
        let size =
            line.strip_prefix(b"OK ").and_then(|size| std::str::from_utf8(size).ok()?.trim().parse().ok());
        let Some(size) = size else { return Err(unexpected(line)) };
        let mut data = vec![0; size];
        self.stream.read_exact(&mut data)?;
        self.expect("\r\n")?;
        Ok(data)
    }

    /// Uses `tube`, and watches it alone.
    pub fn enter_tube(&mut self, tube: &str) -> Result<(), Failure> {
        self.send(format!("use {tube}\r\nwatch {tube}\r\nignore default\r\n").as_bytes())?;
        self.expect("USING ")?;
        self.expect("WATCHING 2")?;
        self.expect("WATCHING 1")
    }

    /// Holds the session `name`, which has no jobs.
    pub fn enter_session(&mut self, name: &str) -> Result<(), Failure> {
        self.send(format!("session {name} 60\r\n").as_bytes())?;
        self.expect("SESSION 0")
    }

    /// The connection itself. Bytes that were read ahead are lost.
    pub fn into_stream(self) -> S {
        self.stream.into_inner()
    }
}

/// The id and the body's length in a `RESERVED` line.
pub fn parse_reserved(line: &[u8]) -> Option<(u64, usize)> {
    let numbers = line.strip_prefix(b"RESERVED ")?.strip_suffix(b"\r\n")?;
    let (id, body_bytes) = std::str::from_utf8(numbers).ok()?.split_once(' ')?;
    Some((id.parse().ok()?, body_bytes.parse().ok()?))
}

/// A failure because the server replied `line`, which the row does not expect.
pub fn unexpected(line: &[u8]) -> Failure {
    Failure::Reply(String::from_utf8_lossy(line).trim_end().to_owned())
}
