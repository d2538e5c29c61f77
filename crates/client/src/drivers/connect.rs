//! A connection to a server: the addresses of its host, and the options of the socket.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// How long a TCP connection may be idle before the system asks the peer whether it is there, the time between further
/// questions, and their number.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 3);

/// How long the peer may leave sent bytes unacknowledged, or take none, where the system has this limit: the sum of the
/// times above. While bytes are not acknowledged, the system does not ask as above.
#[cfg(any(target_os = "android", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(90);

/// Makes the system send small commands at once, and end a connection whose peer has disappeared; without the second, a
/// reserve without a limit would wait forever.
pub(crate) fn configure_tcp(stream: &impl std::os::fd::AsFd) -> std::io::Result<()> {
    let (time, interval, retries) = KEEP_ALIVE;
    let settings = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries);
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_tcp_keepalive(&settings)
}

/// Connects to the first of the addresses that accepts a connection. The deadline is for all of them: each has an equal
/// share of the rest, so that an address that does not answer leaves time for the others. The function `connect` takes
/// an address and its share; `now` is the clock.
macro_rules! connect_to_one {
    ($driver:ident, $addresses:expr, $deadline:expr, $now:path, $connect:path) => {{
        use std::io::{Error, ErrorKind};

        let mut connected = Err(Error::new(ErrorKind::NotFound, "the host has no address"));
        for (addresses_left, address) in (1..=$addresses.len() as u32).rev().zip($addresses) {
            let rest =
                $deadline.map(|deadline: std::time::Instant| deadline.saturating_duration_since($now()));
            connected = crate::drivers::waiting::wait!(
                $driver,
                $connect(*address, rest.map(|rest| rest / addresses_left))
            );
            if connected.is_ok() {
                break;
            }
        }
        connected
    }};
}

pub(crate) use connect_to_one;

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use beanstalkd_testkit::pace::Pace;
    use socket2::{Domain, SockAddr, SockRef, Socket, Type};

    use super::{KEEP_ALIVE, configure_tcp};
    use crate::blocking::stream::connect_to_one;
    use crate::{Address, Connector, Error};

    /// A function of a driver that connects to one of the addresses, and returns which.
    type ConnectToOne = fn(&[SocketAddr], Option<Instant>) -> io::Result<SocketAddr>;

    fn with_threads(addresses: &[SocketAddr], deadline: Option<Instant>) -> io::Result<SocketAddr> {
        connect_to_one(addresses, deadline)?.peer_addr()
    }

    #[cfg(feature = "tokio")]
    fn with_tokio(addresses: &[SocketAddr], deadline: Option<Instant>) -> io::Result<SocketAddr> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(crate::asynchronous::connection::connect_to_one(addresses, deadline))?.peer_addr()
    }

    const DRIVERS: &[ConnectToOne] = &[
        with_threads,
        #[cfg(feature = "tokio")]
        with_tokio,
    ];

    fn open_with_threads(connector: &Connector, address: &Address) -> Result<(), Error> {
        connector.open(address).map(drop)
    }

    #[cfg(feature = "tokio")]
    fn open_with_tokio(connector: &Connector, address: &Address) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(connector.open_async(address)).map(drop)
    }

    #[test]
    fn a_unix_socket_with_a_full_backlog_has_the_time_of_the_connect() {
        const TIMEOUT: Duration = Duration::from_millis(500);
        let pace = Pace::watch().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let address = Address::Unix(path.clone());
        for open in [
            open_with_threads,
            #[cfg(feature = "tokio")]
            open_with_tokio,
        ] {
            let filling = UnixStream::connect(&path).unwrap();
            let began = Instant::now();
            let error = open(&Connector::plain(Some(TIMEOUT)), &address).unwrap_err();
            assert!(
                matches!(&error, Error::Connect { source, .. } if source.kind() == io::ErrorKind::TimedOut)
            );
            assert!(began.elapsed() >= TIMEOUT);
            pace.assert_within(TIMEOUT * 3, began, || error.to_string());
            std::thread::scope(|scope| {
                let opened = scope.spawn(|| open(&Connector::plain(Some(TIMEOUT * 20)), &address));
                std::thread::sleep(TIMEOUT);
                // Makes room for the connection that waits.
                listener.accept().unwrap();
                opened.join().unwrap().unwrap();
                listener.accept().unwrap();
            });
            drop(filling);
        }
    }

    /// A listener that answers no further connection, and the connections that fill it.
    fn silent() -> (Socket, Vec<TcpStream>, SocketAddr) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let filling = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        (socket, std::iter::from_fn(filling).collect(), address)
    }

    #[test]
    fn all_addresses_of_a_host_share_the_time_of_the_connect() {
        const TIMEOUT: Duration = Duration::from_millis(1_500);
        let pace = Pace::watch().unwrap();
        let (_socket, _filling, silent) = silent();
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [silent, open.local_addr().unwrap()];
        for connect in DRIVERS {
            let began = Instant::now();
            let error = connect(&[silent; 4], Some(began + TIMEOUT)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() >= TIMEOUT);
            pace.assert_within(TIMEOUT * 3, began, || error.to_string());
            let in_time = || connect(&addresses, Some(Instant::now() + TIMEOUT));
            assert_eq!(pace.judge(in_time).unwrap(), addresses[1]);
            assert_eq!(connect(&addresses[1..], None).unwrap(), addresses[1], "without a limit");
            assert_eq!(connect(&[], None).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    #[cfg(any(target_os = "android", target_os = "linux"))]
    fn a_peer_that_disappears_is_noticed_with_and_without_bytes_on_the_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        configure_tcp(&stream).unwrap();
        let socket = SockRef::from(&stream);
        let limit = Some(Duration::from_secs(90));
        assert_eq!((socket.keepalive().unwrap(), socket.tcp_user_timeout().unwrap()), (true, limit));
        let (time, interval, retries) = KEEP_ALIVE;
        assert_eq!(Some(time + interval * retries), limit);
    }
}
