//! The table of known deviations of other servers from this suite.
//!
//! A case that names a deviation still runs on the servers that the table lists for it. If it fails there, the report
//! says "shown" instead of "failed". Every other failed case counts as a failure.

use crate::judge::Kind::{self, C112, C113};

/// The kind of a deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Our server decided to behave otherwise (doc/compatibility.md says why).
    Difference,
    /// A fault that users of C hit.
    Fault,
}

/// A known deviation.
pub struct Deviation {
    /// The name by which cases refer to it.
    pub name: &'static str,
    /// Whether it is a difference or a fault.
    pub class: Class,
    /// The actual replies of the listed servers.
    pub line: &'static str,
    /// The servers that deviate.
    pub servers: &'static [Kind],
}

const C: &[Kind] = &[C112, C113];

const fn difference(name: &'static str, line: &'static str) -> Deviation {
    Deviation { name, class: Class::Difference, line, servers: C }
}

const fn fault(name: &'static str, line: &'static str) -> Deviation {
    Deviation { name, class: Class::Fault, line, servers: C }
}

pub const DEVIATIONS: &[Deviation] = &[
    difference(
        "waiters-order",
        "waiting clients are served in an arbitrary order, not first come, first served",
    ),
    difference("long-line", "a CR at the edge of the line buffer is lost, and the next command is lost too"),
    difference("bare-cr", "a CR without an LF hides the end of its line, and the connection hangs"),
    difference("unfinished-job", "a job whose body is still coming can be seen, with state `invalid`"),
    difference("numeric-id", "the id of a server may consist of digits alone, which YAML reads as a number"),
    difference(
        "stopped-reserve",
        "after the process was stopped and continued, a waiting reserve gets two replies or a wrong one",
    ),
    difference(
        "returned-one-by-one",
        "the jobs of a disconnected client go to waiting clients in the order in which they were reserved",
    ),
    difference("fraction-ignored", "ignores what follows the digits of a time-out, a point too"),
    difference("binlog-size-0", "with `-s 0`, each job has a binlog file of its own"),
    fault("kick-wraps", "kick's bound is cut to 32 bits: `kick 4294967296` kicks nothing"),
    fault(
        "lost-expiries",
        "some jobs stay reserved for good after their TTR, depending on the order of timers",
    ),
    fault("binlog-gaps", "the binlog lacks releases without a delay, the order of burials, and the next id"),
    fault("largest-job", "after a restart, a job of the largest size and all jobs after it are gone"),
    fault(
        "freed-body",
        "if a job is deleted, or times out, while its body is being sent, the body is read after it was freed",
    ),
    fault(
        "half-close-spin",
        "a half-closed client with unsent replies makes the server use a whole processor",
    ),
    fault("emfile-spin", "without a descriptor for a new connection, the server spins and fills its log"),
    fault(
        "early-drain-signal",
        "SIGUSR1 right after the start kills the server, because it listens before it handles signals",
    ),
    fault("sigterm", "SIGTERM kills the process, which should exit with status 0"),
    fault("live-socket", "the server unlinks and takes over the unix socket of another running server"),
];
