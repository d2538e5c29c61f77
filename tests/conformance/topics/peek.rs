//! The peek commands, and which job each shows.

use crate::case::{Case, script};

pub fn cases() -> Vec<Case> {
    vec![
        script(
            "nothing_to_peek_at",
            "a: peek 1 -> NOT_FOUND
             a: peek 0 -> NOT_FOUND
             a: peek-ready -> NOT_FOUND
             a: peek-delayed -> NOT_FOUND
             a: peek-buried -> NOT_FOUND",
        ),
        script(
            "peek_ready_shows_the_next_job",
            "a: put 5 0 60 1 | a -> INSERTED 1
             a: put 3 0 60 1 | b -> INSERTED 2
             a: put 3 0 60 1 | c -> INSERTED 3
             a: peek-ready -> FOUND 2 1 | b
             a: delete 2 -> DELETED
             a: peek-ready -> FOUND 3 1 | c",
        ),
        script(
            "peek_delayed_shows_the_soonest_job",
            "a: put 0 900 60 1 | a -> INSERTED 1
             a: put 9 300 60 1 | b -> INSERTED 2
             a: put 0 600 60 1 | c -> INSERTED 3
             a: peek-delayed -> FOUND 2 1 | b
             a: kick-job 2 -> KICKED
             a: peek-delayed -> FOUND 3 1 | c",
        ),
        script(
            "peek_buried_shows_the_first_buried",
            "a: put 0 0 60 1 | a -> INSERTED 1
             a: put 0 0 60 1 | b -> INSERTED 2
             a: reserve -> RESERVED 1 1 | a
             a: reserve -> RESERVED 2 1 | b
             a: bury 2 9 -> BURIED
             a: bury 1 0 -> BURIED
             a: peek-buried -> FOUND 2 1 | b
             a: kick 1 -> KICKED 1
             a: peek-buried -> FOUND 1 1 | a",
        ),
        script(
            "peeks_by_state_look_into_the_used_tube_alone",
            "a: put 0 0 60 1 | a -> INSERTED 1
             a: put 0 600 60 1 | b -> INSERTED 2
             a: use t -> USING t
             a: watch t -> WATCHING 2
             a: peek-ready -> NOT_FOUND
             a: peek-delayed -> NOT_FOUND
             a: peek-buried -> NOT_FOUND
             a: peek 1 -> FOUND 1 1 | a
             a: peek 2 -> FOUND 2 1 | b",
        ),
        script(
            "a_peek_changes_nothing",
            "a: put 0 0 60 1 | a -> INSERTED 1
             a: peek-ready -> FOUND 1 1 | a
             a: peek 1 -> FOUND 1 1 | a
             b: stats-job 1 => state: ready, reserves: 0
             b: reserve -> RESERVED 1 1 | a
             a: peek 1 -> FOUND 1 1 | a
             a: peek-ready -> NOT_FOUND",
        ),
        script(
            "a_peeked_job_of_a_paused_tube",
            "a: put 0 0 60 1 | a -> INSERTED 1
             a: pause-tube default 600 -> PAUSED
             a: peek-ready -> FOUND 1 1 | a",
        ),
        script(
            "a_peeked_job_deleted_by_another_in_the_same_turn",
            "a: put 0 0 60 5 | hello -> INSERTED 1
             a: peek 1 ->
             b: delete 1 -> DELETED
             b: put 0 0 60 5 | world -> INSERTED 2
             a: -> FOUND 1 5 | hello",
        ),
        script(
            "ids_are_not_reused",
            "a: put 0 0 60 1 | a -> INSERTED 1
             a: delete 1 -> DELETED
             a: put 0 0 60 1 | b -> INSERTED 2
             a: peek 1 -> NOT_FOUND",
        ),
    ]
}
