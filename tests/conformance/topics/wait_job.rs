//! `wait-job`: a client waits until a job is deleted or buried.

use super::{TUBES, guarded_script};
use crate::case::{Case, Needs, script};

/// Malformed lines of the command.
const MALFORMED: [&str; 9] = [
    "wait-job",
    "wait-job\\s",
    "wait-job x",
    "wait-job -1",
    "wait-job 1x",
    "wait-job 1\\s",
    "wait-job 1 -1",
    "wait-job 1 2147483648",
    "wait-job 1 1 1",
];

/// The end of a job, and the reply to a client that waits for it.
const ENDS: &[(&str, &str, &str)] = &[
    ("a_delete", "a: delete 1 -> DELETED", "DELETED"),
    ("a_delete_batch", "a: delete-batch 1 -> DELETED_BATCH 1 0", "DELETED"),
    ("a_flush", "a: flush-tube default -> FLUSHED 1", "DELETED"),
    ("a_burial", "a: reserve -> RESERVED 1 1 | x\na: bury 1 0 -> BURIED", "BURIED"),
    (
        "a_burial_and_its_flush_together",
        "a: reserve | bury 1 0 | flush-buried default -> RESERVED 1 1 | x | BURIED | FLUSHED 1",
        "BURIED",
    ),
    (
        "a_delete_after_a_move_and_a_release",
        "a: move 1 t -> MOVED\na: reserve-job 1 -> RESERVED 1 1 | x\na: release 1 0 0 -> RELEASED\n\
         a: delete 1 -> DELETED",
        "DELETED",
    ),
];

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = ENDS
        .iter()
        .map(|(name, steps, word)| {
            let script = [
                "a: put 0 0 60 1 | x -> INSERTED 1\nw: wait-job 1 ->\nv: wait-job 1 60 ->",
                "until a: stats => cmd-wait-job: 2",
                steps,
                &format!("w: -> {word} 1\nv: -> {word} 1\nw: list-tube-used -> USING default"),
            ];
            self::script(format!("{name}_ends_a_wait_for_the_job"), script.join("\n"))
        })
        .collect();
    cases.extend(
        MALFORMED
            .iter()
            .map(|line| script(format!("[{line}]_is_of_bad_format"), format!("a: {line} -> BAD_FORMAT"))),
    );
    cases.extend(waits());
    cases.extend(under_rules());
    cases.into_iter().map(|case| case.needs(Needs::Extension).ours().fresh()).collect()
}

fn waits() -> Vec<Case> {
    vec![
        script(
            "a_job_that_is_gone_or_buried_is_answered_at_once",
            "a: wait-job 1 -> NOT_FOUND
             a: put 0 0 60 1 | x -> INSERTED 1
             a: wait-job 1 0 -> TIMED_OUT
             a: reserve -> RESERVED 1 1 | x
             a: wait-job 1 0 -> TIMED_OUT
             a: bury 1 0 -> BURIED
             a: wait-job 1 -> BURIED 1
             a: wait-job 1 0 -> BURIED 1
             a: delete 1 -> DELETED
             a: wait-job 1 -> NOT_FOUND",
        ),
        script(
            "a_wait_for_a_job_ends_after_its_seconds",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: wait-job 1 0.05 -> TIMED_OUT
             a: delete 1 -> DELETED",
        ),
        script(
            "an_expiry_ends_a_wait_for_the_job",
            "a: put 0 0 60 1 exp:1 | x -> INSERTED 1
             a: wait-job 1 -> DELETED 1",
        ),
        script(
            "commands_behind_a_wait_for_a_job_wait",
            "a: put 0 0 60 1 | x -> INSERTED 1
             w: wait-job 1 | put 0 0 60 1 | y | wait-job 2 0 ->
             until a: stats => cmd-wait-job: 1
             a: peek 2 -> NOT_FOUND
             a: delete 1 -> DELETED
             w: -> DELETED 1 | INSERTED 2 | TIMED_OUT",
        ),
        script(
            "a_half_close_ends_a_wait_for_a_job",
            "a: put 0 0 60 1 | x -> INSERTED 1
             w: wait-job 1 ->
             w: <half-close>
             w: -> TIMED_OUT
             w: -> <closed>
             a: delete 1 -> DELETED",
        ),
        script(
            "a_client_that_waits_for_a_job_never_gets_deadline_soon",
            "a: put 0 0 60 1 | x -> INSERTED 1
             w: put 0 0 1 1 | y -> INSERTED 2
             w: reserve-job 2 -> RESERVED 2 1 | y
             w: wait-job 1 ->
             until a: stats => job-timeouts: 1
             a: delete 1 -> DELETED
             w: -> DELETED 1
             a: stats-job 2 => state: ready, timeouts: 1",
        ),
        script(
            "a_wait_for_a_job_counts_as_no_wait_for_one_and_gets_none",
            "a: put 0 60 60 1 | x -> INSERTED 1
             w: wait-job 1 ->
             until a: stats => cmd-wait-job: 1
             a: stats => current-waiting: 0, current-workers: 0
             a: put 0 0 60 1 | y -> INSERTED 2
             a: reserve -> RESERVED 2 1 | y
             a: kick-job 1 -> KICKED
             a: delete 1 -> DELETED
             w: -> DELETED 1",
        ),
        script(
            "a_client_that_is_gone_waits_no_more",
            "a: put 0 0 60 1 | x -> INSERTED 1
             w: wait-job 1 ->
             until a: stats => cmd-wait-job: 1
             w: <close>
             until a: stats => current-connections: 1
             a: delete 1 -> DELETED",
        ),
    ]
}

fn under_rules() -> Vec<Case> {
    vec![
        guarded_script(
            "a_producer_may_wait_for_its_job",
            "p: <producer>
             e: <everybody>
             p: use mine -> USING mine
             p: put 0 0 60 1 | x -> INSERTED 1
             p: wait-job 1 ->
             until e: stats => cmd-wait-job: 1
             e: delete 1 -> DELETED
             p: -> DELETED 1",
        ),
        guarded_script(
            "a_job_of_a_hidden_tube_is_not_there_to_be_waited_for",
            "e: <everybody>
             p: <producer>
             e: put 0 0 60 1 | x -> INSERTED 1
             p: wait-job 1 -> NOT_FOUND
             p: wait-job 2 -> NOT_FOUND
             s: wait-job 1 -> NOT_FOUND",
        ),
        guarded_script(
            "the_burial_of_a_job_in_a_hidden_tube_is_not_shown",
            "e: <everybody>
             p: <producer>
             p: use mine -> USING mine
             p: put 0 0 60 1 | x -> INSERTED 1
             p: wait-job 1 ->
             until e: stats => cmd-wait-job: 1
             e: move 1 hidden -> MOVED
             e: reserve-job 1 -> RESERVED 1 1 | x
             e: bury 1 0 -> BURIED
             p: -> NOT_FOUND
             p: wait-job 1 -> NOT_FOUND",
        ),
        script(
            "a_dead_job_that_goes_to_its_dead_tube_is_neither_deleted_nor_buried",
            "a: put 0 0 60 1 tub:ring-1 | x -> INSERTED 1
             w: wait-job 1 ->
             until a: stats => cmd-wait-job: 1
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             a: stats-job 1 => tube: ring-2, dead-from: ring-1
             a: delete 1 -> DELETED
             w: -> DELETED 1",
        )
        .flags(&["--tubes", TUBES]),
        script(
            "a_dead_job_that_is_buried_ends_a_wait_for_it",
            "a: put 0 0 60 1 tub:buries | x -> INSERTED 1
             w: wait-job 1 ->
             until a: stats => cmd-wait-job: 1
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: release 1 0 0 -> BURIED
             w: -> BURIED 1",
        )
        .flags(&["--tubes", TUBES]),
    ]
}
