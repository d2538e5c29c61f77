//! systemd, or another service manager with its protocol: the sockets that it has opened, and the messages to it.
//!
//! Owns: the inherited descriptors until they become listeners. Reads the environment variables of
//! `sd_listen_fds(3)`, `sd_notify(3)` and `sd_watchdog_enabled(3)`. Without a service manager the functions
//! do nothing.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use nix::sys::socket::{getsockopt, sockopt::AcceptConn};
use sd_notify::NotifyState;
use socket2::{Domain, SockAddr, Socket, Type};

use super::listen::Listener;
pub use super::platform::is_in_private_tmp as hides;
use super::socket;

/// Why inherited sockets cannot be used.
#[derive(Debug)]
pub enum InheritError {
    /// The service manager's variables are not valid, or name a descriptor that is not open.
    Environment(io::Error),
    /// The descriptor is not a listening TCP or unix stream socket.
    NotAListener(RawFd),
    /// The system refused an option of the socket.
    Options {
        /// The descriptor.
        descriptor: RawFd,
        /// The reason.
        source: io::Error,
    },
}

impl fmt::Display for InheritError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(source) => write!(out, "cannot take inherited sockets: {source}"),
            Self::NotAListener(descriptor) => {
                write!(out, "inherited fd {descriptor} is not a TCP or UNIX listening socket")
            }
            Self::Options { descriptor, source } => {
                write!(out, "cannot set options of inherited fd {descriptor}: {source}")
            }
        }
    }
}

impl std::error::Error for InheritError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Environment(source) | Self::Options { source, .. } => Some(source),
            Self::NotAListener(_) => None,
        }
    }
}

/// All sockets that the service manager has passed, with the options of the server's own sockets. Must be called at the
/// start, before the process opens any descriptor; later calls find no sockets.
///
/// # Errors
/// If one of them cannot be used.
pub fn inherited_listeners() -> Result<Vec<Listener>, InheritError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let descriptors = sd_notify::listen_fds().map_err(InheritError::Environment)?;
    let sockets = descriptors.map(|descriptor| {
        // SAFETY: the service manager has opened the descriptor for this process, which it names by its id, and
        // `listen_fds` has found it open. No other code knows it: `TAKEN` ensures that it is taken only once.
        unsafe { OwnedFd::from_raw_fd(descriptor) }
    });
    // All descriptors are owned before the first is checked, so that all are closed if one is refused.
    sockets.collect::<Vec<_>>().into_iter().map(listener).collect()
}

/// Makes a listener of `descriptor`, if it is a listening socket.
fn listener(descriptor: OwnedFd) -> Result<Listener, InheritError> {
    let number = descriptor.as_raw_fd();
    let not_a_listener = |_| InheritError::NotAListener(number);
    let options = |source| InheritError::Options { descriptor: number, source };
    let listens = getsockopt(&descriptor, AcceptConn).map_err(|errno| not_a_listener(errno.into()))?;
    let socket = Socket::from(descriptor);
    let is_stream = socket.r#type().map_err(not_a_listener)? == Type::STREAM;
    let domain = socket.local_addr().map_err(not_a_listener)?.domain();
    if !(listens && is_stream) {
        return Err(InheritError::NotAListener(number));
    }
    socket.set_nonblocking(true).map_err(options)?;
    socket::set_connection_options(&socket).map_err(options)?;
    match domain {
        Domain::IPV4 | Domain::IPV6 => Ok(Listener::Tcp(socket.into())),
        Domain::UNIX => Ok(Listener::Unix(socket.into())),
        _ => Err(InheritError::NotAListener(number)),
    }
}

/// Whether a service manager listens for messages.
#[must_use]
pub fn is_listening() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Whether a service manager has started the process, or an ancestor of it.
#[must_use]
pub fn is_supervised() -> bool {
    is_listening() || std::env::var_os("INVOCATION_ID").is_some()
}

/// Reports to the service manager that the server is ready, and what it does. From now on the server sends keep-alives.
///
/// # Errors
/// If the service manager's socket does not accept the message.
pub fn notify_ready(status: &str) -> io::Result<()> {
    notify(&ready(status, watchdog_timeout()))
}

/// Reports to the service manager that the server has started as far as it can: it is a standby. Jobs of the service
/// manager that wait for this service can start. The service manager expects no keep-alives until [`notify_ready`].
///
/// # Errors
/// As `notify_ready`.
pub fn notify_standby(status: &str) -> io::Result<()> {
    // A standby has nothing else to do, and says so once.
    send(&ready(status, watchdog_timeout().map(|_| Duration::ZERO)), true)
}

/// The message that the server is ready. `watchdog` is how long the service manager waits for a keep-alive, zero for no
/// limit; `None` leaves its setting unchanged.
fn ready(status: &str, watchdog: Option<Duration>) -> String {
    let watchdog = watchdog.map(|timeout| format!("WATCHDOG_USEC={}", timeout.as_micros()));
    let watchdog = watchdog.as_deref().map(NotifyState::Custom);
    lines([NotifyState::Ready, NotifyState::Status(status)].into_iter().chain(watchdog))
}

fn lines<'a>(states: impl IntoIterator<Item = NotifyState<'a>>) -> String {
    states.into_iter().map(|state| format!("{state}\n")).collect()
}

fn notify(text: &str) -> io::Result<()> {
    send(text, false)
}

/// Sends a message. If the service manager hangs and its queue is full, the call `waits` or fails. The library's
/// function always waits, and knows no abstract sockets.
fn send(text: &str, waits: bool) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let mut path = path.into_vec();
    if let Some(first @ b'@') = path.first_mut() {
        // The name of an abstract socket.
        *first = 0;
    }
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    socket.set_nonblocking(!waits)?;
    socket.connect(&SockAddr::unix(OsString::from_vec(path))?)?;
    // A message is sent whole or not at all.
    socket.send(text.as_bytes()).map(drop)
}

/// Reports to the service manager in one line what the server does.
///
/// # Errors
/// As `notify_ready`.
pub fn notify_status(status: &str) -> io::Result<()> {
    notify(&lines([NotifyState::Status(status)]))
}

/// Reports to the service manager that the server is about to end.
///
/// # Errors
/// As `notify_ready`.
pub fn notify_stopping() -> io::Result<()> {
    notify(&lines([NotifyState::Stopping]))
}

/// Reports to the service manager that the server is alive, and what it does.
///
/// # Errors
/// As `notify_ready`.
pub fn notify_watchdog(status: &str) -> io::Result<()> {
    notify(&lines([NotifyState::Watchdog, NotifyState::Status(status)]))
}

/// The time without a keep-alive after which the service manager kills the server; `None` if it does not. The server
/// should send keep-alives twice as often.
#[must_use]
pub fn watchdog_timeout() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use socket2::SockRef;

    use super::*;
    use crate::child::Child;

    #[test]
    fn only_listening_stream_sockets_are_taken() {
        let directory = tempfile::tempdir().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let Ok(Listener::Tcp(tcp)) = listener(tcp.into()) else { panic!("a TCP listener is one") };
        assert!(SockRef::from(&tcp).nonblocking().unwrap());
        assert!(SockRef::from(&tcp).tcp_nodelay().unwrap());
        let unix = UnixListener::bind(directory.path().join("socket")).unwrap();
        assert!(matches!(listener(unix.into()), Ok(Listener::Unix(_))));

        let refused: [OwnedFd; 4] = [
            UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            UnixDatagram::unbound().unwrap().into(),
            TcpStream::connect(address).unwrap().into(),
            tempfile::tempfile().unwrap().into(),
        ];
        for descriptor in refused {
            assert!(matches!(listener(descriptor), Err(InheritError::NotAListener(_))));
        }
    }

    /// Reports the sockets that it has inherited, and sends the service manager a message at each step.
    #[test]
    #[ignore = "runs as a child of other tests"]
    fn child_of_a_service_manager() {
        for listener in inherited_listeners().unwrap() {
            match listener {
                Listener::Unix(_) => Child::say("unix"),
                listener => Child::say(&listener.address()),
            }
        }
        assert!(inherited_listeners().unwrap().is_empty());
        notify_standby("waiting").unwrap();
        notify_ready("empty").unwrap();
        notify_watchdog("full").unwrap();
        notify_status("idle").unwrap();
        notify_stopping().unwrap();
        Child::say(&format!("{:?}", watchdog_timeout()));
    }

    /// Moves `passed` to the descriptors that the protocol requires: 3 and up.
    fn hand_over(passed: [RawFd; 2]) -> io::Result<()> {
        // They are first moved to high numbers, because a descriptor in `passed` may have the number that another one
        // needs.
        let parked = passed.map(|descriptor| {
            // SAFETY: the call takes numbers, and affects a descriptor that no other code knows.
            unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 100) }
        });
        for (place, parked) in (3..).zip(parked) {
            // SAFETY: this process is about to run another program and uses none of its own descriptors.
            if unsafe { libc::dup2(parked, place) } == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    #[test]
    fn a_service_manager_passes_sockets_and_gets_a_message_at_each_step() {
        let directory = tempfile::tempdir().unwrap();
        // An abstract socket; `tests/notify.rs` has paths.
        let abstract_name = format!("beanstalkd-test-{}", std::process::id());
        let notifications = Socket::new(Domain::UNIX, Type::DGRAM, None).unwrap();
        notifications.bind(&SockAddr::unix(format!("\0{abstract_name}")).unwrap()).unwrap();
        let notifications = UnixDatagram::from(notifications);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = UnixListener::bind(directory.path().join("socket")).unwrap();
        let address = tcp.local_addr().unwrap().to_string();
        let passed = [tcp.as_raw_fd(), unix.as_raw_fd()];
        let name = "service_manager::tests::child_of_a_service_manager";
        // The shell's process id stays the same when it becomes the child by `exec`.
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh"])
            .env("LISTEN_FDS", "2")
            .env("NOTIFY_SOCKET", format!("@{abstract_name}"))
            .env("WATCHDOG_USEC", "3000000")
            .env_remove("WATCHDOG_PID");
        // SAFETY: the closure only makes system calls, which are safe between fork and exec.
        unsafe { shell.pre_exec(move || hand_over(passed)) };
        let mut child = Child::start_in(shell, name, "".as_ref());
        let heard = || {
            let mut message = [0; 256];
            let length = notifications.recv(&mut message).unwrap();
            String::from_utf8_lossy(&message[..length]).into_owned()
        };
        assert_eq!(child.line(), address);
        assert_eq!(child.line(), "unix");
        assert_eq!(heard(), "READY=1\nSTATUS=waiting\nWATCHDOG_USEC=0\n");
        assert_eq!(heard(), "READY=1\nSTATUS=empty\nWATCHDOG_USEC=3000000\n");
        assert_eq!(heard(), "WATCHDOG=1\nSTATUS=full\n");
        assert_eq!(heard(), "STATUS=idle\n");
        assert_eq!(heard(), "STOPPING=1\n");
        assert_eq!(child.line(), "Some(3s)");
    }
}
