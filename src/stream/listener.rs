//! The sockets on which the server listens.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use mio::event::Source;
use mio::net::{TcpListener, UnixListener};

use super::Accepted;
use crate::os::listen::Listener;
use crate::tls::Acceptor;

/// A listener in the poll.
pub enum ListenerSocket {
    /// For TCP.
    Tcp(TcpListener),
    /// For clients that must use TLS.
    Tls(TcpListener, Rc<Acceptor>),
    /// For a unix socket in the file system.
    Unix(UnixListener),
}

impl ListenerSocket {
    /// Adds the acceptor to `listener`, if it is for TLS.
    ///
    /// # Errors
    /// If the acceptor is missing.
    pub fn new(listener: Listener, tls: Option<&Rc<Acceptor>>) -> io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener) => Self::Tcp(TcpListener::from_std(listener)),
            Listener::Tls(listener) => {
                let acceptor = tls.ok_or_else(|| io::Error::other("a TLS listener has no certificate"))?;
                Self::Tls(TcpListener::from_std(listener), Rc::clone(acceptor))
            }
            Listener::Unix(listener) => Self::Unix(UnixListener::from_std(listener)),
        })
    }

    /// The source that the poll watches.
    pub fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => listener,
            Self::Unix(listener) => listener,
        }
    }

    /// The socket of a waiting client.
    ///
    /// # Errors
    /// `WouldBlock` if no client waits; other errors as for `accept(2)`.
    pub fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Accepted::Tcp(stream)),
            Self::Tls(listener, acceptor) => {
                listener.accept().map(|(stream, _)| Accepted::Tls(stream, Rc::clone(acceptor)))
            }
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Accepted::Unix(stream)),
        }
    }
}

impl AsFd for ListenerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl From<ListenerSocket> for Listener {
    fn from(polled: ListenerSocket) -> Self {
        match polled {
            ListenerSocket::Tcp(listener) => Self::Tcp(listener.into()),
            ListenerSocket::Tls(listener, _) => Self::Tls(listener.into()),
            ListenerSocket::Unix(listener) => Self::Unix(listener.into()),
        }
    }
}
