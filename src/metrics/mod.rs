//! What is seen from outside over HTTP: metrics for Prometheus, health for supervisors, a page for people.
//!
//! Owns: the HTTP of one connection, over bytes alone; which series there are, under which names; the page.
//! Pure: it touches no socket and reads no clock. Driven by the server, which feeds each [`Connection`] what it
//! has read and lends it the [`Sources`] of the figures, one slice of work a turn.
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

mod connection;
pub(crate) mod families;
mod histogram;
mod history;
mod json;
mod page;
pub mod snapshot;
mod text;

use std::fmt::{self, Display, Write};
use std::time::Duration;

pub use self::connection::Connection;
pub use self::histogram::Histogram;
pub use self::history::History;

use crate::clock::Timestamp;
use crate::queue::Queue;

/// What is rendered at a time, in bytes: enough to keep a socket busy, little enough to be no pause.
pub const SLICE_BYTES: usize = 32 * 1024;

/// The value of a key of `stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number that only grows.
    Counter(u64),
    /// A number that goes up and down.
    Gauge(u64),
    /// A word, without quotes.
    Word(&'static str),
    /// A word without quotes that is not known beforehand.
    Token(String),
    /// A text, in quotes.
    Text(String),
    /// Seconds with six decimals; only grows.
    Seconds(Duration),
}

/// As `stats` writes it, but without quotes.
impl Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counter(number) | Self::Gauge(number) => number.fmt(out),
            Self::Word(word) => out.write_str(word),
            Self::Token(text) | Self::Text(text) => out.write_str(text),
            Self::Seconds(time) => write!(out, "{}.{:06}", time.as_secs(), time.subsec_micros()),
        }
    }
}

/// How long things have taken. Measured with one further reading of the clock a turn, and only while metrics
/// are served.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    /// Each turn of the loop: from the return of the poll until all replies are handed to the system. Turns
    /// without a command count, too.
    pub turns: Histogram,
    /// Each command, with the duration of the turn that executed it: what its client has waited at most, from
    /// the moment that the loop saw the command, for work of its own or of others in the same turn. The time
    /// that a reserve waits for a job is not in it.
    pub commands: Histogram,
    /// Each sync of the binlog, from its request to its completion.
    pub syncs: Histogram,
}

/// What the system says of the process; `None` where it does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessFigures {
    /// Processor time used so far.
    pub cpu: Duration,
    /// Memory that is in RAM, in bytes.
    pub resident_bytes: Option<u64>,
    /// Address space, in bytes.
    pub virtual_bytes: Option<u64>,
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// How many it may have open.
    pub max_files: Option<u64>,
}

/// Where the figures come from.
pub trait Sources {
    /// The queue.
    fn queue(&self) -> &Queue;
    /// Calls `each` with every key of `stats` and its value, in order.
    fn each_value(&self, each: &mut dyn FnMut(&'static str, Value));
    /// How long things have taken.
    fn timings(&self) -> &Timings;
    /// The last minutes.
    fn history(&self) -> &History;
    /// What the system says of the process; asked once a response.
    fn process(&self) -> ProcessFigures;
    /// When the server began.
    fn started_at(&self) -> Timestamp;
    /// Whether the server refuses jobs.
    fn is_draining(&self) -> bool;
    /// How many tubes may have series of their own; 0 for none.
    fn max_tubes(&self) -> usize;
    /// The instant of the turn.
    fn now(&self) -> Timestamp;
}

/// What the server is doing.
#[derive(Clone, Copy)]
pub enum Phase<'a> {
    /// It does not serve yet, and for this reason.
    Starting(&'a str),
    /// It serves.
    Serving(&'a dyn Sources),
}

fn put(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes all text");
}

#[cfg(test)]
mod tests;
