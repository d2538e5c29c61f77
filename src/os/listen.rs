//! Sockets that listen.
//!
//! Owns: how they come to be, and the files of unix ones until the end. Connections take their options
//! from the socket that accepts them, so those are set here too. Never accepts.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use dns_lookup::{AddrInfoHints, getaddrinfo};
use nix::unistd::{Gid, Uid, chown};
use socket2::{Domain, SockAddr, Socket, Type};

use super::privileges::{self, PrivilegeError};
use super::socket;

mod error;
pub use error::ListenError;

/// How many connections may wait to be accepted; the system cuts it to its own bound. More than C's
/// 1024, because a fleet of workers comes back at once after a restart.
const BACKLOG: i32 = 4096;

/// A socket that listens and does not block.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// In the file system.
    Unix(UnixListener),
}

impl Listener {
    /// Where it listens, for the log: the address and the port that it has in fact, or `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string())
            }
            Self::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(|| "unix:?".to_owned(), |path| format!("unix:{}", path.display()))
            }
        }
    }
}

/// Listens on a TCP port: on the first address of `host` that can be bound, as C does; on every address
/// of the machine where there is no host. `port` is a number or the name of a service.
///
/// # Errors
/// Where a name does not resolve or none of its addresses can be bound.
pub fn tcp(host: Option<&str>, port: &str) -> Result<TcpListener, ListenError> {
    let hints =
        AddrInfoHints { socktype: libc::SOCK_STREAM, flags: libc::AI_PASSIVE, ..AddrInfoHints::default() };
    let look_up = |source: io::Error| ListenError::LookUp {
        host: host.unwrap_or("*").to_owned(),
        port: port.to_owned(),
        source,
    };
    let addresses = getaddrinfo(host, Some(port), Some(hints)).map_err(|error| look_up(error.into()))?;
    let mut last_error = None;
    for address in addresses {
        let address = address.map_err(look_up)?.sockaddr;
        match tcp_at(&address.into(), host.is_none()) {
            Ok(listener) => return Ok(listener),
            Err(source) => last_error = Some(ListenError::Bind { address: address.to_string(), source }),
        }
    }
    Err(last_error.unwrap_or_else(|| look_up(io::ErrorKind::NotFound.into())))
}

fn tcp_at(address: &SockAddr, every_address: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // A restart must not wait until the last connections of the former server have faded.
    socket.set_reuse_address(true)?;
    if every_address && address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket::set_connection_options(&socket)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Who may connect to a unix socket. The umask and the process decide what is left open here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixAccess {
    mode: Option<u32>,
    user: Option<Uid>,
    group: Option<Gid>,
}

impl UnixAccess {
    /// Access by permissions `mode`, for `user` and `group`, names or numbers.
    ///
    /// # Errors
    /// Where there is no such user or group.
    pub fn new(mode: Option<u32>, user: Option<&str>, group: Option<&str>) -> Result<Self, PrivilegeError> {
        Ok(Self {
            mode,
            user: user.map(privileges::user_id).transpose()?,
            group: group.map(privileges::group_id).transpose()?,
        })
    }
}

/// Listens on a socket at `path`. A socket that a dead server left there is replaced.
///
/// # Errors
/// Where a server listens there, or another file is in the way, or the system refuses.
pub fn unix(path: &Path, access: UnixAccess) -> Result<(UnixListener, SocketFile), ListenError> {
    let address = SockAddr::unix(path).map_err(|_| ListenError::PathTooLong { path: path.to_owned() })?;
    remove_stale(path, &address)?;
    let bind = |source| ListenError::Bind { address: path.display().to_string(), source };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(bind)?;
    socket.set_nonblocking(true).map_err(bind)?;
    socket.bind(&address).map_err(bind)?;
    let file = SocketFile::of(path).map_err(bind)?;
    // Before it listens nobody can connect, so there is no moment of too much access.
    set_access(path, access).map_err(|source| ListenError::Access { path: path.to_owned(), source })?;
    socket.listen(BACKLOG).map_err(bind)?;
    Ok((socket.into(), file))
}

/// Removes the socket of a server that has ended; it is told from a living one by connecting.
fn remove_stale(path: &Path, address: &SockAddr) -> Result<(), ListenError> {
    let in_the_way = |source| ListenError::Bind { address: path.display().to_string(), source };
    match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(ListenError::NotASocket { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(in_the_way(error)),
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(in_the_way)?;
    // A living server with a full backlog would hold a blocking probe up.
    probe.set_nonblocking(true).map_err(in_the_way)?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(in_the_way)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(in_the_way(error)),
        Ok(()) | Err(_) => Err(ListenError::InUse { path: path.to_owned() }),
    }
}

fn set_access(path: &Path, access: UnixAccess) -> io::Result<()> {
    if access.user.is_some() || access.group.is_some() {
        chown(path, access.user, access.group)?;
    }
    match access.mode {
        Some(mode) => fs::set_permissions(path, fs::Permissions::from_mode(mode)),
        None => Ok(()),
    }
}

/// The file of a unix socket; removed when dropped, unless another server has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (self.device, self.inode));
        if is_ours {
            // The user that the server became may lack the right; the next start finds a stale socket.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
