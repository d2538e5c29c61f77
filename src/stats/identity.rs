//! The figures of an identity of the access rules.

use std::fmt::Debug;
use std::rc::Rc;

use super::{Figure, IdentityStats, Read};
use crate::queue::Queue;

/// The counts of an identity's clients since the server started, or since the identity was added to the rules.
#[derive(Clone, Debug, Default)]
pub struct IdentityFigures {
    /// The name of the identity.
    pub name: Rc<str>,
    /// How many clients it has.
    pub connections: u64,
    /// Log-ins: by the user of a connection, or with a token.
    pub log_ins: u64,
    /// Tokens of its clients that were refused.
    pub log_ins_refused: u64,
    /// Commands that were refused.
    pub commands_forbidden: u64,
    /// Puts that had to wait.
    pub puts_delayed: u64,
    /// Managing commands that were allowed.
    pub managing_commands: u64,
}

impl IdentityFigures {
    /// The figures of an identity that has done nothing.
    #[must_use]
    pub fn new(name: Rc<str>) -> Self {
        Self { name, ..Self::default() }
    }
}

/// The identities of access rules.
pub trait Identities: Debug {
    /// The figures of each.
    fn figures(&self) -> Box<dyn Iterator<Item = &IdentityFigures> + '_>;
}

/// The view from which the figures of an identity are read.
#[derive(Clone, Copy, Debug)]
pub struct IdentityView<'a> {
    /// Counts of the identity.
    pub figures: &'a IdentityFigures,
    /// The queue, which has its jobs.
    pub queue: &'a Queue,
}

type Row = Figure<IdentityStats>;

/// The figures of an identity; `stats` has the figures of the identity of the client that asks.
#[rustfmt::skip]
pub const IDENTITY: &[Figure<IdentityStats>] = &[
    // In the metrics, the name is the label of every other figure.
    Row::plain("identity", Read::Text(|identity| &identity.figures.name)),
    Row::gauge("identity-connections", "Connected clients of the identity.", |identity| identity.figures.connections),
    Row::gauge(
        "identity-job-bytes",
        "Bytes of the identity's jobs, tubes, groups and cooldowns if max-job-bytes limits them.",
        |identity| identity.queue.owned_bytes(&identity.figures.name),
    ),
    Row::counter("identity-log-ins", "Log-ins: by the user of a connection, or with a token.",
        |identity| identity.figures.log_ins),
    Row::counter("identity-log-ins-refused", "Tokens that were refused.", |identity| identity.figures.log_ins_refused),
    Row::counter("identity-commands-forbidden", "Commands that were answered FORBIDDEN.",
        |identity| identity.figures.commands_forbidden),
    Row::counter("identity-puts-delayed", "Puts that had to wait because of puts-per-second.",
        |identity| identity.figures.puts_delayed),
    Row::counter("identity-managing-commands", "Managing commands that were allowed.",
        |identity| identity.figures.managing_commands),
];
