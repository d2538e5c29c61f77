//! Listeners: the sockets that accept connections.
//!
//! Owns: making listeners, and the files of unix sockets until the process ends. Connections take their options
//! from the listener that accepts them, so these options are set here too. Never accepts a connection.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use dns_lookup::{AddrInfoHints, LookupErrorKind, getaddrinfo};
use nix::unistd::{Gid, Uid, chown};
use socket2::{Domain, SockAddr, Socket, Type};

use super::privileges::{self, PrivilegeError};
use super::socket;

mod error;
pub use error::ListenError;

/// How many connections can wait to be accepted; the system limits this to its own maximum. It is more than C's 1024,
/// because after a restart all workers connect again at the same time.
const BACKLOG: i32 = 4096;

#[cfg(not(any(target_os = "illumos", target_os = "solaris")))]
const AI_PASSIVE: i32 = libc::AI_PASSIVE;
/// The value from illumos' `<netdb.h>`, because the crate `libc` does not define it.
#[cfg(any(target_os = "illumos", target_os = "solaris"))]
const AI_PASSIVE: i32 = 0x8;

/// A non-blocking socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// On a TCP port, for clients that speak TLS.
    Tls(TcpListener),
    /// On a unix socket in the file system.
    Unix(UnixListener),
}

impl Listener {
    /// The address for the log: the actual address and port, with `tls://` before them if the listener is for TLS, or
    /// `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> String {
        let of_tcp = |listener: &TcpListener| {
            listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string())
        };
        match self {
            Self::Tcp(listener) => of_tcp(listener),
            Self::Tls(listener) => format!("tls://{}", of_tcp(listener)),
            Self::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map_or_else(|| "unix:?".to_owned(), |path| format!("unix:{}", path.display()))
            }
        }
    }

    /// Whether only processes of this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(listener) | Self::Tls(listener) => {
                listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
            }
            Self::Unix(_) => true,
        }
    }
}

/// Listens on a TCP port: like C, on the first address of `host` that can be bound, or on every address of the machine
/// if `host` is `None`. `port` is a number or the name of a service.
///
/// # Errors
/// If a name does not resolve or none of its addresses can be bound.
pub fn tcp(host: Option<&str>, port: &str) -> Result<TcpListener, ListenError> {
    let hints = AddrInfoHints { socktype: libc::SOCK_STREAM, flags: AI_PASSIVE, ..AddrInfoHints::default() };
    let look_up = |source: io::Error| ListenError::LookUp { host: host.unwrap_or("*").to_owned(), source };
    let addresses = getaddrinfo(host, Some(port), Some(hints)).map_err(|error| match error.kind() {
        LookupErrorKind::Service => ListenError::NoSuchPort { port: port.to_owned() },
        _ => look_up(error.into()),
    })?;
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
    // A restart must not wait until the last connections of the previous server have left TIME_WAIT.
    socket.set_reuse_address(true)?;
    if every_address && address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket::set_connection_options(&socket)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The permissions and the owner of a unix socket. For a field that is `None`, the umask or the process decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixAccess {
    mode: Option<u32>,
    user: Option<Uid>,
    group: Option<Gid>,
}

impl UnixAccess {
    /// Access with the permissions `mode`, for `user` and `group`, which are names or numbers.
    ///
    /// # Errors
    /// If there is no such user or group.
    pub fn new(mode: Option<u32>, user: Option<&str>, group: Option<&str>) -> Result<Self, PrivilegeError> {
        Ok(Self {
            mode,
            user: user.map(privileges::user_id).transpose()?,
            group: group.map(privileges::group_id).transpose()?,
        })
    }
}

/// Listens on a unix socket at `path`. Replaces a socket that a server left there when it ended.
///
/// # Errors
/// If a server listens there, if another kind of file has this path, or if the system refuses.
pub fn unix(path: &Path, access: UnixAccess) -> Result<(UnixListener, SocketFile), ListenError> {
    let address = SockAddr::unix(path).map_err(|_| ListenError::PathTooLong { path: path.to_owned() })?;
    remove_stale(path, &address)?;
    let bind = |source| ListenError::BindUnix { path: path.to_owned(), source };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(bind)?;
    socket.set_nonblocking(true).map_err(bind)?;
    socket.bind(&address).map_err(bind)?;
    let file = SocketFile::of(path).map_err(bind)?;
    // The permissions are set before the socket listens. Nobody can connect earlier, so access is never too wide.
    set_access(path, access).map_err(|source| ListenError::Access { path: path.to_owned(), source })?;
    socket.listen(BACKLOG).map_err(bind)?;
    Ok((socket.into(), file))
}

/// Removes the socket of a server that has ended. A running server would accept a connection.
fn remove_stale(path: &Path, address: &SockAddr) -> Result<(), ListenError> {
    let in_the_way = |source| ListenError::BindUnix { path: path.to_owned(), source };
    match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(ListenError::NotASocket { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(in_the_way(error)),
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(in_the_way)?;
    // A running server with a full backlog would block a blocking connect.
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

/// The file of a unix socket. Dropping the value removes the file, unless another server has replaced it.
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

    /// The file that another program in this process has made.
    #[must_use]
    pub fn again(path: PathBuf, device: u64, inode: u64) -> Self {
        Self { path, device, inode }
    }

    /// The path, the device and the inode of the file.
    #[must_use]
    pub fn identity(&self) -> (&Path, u64, u64) {
        (&self.path, self.device, self.inode)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (self.device, self.inode));
        if is_ours {
            // The user that the server has become may lack the permission to remove the file; then the next start finds
            // a stale socket.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
