//! Rules for tubes (`--tubes`), which other servers do not have.

use super::TUBES;
use crate::case::{Case, Needs, script};

pub fn cases() -> Vec<Case> {
    let mut cases = limits();
    cases.extend(retries());
    cases.extend(turns());
    cases.extend(ages());
    cases.extend(throttling());
    cases.extend(reasons_to_wait());
    cases.push(script(
        "a_tube_without_a_rule_is_as_it_was",
        "a: put 0 0 60 20 | 12345678901234567890 -> INSERTED 1
         a: put 0 0 60 1 | x -> INSERTED 2
         a: put 0 0 60 1 | x -> INSERTED 3
         a: stats-tube default => rejected-full: 0",
    ));
    cases.into_iter().map(|case| case.needs(Needs::Extension).flags(&["--tubes", TUBES]).ours()).collect()
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
            "a_put_that_names_a_full_tube_is_refused_and_counts_there",
            "a: put 0 0 60 1 tub:few-1 | x -> INSERTED 1
             a: put 0 0 60 1 tub:few-1 grp:g | x -> INSERTED 2
             a: put 0 0 60 1 tub:few-1 | x -> TUBE_FULL
             a: stats-tube few-1 => rejected-full: 1
             a: use few-1 -> USING few-1
             a: put 0 0 60 1 tub:default | x -> INSERTED 4
             a: stats-tube few-1 => rejected-full: 1
             a: put 0 0 60 11 tub:small | 12345678901 -> TUBE_FULL
             a: stats-tube small -> NOT_FOUND",
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
            "jobs_of_a_full_tube_can_be_released_kicked_and_flushed",
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

fn retries() -> Vec<Case> {
    let mut cases = vec![
        script(
            "a_failure_delays_the_job_and_the_last_one_sends_it_to_the_dead_tube",
            "a: use mail -> USING mail
             a: watch mail -> WATCHING 2
             a: put 3 0 60 1 idp:k con:c grp:g | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 3 0 -> RELEASED
             a: stats-job 1 => state: delayed, delay: 100, time-left: 90..100, failures: 1
             a: kick-job 1 -> KICKED
             a: reserve -> RESERVED 1 1 | x
             a: release 1 3 0 -> RELEASED
             a: stats-job 1 => tube: dead, state: ready, failures: 2, dead-from: mail, group: g, pri: 3
             a: stats-tube mail => dead-jobs: 1, current-jobs-ready: 0
             a: put 0 0 60 1 idp:k | y -> INSERTED 2",
        ),
        script(
            "a_move_to_where_it_came_from_lets_a_dead_job_live_again",
            "a: watch mail -> WATCHING 2
             a: use mail -> USING mail
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 7 -> RELEASED
             a: stats-job 1 => delay: 7, failures: 1
             a: kick-job 1 -> KICKED
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 7 -> RELEASED
             a: stats-job 1 => tube: dead, state: ready
             a: move 1 default -> MOVED
             a: stats-job 1 => dead-from: mail
             a: move 1 mail -> MOVED
             a: stats-job 1 => tube: mail, failures: 0, releases: 2, dead-since: 0
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             a: stats-job 1 => tube: mail, failures: 1, state: delayed",
        ),
        script(
            "without_a_dead_tube_a_dead_job_is_buried",
            "a: use buries -> USING buries
             a: watch buries -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> BURIED
             a: stats-job 1 => state: buried, buries: 1
             a: stats-tube buries => dead-jobs: 0, job-poisoned: 1, current-jobs-buried: 1",
        ),
        script(
            "a_dead_job_is_buried_where_it_is_if_the_dead_tube_is_full",
            "a: use spills -> USING spills
             a: watch spills -> WATCHING 2
             a: put 0 0 60 11 | 12345678901 -> INSERTED 1
             a: put 0 0 60 2 | 12 -> INSERTED 2
             a: reserve -> RESERVED 1 11 | 12345678901
             a: release 1 0 0 -> BURIED
             a: reserve -> RESERVED 2 2 | 12
             a: release 2 0 0 -> RELEASED
             a: stats-job 1 => tube: spills, state: buried
             a: stats-job 2 => tube: small, state: ready, dead-from: spills",
        ),
        script(
            "a_dead_tube_that_is_the_tube_itself_buries",
            "a: use own -> USING own
             a: watch own -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> BURIED",
        ),
        script(
            "dead_tubes_in_a_circle_kill_a_job_once",
            "a: use ring-1 -> USING ring-1
             a: watch ring-1 -> WATCHING 2
             a: watch ring-2 -> WATCHING 3
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             a: stats-job 1 => tube: ring-2
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             a: stats-job 1 => tube: ring-2, state: ready, failures: 1, releases: 2",
        ),
        script(
            "a_dead_job_goes_to_its_dead_tube_while_the_server_drains",
            "a: use ring-1 -> USING ring-1
             a: watch ring-1 -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: drain -> DRAINING
             a: release 1 0 0 -> RELEASED
             a: stats-job 1 => tube: ring-2, state: ready, dead-from: ring-1
             a: put 0 0 60 1 | x -> DRAINING
             a: undrain -> NOT_DRAINING",
        ),
        script(
            "a_complete_makes_and_takes_room_in_the_dead_tube_exactly",
            "a: use spills -> USING spills
             a: watch spills -> WATCHING 2
             b: watch small -> WATCHING 2
             a: put 0 0 60 10 | 1234567890 -> INSERTED 1
             a: put 0 0 60 1 | y -> INSERTED 2
             a: put 0 0 60 1 | z -> INSERTED 3
             a: reserve -> RESERVED 1 10 | 1234567890
             a: release 1 0 0 -> RELEASED
             a: reserve -> RESERVED 2 1 | y
             a: release 2 0 0 -> BURIED
             b: reserve -> RESERVED 1 10 | 1234567890
             b: complete 1 1 | put 0 0 60 11 tub:small | 12345678901 -> TUBE_FULL
             a: stats-tube small => rejected-full: 2, current-jobs-reserved: 1
             b: complete 1 2 | put 0 0 60 9 tub:small | 123456789 | put 0 0 60 1 tub:few-1 | x -> COMPLETED 5 6
             a: reserve -> RESERVED 3 1 | z
             a: release 3 0 0 -> RELEASED
             a: stats-job 3 => tube: small, dead-from: spills
             b: reserve-job 5 -> RESERVED 5 9 | 123456789
             b: complete 5 1 | put 0 0 60 10 tub:small | 1234567890 -> TUBE_FULL
             b: complete 5 0 -> COMPLETED
             a: kick-job 2 -> KICKED
             a: reserve -> RESERVED 2 1 | y
             a: release 2 0 0 -> RELEASED
             a: stats-job 2 => tube: small, dead-from: spills",
        ),
        script(
            "an_uncounted_release_and_a_bury_are_no_failures",
            "a: use buries -> USING buries
             a: watch buries -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 uncounted -> RELEASED
             a: reserve -> RESERVED 1 1 | x
             a: bury 1 0 -> BURIED
             a: kick-job 1 -> KICKED
             a: stats-job 1 => failures: 0, state: ready",
        ),
        script(
            "a_waiting_client_gets_a_dead_job_at_once",
            "a: use mail -> USING mail
             a: watch buries -> WATCHING 2
             a: watch ring-1 -> WATCHING 3
             b: watch ring-2 -> WATCHING 2
             b: reserve ->
             a: use ring-1 -> USING ring-1
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             b: -> RESERVED 1 1 | x",
        ),
    ];
    let mut timed = script(
        "a_time_out_is_a_failure",
        "a: use spills -> USING spills
         a: watch spills -> WATCHING 2
         a: put 0 0 1 1 | x -> INSERTED 1
         a: reserve -> RESERVED 1 1 | x
         until a: stats-job 1 => tube: small, timeouts: 1, failures: 1, dead-from: spills",
    );
    timed.timed = true;
    cases.push(timed);
    cases
}

fn reasons_to_wait() -> Vec<Case> {
    vec![
        script(
            "stats_job_says_what_a_job_waits_for",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: stats-job 1 => waits-for: worker
             b: reserve -> RESERVED 1 1 | x
             a: stats-job 1 => waits-for: client
             b: bury 1 0 -> BURIED
             a: stats-job 1 => waits-for: kick
             a: put 0 600 60 1 | x -> INSERTED 2
             a: stats-job 2 => waits-for: delay
             a: put 0 0 60 1 grp:g | x -> INSERTED 3
             a: put 0 0 60 1 aft:g | x -> INSERTED 4
             a: put 0 600 60 1 aft:g | x -> INSERTED 5
             a: stats-job 4 => waits-for: group
             a: stats-job 5 => waits-for: group delay
             a: delete 3 -> DELETED
             a: stats-job 4 => waits-for: worker
             a: stats-job 5 => waits-for: delay
             a: pause-tube default 600 -> PAUSED
             a: stats-job 4 => waits-for: pause
             a: stats-job 5 => waits-for: delay
             a: pause-tube default 0 -> PAUSED
             a: drain -> DRAINING
             a: stats-job 4 => waits-for: worker",
        ),
        script(
            "a_job_can_wait_for_several_things",
            "a: use two-at-a-time -> USING two-at-a-time
             a: watch two-at-a-time -> WATCHING 2
             a: put 0 0 60 1 con:k | x -> INSERTED 1
             a: put 0 0 60 1 con:k | y -> INSERTED 2
             a: put 0 0 60 1 con:k:2 | z -> INSERTED 3
             a: stats-job 2 => waits-for: worker
             a: reserve -> RESERVED 1 1 | x
             a: stats-job 2 => waits-for: key
             a: stats-job 3 => waits-for: worker
             a: reserve -> RESERVED 3 1 | z
             a: stats-job 2 => waits-for: key max-reserved
             a: pause-tube two-at-a-time 600 -> PAUSED
             a: stats-job 2 => waits-for: pause key max-reserved
             a: delete 3 -> DELETED
             a: stats-job 2 => waits-for: pause key
             a: delete 1 -> DELETED
             a: stats-job 2 => waits-for: pause
             a: pause-tube two-at-a-time 0 -> PAUSED
             a: stats-job 2 => waits-for: worker",
        ),
        script(
            "a_job_of_a_fair_tube_waits_for_its_turn",
            "a: use tenants -> USING tenants
             a: watch tenants -> WATCHING 2
             a: put 5 0 60 1 con:big:100 | a -> INSERTED 1
             a: put 5 0 60 1 con:big:100 | b -> INSERTED 2
             a: put 5 0 60 1 con:small | c -> INSERTED 3
             a: put 5 0 60 1 con:small | d -> INSERTED 4
             a: put 5 0 60 1 | e -> INSERTED 5
             a: stats-job 1 => waits-for: worker
             a: stats-job 2 => waits-for: turn
             a: stats-job 3 => waits-for: turn
             a: stats-job 5 => waits-for: turn
             a: reserve -> RESERVED 1 1 | a
             a: stats-job 3 => waits-for: worker
             a: stats-job 2 => waits-for: turn
             a: reserve -> RESERVED 3 1 | c
             a: stats-job 4 => waits-for: key
             a: stats-job 5 => waits-for: worker
             a: pause-tube tenants 600 -> PAUSED
             a: stats-job 5 => waits-for: pause
             a: stats-job 2 => waits-for: pause turn
             a: delete 5 -> DELETED
             a: stats-job 2 => waits-for: pause",
        ),
        script(
            "a_job_waits_for_the_next_token",
            "a: use slow -> USING slow
             a: watch slow -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | y -> INSERTED 2
             a: put 0 0 60 1 | z -> INSERTED 3
             a: reserve -> RESERVED 1 1 | x
             a: stats-job 3 => waits-for: worker
             a: reserve -> RESERVED 2 1 | y
             a: stats-job 3 => waits-for: rate
             a: delete 1 -> DELETED
             a: stats-job 3 => waits-for: rate",
        ),
    ]
}

fn turns() -> Vec<Case> {
    let script_of = |mode: &str| {
        format!(
            "a: use tenants -> USING tenants
             a: watch tenants 3 -> WATCHING 2
             a: reserve-mode {mode} -> USING {mode}
             a: put 5 0 60 1 con:big:100 | a -> INSERTED 1
             a: put 5 0 60 1 con:big:100 | b -> INSERTED 2
             a: put 5 0 60 1 con:small | c -> INSERTED 3
             a: put 5 0 60 1 con:small | d -> INSERTED 4
             a: put 0 0 60 1 con:big:100 | e -> INSERTED 5
             a: reserve -> RESERVED 5 1 | e
             a: reserve-batch 9 -> RESERVED_BATCH 3 | RESERVED 3 1 | c | RESERVED 1 1 | a | RESERVED 2 1 | b
             a: delete 3 -> DELETED
             a: reserve-batch 9 -> RESERVED_BATCH 1 | RESERVED 4 1 | d"
        )
    };
    let modes = ["fifo", "weighted", "weighted-fair"];
    let mut cases: Vec<Case> = modes
        .into_iter()
        .map(|mode| script(format!("keys_take_turns_in_the_mode_{mode}_and_in_batches"), script_of(mode)))
        .collect();
    cases.push(script(
        "keys_take_turns_among_jobs_of_the_same_priority",
        "a: use tenants -> USING tenants
             a: watch tenants -> WATCHING 2
             a: put 5 0 60 1 con:big:100 | a -> INSERTED 1
             a: put 5 0 60 1 con:big:100 | b -> INSERTED 2
             a: put 5 0 60 1 | c -> INSERTED 3
             a: put 5 0 60 1 | d -> INSERTED 4
             a: put 5 0 60 1 con:small | e -> INSERTED 5
             a: put 5 0 60 1 con:small | f -> INSERTED 6
             a: put 1 0 60 1 con:big:100 | g -> INSERTED 7
             a: peek-ready -> FOUND 7 1 | g
             a: stats-tube tenants => current-jobs-ready: 7
             a: reserve -> RESERVED 7 1 | g
             a: reserve -> RESERVED 3 1 | c
             a: reserve -> RESERVED 5 1 | e
             a: reserve -> RESERVED 1 1 | a
             a: reserve -> RESERVED 4 1 | d
             a: stats-job 6 => waits-for: key
             a: reserve -> RESERVED 2 1 | b
             a: reserve-with-timeout 0 -> TIMED_OUT
             a: delete 5 -> DELETED
             a: reserve -> RESERVED 6 1 | f",
    ));
    cases
}

fn ages() -> Vec<Case> {
    let mut cases = vec![
        script(
            "jobs_that_are_too_old_are_deleted_and_counted",
            "a: use old -> USING old
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 600 60 1 | y -> INSERTED 2
             until a: stats-tube old => job-expirations: 2, current-jobs-ready: 0, current-jobs-delayed: 0
             a: peek 1 -> NOT_FOUND",
        ),
        script(
            "a_job_that_is_too_old_goes_to_the_dead_tube",
            "a: use old-and-kept -> USING old-and-kept
             a: watch old-and-kept -> WATCHING 2
             a: put 3 0 60 1 idp:k con:c | x -> INSERTED 1
             until a: stats-job 1 => tube: dead, state: ready, dead-from: old-and-kept, failures: 0, pri: 3
             a: stats-tube old-and-kept => dead-jobs: 1, job-expirations: 0
             a: put 0 0 60 1 idp:k | x -> INSERTED 2",
        ),
        script(
            "a_reserved_job_is_judged_when_it_is_given_back",
            "a: use old -> USING old
             a: watch old -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | y -> INSERTED 2
             a: reserve -> RESERVED 1 1 | x
             until a: stats-tube old => job-expirations: 1, current-jobs-ready: 0
             a: stats-job 1 => state: reserved
             a: release 1 0 0 -> RELEASED
             a: peek 1 -> NOT_FOUND
             a: stats-tube old => job-expirations: 2",
        ),
        script(
            "a_move_begins_the_age_again",
            "a: put 0 600 60 1 | x -> INSERTED 1
             until a: stats-job 1 => age: 2
             a: move 1 old -> MOVED
             a: stats-job 1 => tube: old
             until a: stats-tube default => current-jobs-delayed: 0
             until a: stats => job-expirations: 1",
        ),
    ];
    cases.iter_mut().for_each(|case| case.timed = true);
    cases
}

fn throttling() -> Vec<Case> {
    let mut cases = vec![
        script(
            "max_reserved_keeps_the_other_jobs_back",
            "a: use two-at-a-time -> USING two-at-a-time
             a: watch two-at-a-time -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | y -> INSERTED 2
             a: put 0 0 60 1 | z -> INSERTED 3
             a: reserve -> RESERVED 1 1 | x
             a: reserve -> RESERVED 2 1 | y
             a: stats-tube two-at-a-time => throttled: 1, current-jobs-ready: 1
             a: reserve-with-timeout 0 -> TIMED_OUT
             a: reserve-job 3 -> NOT_FOUND
             a: peek-ready -> FOUND 3 1 | z
             a: delete 1 -> DELETED
             a: stats-tube two-at-a-time => throttled: 0
             a: reserve -> RESERVED 3 1 | z",
        ),
        script(
            "a_waiting_client_gets_a_job_when_another_one_is_given_back",
            "a: use two-at-a-time -> USING two-at-a-time
             a: watch two-at-a-time -> WATCHING 2
             a: put 5 0 60 1 | x -> INSERTED 1
             a: put 5 0 60 1 | y -> INSERTED 2
             a: put 0 0 60 1 | z -> INSERTED 3
             a: put 7 0 60 1 | v -> INSERTED 4
             a: reserve -> RESERVED 3 1 | z
             a: reserve -> RESERVED 1 1 | x
             b: watch two-at-a-time -> WATCHING 2
             b: reserve ->
             a: bury 1 5 -> BURIED
             b: -> RESERVED 2 1 | y
             c: watch two-at-a-time -> WATCHING 2
             c: reserve ->
             b: release 2 9 0 -> RELEASED
             c: -> RESERVED 4 1 | v
             b: reserve-with-timeout 0 -> TIMED_OUT
             a: delete 3 -> DELETED
             b: reserve -> RESERVED 2 1 | y",
        ),
        script(
            "a_reservation_that_is_moved_counts_where_it_is",
            "a: watch two-at-a-time -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | y -> INSERTED 2
             a: reserve -> RESERVED 1 1 | x
             a: reserve -> RESERVED 2 1 | y
             a: move 1 two-at-a-time -> MOVED
             a: move 2 two-at-a-time -> MOVED
             a: use two-at-a-time -> USING two-at-a-time
             a: put 0 0 60 1 | z -> INSERTED 3
             a: reserve-with-timeout 0 -> TIMED_OUT
             a: move 1 default -> MOVED
             a: reserve -> RESERVED 3 1 | z",
        ),
        script(
            "the_rate_lets_a_burst_through_and_a_release_gives_no_token_back",
            "a: use slow -> USING slow
             a: watch slow -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | y -> INSERTED 2
             a: put 0 0 60 1 | z -> INSERTED 3
             a: reserve -> RESERVED 1 1 | x
             a: release 1 0 0 -> RELEASED
             a: reserve -> RESERVED 1 1 | x
             a: delete 1 -> DELETED
             a: reserve-with-timeout 0 -> TIMED_OUT
             a: stats-tube slow => throttled: 1, current-jobs-ready: 2",
        ),
        script(
            "a_batch_takes_no_more_than_the_burst_and_no_more_than_may_be_reserved",
            "a: use slow -> USING slow
             a: watch slow -> WATCHING 2
             a: watch two-at-a-time -> WATCHING 3
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | y -> INSERTED 2
             a: put 0 0 60 1 | z -> INSERTED 3
             a: put 1 0 60 1 tub:two-at-a-time | u -> INSERTED 4
             a: put 1 0 60 1 tub:two-at-a-time | v -> INSERTED 5
             a: put 1 0 60 1 tub:two-at-a-time | w -> INSERTED 6
             a: reserve-batch 3 -> RESERVED_BATCH 3 | RESERVED 1 1 | x | RESERVED 2 1 | y | RESERVED 4 1 | u
             a: reserve-batch 100 -> RESERVED_BATCH 1 | RESERVED 5 1 | v
             a: reserve-batch 100 -> RESERVED_BATCH 0
             a: delete 4 -> DELETED
             a: delete 1 -> DELETED
             a: reserve-batch 100 -> RESERVED_BATCH 1 | RESERVED 6 1 | w",
        ),
        script(
            "a_tube_that_comes_again_has_no_new_tokens",
            "a: use slow -> USING slow
             a: watch slow -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 1
             a: put 0 0 60 1 | y -> INSERTED 2
             a: reserve -> RESERVED 1 1 | x
             a: reserve -> RESERVED 2 1 | y
             a: delete 1 -> DELETED
             a: delete 2 -> DELETED
             a: use default -> USING default
             a: ignore slow -> WATCHING 1
             a: use slow -> USING slow
             a: watch slow -> WATCHING 2
             a: put 0 0 60 1 | x -> INSERTED 3
             a: reserve-with-timeout 0 -> TIMED_OUT",
        ),
    ];
    let mut timed = script(
        "a_waiting_client_gets_the_next_job_with_the_next_token",
        "a: use quick -> USING quick
         a: watch quick -> WATCHING 2
         a: put 0 0 60 1 | x -> INSERTED 1
         a: put 0 0 60 1 | y -> INSERTED 2
         a: reserve -> RESERVED 1 1 | x
         a: reserve-with-timeout 0 -> TIMED_OUT
         a: reserve ->
         a: -> RESERVED 2 1 | y",
    );
    timed.timed = true;
    cases.push(timed);
    let mut timed = script(
        "a_batch_that_waits_gets_one_job_with_each_token",
        "a: use quick -> USING quick
         a: watch quick -> WATCHING 2
         a: put 0 0 60 1 | x -> INSERTED 1
         a: put 0 0 60 1 | y -> INSERTED 2
         a: put 0 0 60 1 | z -> INSERTED 3
         a: reserve-batch 3 60 -> RESERVED_BATCH 1 | RESERVED 1 1 | x
         a: reserve-batch 3 60 -> RESERVED_BATCH 1 | RESERVED 2 1 | y
         a: reserve-batch 3 60 -> RESERVED_BATCH 1 | RESERVED 3 1 | z",
    );
    timed.timed = true;
    cases.push(timed);
    cases
}
