//! Fake sockets: when bytes arrive, how many bytes a write takes, and when the poll returns an event.
//!
//! Owns: the bytes on their way between a client and the server. Readiness is edge-triggered, like the system's: an
//! event comes when bytes arrive, when the client closes or breaks the connection, and when there is room again after a
//! write that found none. No event comes because bytes are still there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::rc::Rc;

use beanstalkd::server::Readiness;
use beanstalkd::simulation::{Handle, PollToken, Stream};
use beanstalkd_queue::ClientId;

use crate::observer::{self, ServedStep};
use crate::random::Random;

/// Both directions of a connection.
#[derive(Debug)]
pub struct Pipe {
    /// Bytes that have arrived and that the server has not read.
    inbound: VecDeque<u8>,
    /// Bytes that the server has read.
    pub read: u64,
    /// Bytes that the server has written and the client has not read.
    outbound: VecDeque<u8>,
    /// The maximum number of bytes that `outbound` takes.
    capacity: usize,
    /// The client sends no more bytes.
    pub ended: bool,
    /// An event or a read has shown to the server that the client sends no more bytes.
    pub end_is_known: bool,
    /// The client reads no more bytes.
    pub gone: bool,
    /// The connection is broken.
    pub broken: bool,
    /// A write has found no room since the last event that reported room.
    blocked: bool,
    write_is_awaited: bool,
    event: Readiness,
    /// When calls are interrupted and writes take only a part; `None`: never.
    random: Option<Random>,
}

impl Pipe {
    pub fn new(capacity: usize, random: Random) -> Rc<RefCell<Self>> {
        Self::with(capacity, Some(random))
    }

    /// One without interrupted calls, for the tests of what a turn does.
    pub fn steady(capacity: usize) -> Rc<RefCell<Self>> {
        Self::with(capacity, None)
    }

    fn with(capacity: usize, random: Option<Random>) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            inbound: VecDeque::new(),
            read: 0,
            outbound: VecDeque::new(),
            capacity,
            ended: false,
            end_is_known: false,
            gone: false,
            broken: false,
            blocked: false,
            write_is_awaited: false,
            event: Readiness::default(),
            random,
        }))
    }

    /// Lets `bytes` arrive at the server.
    pub fn arrive(&mut self, bytes: &[u8]) {
        self.inbound.extend(bytes);
        self.event.readable = true;
    }

    /// Closes the client's sending half. If `gone`, the client does not read either, which some kinds of sockets report
    /// at once.
    pub fn end(&mut self, gone: bool) {
        self.ended = true;
        self.gone |= gone;
        self.event.readable = true;
        self.event.read_closed = true;
        self.event.failed |= gone && self.once_in(2);
        self.event.writable |= gone && self.write_is_awaited;
    }

    /// Breaks the connection. Bytes that have arrived and that the server has not read are sometimes lost.
    pub fn break_off(&mut self) {
        self.broken = true;
        self.ended = true;
        if self.once_in(2) {
            self.inbound.clear();
        }
        let writable = self.write_is_awaited;
        self.event = Readiness { readable: true, writable, read_closed: true, failed: true };
    }

    /// Another program watches the socket from now on: its poll reports the whole state of the socket.
    pub fn watch_again(&mut self) {
        (self.blocked, self.write_is_awaited) = (false, false);
        self.event = Readiness {
            readable: !self.inbound.is_empty() || self.ended,
            writable: false,
            read_closed: self.ended,
            failed: self.broken,
        };
    }

    /// Neither interrupts calls nor cuts writes from now on.
    pub fn calm(&mut self) {
        self.random = None;
    }

    /// Makes room for all writes from now on.
    pub fn widen(&mut self) {
        self.capacity = usize::MAX;
    }

    /// Causes an event without a reason, as a poll may return one.
    pub fn false_alarm(&mut self) {
        self.event.readable = true;
    }

    /// Reads at most `count` bytes, as the client.
    pub fn take_outbound(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.outbound.len());
        if count > 0 && self.blocked && self.write_is_awaited {
            self.blocked = false;
            self.event.writable = true;
        }
        take_first(&mut self.outbound, count)
    }

    pub fn has_outbound(&self) -> bool {
        !self.outbound.is_empty()
    }

    pub fn unread_by_server(&self) -> usize {
        self.inbound.len()
    }

    pub fn has_event(&self) -> bool {
        self.event != Readiness::default()
    }

    /// The poll's events for the server.
    pub fn take_event(&mut self) -> Readiness {
        self.end_is_known |= self.event.read_closed | self.event.failed;
        std::mem::take(&mut self.event)
    }

    /// Reads as the server, as all methods from here on.
    ///
    /// # Errors
    /// As the system, sometimes without a reason (`Interrupted`).
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.before_read()?;
        let count = buffer.len().min(self.inbound.len());
        self.inbound.read_exact(&mut buffer[..count])?;
        self.read += count as u64;
        Ok(count)
    }

    /// Reads at most `max_bytes` to the end of `body`, and no more than its room.
    ///
    /// # Errors
    /// As [`Pipe::read`].
    pub fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        self.before_read()?;
        let room = max_bytes.min(body.capacity() - body.len());
        assert!(room > 0, "there is room, because a read of 0 bytes would look like the end");
        let count = room.min(self.inbound.len());
        body.extend_from_slice(&take_first(&mut self.inbound, count));
        self.read += count as u64;
        Ok(count)
    }

    /// Writes as many of the bytes as there is room for, and sometimes fewer.
    ///
    /// # Errors
    /// As [`Pipe::read`].
    pub fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = self.accepted(slices.iter().map(|slice| slice.len()).sum())?;
        let mut left = count;
        for slice in slices {
            let taken = left.min(slice.len());
            self.outbound.extend(&slice[..taken]);
            left -= taken;
        }
        Ok(count)
    }

    fn once_in(&mut self, count: u64) -> bool {
        self.random.as_mut().is_some_and(|random| random.once_in(count))
    }

    fn before_read(&mut self) -> io::Result<()> {
        if self.broken && self.inbound.is_empty() {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if self.once_in(32) {
            return Err(ErrorKind::Interrupted.into());
        }
        if self.inbound.is_empty() && !self.ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.end_is_known |= self.inbound.is_empty();
        Ok(())
    }

    /// How many of `len` bytes a write takes.
    fn accepted(&mut self, len: usize) -> io::Result<usize> {
        if self.broken || self.gone {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.once_in(32) {
            return Err(ErrorKind::Interrupted.into());
        }
        let room = self.capacity - self.outbound.len();
        if room == 0 {
            self.blocked = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = len.min(room);
        if let Some(random) = &mut self.random
            && random.once_in(8)
        {
            return Ok(1 + random.below(taken as u64) as usize);
        }
        Ok(taken)
    }
}

/// Takes the first bytes, all at once: the seeds move many megabytes.
fn take_first(bytes: &mut VecDeque<u8>, count: usize) -> Vec<u8> {
    let mut first = vec![0; count];
    bytes.read_exact(&mut first).expect("the pipe has `count` bytes");
    first
}

/// The server's end of a pipe.
#[derive(Debug)]
pub struct FakeStream {
    pub id: ClientId,
    pub pipe: Rc<RefCell<Pipe>>,
}

impl Stream for FakeStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pipe.borrow_mut().read(buffer)
    }

    fn read_into(&mut self, body: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
        self.pipe.borrow_mut().read_into(body, max_bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.pipe.borrow_mut().write_vectored(slices)
    }

    fn handle(&self) -> Option<Handle> {
        Some(Handle { descriptor: self.id.index as i32, is_unix: true })
    }

    fn await_writable(&mut self, _: PollToken, awaited: bool) {
        let pipe = &mut *self.pipe.borrow_mut();
        pipe.write_is_awaited = awaited;
        // As with the system, an event that was not taken yet is lost with the interest in it.
        pipe.event.writable &= awaited;
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        observer::note(ServedStep::Closed(self.id));
    }
}
