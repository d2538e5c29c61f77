//! What to do where a file of the log ends: the table of recovery.
//!
//! Owns: the decision, as a function of everything that it depends on. Driven by the replay.
//! `doc/binlog.md` shows the same table, and a test compares the two.

/// The program that wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// This server, which answered its clients only after syncing (`-f 0`).
    OursSyncedFirst,
    /// This server, which may have answered its clients before syncing.
    OursAnsweredFirst,
    /// C beanstalkd.
    C,
}

/// The bytes behind the last record of the unbroken sequence from the file's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEnd {
    /// Zeros, or nothing.
    Clean,
    /// Something that is not a record, and then zeros or nothing: a record that was being written.
    Torn,
    /// Something that is not a record, and then more data.
    DataBeyond,
}

/// All that the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// The program that wrote the file.
    pub writer: Writer,
    /// How it ends.
    pub end: FileEnd,
    /// Whether it ends before what is known to have been on the medium.
    pub below_durable: bool,
    /// Whether the operator asked to go on past damage (`--recover`).
    pub recover: bool,
}

/// The action for the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on with the next file.
    Accept,
    /// Keep the tail aside, end the file there, report it.
    CutTail,
    /// Apply the records of the tail that are whole, then do as for `CutTail`.
    ApplyAndCutTail,
    /// Do not start.
    Refuse,
}

/// The table.
#[must_use]
pub fn decide(situation: Situation) -> Decision {
    use Decision::{Accept, ApplyAndCutTail, CutTail, Refuse};
    use FileEnd::{Clean, DataBeyond, Torn};
    use Writer::{C, OursAnsweredFirst, OursSyncedFirst};
    let Situation { writer, end, below_durable, recover } = situation;
    match (writer, end, below_durable, recover) {
        // Bytes that were on the medium are missing. A crash does not do that; it is damage.
        (OursSyncedFirst | OursAnsweredFirst, _, true, false) => Refuse,
        (OursSyncedFirst | OursAnsweredFirst, Clean, true, true) => Accept,
        (OursSyncedFirst | OursAnsweredFirst, Torn | DataBeyond, true, true) => ApplyAndCutTail,
        (_, Clean, _, _) => Accept,
        // A crash can tear what was not synced. With -f 0, no client has had a reply to it.
        (OursSyncedFirst, Torn | DataBeyond, false, false) => CutTail,
        (OursSyncedFirst, Torn | DataBeyond, false, true) => ApplyAndCutTail,
        (OursAnsweredFirst, Torn | DataBeyond, false, _) => ApplyAndCutTail,
        // C writes in order and does not say what it has synced: a crash can tear the tail, and nothing before it.
        (C, Torn, _, _) => CutTail,
        (C, DataBeyond, _, false) => Refuse,
        (C, DataBeyond, _, true) => ApplyAndCutTail,
    }
}
