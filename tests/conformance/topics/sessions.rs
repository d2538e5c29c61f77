//! `session`: reservations that outlive the connection of their client.

use super::guarded_script;
use super::restart::life;
use crate::case::{Case, Needs, script};
use rustix::process::Signal;

/// Malformed lines of the command.
const MALFORMED: [&str; 16] = [
    "session",
    "session\\s",
    "session w",
    "session w\\s",
    "session  w 1",
    "session -w 1",
    "session w x",
    "session w -1",
    "session w .5",
    "session w 5.",
    "session w 1.0000",
    "session w 3600.001",
    "session w 3601",
    "session w 1 1",
    "sessionw 1",
    "sessions w 1",
];

/// For each case: its name, the steps before a restart, and the steps after it.
const LIVES: &[(&str, &str, &str)] = &[
    (
        "a_job_of_a_session_comes_back_reserved",
        "a: put 5 0 600 1 | x -> INSERTED 1
         a: put 5 0 600 1 | y -> INSERTED 2
         w: session w 60 -> SESSION 0
         w: reserve -> RESERVED 1 1 | x
         a: reserve -> RESERVED 2 1 | y",
        "a: stats-job 1 => state: reserved, session: w, reserves: 1
         a: stats-job 2 => state: ready, session: , reserves: 1
         a: stats => current-sessions: 1, current-jobs-reserved: 1
         a: reserve-with-timeout 0 -> RESERVED 2 1 | y
         a: reserve-with-timeout 0 -> TIMED_OUT
         a: reserve-job 1 -> NOT_FOUND
         a: delete 1 -> NOT_FOUND
         w: session w 60 -> SESSION 1
         w: delete 1 -> DELETED",
    ),
    (
        "a_session_that_nobody_takes_gives_its_jobs_back_after_the_grace",
        "a: put 5 0 600 1 | x -> INSERTED 1
         w: session w 0.3 -> SESSION 0
         w: reserve -> RESERVED 1 1 | x",
        "b: reserve-with-timeout 30 -> RESERVED 1 1 | x
         b: stats-job 1 => reserves: 2, releases: 0, timeouts: 0
         b: stats => current-sessions: 0",
    ),
    (
        "a_job_that_came_to_a_client_that_waited_is_the_sessions",
        "w: session w 60 -> SESSION 0
         w: reserve ->
         waiting 1
         a: put 5 0 600 1 | x -> INSERTED 1
         w: -> RESERVED 1 1 | x",
        "w: session w 60 -> SESSION 1
         w: release 1 0 0 -> RELEASED",
    ),
    (
        "a_job_that_was_reserved_before_and_moved_or_touched_is_the_sessions",
        "a: put 5 0 600 1 | x -> INSERTED 1
         a: put 5 0 600 1 | y -> INSERTED 2
         w: reserve -> RESERVED 1 1 | x
         w: session w 1 -> SESSION 1
         w: reserve -> RESERVED 2 1 | y
         w: move 1 t -> MOVED
         w: touch 2 -> TOUCHED
         w: session w 60 -> SESSION 2",
        "v: stats-job 1 => tube: t, state: reserved, session: w
         v: session w 30 -> SESSION 2
         v: touch-all -> TOUCHED_ALL 2
         v: delete 1 -> DELETED
         v: delete 2 -> DELETED",
    ),
    (
        "a_job_that_a_session_gave_back_is_not_the_sessions",
        "a: put 5 0 600 1 | x -> INSERTED 1
         a: put 5 0 600 1 | y -> INSERTED 2
         a: put 5 0 600 1 | z -> INSERTED 3
         w: session w 60 -> SESSION 0
         w: reserve -> RESERVED 1 1 | x
         w: reserve -> RESERVED 2 1 | y
         w: reserve -> RESERVED 3 1 | z
         w: release 1 5 0 -> RELEASED
         w: bury 2 0 -> BURIED
         w: delete 3 -> DELETED
         a: reserve -> RESERVED 1 1 | x",
        "a: stats-job 1 => state: ready, session: , reserves: 2
         a: stats-job 2 => session: , state: buried
         a: stats => current-sessions: 0
         w: session w 60 -> SESSION 0",
    ),
    (
        "a_reservation_counts_for_its_concurrency_key",
        "a: put 5 0 600 1 con:k | x -> INSERTED 1
         a: put 5 0 600 1 con:k | y -> INSERTED 2
         w: session w 60 -> SESSION 0
         w: reserve -> RESERVED 1 1 | x",
        "a: reserve-with-timeout 0 -> TIMED_OUT
         w: session w 60 -> SESSION 1
         w: delete 1 -> DELETED
         a: reserve-with-timeout 0 -> RESERVED 2 1 | y",
    ),
    (
        "a_job_that_would_expire_does_not_while_a_session_has_it",
        "a: put 5 0 600 1 exp:60 | x -> INSERTED 1
         w: session w 60 -> SESSION 0
         w: reserve -> RESERVED 1 1 | x",
        "b: stats-job 1 => state: reserved, expires-in: 0
         w: session w 60 -> SESSION 1
         w: delete 1 -> DELETED",
    ),
];

/// Client `w` has a session with job 1 reserved, whose grace is a minute.
const RESERVED_BY_SESSION: &str = "a: put 0 0 600 1 | x -> INSERTED 1
    w: session w 60 -> SESSION 0
    w: reserve -> RESERVED 1 1 | x";

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = MALFORMED
        .iter()
        .map(|line| {
            script(
                format!("[{line}]_is_of_bad_format"),
                format!("a: {line} -> BAD_FORMAT\na: stats => current-sessions: 0, malformed-commands: 1"),
            )
        })
        .collect();
    cases.extend(graces());
    cases.extend(takeovers());
    cases.extend(shown());
    cases.extend(guarded());
    for signal in [Signal::TERM, Signal::KILL] {
        cases.extend(LIVES.iter().map(|(name, before, after)| life(name, before, after, signal)));
    }
    cases.into_iter().map(|case| case.needs(Needs::Extension).ours()).collect()
}

fn after_reserve(name: &str, steps: &str) -> Case {
    script(name, format!("{RESERVED_BY_SESSION}\n{steps}"))
}

fn graces() -> Vec<Case> {
    vec![
        after_reserve(
            "a_lost_connection_loses_no_reservation_within_the_grace",
            "w: <close>
             until a: stats => current-workers: 0
             a: stats-job 1 => state: reserved, releases: 0, timeouts: 0, session: w
             a: delete 1 -> NOT_FOUND
             a: release 1 0 0 -> NOT_FOUND
             a: touch 1 -> NOT_FOUND
             v: session w 60 -> SESSION 1
             v: touch 1 -> TOUCHED
             v: touch-all -> TOUCHED_ALL 1
             v: delete 1 -> DELETED",
        ),
        script(
            "the_end_of_the_grace_gives_the_jobs_back_and_counts_nothing",
            "a: put 0 0 600 1 | x -> INSERTED 1
             w: session w 0.2 -> SESSION 0
             w: reserve -> RESERVED 1 1 | x
             b: reserve-with-timeout 30 ->
             waiting 1
             w: <close>
             b: -> RESERVED 1 1 | x
             a: stats-job 1 => reserves: 2, releases: 0, session: , timeouts: 0
             a: stats => current-sessions: 0",
        ),
        script(
            "a_time_to_run_that_ends_within_the_grace_is_a_time_out",
            "a: put 0 0 1 1 | x -> INSERTED 1
             w: session w 3600 -> SESSION 0
             w: reserve -> RESERVED 1 1 | x
             w: <close>
             b: reserve-with-timeout 30 -> RESERVED 1 1 | x
             a: stats-job 1 => reserves: 2, releases: 0, timeouts: 1
             a: stats => current-sessions: 0, job-timeouts: 1",
        ),
        after_reserve(
            "the_last_session_of_a_connection_counts_and_a_grace_of_nothing_holds_nothing",
            "w: session w 0 -> SESSION 1
             b: reserve-with-timeout 30 ->
             waiting 1
             w: quit ->
             b: -> RESERVED 1 1 | x",
        ),
        script(
            "a_session_without_jobs_ends_with_its_connection",
            "w: session w 3600 -> SESSION 0
             a: stats => current-sessions: 1, current-connections: 2
             w: <close>
             until a: stats => current-connections: 1
             a: stats => current-sessions: 0",
        ),
        script(
            "a_connection_without_a_session_gives_back_at_once",
            "a: put 0 0 600 1 | x -> INSERTED 1
             w: reserve -> RESERVED 1 1 | x
             w: <close>
             until a: stats-job 1 => state: ready",
        ),
        after_reserve(
            "a_job_that_was_reserved_before_is_the_sessions_too",
            "a: put 0 0 600 1 | y -> INSERTED 2
             v: reserve-job 2 -> RESERVED 2 1 | y
             v: session v 3600 -> SESSION 1
             v: <close>
             until a: stats => current-connections: 2
             a: stats-job 2 => state: reserved, session: v
             u: session v 1 -> SESSION 1",
        ),
        after_reserve(
            "use_and_watch_list_are_the_connections",
            "w: use t -> USING t
             w: watch t -> WATCHING 2
             w: <close>
             until a: stats => current-tubes: 1
             v: session w 60 -> SESSION 1
             v: list-tubes-watched -> OK 14 | ---\\n- default\\n
             v: list-tube-used -> USING default",
        ),
        after_reserve(
            "a_session_whose_jobs_are_flushed_ends",
            "w: <close>
             until a: stats => current-connections: 1
             a: flush-tube default -> FLUSHED 1
             a: stats => current-sessions: 0",
        ),
    ]
}

fn takeovers() -> Vec<Case> {
    vec![
        after_reserve(
            "another_connection_takes_the_session_and_the_first_is_closed",
            "v: session w 30 -> SESSION 1
             w: -> <closed>
             v: delete 1 -> DELETED
             v: stats => current-sessions: 1, current-connections: 2",
        ),
        after_reserve(
            "a_wait_of_the_connection_that_loses_its_session_ends",
            "w: reserve ->
             waiting 1
             v: session w 30 -> SESSION 1
             w: -> <closed>
             waiting 0
             a: put 0 0 60 1 | y -> INSERTED 2
             a: peek-ready -> FOUND 2 1 | y",
        ),
        after_reserve(
            "a_worker_that_has_lost_its_session_finds_none_of_its_jobs",
            "v: session w 30 -> SESSION 1
             w: -> <closed>
             u: touch 1 -> NOT_FOUND
             u: release 1 0 0 -> NOT_FOUND
             u: bury 1 0 -> NOT_FOUND
             u: delete 1 -> NOT_FOUND
             u: touch-all -> TOUCHED_ALL 0
             u: session u 30 -> SESSION 0
             u: delete 1 -> NOT_FOUND
             a: stats-job 1 => state: reserved, session: w, reserves: 1, timeouts: 0, releases: 0
             v: touch 1 -> TOUCHED
             v: delete 1 -> DELETED",
        ),
        after_reserve(
            "a_worker_that_has_lost_its_session_can_take_it_back",
            "v: session w 30 -> SESSION 1
             w: -> <closed>
             u: session w 30 -> SESSION 1
             v: -> <closed>
             u: delete 1 -> DELETED",
        ),
        after_reserve(
            "a_second_session_of_a_connection_is_of_bad_format",
            "w: session v 60 -> BAD_FORMAT
             w: session w 60 -> SESSION 1
             a: stats => current-sessions: 1, cmd-session: 3, malformed-commands: 1
             w: delete 1 -> DELETED",
        ),
        after_reserve(
            "only_the_holder_moves_the_job",
            "a: move 1 t -> NOT_FOUND
             w: move 1 t -> MOVED
             w: <close>
             until a: stats => current-connections: 1
             a: stats-job 1 => tube: t, state: reserved, session: w",
        ),
    ]
}

fn shown() -> Vec<Case> {
    vec![
        after_reserve(
            "lists_and_stats_name_the_session",
            "a: put 1 0 60 1 | y -> INSERTED 2
             a: stats-job 1 => session: w
             a: stats-job 2 => session: , state: ready
             a: stats => current-sessions: 1
             w: release 1 0 100 -> RELEASED
             a: stats-job 1 => session: , state: delayed",
        ),
        script(
            "a_name_has_200_bytes_at_most",
            format!(
                "a: session {name} 1 -> SESSION 0\nb: session {name}n 1 -> BAD_FORMAT",
                name = "n".repeat(200)
            ),
        ),
    ]
}

fn guarded() -> Vec<Case> {
    [
        (
            "a_session_belongs_to_its_identity",
            "e: <everybody>
             e: use mine -> USING mine
             e: put 0 0 600 1 | x -> INSERTED 1
             e: watch mine -> WATCHING 2
             e: session s 60 -> SESSION 0
             e: reserve -> RESERVED 1 1 | x
             w: <worker>
             w: session s 60 -> SESSION 0
             w: stats-job 1 => session: , state: reserved
             w: delete 1 -> NOT_FOUND
             e: stats-job 1 => session: s
             e: stats => current-sessions: 2
             e: <close>
             w: stats-job 1 => state: reserved
             w: session s 60 -> SESSION 0
             f: <everybody>
             f: session s 60 -> SESSION 1
             f: delete 1 -> DELETED",
        ),
        (
            "only_who_may_work_has_a_session",
            "o: <observer>
             o: session s 60 -> FORBIDDEN
             p: <producer>
             p: session s 60 -> FORBIDDEN
             a: session s 60 -> FORBIDDEN",
        ),
        (
            "a_session_stays_that_of_the_identity_that_began_it",
            "w: <worker>
             w: session s 60 -> SESSION 0
             w: <everybody>
             w: session s 60 -> BAD_FORMAT",
        ),
    ]
    .map(|(name, text)| guarded_script(name, text))
    .into()
}
