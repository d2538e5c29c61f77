//! The decision table of recovery in `doc/binlog.md` is that of the code, and it is total.

use beanstalkd_binlog::{Decision, FileEnd, Situation, WrittenBy, decide};

const DOCUMENT: &str = include_str!("../../doc/binlog.md");

/// The rows of the table: four conditions, of which `any` matches everything, and the decision.
fn rows() -> Vec<Vec<&'static str>> {
    let table = DOCUMENT.lines().skip_while(|line| !line.starts_with("| written by"));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

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
