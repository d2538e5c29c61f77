//! The tags of `put`, which C does not have: unique keys, places, groups, expiry.

use crate::case::{Case, Needs, script};

/// Tags that are wrong: the body behind them is skipped.
const WRONG: [&str; 18] = [
    "idp:",
    "idp:-k",
    "idp:k:",
    "idp:k:x",
    "idp:k:-1",
    "idp:k:4294967296",
    "idp:k:1:2",
    "idp:a idp:b",
    "con:",
    "con:k:0",
    "con:k:x",
    "grp:",
    "grp:a:b",
    "aft:",
    "aft:a aft:a",
    "exp:",
    "exp:0",
    "exp:x",
];

/// What is no tag: C's BAD_FORMAT, and the body is read as commands.
const UNKNOWN: [&str; 5] = ["x", "idp", "IDP:k", "idp:k x", "pri:1"];

pub fn cases() -> Vec<Case> {
    let mut cases = vec![script(
        "stats_name_the_tags",
        "a: stats => cmd-stats-group: 0, job-expirations: 0
         a: put 0 0 60 1 idp:k:5 con:c:2 grp:g aft:none exp:60 | x -> INSERTED 1
         a: stats-job 1 => idempotency-key: k, idempotency-ttl: 5, group: g, after-group: none, concurrency-key: c, concurrency-limit: 2, held: false, expires-in: 60
         a: put 0 0 60 1 | x -> INSERTED 2
         a: stats-job 2 => idempotency-ttl: 0, concurrency-limit: 0, held: false, expires-in: 0",
    )];
    cases.extend(WRONG.iter().map(|tags| {
        script(
            format!("[{tags}]_is_of_bad_format_and_its_body_is_skipped"),
            format!("a: put 0 0 60 4 {tags} | quit -> BAD_FORMAT\na: put 0 0 60 1 | x -> INSERTED 1"),
        )
    }));
    cases.extend(UNKNOWN.iter().map(|tags| {
        script(
            format!("[{tags}]_is_no_tag_and_the_body_is_read_as_commands"),
            format!("a: put 0 0 60 4 {tags} -> BAD_FORMAT\na: list-tube-used -> USING default"),
        )
    }));
    cases.extend(unique_keys());
    cases.extend(places());
    cases.extend(groups());
    cases.extend(expiry());
    cases.into_iter().map(|case| case.needs(Needs::Tags).ours().fresh()).collect()
}

fn unique_keys() -> Vec<Case> {
    vec![
        script(
            "a_second_put_with_a_key_stores_nothing_and_names_the_first_with_its_state",
            "a: put 9 0 60 1 idp:k | x -> INSERTED 1
             a: put 9 0 60 1 idp:k | y -> INSERTED 1 READY
             w: reserve -> RESERVED 1 1 | x
             a: put 9 0 60 1 idp:k | y -> INSERTED 1 RESERVED
             w: release 1 9 60 -> RELEASED
             a: put 9 0 60 1 idp:k | y -> INSERTED 1 DELAYED
             w: reserve-job 1 -> RESERVED 1 1 | x
             w: bury 1 9 -> BURIED
             a: put 9 0 60 1 idp:k | y -> INSERTED 1 BURIED
             w: delete 1 -> DELETED
             a: put 9 0 60 1 idp:k | y -> INSERTED 6
             a: stats => total-jobs: 2",
        ),
        script(
            "a_key_is_that_of_its_tube",
            "a: put 9 0 60 1 idp:k | x -> INSERTED 1
             a: use t -> USING t
             a: put 9 0 60 1 idp:k | x -> INSERTED 2
             a: move 1 t -> EXISTS 2
             a: move 2 u -> MOVED
             a: move 1 t -> MOVED
             a: put 9 0 60 1 idp:k | x -> INSERTED 1 READY",
        ),
        script(
            "a_duplicate_makes_the_first_more_urgent_and_never_less",
            "a: put 9 0 60 1 idp:k | x -> INSERTED 1
             a: put 5 0 60 1 | x -> INSERTED 2
             a: put 3 0 60 1 idp:k | x -> INSERTED 1 READY 3
             a: put 7 0 60 1 idp:k | x -> INSERTED 1 READY
             a: peek-ready -> FOUND 1 1 | x
             w: reserve -> RESERVED 1 1 | x
             a: put 1 0 60 1 idp:k | x -> INSERTED 1 RESERVED 1
             w: release 1 8 0 -> RELEASED
             a: stats-job 1 => pri: 1
             w: reserve -> RESERVED 1 1 | x
             w: release 1 8 0 -> RELEASED
             a: stats-job 1 => pri: 8",
        ),
        script(
            "a_key_counts_for_a_while_after_its_delete_and_a_flush_forgets_it",
            "a: use t -> USING t
             a: put 0 0 60 1 idp:k:60 | x -> INSERTED 1
             a: delete 1 -> DELETED
             a: put 0 0 60 1 idp:k:60 | x -> INSERTED 1 DELETED
             a: flush-tube t -> FLUSHED 0
             a: put 0 0 60 1 idp:k:60 | x -> INSERTED 3
             a: flush-tube t -> FLUSHED 1
             a: put 0 0 60 1 idp:k | x -> INSERTED 4",
        ),
        script(
            "flush_buried_frees_a_key_at_once",
            "a: put 0 0 60 1 idp:k:60 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: bury 1 0 -> BURIED
             a: flush-buried default -> FLUSHED 1
             a: put 0 0 60 1 idp:k:60 | x -> INSERTED 2",
        ),
    ]
}

fn places() -> Vec<Case> {
    vec![
        script(
            "a_key_that_is_used_up_is_passed_over_until_a_place_is_free",
            "a: put 0 0 60 1 con:k | 1 -> INSERTED 1
             a: put 0 0 60 1 con:k | 2 -> INSERTED 2
             a: put 9 0 60 1 | 3 -> INSERTED 3
             v: reserve -> RESERVED 1 1 | 1
             w: reserve-job 2 -> NOT_FOUND
             w: reserve -> RESERVED 3 1 | 3
             w: reserve-with-timeout 0 -> TIMED_OUT
             a: stats => current-jobs-ready: 1
             a: peek-ready -> FOUND 2 1 | 2
             w: reserve ->
             waiting 1
             v: delete 1 -> DELETED
             w: -> RESERVED 2 1 | 2",
        ),
        script(
            "places_are_counted_over_all_tubes_and_up_to_the_limit_of_the_job_at_hand",
            "a: put 0 0 60 1 con:k:2 | 1 -> INSERTED 1
             a: use t -> USING t
             a: put 0 0 60 1 con:k:2 | 2 -> INSERTED 2
             a: put 0 0 60 1 con:k:2 | 3 -> INSERTED 3
             a: put 5 0 60 1 con:k:3 | 4 -> INSERTED 4
             w: watch t -> WATCHING 2
             w: reserve -> RESERVED 1 1 | 1
             w: reserve -> RESERVED 2 1 | 2
             w: reserve -> RESERVED 4 1 | 4
             w: bury 2 0 -> BURIED
             w: reserve-with-timeout 0 -> TIMED_OUT
             w: release 1 0 60 -> RELEASED
             w: reserve -> RESERVED 3 1 | 3",
        ),
        script(
            "a_worker_that_leaves_gives_its_place_back",
            "a: put 0 0 60 1 con:k | 1 -> INSERTED 1
             a: put 0 0 60 1 con:k | 2 -> INSERTED 2
             v: reserve -> RESERVED 1 1 | 1
             w: reserve-with-timeout 0 -> TIMED_OUT
             w: reserve ->
             waiting 1
             v: <close>
             w: -> RESERVED 1 1 | 1",
        ),
    ]
}

fn groups() -> Vec<Case> {
    vec![
        script(
            "a_job_after_a_group_is_held_until_the_last_member_is_deleted",
            "a: put 0 0 60 1 grp:g | 1 -> INSERTED 1
             a: put 0 0 60 1 grp:g | 2 -> INSERTED 2
             a: put 0 0 60 1 aft:g | 3 -> INSERTED 3
             a: stats-group g => name: g, pending: 2, buried: 0, complete: false, waiting-jobs: 1
             a: stats-job 3 => state: delayed, held: true, time-left: 0
             a: kick 9 -> KICKED 0
             a: kick-job 3 -> NOT_FOUND
             a: reserve-job 3 -> NOT_FOUND
             a: peek-delayed -> FOUND 3 1 | 3
             w: reserve -> RESERVED 1 1 | 1
             w: bury 1 0 -> BURIED
             w: reserve -> RESERVED 2 1 | 2
             w: delete 2 -> DELETED
             a: stats-group g => pending: 1, buried: 1, waiting-jobs: 1
             w: reserve ->
             waiting 1
             a: delete 1 -> DELETED
             w: -> RESERVED 3 1 | 3
             a: stats-group g -> NOT_FOUND
             a: stats-job 3 => held: false, after-group: g",
        ),
        script(
            "a_group_without_members_holds_nothing_and_one_that_comes_later_does_not_hold_again",
            "a: put 0 60 60 1 aft:g | 1 -> INSERTED 1
             a: put 0 0 60 1 grp:g | 2 -> INSERTED 2
             a: kick-job 1 -> KICKED
             a: stats-group g => pending: 1, waiting-jobs: 0
             a: stats-group h -> NOT_FOUND",
        ),
        script(
            "held_jobs_come_behind_the_delayed_ones",
            "a: put 0 0 60 1 grp:g | 1 -> INSERTED 1
             a: put 0 0 60 1 aft:g | 2 -> INSERTED 2
             a: put 0 600 60 1 | 3 -> INSERTED 3
             a: peek-delayed -> FOUND 3 1 | 3
             a: delete 2 -> DELETED
             a: stats-group g => waiting-jobs: 0",
        ),
    ]
}

fn expiry() -> Vec<Case> {
    vec![script(
        "a_job_that_nobody_reserves_in_time_is_deleted",
        "a: put 0 0 60 1 idp:k:60 exp:1 | 1 -> INSERTED 1
             a: put 0 0 60 1 exp:1 | 2 -> INSERTED 2
             w: reserve-job 2 -> RESERVED 2 1 | 2
             w: release 2 0 0 -> RELEASED
             until a: stats => job-expirations: 1
             a: peek 1 -> NOT_FOUND
             a: put 0 0 60 1 idp:k | 1 -> INSERTED 3
             a: peek 2 -> FOUND 2 1 | 2
             a: stats-tube default => job-expirations: 1, cmd-delete: 0",
    )]
}
