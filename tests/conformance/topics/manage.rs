//! The management commands, which C does not have: flushes, lists of jobs, moves, drain mode.

use beanstalkd_protocol::{Origin, Verb};

use crate::case::{Case, Needs, script};

/// In the tube `t`: three ready jobs, of which 3 is the most urgent, one delayed, one buried, one that `w` has
/// reserved.
const MIXED: &str = "a: use t -> USING t
    w: watch t -> WATCHING 2
    a: put 0 0 60 1 | x -> INSERTED 1
    a: put 0 0 60 1 | x -> INSERTED 2
    w: reserve-job 1 -> RESERVED 1 1 | x
    w: bury 1 5 -> BURIED
    w: reserve-job 2 -> RESERVED 2 1 | x
    a: put 1 0 60 3 | abc -> INSERTED 3
    a: put 7 0 60 1 | x -> INSERTED 4
    a: put 7 0 60 1 | x -> INSERTED 5
    a: put 0 600 60 1 | x -> INSERTED 6";

/// Lines that get BAD_FORMAT.
const MALFORMED: [&str; 20] = [
    "flush-tube",
    "flush-tube\\s",
    "flush-tube -t",
    "flush-tube t t",
    "flush-buried",
    "flush-buriedt",
    "list-jobs",
    "list-jobs t",
    "list-jobs t held",
    "list-jobs t ready 0",
    "list-jobs t ready 1001",
    "list-jobs t ready 1 x",
    "list-jobs t ready 1 buried-0-1",
    "peek-reserved t",
    "move 1",
    "move x t",
    "reprioritize 1",
    "reprioritize 1 4294967296",
    "drained",
    "undrain 1",
];

pub fn cases() -> Vec<Case> {
    let ours = Verb::ALL.into_iter().filter(|verb| verb.origin() == Origin::Ours);
    let ours: Vec<_> = ours.map(Verb::as_str).collect();
    let mut cases = vec![
        script(
            "stats_end_with_the_extensions",
            format!(
                "a: stats => extensions: {} idp con grp aft exp tub trc touch-seconds release-uncounted fractions",
                ours.join(" ")
            ),
        ),
        script(
            "drain_and_undrain_are_the_signals",
            "a: drain -> DRAINING
             a: put 0 0 60 1 | x -> DRAINING
             a: stats => draining: true, cmd-drain: 1
             b: drain -> DRAINING
             b: undrain -> NOT_DRAINING
             b: undrain -> NOT_DRAINING
             a: stats => draining: false, cmd-undrain: 2
             a: put 0 0 60 1 | x -> INSERTED 2",
        )
        .fresh(),
    ];
    cases.extend(MALFORMED.iter().map(|line| {
        script(
            format!("[{line}]_is_of_bad_format"),
            format!("{MIXED}\na: {line} -> BAD_FORMAT\na: stats-tube t => current-jobs-ready: 3"),
        )
    }));
    cases.extend(flushes());
    cases.extend(lists());
    cases.extend(moves());
    cases.extend(ages_and_times());
    cases.into_iter().map(|case| case.needs(Needs::Manage).ours()).collect()
}

/// A case that continues [`MIXED`].
fn after(name: &str, steps: &str) -> Case {
    script(name, format!("{MIXED}\n{steps}"))
}

fn flushes() -> Vec<Case> {
    vec![
        script("flush_of_no_tube", "a: flush-tube nobody -> FLUSHED 0\na: flush-buried nobody -> FLUSHED 0"),
        after(
            "flush_tube_deletes_the_jobs_of_every_state_and_of_this_tube",
            "a: use default -> USING default
             a: put 0 0 60 1 | x -> INSERTED 7
             b: flush-tube t -> FLUSHED 6
             a: stats-tube t => current-jobs-ready: 0, current-jobs-reserved: 0, current-jobs-delayed: 0, \
                  current-jobs-buried: 0, cmd-delete: 6
             a: peek 7 -> FOUND 7 1 | x
             a: peek 4 -> NOT_FOUND
             a: stats => cmd-flush-tube: 1, job-deletes: 6, current-jobs-ready: 1, current-jobs-urgent: 1",
        ),
        after(
            "the_holder_of_a_flushed_job_gets_not_found",
            "b: flush-tube t -> FLUSHED 6
             w: touch 2 -> NOT_FOUND
             w: release 2 0 0 -> NOT_FOUND
             w: bury 2 0 -> NOT_FOUND
             w: delete 2 -> NOT_FOUND",
        ),
        after(
            "a_flushed_tube_goes_on",
            "b: flush-tube t -> FLUSHED 6
             a: put 0 0 60 1 | y -> INSERTED 7
             w: reserve -> RESERVED 7 1 | y
             b: flush-tube t -> FLUSHED 1
             b: flush-tube t -> FLUSHED 0",
        ),
        script(
            "a_tube_that_only_its_jobs_kept_vanishes_with_them",
            "a: use t -> USING t
             a: put 0 0 60 1 | x -> INSERTED 1
             a: use default -> USING default
             a: flush-tube t -> FLUSHED 1
             a: stats-tube t -> NOT_FOUND",
        ),
        after(
            "flush_buried_deletes_the_buried_jobs_alone",
            "b: flush-buried t -> FLUSHED 1
             b: flush-buried t -> FLUSHED 0
             a: peek-buried -> NOT_FOUND
             a: stats-tube t => current-jobs-ready: 3, current-jobs-reserved: 1, current-jobs-delayed: 1, \
                  current-jobs-buried: 0",
        ),
        after(
            "a_command_that_is_piped_behind_a_flush_comes_after_it",
            r"b: flush-tube t\r\nstats-job 4 -> FLUSHED 6 | NOT_FOUND",
        ),
    ]
}

/// A script step that requires `data` as the reply to `command`, after [`MIXED`].
fn page(command: &str, data: &str) -> String {
    let data = format!("---\n{data}");
    let bytes = data.replace("\\s", " ").len();
    format!("a: {command} -> OK {bytes} | {}", data.replace('\n', "\\n"))
}

fn line(id: u32, pri: u32, delay: u32, left: u32, bytes: u32, counters: &str) -> String {
    format!(
        "- {{id: {id}, pri: {pri}, age: 0, delay: {delay}, ttr: 60, time-left: {left}, bytes: {bytes}, {counters}}}\n"
    )
}

fn lists() -> Vec<Case> {
    const NEW: &str = "reserves: 0, timeouts: 0, releases: 0, buries: 0, kicks: 0";
    let (three, four, five) = (line(3, 1, 0, 0, 3, NEW), line(4, 7, 0, 0, 1, NEW), line(5, 7, 0, 0, 1, NEW));
    let buried = line(1, 5, 0, 0, 1, "reserves: 1, timeouts: 0, releases: 0, buries: 1, kicks: 0");
    let all = |jobs: &[&String]| {
        format!("next: \"\"\njobs:\n{}", jobs.iter().map(|line| line.as_str()).collect::<String>())
    };
    let timed = |case: Case| Case { timed: true, ..case };
    vec![
        script("list_jobs_of_no_tube", "a: list-jobs nobody ready -> NOT_FOUND"),
        script("an_empty_page", page("list-jobs default buried", &all(&[]))),
        timed(after(
            "ready_jobs_are_listed_in_the_order_of_a_reserve",
            &page("list-jobs t ready", &all(&[&three, &four, &five])),
        ))
        .fresh(),
        timed(after(
            "buried_jobs_are_listed_with_their_counters",
            &page("list-jobs t buried 1000", &all(&[&buried])),
        ))
        .fresh(),
        timed(after(
            "pages_follow_each_other",
            &[
                page("list-jobs t ready 2", &format!("next: \"ready-7-4\"\njobs:\n{three}{four}")),
                page("list-jobs t ready 2 ready-7-4", &all(&[&five])),
                page("list-jobs t ready 2 ready-7-5", &all(&[])),
            ]
            .join("\n"),
        ))
        .fresh(),
        after(
            "peek_reserved_shows_the_job_that_is_reserved_longest",
            "a: peek-reserved -> FOUND 2 1 | x
             w: reserve-job 3 -> RESERVED 3 3 | abc
             w: touch 2 -> TOUCHED
             a: peek-reserved -> FOUND 2 1 | x
             w: release 2 0 0 -> RELEASED
             a: peek-reserved -> FOUND 3 3 | abc
             w: delete 3 -> DELETED
             a: peek-reserved -> NOT_FOUND
             a: use default -> USING default
             a: peek-reserved -> NOT_FOUND
             a: stats => cmd-peek-reserved: 5",
        ),
    ]
}

fn moves() -> Vec<Case> {
    vec![
        after(
            "a_job_moves_to_the_same_state_of_another_tube",
            "b: move 1 u -> MOVED
             b: move 4 u -> MOVED
             b: move 6 u -> MOVED
             b: stats-tube u => current-jobs-ready: 1, current-jobs-delayed: 1, current-jobs-buried: 1, total-jobs: 0
             b: stats-tube t => current-jobs-ready: 2, current-jobs-delayed: 0, current-jobs-buried: 0, \
                  current-jobs-reserved: 1
             b: stats-job 6 => tube: u, state: delayed, delay: 600
             b: stats-job 1 => tube: u, state: buried, pri: 5",
        ),
        after(
            "a_reserved_job_moves_with_its_holder_alone",
            "b: move 2 u -> NOT_FOUND
             w: move 2 u -> MOVED
             w: stats-job 2 => tube: u, state: reserved
             w: release 2 9 0 -> RELEASED
             w: stats-tube u => current-jobs-ready: 1, current-jobs-reserved: 0",
        ),
        after(
            "a_moved_job_goes_to_a_client_that_waits",
            "b: watch u -> WATCHING 2
             b: reserve ->
             waiting 1
             a: move 4 u -> MOVED
             b: -> RESERVED 4 1 | x",
        ),
        after(
            "a_job_moved_to_its_own_tube_stays",
            "b: move 4 t -> MOVED
             b: stats-job 4 => tube: t, state: ready",
        ),
        script("no_job_moves", "a: move 99 t -> NOT_FOUND\na: stats-tube t -> NOT_FOUND"),
        after(
            "reprioritize_changes_the_order_of_ready_jobs",
            "b: reprioritize 5 0 -> REPRIORITIZED
             a: peek-ready -> FOUND 5 1 | x
             b: reprioritize 5 1024 -> REPRIORITIZED
             a: peek-ready -> FOUND 3 3 | abc
             a: stats-tube t => current-jobs-urgent: 2",
        ),
        after(
            "reprioritize_leaves_delayed_and_buried_jobs_where_they_are",
            "b: reprioritize 6 77 -> REPRIORITIZED
             b: reprioritize 1 78 -> REPRIORITIZED
             b: stats-job 6 => state: delayed, pri: 77
             b: stats-job 1 => state: buried, pri: 78
             b: reprioritize 2 0 -> NOT_FOUND
             b: reprioritize 99 0 -> NOT_FOUND",
        ),
    ]
}

fn ages_and_times() -> Vec<Case> {
    let zero = |kind: &str| {
        format!(
            "{kind}-time-count: 0, {kind}-time-mean: 0.000000, {kind}-time-p99: 0.000000, {kind}-time-max: 0.000000"
        )
    };
    vec![
        script(
            "a_tube_without_jobs_has_no_ages_and_times",
            format!(
                "a: stats-tube default => oldest-ready-age: 0, oldest-delayed-age: 0, oldest-buried-age: 0, \
                 oldest-ready-id: 0, {}, {}",
                zero("wait"),
                zero("run")
            ),
        )
        .fresh(),
        after(
            "waiting_and_running_times_count_reserves_and_deletes",
            "a: stats-tube t => oldest-ready-id: 3, wait-time-count: 2, run-time-count: 0
             w: delete 2 -> DELETED
             w: delete 3 -> DELETED
             a: stats-tube t => oldest-ready-id: 4, wait-time-count: 2, run-time-count: 1",
        ),
    ]
}
