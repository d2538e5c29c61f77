//! The table of recovery: the action at the end of each file of the log.
//!
//! Owns: the decision, as a function of all facts on which it depends. Driven by the replay. `doc/binlog.md` shows the
//! same table, and a test compares the two.

/// The program that wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenBy {
    /// This server, which answered its clients only after syncing (`-f 0`).
    OursSyncedFirst,
    /// This server, which may have answered its clients before syncing.
    OursAnsweredFirst,
    C,
}

/// The bytes after the last record of the unbroken sequence from the file's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileEnd {
    /// Zeros, or nothing.
    Clean,
    /// Bytes that are not a record, and then zeros or nothing: a record that was being written.
    Torn,
    /// Bytes that are not a record, and then more data.
    DataBeyond,
}

/// All facts on which the decision depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Situation {
    pub(crate) writer: WrittenBy,
    pub(crate) end: FileEnd,
    /// Whether the file ends before a position that was on the medium.
    pub(crate) below_durable: bool,
    /// Whether the operator wants to continue in spite of damage (`--recover`).
    pub(crate) recover: bool,
}

/// The action for the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
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
pub(crate) fn decide(situation: Situation) -> Decision {
    use Decision::{Accept, ApplyAndCutTail, CutTail, Refuse};
    use FileEnd::{Clean, DataBeyond, Torn};
    use WrittenBy::{C, OursAnsweredFirst, OursSyncedFirst};
    let Situation { writer, end, below_durable, recover } = situation;
    match (writer, end, below_durable, recover) {
        // Bytes that were on the medium are missing. A crash does not cause that; it is damage.
        (_, _, true, false) => Refuse,
        (_, Clean, _, _) => Accept,
        // A crash can tear bytes that were not synced. With -f 0, no client has received a reply that depends on them.
        (OursSyncedFirst, Torn | DataBeyond, false, false) => CutTail,
        (OursAnsweredFirst, Torn | DataBeyond, false, false) => ApplyAndCutTail,
        // C writes in order and does not record what it has synced: a crash can tear the tail, but nothing before it.
        (C, Torn, _, _) => CutTail,
        (C, DataBeyond, false, false) => Refuse,
        (_, Torn | DataBeyond, _, true) => ApplyAndCutTail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../doc/binlog.md");

    /// The rows of the table: four conditions (`any` matches everything) and the decision.
    fn rows() -> Vec<Vec<&'static str>> {
        let table = DOCUMENT.lines().skip_while(|line| !line.starts_with("| written by"));
        let rows = table.skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
    }

    /// Each situation, with the words of its row.
    fn situations() -> Vec<(Situation, [&'static str; 4])> {
        let mut all = Vec::new();
        for (writer, written_by) in [
            (WrittenBy::OursSyncedFirst, "ours, `-f 0`"),
            (WrittenBy::OursAnsweredFirst, "ours, `-f` > 0 or `-F`"),
            (WrittenBy::C, "C"),
        ] {
            for (end, ends_in) in [
                (FileEnd::Clean, "zeros"),
                (FileEnd::Torn, "a torn record"),
                (FileEnd::DataBeyond, "data beyond"),
            ] {
                for (below_durable, below) in [(false, "no"), (true, "yes")] {
                    for (recover, option) in [(false, "no"), (true, "yes")] {
                        let situation = Situation { writer, end, below_durable, recover };
                        all.push((situation, [written_by, ends_in, below, option]));
                    }
                }
            }
        }
        all
    }

    #[test]
    fn the_decision_table_of_recovery_is_total_and_matches_the_code() {
        let rows = rows();
        let mut used = vec![false; rows.len()];
        for (situation, words) in situations() {
            let matches =
                |row: &Vec<&str>| row.iter().zip(words).all(|(&cell, word)| cell == "any" || cell == word);
            let at = rows.iter().position(matches).unwrap_or_else(|| panic!("no row for {situation:?}"));
            used[at] = true;
            let expected = match decide(situation) {
                Decision::Accept => "accept",
                Decision::CutTail => "cut the tail",
                Decision::ApplyAndCutTail => "apply whole records, cut the tail",
                Decision::Refuse => "refuse",
            };
            assert_eq!(rows[at][4], expected, "{situation:?}");
        }
        assert!(used.iter().all(|&used| used), "each row decides something: {used:?}");
    }
}
