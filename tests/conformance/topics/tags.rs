//! The tags of `put`, which C does not have: unique keys, concurrency limits, groups, expiry.

use crate::case::{Case, Needs, script};

/// Malformed tags: the server skips the body after them.
const MALFORMED: [&str; 26] = [
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
    "tub:",
    "tub:-t",
    "tub:a:1",
    "tub:a tub:a",
    "trc:",
    "trc:01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "trc:00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
    "trc:00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
];

/// Words that are not tags: BAD_FORMAT as in C, and the body is read as commands.
const UNKNOWN: [&str; 5] = ["x", "idp", "IDP:k", "idp:k x", "pri:1"];

pub fn cases() -> Vec<Case> {
    let mut cases = vec![script(
        "stats_name_the_tags",
        "a: stats => cmd-stats-group: 0, job-expirations: 0
         a: put 0 0 60 1 idp:k:5 con:c:2 grp:g aft:none exp:60 | x -> INSERTED 1
         a: stats-job 1 => idempotency-key: k, idempotency-ttl: 5, group: g, after-group: none, \
              concurrency-key: c, concurrency-limit: 2, held: false, expires-in: 60
         a: put 0 0 60 1 | x -> INSERTED 2
         a: stats-job 2 => idempotency-ttl: 0, concurrency-limit: 0, held: false, expires-in: 0",
    )];
    cases.extend(MALFORMED.iter().map(|tags| {
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
    cases.extend(concurrency_limits());
    cases.extend(["v: release 1 9 0 -> RELEASED", "v: quit -> <closed>", "v: <close>"].map(given_up));
    cases.extend(groups());
    cases.extend(expiry());
    cases.extend(another_tube());
    cases.extend(traces());
    cases.extend(with_other_commands());
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
            "a_duplicate_makes_a_buried_job_more_urgent",
            "a: put 9 0 60 1 idp:k | x -> INSERTED 1
             w: reserve -> RESERVED 1 1 | x
             w: bury 1 9 -> BURIED
             a: put 5 0 60 1 idp:k | y -> INSERTED 1 BURIED 5
             a: kick 1 -> KICKED 1
             a: stats-job 1 => pri: 5, state: ready",
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
            "a_duplicate_can_make_the_first_job_more_urgent_but_not_less",
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

fn concurrency_limits() -> Vec<Case> {
    vec![
        script(
            "a_key_that_is_used_up_is_passed_over_until_a_slot_is_free",
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
            "reservations_are_counted_over_all_tubes_against_the_limit_of_the_job_at_hand",
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
            "a_worker_that_leaves_makes_room_for_another_job_of_the_key",
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
             a: stats-group g => name: g, pending: 0, buried: 0, complete: true, waiting-jobs: 0
             a: put 0 0 60 1 grp:g | 4 -> INSERTED 4
             a: stats-group g => pending: 1, complete: false
             a: stats-job 3 => held: false, after-group: g",
        ),
        script(
            "a_group_without_members_holds_nothing_and_later_members_do_not_hold_a_free_job",
            "a: put 0 60 60 1 aft:g | 1 -> INSERTED 1
             a: put 0 0 60 1 grp:g | 2 -> INSERTED 2
             a: kick-job 1 -> KICKED
             a: stats-group g => pending: 1, waiting-jobs: 0
             a: stats-group h -> NOT_FOUND",
        ),
        script(
            "held_jobs_come_after_the_delayed_ones",
            "a: put 0 0 60 1 grp:g | 1 -> INSERTED 1
             a: put 0 0 60 1 aft:g | 2 -> INSERTED 2
             a: put 0 600 60 1 | 3 -> INSERTED 3
             a: peek-delayed -> FOUND 3 1 | 3
             a: delete 2 -> DELETED
             a: stats-group g => waiting-jobs: 0",
        ),
    ]
}

/// A client gives a job up while a more urgent one of the same key is ready in another tube, and one waits for both.
fn given_up(how: &str) -> Case {
    script(
        format!(
            "[{}]_gives_a_waiting_client_the_most_urgent_job_of_the_key",
            how.split(" ->").next().unwrap_or(how)
        ),
        format!(
            "a: use t -> USING t
             a: put 9 0 60 1 con:k | 1 -> INSERTED 1
             v: watch t -> WATCHING 2
             v: reserve -> RESERVED 1 1 | 1
             a: use u -> USING u
             a: put 2 0 60 1 con:k | 2 -> INSERTED 2
             w: watch t -> WATCHING 2
             w: watch u -> WATCHING 3
             w: reserve ->
             waiting 1
             {how}
             w: -> RESERVED 2 1 | 2
             a: stats-job 1 => state: ready"
        ),
    )
}

/// The effects of tags in commands for workers and in drain mode.
fn with_other_commands() -> Vec<Case> {
    vec![
        script(
            "a_batch_has_no_more_jobs_of_a_key_than_slots",
            "a: put 0 0 60 1 con:k:2 | 1 -> INSERTED 1
             a: put 0 0 60 1 con:k:2 | 2 -> INSERTED 2
             a: put 0 0 60 1 con:k:2 | 3 -> INSERTED 3
             w: reserve-batch 9 -> RESERVED_BATCH 2
             w: -> RESERVED 1 1 | 1
             w: -> RESERVED 2 1 | 2
             w: delete-batch 1 -> DELETED_BATCH 1 0
             w: reserve-batch 9 -> RESERVED_BATCH 1
             w: -> RESERVED 3 1 | 3",
        ),
        script(
            "delete_batch_begins_cooldowns_frees_slots_and_ends_groups",
            "a: put 0 0 60 1 idp:k:60 grp:g | 1 -> INSERTED 1
             a: put 0 0 60 1 con:c grp:g | 2 -> INSERTED 2
             a: put 5 0 60 1 con:c | 3 -> INSERTED 3
             a: put 9 0 60 1 aft:g | 4 -> INSERTED 4
             w: reserve-job 2 -> RESERVED 2 1 | 2
             w: delete-batch 1 2 -> DELETED_BATCH 2 0
             a: put 0 0 60 1 idp:k | y -> INSERTED 1 DELETED
             w: reserve -> RESERVED 3 1 | 3
             w: reserve -> RESERVED 4 1 | 4",
        ),
        script(
            "touch_and_a_wait_that_is_aborted_leave_slots_as_they_are",
            "a: put 0 0 60 1 con:k | 1 -> INSERTED 1
             a: put 0 0 60 1 con:k | 2 -> INSERTED 2
             w: reserve -> RESERVED 1 1 | 1
             w: touch 1 -> TOUCHED
             w: touch-all -> TOUCHED_ALL 1
             v: reserve-with-timeout 0 -> TIMED_OUT
             w: release 1 0 0 -> RELEASED
             v: reserve -> RESERVED 1 1 | 1",
        ),
        script(
            "drain_mode_comes_before_the_probe_of_a_key",
            "a: put 9 0 60 1 idp:k | x -> INSERTED 1
             a: drain -> DRAINING
             a: put 1 0 60 1 idp:k | y -> DRAINING
             a: stats-job 1 => pri: 9
             a: undrain -> NOT_DRAINING
             a: put 1 0 60 1 idp:k | y -> INSERTED 1 READY 1",
        ),
        script(
            "drain_mode_stops_neither_expiry_nor_groups_nor_slots",
            "a: put 0 0 60 1 exp:1 | 1 -> INSERTED 1
             a: put 0 0 60 1 grp:g con:k | 2 -> INSERTED 2
             a: put 0 0 60 1 aft:g con:k | 3 -> INSERTED 3
             a: drain -> DRAINING
             until a: stats => job-expirations: 1
             w: reserve -> RESERVED 2 1 | 2
             w: delete 2 -> DELETED
             w: reserve -> RESERVED 3 1 | 3",
        ),
        script(
            "a_free_slot_waits_for_the_end_of_a_pause",
            "a: put 0 0 60 1 con:k | 1 -> INSERTED 1
             a: put 0 0 60 1 con:k | 2 -> INSERTED 2
             w: reserve -> RESERVED 1 1 | 1
             a: pause-tube default 1000 -> PAUSED
             v: reserve ->
             waiting 1
             w: delete 1 -> DELETED
             a: stats => current-jobs-ready: 1, current-waiting: 1
             a: pause-tube default 0 -> PAUSED
             v: -> RESERVED 2 1 | 2",
        ),
        script(
            "a_flush_frees_slots_and_groups_of_other_tubes",
            "a: put 0 0 60 1 grp:g con:k | 1 -> INSERTED 1
             a: use t -> USING t
             a: put 0 0 60 1 aft:g | 2 -> INSERTED 2
             a: put 5 0 60 1 con:k | 3 -> INSERTED 3
             w: reserve-job 1 -> RESERVED 1 1 | 1
             v: watch t -> WATCHING 2
             v: reserve-with-timeout 0 -> TIMED_OUT
             a: flush-tube default -> FLUSHED 1
             v: reserve -> RESERVED 2 1 | 2
             v: reserve -> RESERVED 3 1 | 3
             w: delete 1 -> NOT_FOUND",
        ),
        script(
            "a_flush_gives_no_job_away_that_it_frees_and_deletes",
            "a: put 0 0 60 1 grp:g | 1 -> INSERTED 1
             a: use t -> USING t
             a: put 0 0 60 1 grp:h aft:g | 2 -> INSERTED 2
             a: put 0 0 60 1 aft:h | 3 -> INSERTED 3
             w: watch t -> WATCHING 2
             w: ignore default -> WATCHING 1
             w: reserve ->
             waiting 1
             a: flush-tube t -> FLUSHED 2
             a: put 0 0 60 1 | 4 -> INSERTED 4
             w: -> RESERVED 4 1 | 4",
        ),
        script(
            "jobs_that_a_flush_frees_are_there_for_the_next_command_of_the_write",
            "a: put 0 600 60 1 grp:x | 1 -> INSERTED 1
             a: use t -> USING t
             a: put 0 0 60 1 grp:g aft:x | 2 -> INSERTED 2
             a: use u -> USING u
             a: put 0 0 60 1 aft:g | 3 -> INSERTED 3
             a: flush-tube t | peek-ready -> FLUSHED 1 | FOUND 3 1 | 3",
        ),
        script(
            "a_moved_job_takes_its_tags_along",
            "a: put 0 600 60 1 grp:g | 1 -> INSERTED 1
             a: put 7 0 60 1 idp:k con:c aft:g exp:600 | 2 -> INSERTED 2
             a: move 2 t -> MOVED
             a: stats-job 2 => tube: t, state: delayed, held: true, idempotency-key: k, concurrency-key: c, \
                  after-group: g, expires-in: 600
             a: put 0 0 60 1 idp:k | y -> INSERTED 3
             a: use t -> USING t
             a: put 9 0 60 1 idp:k | y -> INSERTED 2 DELAYED
             a: reprioritize 2 3 -> REPRIORITIZED
             a: stats-job 2 => held: true, pri: 3
             a: delete 1 -> DELETED
             a: peek-ready -> FOUND 2 1 | 2",
        ),
    ]
}

fn another_tube() -> Vec<Case> {
    vec![
        script(
            "a_put_can_name_its_tube",
            "a: put 0 0 60 1 tub:other | x -> INSERTED 1
             a: list-tube-used -> USING default
             a: stats-job 1 => tube: other, state: ready
             a: stats-tube other => total-jobs: 1, current-using: 0
             a: peek-ready -> NOT_FOUND
             w: watch other -> WATCHING 2
             w: reserve -> RESERVED 1 1 | x
             w: reserve ->
             waiting 1
             a: put 0 0 60 1 tub:other | y -> INSERTED 2
             w: -> RESERVED 2 1 | y",
        ),
        script(
            "the_key_of_a_put_is_that_of_the_tube_that_it_names",
            "a: put 9 0 60 1 idp:k | x -> INSERTED 1
             a: put 9 0 60 1 tub:t idp:k:60 | x -> INSERTED 2
             a: put 9 0 60 1 idp:k tub:t | y -> INSERTED 2 READY
             a: delete 2 -> DELETED
             a: put 9 0 60 1 idp:k tub:t | y -> INSERTED 2 DELETED
             a: put 9 0 60 1 idp:k | y -> INSERTED 1 READY
             a: stats-tube t => current-cooldowns: 1, total-jobs: 1",
        ),
        script(
            "the_used_tube_stays_as_it_is_while_another_gets_a_job",
            "a: use mine -> USING mine
             a: pause-tube mine 100 -> PAUSED
             a: put 0 600 60 1 tub:other grp:g | x -> INSERTED 1
             a: list-tube-used -> USING mine
             a: stats-tube mine => pause: 100, current-using: 1, total-jobs: 0
             a: delete 1 -> DELETED
             a: stats-tube other -> NOT_FOUND",
        ),
        script(
            "a_refused_put_makes_no_tube",
            "a: put 0 0 60 1 tub:other | xyz\\c -> EXPECTED_CRLF
             a: drain -> DRAINING
             a: put 0 0 60 1 tub:other | x -> DRAINING
             a: stats-tube other -> NOT_FOUND
             a: undrain -> NOT_DRAINING",
        ),
    ]
}

fn traces() -> Vec<Case> {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01";
    let long = "n".repeat(200);
    let most = u32::MAX;
    vec![
        script(
            "a_trace_is_shown_as_it_was_put",
            format!(
                "a: put 0 0 60 1 trc:{TRACE} | x -> INSERTED 1
                 a: stats-job 1 => trace: {TRACE}
                 a: put 0 0 60 1 grp:g | x -> INSERTED 2
                 a: put 0 0 60 1 trc:00-{:032}-{:016}-00 | x -> INSERTED 3",
                0, 0
            ),
        ),
        script(
            "all_tags_at_their_longest_find_room_in_a_line",
            format!(
                "a: put {most} {most}.999 {most}.999 1 idp:{long}:{most}.999 con:{long}:{most} grp:{long} aft:{long} \
                 exp:{most}.999 tub:{long} trc:{TRACE} | x -> INSERTED 1
                 a: stats-job 1 => tube: {long}, trace: {TRACE}, group: {long}"
            ),
        ),
        script(
            "a_line_of_1280_bytes_is_read_and_a_longer_one_is_skipped_with_its_body",
            format!(
                "a: put 0 0 60 1 tub:t{} | x -> INSERTED 1
                 a: put 0 0 60 4 tub:t{} | quit -> BAD_FORMAT",
                "\\s".repeat(1280 - 2 - 18),
                "\\s".repeat(1280 - 2 - 17),
            ),
        ),
    ]
}

fn expiry() -> Vec<Case> {
    vec![script(
        "a_job_that_no_client_reserves_in_time_is_deleted",
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
