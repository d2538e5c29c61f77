//! Where the servers of the field deviate from this suite: one listed table.
//!
//! A case that names a deviation is still run on the servers listed for it, and its failure there is
//! reported as "shown" rather than as a failure. Anything that is not in this table fails.

use crate::judge::Kind::{self, C112, C113};

/// Why a server is excused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Our server decided to behave otherwise (doc/compatibility.md says why).
    Difference,
    /// A fault that users of C hit.
    Fault,
}

/// One row.
pub struct Deviation {
    /// How cases refer to it.
    pub name: &'static str,
    /// Difference or fault.
    pub class: Class,
    /// What the listed servers do.
    pub line: &'static str,
    /// Who does it.
    pub servers: &'static [Kind],
}

const C: &[Kind] = &[C112, C113];

const fn difference(name: &'static str, line: &'static str) -> Deviation {
    Deviation { name, class: Class::Difference, line, servers: C }
}

const fn fault(name: &'static str, line: &'static str) -> Deviation {
    Deviation { name, class: Class::Fault, line, servers: C }
}

/// All of them.
pub const DEVIATIONS: &[Deviation] = &[
    difference(
        "waiters-order",
        "waiting clients are served in an arbitrary order, not first come, first served",
    ),
    difference("long-line", "a CR at the edge of the line buffer is lost, and the next command with it"),
    difference("bare-cr", "a CR that no LF follows hides the end of its line and hangs the connection"),
    difference("unfinished-job", "a job whose body is still coming can be seen, with state `invalid`"),
    difference("numeric-id", "the id of a server may consist of digits alone, which YAML reads as a number"),
    difference(
        "stopped-reserve",
        "a reserve resumed after the process was stopped answers twice, or wrongly",
    ),
    difference(
        "returned-one-by-one",
        "the jobs of a client that leaves serve waiting clients in the order reserved",
    ),
    difference("binlog-size-0", "with `-s 0`, each job has a binlog file of its own"),
    fault("kick-wraps", "kick's bound is cut to 32 bits: `kick 4294967296` kicks nothing"),
    fault("lost-expiries", "jobs stay reserved past their TTR for good, by chance of the timer"),
    fault("binlog-gaps", "release without a delay, the order of burying and the next id are not logged"),
    fault("largest-job", "after a restart, a job of the largest size and all that follow it are gone"),
    fault(
        "freed-body",
        "a body that is deleted, or times out, while it is being sent is read after it was freed",
    ),
    fault("half-close-spin", "a half-closed client with unsent replies costs a whole processor"),
    fault("emfile-spin", "without a descriptor for a new connection the server spins and fills its log"),
    fault(
        "early-drain-signal",
        "SIGUSR1 right after start kills: the server listens before it handles signals",
    ),
    fault("sigterm", "SIGTERM kills the process instead of ending it in order with status 0"),
    fault("live-socket", "the unix socket of another, living server is unlinked and taken over"),
];
