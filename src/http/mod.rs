//! What is seen from outside over HTTP: metrics for Prometheus, health for supervisors, a page for people.
//!
//! Owns: everything that speaks HTTP. `exchange` has the requests and responses of one connection over bytes,
//! `prometheus` the metrics, `page` the page with its figures, `rendering` what these two share; they are pure. Around them are `server`, which has the
//! sockets and is driven by the event loop, and `startup_health`, which has a thread that answers before the loop runs.
//! Never changes the queue: it reads the views that the protocol's stats commands read, too.
//!
//! # How a scrape is bounded
//!
//! No turn of the loop does more than one slice of work for all HTTP connections together, and a slice is one of:
//!
//! - looking at [`snapshot::TUBES_PER_SLICE`] tubes, of which the figures are copied, so that all series of
//!   a tube tell of the same instant and no later slice touches the queue;
//! - writing about [`SLICE_BYTES`] of text from those copies.
//!
//! A slice takes tens of microseconds; a scrape of 20,000 tubes is some hundreds of them, with the whole of
//! the protocol's work between any two. Nothing more is rendered until the socket has taken the slice before: a
//! connection never holds more than a slice of output. The response is sent in chunks, as its length is
//! not known beforehand. No tube appears twice, even if it is removed and made again meanwhile; one that takes a
//! removed tube's place in the list meanwhile may be missing once.

mod exchange;
pub mod host;
mod page;
mod prometheus;
mod rendering;
mod server;
pub mod snapshot;
mod startup_health;

use std::fmt::{self, Write};

pub use self::exchange::Exchange;
pub use self::page::History;
pub use self::server::{HttpServer, State};
pub use self::startup_health::StartupHealth;

use crate::os::Usage;
use crate::stats::ServerView;

/// What is rendered at a time, in bytes: enough to keep a socket busy, little enough to be no pause.
pub const SLICE_BYTES: usize = 32 * 1024;

/// What responses are made from.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The server as its stats see it.
    pub server: ServerView<'a>,
    /// Asks the system what the process holds, where about so many descriptors are open; once a response.
    pub usage: fn(usize) -> Usage,
    /// The last minutes.
    pub history: &'a History,
    /// How many tubes may have series of their own; 0 for none.
    pub max_tubes: usize,
    /// The address that is listened on.
    pub address: Address<'a>,
}

/// Where HTTP is served.
#[derive(Clone, Copy, Debug)]
pub enum Address<'a> {
    /// On a unix socket.
    Unix,
    /// On a TCP port, which was asked for with this host.
    Tcp(Option<&'a str>),
}

impl Sources<'_> {
    /// Whether `name`, without a port, is a name of this server: of its machine, or the one that it was told to
    /// serve on.
    fn has_name(&self, name: &str) -> bool {
        match self.address {
            // No page elsewhere reaches a unix socket.
            Address::Unix => true,
            Address::Tcp(host) => {
                let hostname = self.server.identity.hostname.as_str();
                name.eq_ignore_ascii_case(hostname)
                    || host.is_some_and(|host| name.eq_ignore_ascii_case(host))
            }
        }
    }
}

/// What the server is doing.
#[derive(Clone, Copy)]
pub enum Phase<'a> {
    /// It does not serve yet, and for this reason.
    Starting(&'a str),
    /// It serves.
    Serving(&'a Sources<'a>),
}

fn put(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes all text");
}

#[cfg(test)]
mod tests;
