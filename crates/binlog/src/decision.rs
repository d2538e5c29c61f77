//! The table of recovery: the action at the end of each file of the log.
//!
//! Owns: the decision, as a function of all facts on which it depends. Driven by the replay. `doc/binlog.md` shows the
//! same table, and a test compares the two.

/// The program that wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBy {
    /// This server, which answered its clients only after syncing (`-f 0`).
    OursSyncedFirst,
    /// This server, which may have answered its clients before syncing.
    OursAnsweredFirst,
    /// C beanstalkd.
    C,
}

/// The bytes after the last record of the unbroken sequence from the file's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEnd {
    /// Zeros, or nothing.
    Clean,
    /// Bytes that are not a record, and then zeros or nothing: a record that was being written.
    Torn,
    /// Bytes that are not a record, and then more data.
    DataBeyond,
}

/// All facts on which the decision depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The program that wrote the file.
    pub writer: WrittenBy,
    /// The end of the file.
    pub end: FileEnd,
    /// Whether the file ends before a position that was on the medium.
    pub below_durable: bool,
    /// Whether the operator wants to continue in spite of damage (`--recover`).
    pub recover: bool,
}

/// The action for the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Continue with the next file.
    Accept,
    /// Keep a copy of the tail, end the file there, report it.
    CutTail,
    /// Apply the complete records of the tail, then do as for `CutTail`.
    ApplyAndCutTail,
    /// Do not start.
    Refuse,
}

/// The table.
#[must_use]
pub fn decide(situation: Situation) -> Decision {
    use Decision::{Accept, ApplyAndCutTail, CutTail, Refuse};
    use FileEnd::{Clean, DataBeyond, Torn};
    use WrittenBy::{C, OursAnsweredFirst, OursSyncedFirst};
    let Situation { writer, end, below_durable, recover } = situation;
    match (writer, end, below_durable, recover) {
        // Bytes that were on the medium are missing. A crash does not cause that; it is damage.
        (OursSyncedFirst | OursAnsweredFirst, _, true, false) => Refuse,
        (OursSyncedFirst | OursAnsweredFirst, Clean, true, true) => Accept,
        (OursSyncedFirst | OursAnsweredFirst, Torn | DataBeyond, true, true) => ApplyAndCutTail,
        (_, Clean, _, _) => Accept,
        // A crash can tear bytes that were not synced. With -f 0, no client has received a reply that depends on them.
        (OursSyncedFirst, Torn | DataBeyond, false, false) => CutTail,
        (OursSyncedFirst, Torn | DataBeyond, false, true) => ApplyAndCutTail,
        (OursAnsweredFirst, Torn | DataBeyond, false, _) => ApplyAndCutTail,
        // C writes in order and does not record what it has synced: a crash can tear the tail, but nothing before it.
        (C, Torn, _, _) => CutTail,
        (C, DataBeyond, _, false) => Refuse,
        (C, DataBeyond, _, true) => ApplyAndCutTail,
    }
}
