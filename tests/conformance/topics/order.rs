//! The order of ready jobs (by priority, then by id, across tubes), and which jobs count as urgent.

use crate::case::{Case, script};
use crate::mark;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        script(
            "smaller_priorities_first",
            "a: put 10 0 60 1 | a -> INSERTED 1
             a: put 0 0 60 1 | b -> INSERTED 2
             a: put 4294967295 0 60 1 | c -> INSERTED 3
             a: put 5 0 60 1 | d -> INSERTED 4
             a: reserve -> RESERVED 2 1 | b
             a: reserve -> RESERVED 4 1 | d
             a: reserve -> RESERVED 1 1 | a
             a: reserve -> RESERVED 3 1 | c",
        ),
        script(
            "first_come_first_served_within_a_priority",
            "a: put 5 0 60 1 | a -> INSERTED 1
             b: put 5 0 60 1 | b -> INSERTED 2
             a: put 5 0 60 1 | c -> INSERTED 3
             b: put 5 0 60 1 | d -> INSERTED 4
             a: reserve -> RESERVED 1 1 | a
             a: reserve -> RESERVED 2 1 | b
             b: reserve -> RESERVED 3 1 | c
             a: reserve -> RESERVED 4 1 | d",
        ),
        script(
            "a_released_job_takes_its_place_by_id",
            "a: put 5 0 60 1 | a -> INSERTED 1
             a: put 5 0 60 1 | b -> INSERTED 2
             a: reserve -> RESERVED 1 1 | a
             a: release 1 5 0 -> RELEASED
             a: reserve -> RESERVED 1 1 | a",
        ),
        script(
            "a_released_job_takes_its_place_by_its_new_priority",
            "a: put 5 0 60 1 | a -> INSERTED 1
             a: put 6 0 60 1 | b -> INSERTED 2
             a: reserve -> RESERVED 1 1 | a
             a: release 1 7 0 -> RELEASED
             a: reserve -> RESERVED 2 1 | b
             a: reserve -> RESERVED 1 1 | a",
        ),
        script(
            "a_kicked_job_takes_its_place_by_priority",
            "a: put 0 600 60 1 | a -> INSERTED 1
             a: put 1 0 60 1 | b -> INSERTED 2
             a: kick 1 -> KICKED 1
             a: reserve -> RESERVED 1 1 | a
             a: reserve -> RESERVED 2 1 | b",
        ),
        script(
            "across_watched_tubes_the_smallest_priority_wins",
            "a: use t -> USING t
             a: put 7 0 60 1 | a -> INSERTED 1
             a: use u -> USING u
             a: put 3 0 60 1 | b -> INSERTED 2
             a: use v -> USING v
             a: put 5 0 60 1 | c -> INSERTED 3
             b: watch t -> WATCHING 2
             b: watch u -> WATCHING 3
             b: watch v -> WATCHING 4
             b: reserve -> RESERVED 2 1 | b
             b: reserve -> RESERVED 3 1 | c
             b: reserve -> RESERVED 1 1 | a",
        ),
        script(
            "across_watched_tubes_the_smallest_id_wins_at_equal_priority",
            "a: use t -> USING t
             a: put 7 0 60 1 | a -> INSERTED 1
             a: use u -> USING u
             a: put 7 0 60 1 | b -> INSERTED 2
             a: use t -> USING t
             a: put 7 0 60 1 | c -> INSERTED 3
             b: watch u -> WATCHING 2
             b: watch t -> WATCHING 3
             b: reserve -> RESERVED 1 1 | a
             b: reserve -> RESERVED 2 1 | b
             b: reserve -> RESERVED 3 1 | c",
        ),
        script(
            "an_ignored_tube_gives_no_job",
            "a: put 0 0 60 1 | a -> INSERTED 1
             a: use t -> USING t
             a: put 9 0 60 1 | b -> INSERTED 2
             b: watch t -> WATCHING 2
             b: ignore default -> WATCHING 1
             b: reserve -> RESERVED 2 1 | b
             b: reserve-with-timeout 0 -> TIMED_OUT",
        ),
        script(
            "a_job_made_ready_by_a_kick_of_many_comes_by_id",
            "a: put 5 600 60 1 | a -> INSERTED 1
             a: put 5 500 60 1 | b -> INSERTED 2
             a: put 5 400 60 1 | c -> INSERTED 3
             a: kick 3 -> KICKED 3
             a: reserve -> RESERVED 1 1 | a
             a: reserve -> RESERVED 2 1 | b
             a: reserve -> RESERVED 3 1 | c",
        ),
    ];
    for (priority, urgent) in [(0, 1), (1, 1), (1022, 1), (1023, 1), (1024, 0), (1025, 0), (u32::MAX, 0)] {
        let gone = "current-jobs-urgent: 0, current-jobs-ready: 0";
        cases.push(
            script(
                format!("a_job_of_priority_{priority}_counts_{urgent}_as_urgent"),
                format!(
                    "a: put {priority} 0 60 1 | x -> INSERTED 1
                 a: stats => current-jobs-urgent: {urgent}
                 a: stats-tube default => current-jobs-urgent: {urgent}
                 a: reserve -> RESERVED 1 1 | x
                 a: stats => {gone}
                 a: release 1 {priority} 0 -> RELEASED
                 a: stats => current-jobs-urgent: {urgent}, current-jobs-ready: 1
                 a: reserve -> RESERVED 1 1 | x
                 a: bury 1 {priority} -> BURIED
                 a: stats => {gone}
                 a: kick 1 -> KICKED 1
                 a: stats => current-jobs-urgent: {urgent}, current-jobs-ready: 1
                 a: delete 1 -> DELETED
                 a: stats => {gone}
                 a: put {priority} 600 60 1 | x -> INSERTED 2
                 a: stats-tube default => {gone}"
                ),
            )
            .mark(mark::STATS),
        );
    }
    cases
}
