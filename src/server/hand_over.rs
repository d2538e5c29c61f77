//! The description that one program leaves to the next one: the parts outside of the server.
//!
//! Owns: the format's version, and the order of its parts. `doc/handover.md` describes the format and how to extend it;
//! any change of it, including a record that is described elsewhere, is a new version. Driven by
//! `event_loop/hand_over.rs` in the old program, and by the start of the new one.

use std::os::fd::{AsFd, AsRawFd};

use super::{Server, Stream};
use crate::clock::Timestamp;
use crate::described;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::executor::Executor;
use crate::poll_token::PollToken;
use crate::stream::ListenerSocket;

/// The format that this program writes.
pub const FORMAT: u32 = 1;
/// The oldest format that it reads. `tests/hand_over/formats` has a description in each format since this one.
pub const OLDEST_FORMAT: u32 = 1;

/// The first bytes of a description.
const MAGIC: &[u8; 16] = b"beanstalkd hand\n";
/// The last bytes of a description, which show that nothing is missing.
const END: u64 = 0x656e_6f64_656e_6f64;

/// The role of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    /// Clients.
    Clients,
    /// Metrics and health checks.
    Metrics,
    /// The API and its page.
    Admin,
}

/// The transport of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// A unix socket.
    Unix,
}

/// A socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescribedListener {
    /// Role of the listener.
    pub role: ListenerRole,
    /// Transport of the listener.
    pub kind: ListenerKind,
    /// Descriptor of the socket.
    pub descriptor: i32,
}

/// The file of a unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedFile {
    /// The path of the file, in bytes.
    pub path: Vec<u8>,
    /// The device that it is on.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
}

/// All parts except the server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedProcess {
    /// The instant of the description.
    pub now: Timestamp,
    /// The number that the clock adds to the time since the machine was started.
    pub clock_offset_ns: u64,
    /// The sockets that listen.
    pub listeners: Vec<DescribedListener>,
    /// How many of the listeners for clients a service manager has opened; they are the first ones.
    pub inherited: usize,
    /// The files of unix sockets, which are removed at the end.
    pub files: Vec<DescribedFile>,
    /// The descriptor that holds the lock of the binlog's directory.
    pub lock: Option<i32>,
}

described!(enum ListenerRole, "the role of a listener" { 0 => Clients, 1 => Metrics, 2 => Admin });
described!(enum ListenerKind, "the transport of a listener" { 0 => Tcp, 1 => Tls, 2 => Unix });
described!(DescribedListener { role, kind, descriptor });
described!(DescribedFile { path, device, inode });
described!(DescribedProcess { now, clock_offset_ns, listeners, inherited, files, lock });

impl ListenerSocket {
    /// The facts that another program needs to take over this listener.
    pub(super) fn described(&self, role: ListenerRole) -> DescribedListener {
        let kind = match self {
            Self::Tcp(_) => ListenerKind::Tcp,
            Self::Tls(..) => ListenerKind::Tls,
            Self::Unix(_) => ListenerKind::Unix,
        };
        DescribedListener { role, kind, descriptor: self.as_fd().as_raw_fd() }
    }
}

impl DescribedProcess {
    /// The descriptors that the description names.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.listeners.iter().map(|listener| listener.descriptor).chain(self.lock)
    }
}

/// Writes the whole description.
pub fn describe<S: Stream>(server: &Server<S>, process: &DescribedProcess, out: &mut Writer<'_>) {
    out.raw(MAGIC);
    FORMAT.describe(out);
    process.describe(out);
    server.describe(out);
    END.describe(out);
}

/// Reads the beginning of a description; [`Server::read_description`] reads what follows, and [`read_end`] the end.
///
/// # Errors
/// If the bytes are not a description, or have another format.
pub fn read_process(from: &mut Reader<'_>) -> Result<DescribedProcess, Malformed> {
    if from.raw(MAGIC.len())? != MAGIC {
        return Err(Malformed("it does not describe a server"));
    }
    let version = from.value()?;
    if !(OLDEST_FORMAT..=FORMAT).contains(&version) {
        return Err(Malformed("this program does not know its format"));
    }
    from.set_version(version);
    let process: DescribedProcess = from.value()?;
    check_descriptors(process.descriptors().collect())?;
    Ok(process)
}

/// Checks that each descriptor is named once.
fn check_descriptors(mut descriptors: Vec<i32>) -> Result<(), Malformed> {
    descriptors.sort_unstable();
    let are_equal = |pair: &[i32]| pair[0] == pair[1];
    if descriptors.windows(2).any(are_equal) { Err(Malformed("a descriptor is named twice")) } else { Ok(()) }
}

/// Reads the end of a description.
///
/// # Errors
/// If the bytes are not the end.
pub fn read_end(from: &mut Reader<'_>) -> Result<(), Malformed> {
    if from.value::<u64>()? == END && from.is_at_end() {
        Ok(())
    } else {
        Err(Malformed("its end is missing"))
    }
}

/// Reads a whole description with this executor, which is new, to check whether another program could continue with it.
/// Returns the version of its format.
///
/// # Errors
/// If the description cannot be used.
pub fn check(executor: Executor, bytes: &[u8]) -> Result<u32, Malformed> {
    let from = &mut Reader::new(bytes);
    let process = read_process(from)?;
    let mut seen: Vec<i32> = process.descriptors().collect();
    let mut server = Server::<NoStream>::new(executor);
    server.read_description(from, process.now, false, |_, handle| {
        seen.push(handle.descriptor);
        Ok(NoStream)
    })?;
    check_descriptors(seen)?;
    read_end(from)?;
    Ok(from.version())
}

/// The stream of a client in a trial, in which no socket is used.
#[derive(Debug)]
pub struct NoStream;

impl Stream for NoStream {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Ok(0)
    }

    fn read_into(&mut self, _: &mut Vec<u8>, _: usize) -> std::io::Result<usize> {
        Ok(0)
    }

    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Ok(0)
    }

    fn write_vectored(&mut self, _: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
        Ok(0)
    }

    fn await_writable(&mut self, _: PollToken, _: bool) {}
}
