//! Options of connections, the name of their other end, and reads into memory that is not zeroed first.
//!
//! Owns: the time limits after which the system ends a connection whose other end is silent.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::platform;
pub use super::platform::unix_peer_user as peer_user;

/// If no data has come for this long, the system asks whether the client is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// How long the client has for each answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How many answers may fail to come.
const KEEPALIVE_PROBES: u32 = 8;
/// How long sent data may stay unacknowledged: as long as keepalive takes. To the system, a client that only reads
/// slowly looks the same, so this must not be much shorter.
const USER_TIMEOUT: Duration = Duration::from_secs(180);

/// The idle time before keepalive on a connection to the database, which is in the same network and acknowledges at
/// once.
const DATABASE_IDLE: Duration = Duration::from_secs(2);
const DATABASE_INTERVAL: Duration = Duration::from_secs(1);
const DATABASE_PROBES: u32 = 4;
const DATABASE_TIMEOUT: Duration = Duration::from_secs(6);

/// Sets the options of a connection: small replies are not delayed, and the connection ends if its client disappears,
/// so that its jobs become ready again. If set on a listening socket, the options apply to every connection accepted
/// there. Does nothing to unix sockets, which need none of these options.
///
/// # Errors
/// If the system refuses an option.
pub fn set_connection_options(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    if socket.local_addr()?.is_unix() {
        return Ok(());
    }
    set_tcp_options(&socket, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, USER_TIMEOUT)
}

/// Sets the options of a connection to the database: it ends within seconds if the other machine disappears.
///
/// # Errors
/// If the system refuses an option.
pub fn set_database_options(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    set_tcp_options(&socket, DATABASE_IDLE, DATABASE_INTERVAL, DATABASE_PROBES, DATABASE_TIMEOUT)
}

#[cfg_attr(target_os = "openbsd", expect(unused_variables, reason = "the system has neither"))]
fn set_tcp_options(
    socket: &SockRef<'_>,
    idle: Duration,
    interval: Duration,
    probes: u32,
    user_timeout: Duration,
) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(idle);
    #[cfg(not(target_os = "openbsd"))]
    let keepalive = keepalive.with_interval(interval).with_retries(probes);
    socket.set_tcp_keepalive(&keepalive)?;
    platform::set_user_timeout(socket, user_timeout)
}

/// The other end of a connection, as text for the log: the address and port, or, for a unix socket, the process and its
/// user.
#[must_use]
pub fn peer(connection: &impl AsFd) -> String {
    let socket = SockRef::from(connection);
    match socket.peer_addr() {
        Ok(address) => match address.as_socket() {
            Some(mut address) => {
                // On a socket for IPv4 and IPv6, an IPv4 client is shown with its IPv4 address.
                address.set_ip(address.ip().to_canonical());
                address.to_string()
            }
            None => platform::unix_peer(connection),
        },
        Err(_) => "gone".to_owned(),
    }
}

/// The address at the other end of a connection; `None` for a unix socket, and if the client has disconnected.
#[must_use]
pub fn peer_address(connection: &impl AsFd) -> Option<SocketAddr> {
    let address = SockRef::from(connection).peer_addr().ok()?;
    address.as_socket()
}

/// Reads once from `connection` and appends the bytes to `buffer`: at most `max_bytes`, and at most the spare capacity
/// of `buffer`, which is neither grown nor zeroed first. 0 means that the client will send no more data.
///
/// # Errors
/// As `read(2)`; `WouldBlock` if nothing has arrived.
///
/// # Panics
/// If there is no room for a single byte, because 0 would then look like the end of the input.
pub fn read_into_spare(connection: &impl AsFd, buffer: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(max_bytes);
    assert!(room > 0, "a read needs room");
    // SAFETY: the first `room` bytes of `spare` belong to `buffer`, which is borrowed mutably, and the
    // system only writes to them.
    let read = unsafe { libc::read(connection.as_fd().as_raw_fd(), spare.as_mut_ptr().cast(), room) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the system has written the first `read` bytes after the old length, and `read <= room`,
    // which is within the capacity.
    unsafe { buffer.set_len(buffer.len() + read) };
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn reads_append_within_the_room_and_the_bound() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut buffer = Vec::with_capacity(8);
        buffer.push(b'>');
        let would_block = read_into_spare(&server, &mut buffer, 8).unwrap_err();
        assert_eq!(would_block.kind(), io::ErrorKind::WouldBlock);
        client.write_all(b"0123456789").unwrap();
        assert_eq!(read_into_spare(&server, &mut buffer, 3).unwrap(), 3);
        assert_eq!(buffer, b">012");
        assert_eq!(read_into_spare(&server, &mut buffer, usize::MAX).unwrap(), 4);
        assert_eq!(buffer, b">0123456");
        assert_eq!(buffer.capacity(), 8);
        client.shutdown(Shutdown::Write).unwrap();
        buffer.clear();
        assert_eq!(read_into_spare(&server, &mut buffer, 8).unwrap(), 3);
        assert_eq!(read_into_spare(&server, &mut buffer, 1).unwrap(), 0);
        assert_eq!(buffer, b"789");
    }

    #[test]
    #[should_panic(expected = "a read needs room")]
    fn a_read_without_room_is_refused() {
        let (_client, server) = UnixStream::pair().unwrap();
        let _ = read_into_spare(&server, &mut Vec::new(), 1);
    }

    #[test]
    fn connections_take_their_options_from_the_listening_socket() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        set_connection_options(&listener).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let server = SockRef::from(&server);
        assert!(server.tcp_nodelay().unwrap());
        assert!(server.keepalive().unwrap());
        assert_eq!(server.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        #[cfg(not(target_os = "openbsd"))]
        assert_eq!(
            (server.tcp_keepalive_interval().unwrap(), server.tcp_keepalive_retries().unwrap()),
            (KEEPALIVE_INTERVAL, KEEPALIVE_PROBES)
        );
        #[cfg(any(target_os = "linux", target_os = "android"))]
        assert_eq!(server.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
    }

    #[test]
    fn peers_are_named_by_address_or_process() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(peer(&server), client.local_addr().unwrap().to_string());
        assert_eq!(peer_address(&server).unwrap().ip().to_canonical(), Ipv4Addr::LOCALHOST);
        let (server, _client) = UnixStream::pair().unwrap();
        assert!(peer(&server).starts_with("unix:"), "{}", peer(&server));
        assert_eq!(peer_address(&server), None);
        assert_eq!(peer_user(&server), Some(nix::unistd::getuid().as_raw()));
    }
}
