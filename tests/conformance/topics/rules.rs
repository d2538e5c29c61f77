//! Rules for tubes (`--tubes`), which other servers do not have.

use crate::case::{Case, Needs, script};

/// The rules.
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/tubes.toml");

pub fn cases() -> Vec<Case> {
    let mut cases = limits();
    cases.push(script(
        "a_tube_without_a_rule_is_as_it_was",
        "a: put 0 0 60 20 | 12345678901234567890 -> INSERTED 1
         a: put 0 0 60 1 | x -> INSERTED 2
         a: put 0 0 60 1 | x -> INSERTED 3
         a: stats-tube default => rejected-full: 0",
    ));
    cases.into_iter().map(|case| case.needs(Needs::Extension).flags(&["--tubes", RULES]).ours()).collect()
}

fn limits() -> Vec<Case> {
    vec![
        script(
            "max_jobs_counts_jobs_in_every_state",
            "a: use few-1 -> USING few-1
             a: watch few-1 -> WATCHING 2
             a: put 0 600 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | x -> INSERTED 2
             a: put 0 0 60 1 | x -> TUBE_FULL
             a: reserve -> RESERVED 2 1 | x
             a: put 0 0 60 1 | x -> TUBE_FULL
             a: bury 2 0 -> BURIED
             a: put 0 0 60 1 | x -> TUBE_FULL
             a: stats-tube few-1 => rule: few-*, rejected-full: 3
             a: kick-job 2 -> KICKED
             a: delete 2 -> DELETED
             a: put 0 0 60 1 | x -> INSERTED 6
             a: stats => rejected-puts: 0",
        ),
        script(
            "each_tube_that_matches_has_the_limit_for_itself",
            "a: use few-1 -> USING few-1
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | x -> INSERTED 2
             a: use few-2 -> USING few-2
             a: put 0 0 60 1 | x -> INSERTED 3",
        ),
        script(
            "max_bytes_counts_bodies_without_their_tags",
            "a: use small -> USING small
             a: put 0 0 60 6 grp:a-group-with-a-long-name | 123456 -> INSERTED 1
             a: put 0 0 60 5 | 12345 -> TUBE_FULL
             a: put 0 0 60 4 | 1234 -> INSERTED 3
             a: put 0 0 60 0 |  -> INSERTED 4
             a: put 0 0 60 11 | 12345678901 -> TUBE_FULL
             a: delete 1 -> DELETED
             a: put 0 0 60 6 | 123456 -> INSERTED 6",
        ),
        script(
            "a_move_into_a_full_tube_changes_nothing",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: use few-1 -> USING few-1
             a: put 0 0 60 1 | x -> INSERTED 2
             a: put 0 0 60 1 | x -> INSERTED 3
             a: move 1 few-1 -> TUBE_FULL
             a: stats-job 1 => tube: default, state: ready
             a: stats-tube few-1 => rejected-full: 1
             a: move 2 few-1 -> MOVED
             a: move 2 default -> MOVED
             a: move 1 few-1 -> MOVED",
        ),
        script(
            "what_is_there_goes_on_though_the_tube_is_full",
            "a: use few-1 -> USING few-1
             a: watch few-1 -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | x -> INSERTED 2
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 600 -> RELEASED
             a: kick-job 1 -> KICKED
             a: flush-tube few-1 -> FLUSHED 2
             a: put 0 0 60 1 | x -> INSERTED 3",
        ),
        script(
            "a_duplicate_is_answered_as_usual",
            "a: use few-1 -> USING few-1
             a: put 0 0 60 1 idp:k | x -> INSERTED 1
             a: put 0 0 60 1 | x -> INSERTED 2
             a: put 0 0 60 1 idp:k | x -> INSERTED 1 READY
             a: put 0 0 60 1 idp:l | x -> TUBE_FULL",
        ),
    ]
}
