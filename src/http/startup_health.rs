//! Answers health checks over HTTP before the loop runs: while the server reads the binlog, or waits for its lock.
//!
//! Owns: a thread that answers `/healthz`, and `/readyz` with the server's current activity. The main thread is busy or
//! blocked during that time. The thread ends before the first client is served, and the listener goes to the loop.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};

use super::{HttpServer, ServerPhase, Site};
use crate::clock::Timestamp;
use crate::os::listen::Listener;
use crate::tls::{Acceptor, Credentials};

/// The maximum number of events from one poll; there are few connections.
const MAX_EVENTS: usize = 32;

/// The token of the waker; the tokens of the sockets are larger.
const WAKER: Token = Token(0);

/// The reason, shared by the two threads. `None` ends the thread.
type Reason = Arc<Mutex<Option<String>>>;

/// Answers health checks while the server is starting.
pub struct StartupHealth {
    reason: Reason,
    waker: Waker,
    thread: JoinHandle<io::Result<Listener>>,
}

impl StartupHealth {
    /// Serves on `listener`, which needs the credentials if it is for TLS; the text is the reason why the server is not
    /// ready yet.
    ///
    /// # Errors
    /// If the system provides no poll or no thread.
    pub fn start(
        listener: Listener,
        credentials: Option<Credentials>,
        clock: impl Fn() -> Timestamp + Send + 'static,
        reason: &str,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let reason = Arc::new(Mutex::new(Some(line(reason))));
        let shared = Arc::clone(&reason);
        let thread = std::thread::Builder::new()
            .name("startup-health".to_owned())
            .spawn(move || serve(listener, credentials, poll, &clock, &shared))?;
        Ok(Self { reason, waker, thread })
    }

    /// Replaces the reason.
    pub fn set_reason(&self, reason: &str) {
        self.set(Some(line(reason)));
    }

    /// Ends the thread and returns the listener, where connections may wait.
    ///
    /// # Errors
    /// If the thread could not serve.
    pub fn finish(self) -> io::Result<Listener> {
        self.set(None);
        self.waker.wake()?;
        self.thread.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    }

    fn set(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

fn line(reason: &str) -> String {
    format!("{reason}\n")
}

fn serve(
    listener: Listener,
    credentials: Option<Credentials>,
    mut poll: Poll,
    clock: &dyn Fn() -> Timestamp,
    shared: &Reason,
) -> io::Result<Listener> {
    // An acceptor must stay on its thread, so this thread has its own.
    let tls = credentials.map(Acceptor::new);
    let mut server = HttpServer::new(listener, tls.as_ref(), None, Site::Metrics(0), poll.registry())?;
    let mut events = Events::with_capacity(MAX_EVENTS);
    loop {
        let Some(reason) = shared.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            return server.into_listener();
        };
        let now = clock();
        for event in &events {
            server.notice(event);
        }
        server.turn(ServerPhase::Starting(&reason), now);
        if let Some(acceptor) = &tls {
            acceptor.report(now);
        }
        let timeout = server.next_event_at().map(|at| Duration::from_nanos(at.since_ns(clock())));
        match poll.poll(&mut events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => events.clear(),
            result => result?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn ask(stream: &mut TcpStream, path: &str) -> String {
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn health_checks_are_answered_during_a_start_and_the_listener_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        let startup =
            StartupHealth::start(Listener::Tcp(listener), None, Timestamp::default, "waiting").unwrap();
        let response = ask(&mut connect(), "/readyz");
        assert!(
            response.starts_with("HTTP/1.1 503 ") && response.ends_with("\r\n\r\nwaiting\n"),
            "{response}"
        );
        startup.set_reason("replaying");
        assert!(ask(&mut connect(), "/readyz").ends_with("\r\n\r\nreplaying\n"));
        assert!(ask(&mut connect(), "/healthz").starts_with("HTTP/1.1 200 "));
        let mut idle = connect();
        let Listener::Tcp(listener) = startup.finish().unwrap() else { panic!("it was TCP") };
        assert_eq!(listener.local_addr().unwrap(), address);
        // The thread has closed the connection, or the connection still waits at the listener.
        listener.set_nonblocking(true).unwrap();
        let waiting = listener.accept().is_ok();
        assert!(waiting || idle.read(&mut [0]).is_ok_and(|read| read == 0));
    }
}
