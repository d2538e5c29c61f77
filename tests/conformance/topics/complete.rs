//! `complete`: a job ends and others come, all or nothing.

use super::restart::life;
use super::{ACCESS, TUBES, guarded_script, played};
use crate::case::{Case, Needs, code, script};
use rustix::process::Signal;

/// If the server cannot read a `complete` and its puts, the connection closes.
const LOST: [&str; 14] = [
    "complete",
    "complete\\s",
    "complete 1",
    "complete x 1",
    "complete 1 x",
    "complete 1 101",
    "complete 1 1 1",
    "completed 1 0",
    "complete 1 1 | delete 1",
    "complete 1 1 |  put 0 0 60 1",
    "complete 1 1 | put",
    "complete 1 1 | put 0 0 60",
    "complete 1 1 | put 0 0 60 x",
    "complete 1 2 | put 0 0 60 1 | x | stats",
];

/// The replies in the order of their precedence, each with a put of the `complete` that causes it.
const REFUSED: [(&str, &str); 7] = [
    ("put 0 0 60 1 tub:few-1 con:other | x", "FORBIDDEN"),
    ("put 0 0 60 100000 | {100000}", "JOB_TOO_BIG"),
    // The identity `limited` has `max-job-bytes`, and the second put has a wrong tag as well.
    ("put 0 0 60 5000 | {5000}", "OUT_OF_MEMORY"),
    ("put 0 0 60 5000 exp:0 | {5000}", "OUT_OF_MEMORY"),
    ("put 0 0 60 1 tub:few-1 | x", "TUBE_FULL"),
    ("put 0 0 60 1 exp:0 | x", "BAD_FORMAT"),
    ("put 0 0 60 1 | xyz\\c", "EXPECTED_CRLF"),
];

/// How many reasons of [`REFUSED`] come before DRAINING in the list.
const BEFORE_DRAINING: usize = 4;

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = LOST
        .iter()
        .map(|line| {
            script(
                format!("[{line}]_is_of_bad_format_and_closes"),
                format!(
                    "a: put 0 0 60 1 | x -> INSERTED 1
                     a: reserve -> RESERVED 1 1 | x
                     a: {line} -> BAD_FORMAT
                     a: -> <closed>
                     until b: stats => current-jobs-ready: 1"
                ),
            )
        })
        .collect();
    cases.extend(simple());
    cases.extend(with_tags());
    cases.extend(refused());
    cases.extend(under_rules());
    cases.push(restarted());
    cases.into_iter().map(|case| case.needs(Needs::Extension).ours().fresh()).collect()
}

fn simple() -> Vec<Case> {
    vec![
        script(
            "a_complete_deletes_its_job_and_stores_the_others",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 2 | put 5 0 60 1 | y | put 0 100 60 3 tub:next | abc -> COMPLETED 2 3
             a: peek 1 -> NOT_FOUND
             a: peek 2 -> FOUND 2 1 | y
             a: stats-job 3 => tube: next, state: delayed, delay: 100
             a: stats => cmd-complete: 1, cmd-put: 3, cmd-delete: 0, job-deletes: 1, total-jobs: 3",
        ),
        script(
            "a_complete_without_puts_is_a_delete",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 0 -> COMPLETED
             a: complete 1 0 -> NOT_FOUND",
        ),
        script(
            "only_a_job_that_the_client_has_reserved_is_completed",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: complete 1 0 -> NOT_FOUND
             a: complete 1 1 | put 0 0 60 4 | quit -> NOT_FOUND
             b: reserve -> RESERVED 1 1 | x
             a: complete 1 1 | put 0 0 60 4 | quit -> NOT_FOUND
             b: bury 1 0 -> BURIED
             b: complete 1 0 -> NOT_FOUND
             b: complete 9 1 | put 0 0 60 4 | quit -> NOT_FOUND
             a: stats => total-jobs: 1, current-jobs-buried: 1",
        ),
        script(
            "commands_behind_a_complete_are_executed_after_it",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve | complete 1 1 | put 0 0 60 4 | quit | peek 2 | list-tube-used \
                -> RESERVED 1 1 | x | COMPLETED 2 | FOUND 2 4 | quit | USING default",
        ),
        script(
            "a_job_of_a_complete_goes_at_once_to_a_client_that_waits",
            "w: watch next -> WATCHING 2
             w: ignore default -> WATCHING 1
             w: reserve ->
             waiting 1
             a: put 0 0 60 1 | x -> INSERTED 1
             v: wait-job 1 ->
             until a: stats => cmd-wait-job: 1
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 1 | put 0 0 60 1 tub:next | y -> COMPLETED 2
             w: -> RESERVED 2 1 | y
             v: -> DELETED 1",
        ),
        script(
            "half_a_complete_changes_nothing",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 2 | put 0 0 60 1 | y | put 0 0 60 5 | ab\\c ->
             a: <half-close>
             a: -> <closed>
             until b: stats => current-jobs-ready: 1
             b: stats => total-jobs: 1",
        ),
        script(
            "a_job_that_times_out_while_the_puts_come_is_not_there",
            "a: put 0 0 1 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 1 | put 0 0 60 1 ->
             until b: stats => job-timeouts: 1
             a: y -> NOT_FOUND
             b: stats => total-jobs: 1, current-jobs-ready: 1",
        ),
        script(
            "a_complete_without_puts_works_while_draining",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: drain -> DRAINING
             a: complete 1 1 | put 0 0 60 1 | y -> DRAINING
             a: stats => rejected-puts: 1
             a: complete 1 0 -> COMPLETED
             a: undrain -> NOT_DRAINING",
        ),
        script(
            "a_job_of_a_session_is_completed_by_its_next_connection",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: session s 60 -> SESSION 0
             a: reserve -> RESERVED 1 1 | x
             a: <close>
             b: session s 60 -> SESSION 1
             b: complete 1 1 | put 0 0 60 1 | y -> COMPLETED 2",
        ),
        code("a_hundred_puts_are_done_together", |bench| {
            let client = bench.client("a")?;
            client.exchange(b"put 0 0 60 1\r\nx\r\n", b"INSERTED 1\r\n")?;
            client.exchange(b"reserve\r\n", b"RESERVED 1 1\r\nx\r\n")?;
            let puts = "put 0 0 60 2\r\nab\r\n".repeat(100);
            let ids: String = (2..=101).map(|id| format!(" {id}")).collect();
            client.exchange(
                format!("complete 1 100\r\n{puts}").as_bytes(),
                format!("COMPLETED{ids}\r\n").as_bytes(),
            )
        }),
    ]
}

fn with_tags() -> Vec<Case> {
    vec![
        script(
            "the_keys_of_the_job_are_free_for_the_puts",
            "a: put 0 0 60 1 idp:k:60 con:c | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 1 | put 0 0 60 1 idp:k:60 con:c | y -> COMPLETED 2
             a: reserve -> RESERVED 2 1 | y
             a: complete 2 1 | put 0 0 60 1 | z -> COMPLETED 3
             a: put 0 0 60 1 idp:k | y -> INSERTED 2 DELETED",
        ),
        script(
            "a_duplicate_in_a_complete_names_the_first_job_without_its_state",
            "a: put 9 0 60 1 idp:k | x -> INSERTED 1
             a: put 0 0 60 1 | x -> INSERTED 2
             a: reserve -> RESERVED 2 1 | x
             a: complete 2 4 | put 5 0 60 1 idp:k | y | put 7 0 60 1 idp:l | z | put 3 0 60 1 idp:l | z | \
                put 0 0 60 1 idp:k tub:t | z -> COMPLETED 1 4 4 6
             a: stats-job 1 => pri: 5
             a: stats-job 4 => pri: 3
             a: stats => current-jobs-ready: 3",
        ),
        script(
            "a_group_does_not_end_if_a_put_joins_it",
            "a: put 0 0 60 1 grp:g | x -> INSERTED 1
             a: put 0 0 60 1 aft:g | y -> INSERTED 2
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 2 | put 0 0 60 1 | z | put 0 0 60 1 grp:g | z -> COMPLETED 3 4
             a: stats-job 2 => held: true
             a: stats-group g => pending: 1, complete: false
             a: delete 4 -> DELETED
             a: stats-job 2 => held: false",
        ),
        script(
            "a_group_ends_with_its_last_member_if_no_put_joins_it",
            "a: put 0 0 60 1 grp:g idp:k | x -> INSERTED 1
             a: put 0 0 60 1 idp:l aft:g | y -> INSERTED 2
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 1 | put 0 0 60 1 idp:l grp:g | z -> COMPLETED 2
             a: stats-job 2 => held: false, state: ready",
        ),
        script(
            "a_put_of_a_complete_waits_for_a_group_of_another",
            "a: put 0 0 60 1 grp:g | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 2 | put 0 0 60 1 grp:h | y | put 0 0 60 1 aft:h | z -> COMPLETED 2 3
             a: stats-job 3 => held: true
             a: complete 3 0 -> NOT_FOUND
             a: delete 2 -> DELETED
             a: stats-job 3 => held: false",
        ),
    ]
}

/// A put of [`REFUSED`] as it is sent. Those too long for a script are made here.
fn bytes_of_put(put: &str) -> String {
    let put = put.replace("{100000}", &"q".repeat(100_000)).replace("{5000}", &"q".repeat(5000));
    match put.strip_suffix("\\c") {
        Some(cut) => cut.replace(" | ", "\r\n"),
        None => put.replace(" | ", "\r\n") + "\r\n",
    }
}

fn refused() -> Vec<Case> {
    let mut cases = Vec::new();
    for (at, (first, word)) in REFUSED.iter().enumerate() {
        let name = format!("{word}_counts_before_what_follows_it_in_the_list_{at}");
        let refused = code(&name, move |bench| {
            bench.steps(&played(
                "e: <everybody>
                 a: <limited>
                 a: put 0 0 60 1 tub:few-1 | x -> INSERTED 1
                 a: put 0 0 60 1 tub:few-1 | x -> INSERTED 2
                 a: put 0 0 60 1 | x -> INSERTED 3
                 a: reserve -> RESERVED 3 1 | x",
            ))?;
            for is_draining in [false, true] {
                // Every `complete` with puts has this reason.
                let word = if is_draining && at >= BEFORE_DRAINING { "DRAINING" } else { word };
                for (later, _) in &REFUSED[at..] {
                    for puts in [[*first, *later], [*later, *first]] {
                        let lines = puts.map(bytes_of_put).concat();
                        let sent = format!("complete 9 2\r\n{lines}complete 3 2\r\n{lines}peek 3\r\n");
                        let reply = format!("NOT_FOUND\r\n{word}\r\nFOUND 3 1\r\nx\r\n");
                        bench.client("a")?.exchange(sent.as_bytes(), reply.as_bytes())?;
                    }
                }
                if !is_draining {
                    bench.steps("e: drain -> DRAINING")?;
                }
            }
            bench.play("a: stats => current-jobs-ready: 2, current-jobs-reserved: 1, job-deletes: 0")
        });
        cases.push(refused.flags(&["--tubes", TUBES, "--access", ACCESS]));
    }
    cases.push(
        script(
            "the_job_of_a_complete_makes_room_in_its_tube",
            "a: use few-1 -> USING few-1
             a: watch few-1 -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | x -> INSERTED 2
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 2 | put 0 0 60 1 | y | put 0 0 60 1 | z -> TUBE_FULL
             a: stats-tube few-1 => rejected-full: 1, current-jobs-reserved: 1
             a: complete 1 1 | put 0 0 60 1 | y -> COMPLETED 5
             a: stats-tube few-1 => current-jobs-ready: 2",
        )
        .flags(&["--tubes", TUBES]),
    );
    cases.push(
        script(
            "one_put_without_tags_is_refused_by_a_full_tube",
            "a: put 0 0 60 1 | j -> INSERTED 1
             a: reserve -> RESERVED 1 1 | j
             a: use few-1 -> USING few-1
             a: put 0 0 60 1 | x -> INSERTED 2
             a: put 0 0 60 1 | x -> INSERTED 3
             a: complete 1 1 | put 0 0 60 1 | y -> TUBE_FULL
             a: stats-job 1 => state: reserved
             a: stats-tube few-1 => current-jobs-ready: 2, rejected-full: 1
             a: delete 3 -> DELETED
             a: complete 1 1 | put 0 0 60 1 | y -> COMPLETED 5",
        )
        .flags(&["--tubes", TUBES]),
    );
    cases.push(script(
        "a_put_with_something_else_behind_its_size_is_skipped_with_its_body",
        format!(
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: complete 1 2 | put 0 0 60 4 what | quit | put 0 0 60 4 | quit -> BAD_FORMAT
             a: complete 1 1 | put 0 0 60 4 x{} | quit -> BAD_FORMAT
             a: complete 1 1 | put 0 0 60 4 grp:{} | quit -> BAD_FORMAT
             a: complete 1 0 -> COMPLETED",
            "y".repeat(300),
            "g".repeat(1300),
        ),
    ));
    cases
}

fn under_rules() -> Vec<Case> {
    vec![
        guarded_script(
            "a_complete_needs_the_roles_of_a_delete_and_of_each_put",
            "e: <everybody>
             w: <worker>
             e: put 0 0 60 1 tub:mine | x -> INSERTED 1
             w: watch mine -> WATCHING 1
             w: reserve -> RESERVED 1 1 | x
             w: complete 1 1 | put 0 0 60 4 tub:mine | quit -> FORBIDDEN
             w: complete 1 1 | put 0 0 60 4 exp:0 | quit -> FORBIDDEN
             w: complete 1 1 | put 0 0 60 4 what | quit -> FORBIDDEN
             w: complete 1 0 -> COMPLETED
             e: stats-tube mine => total-jobs: 1",
        ),
        guarded_script(
            "a_complete_of_a_job_of_a_hidden_tube_is_skipped_whole",
            "e: <everybody>
             p: <producer>
             e: put 0 0 60 1 | x -> INSERTED 1
             p: complete 1 1 | put 0 0 60 4 tub:mine | quit -> NOT_FOUND
             p: complete 2 1 | put 0 0 60 4 tub:mine | quit -> NOT_FOUND
             p: put 0 0 60 1 tub:mine | y -> INSERTED 4
             p: complete 4 1 | put 0 0 60 4 tub:mine | quit -> NOT_FOUND
             s: complete 4 1 | put 0 0 60 4 | quit -> NOT_FOUND
             p: list-tube-used -> USING default",
        ),
    ]
}

fn restarted() -> Case {
    life(
        "a_complete_is_in_the_log",
        "a: put 0 0 60 1 grp:g | x -> INSERTED 1
         a: put 0 0 60 1 aft:g | y -> INSERTED 2
         a: reserve -> RESERVED 1 1 | x
         a: complete 1 2 | put 0 0 60 1 tub:t con:c | z | put 0 0.25 2.5 1 | q -> COMPLETED 3 4",
        "a: peek 1 -> NOT_FOUND
         a: stats-job 2 => held: false
         a: stats-job 3 => tube: t, concurrency-key: c
         a: peek 4 -> FOUND 4 1 | q
         until a: stats => current-jobs-ready: 3",
        Signal::KILL,
    )
}
