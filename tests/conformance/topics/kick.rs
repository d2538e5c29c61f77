//! kick and kick-job: which jobs they kick, in which order, and how many.

use crate::case::{Case, script};
use crate::mark;

/// Three jobs, buried in the order 2, 1, 3, and one delayed.
const BURIED: &str = "a: put 0 0 60 1 | a -> INSERTED 1
    a: put 0 0 60 1 | b -> INSERTED 2
    a: put 0 0 60 1 | c -> INSERTED 3
    a: reserve -> RESERVED 1 1 | a
    a: reserve -> RESERVED 2 1 | b
    a: reserve -> RESERVED 3 1 | c
    a: bury 2 0 -> BURIED
    a: bury 1 0 -> BURIED
    a: bury 3 0 -> BURIED
    a: put 0 600 60 1 | d -> INSERTED 4";

pub fn cases() -> Vec<Case> {
    let after = |name: &str, steps: &str| script(name, format!("{BURIED}\n{steps}"));
    vec![
        script("nothing_to_kick", "a: kick 1 -> KICKED 0"),
        after(
            "buried_jobs_are_kicked_in_the_order_of_their_burying",
            "a: kick 1 -> KICKED 1
             a: stats-job 2 => state: ready, kicks: 1
             a: kick 1 -> KICKED 1
             a: stats-job 1 => state: ready
             a: stats-job 3 => state: buried",
        )
        .mark(mark::BURY),
        after(
            "delayed_jobs_are_left_while_any_is_buried",
            "a: kick 100 -> KICKED 3
             a: stats-job 4 => state: delayed, kicks: 0
             a: kick 100 -> KICKED 1
             a: stats-job 4 => state: ready, kicks: 1",
        ),
        after(
            "a_kick_of_the_exact_number",
            "a: kick 3 -> KICKED 3
             a: stats => current-jobs-buried: 0, current-jobs-ready: 3, current-jobs-delayed: 1",
        ),
        after(
            "kick_0_kicks_nothing",
            "a: kick 0 -> KICKED 0
             a: stats => current-jobs-buried: 3",
        ),
        after(
            "kick_job_takes_any_buried_job",
            "a: kick-job 1 -> KICKED
             a: stats-job 1 => state: ready, kicks: 1
             a: peek-buried -> FOUND 2 1 | b
             a: kick 5 -> KICKED 2",
        )
        .mark(mark::KICK_JOB),
        after(
            "kick_job_takes_a_delayed_job_while_others_are_buried",
            "a: kick-job 4 -> KICKED
             a: stats-job 4 => state: ready, kicks: 1, delay: 600
             a: stats => current-jobs-buried: 3",
        )
        .mark(mark::KICK_JOB),
        after(
            "a_job_buried_again_goes_to_the_end",
            "a: kick 1 -> KICKED 1
             a: reserve -> RESERVED 2 1 | b
             a: bury 2 0 -> BURIED
             a: peek-buried -> FOUND 1 1 | a
             a: kick 1 -> KICKED 1
             a: kick 1 -> KICKED 1
             a: peek-buried -> FOUND 2 1 | b",
        )
        .mark(mark::BURY),
        after(
            "a_deleted_job_leaves_the_order_of_the_buried",
            "a: delete 1 -> DELETED
             a: kick 1 -> KICKED 1
             a: peek-buried -> FOUND 3 1 | c",
        ),
        after(
            "a_reserved_job_leaves_the_order_of_the_buried",
            "a: reserve-job 2 -> RESERVED 2 1 | b
             a: peek-buried -> FOUND 1 1 | a
             a: release 2 0 0 -> RELEASED
             a: stats => current-jobs-buried: 2, current-jobs-ready: 1",
        ),
        script(
            "delayed_jobs_are_kicked_soonest_first",
            "a: put 0 900 60 1 | a -> INSERTED 1
             a: put 9 300 60 1 | b -> INSERTED 2
             a: put 5 600 60 1 | c -> INSERTED 3
             a: kick 1 -> KICKED 1
             a: stats-job 2 => state: ready
             a: kick 1 -> KICKED 1
             a: stats-job 3 => state: ready
             a: stats-job 1 => state: delayed",
        )
        .habit(),
        script(
            "delays_that_end_at_the_same_time_end_in_the_order_of_their_commands",
            "a: put 0 0 60 1 | a -> INSERTED 1
             a: put 0 0 60 1 | b -> INSERTED 2
             a: reserve -> RESERVED 1 1 | a
             a: put 0 100 60 1 | c | release 1 10 100 | put 0 100 60 1 | d -> INSERTED 3 | RELEASED | INSERTED 4
             a: kick 1 -> KICKED 1
             a: stats-job 3 => state: ready
             a: kick 1 -> KICKED 1
             a: stats-job 1 => state: ready
             a: stats-job 4 => state: delayed",
        )
        .habit(),
        script(
            "kick_looks_into_the_used_tube_alone",
            "a: put 0 600 60 1 | a -> INSERTED 1
             a: use t -> USING t
             a: watch t -> WATCHING 2
             a: kick 1 -> KICKED 0
             a: kick-job 1 -> KICKED",
        ),
        script(
            "kick_in_a_paused_tube_makes_jobs_ready_and_serves_nobody",
            "a: put 0 600 60 1 | a -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             b: reserve ->
             waiting 1
             a: kick 1 -> KICKED 1
             a: stats-job 1 => state: ready
             waiting 1",
        ),
        script(
            "kicked_jobs_serve_several_waiting_clients",
            "a: put 0 600 60 1 | x -> INSERTED 1
             b: reserve ->
             c: reserve ->
             waiting 2
             a: put 0 500 60 1 | x -> INSERTED 2
             a: kick 2 -> KICKED 2
             waiting 0
             a: stats => current-jobs-reserved: 2
             b: <close>
             c: <close>",
        ),
        script(
            "a_kicked_job_counts_as_urgent_by_its_priority",
            "a: put 1023 600 60 1 | x -> INSERTED 1
             a: put 1024 600 60 1 | x -> INSERTED 2
             a: kick 2 -> KICKED 2
             a: stats => current-jobs-urgent: 1, current-jobs-ready: 2",
        )
        .mark(mark::STATS),
    ]
}
