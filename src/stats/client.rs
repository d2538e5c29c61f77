//! The figures of a client.

use std::fmt::{self, Write};
use std::rc::Rc;

use super::Read::{Counter, Gauge, Text, Word};
use super::{ClientStats, Figure};
use crate::clock::Timestamp;
use crate::queue::ClientId;

/// A client as `list-clients` sees it.
#[derive(Clone, Debug)]
pub struct ClientView<'a> {
    /// The id of the client.
    pub number: u64,
    /// The name of its identity; empty on a server without access rules.
    pub identity: Rc<str>,
    /// The name of its session; empty if it has none.
    pub session: &'a str,
    /// The tube that it uses.
    pub using: &'a str,
    /// How many tubes it watches.
    pub watching: u64,
    /// How many jobs it has reserved, including the jobs of its session.
    pub reserved: u64,
    /// Connection of the client.
    pub connection: ConnectionView,
}

/// A connection as `list-clients` sees it.
#[derive(Clone, Debug)]
pub struct ConnectionView {
    /// The address of the other end.
    pub address: String,
    /// Seconds since it was opened.
    pub age_s: u64,
    /// Whole seconds since the last byte in either direction.
    pub idle_s: u64,
    /// Activity of the client, in a word.
    pub state: &'static str,
    /// Whole seconds in which it has waited in a reserve; 0 if it does not wait.
    pub waiting_s: u64,
    /// Memory for bytes that have not been executed or sent yet.
    pub memory_bytes: u64,
    /// Command lines so far.
    pub commands: u64,
}

/// The connections, which only the server knows.
pub trait Connections {
    /// The view of a client's connection; `None` if the client has disconnected.
    fn connection(&self, client: ClientId, now: Timestamp) -> Option<ConnectionView>;
}

/// Appends the client as a line of `list-clients`.
pub fn write_client(view: &ClientView<'_>, out: &mut String) {
    let mut put = |text: fmt::Arguments<'_>| out.write_fmt(text).expect("a write to a string does not fail");
    let mut before = "- {";
    for figure in CLIENT {
        put(format_args!("{before}{}: {:#}", figure.key, figure.value(view)));
        before = ", ";
    }
    put(format_args!("}}\n"));
}

type Row = Figure<ClientStats>;

/// The figures of `list-clients`; a server has too many clients for series of their own.
pub const CLIENT: &[Row] = &[
    Row::plain("id", Gauge(|client| client.number)),
    Row::plain("address", Text(|client| &client.connection.address)),
    Row::plain("identity", Text(|client| &client.identity)),
    Row::plain("session", Text(|client| client.session)),
    Row::plain("age", Gauge(|client| client.connection.age_s)),
    Row::plain("idle", Gauge(|client| client.connection.idle_s)),
    Row::plain("state", Word(|client| client.connection.state)),
    Row::plain("using", Text(|client| client.using)),
    Row::plain("watching", Gauge(|client| client.watching)),
    Row::plain("reserved", Gauge(|client| client.reserved)),
    Row::plain("waiting", Gauge(|client| client.connection.waiting_s)),
    Row::plain("bytes-held", Gauge(|client| client.connection.memory_bytes)),
    Row::plain("commands", Counter(|client| client.connection.commands)),
];
