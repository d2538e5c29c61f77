//! use, watch, ignore, the lists of tubes, and how long a tube exists.

use crate::case::{Case, code, script};
use crate::mark;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        script(
            "a_new_client_uses_and_watches_default",
            r"a: list-tube-used -> USING default
              a: list-tubes-watched -> OK 14 | ---\n- default\n
              a: list-tubes -> OK 14 | ---\n- default\n",
        ),
        script(
            "use_names_the_tube_that_is_used_from_then_on",
            "a: use t -> USING t
             a: list-tube-used -> USING t
             a: put 0 0 60 1 | x -> INSERTED 1
             a: stats-job 1 => tube: t
             a: use default -> USING default
             a: list-tube-used -> USING default",
        )
        .mark(mark::USE),
        script(
            "use_makes_a_tube_and_leaves_the_watch_list",
            r"a: use t -> USING t
              a: list-tube-used -> USING t
              a: list-tubes-watched -> OK 14 | ---\n- default\n
              a: list-tubes -> OK 18 | ---\n- default\n- t\n",
        )
        .habit(),
        script(
            "watch_makes_a_tube_and_leaves_the_used_one",
            r"a: watch t -> WATCHING 2
              a: list-tube-used -> USING default
              a: list-tubes-watched -> OK 18 | ---\n- default\n- t\n
              a: list-tubes -> OK 18 | ---\n- default\n- t\n",
        )
        .habit(),
        script(
            "watch_twice_counts_once",
            "a: watch t -> WATCHING 2
             a: watch t -> WATCHING 2
             a: watch default -> WATCHING 2
             a: ignore t -> WATCHING 1",
        )
        .mark(mark::WATCH),
        script(
            "the_last_watched_tube_cannot_be_ignored",
            "a: ignore default -> NOT_IGNORED
             a: watch t -> WATCHING 2
             a: ignore default -> WATCHING 1
             a: ignore t -> NOT_IGNORED
             a: stats-tube t => current-watching: 1",
        )
        .mark(mark::IGNORE),
        script(
            "a_tube_not_watched_can_be_ignored",
            r"a: ignore nonsense -> WATCHING 1
              a: watch t -> WATCHING 2
              a: ignore nonsense -> WATCHING 2
              a: list-tubes -> OK 18 | ---\n- default\n- t\n",
        )
        .habit(),
        script(
            "ignore_twice",
            "a: watch t -> WATCHING 2
             a: ignore t -> WATCHING 1
             a: ignore t -> WATCHING 1",
        )
        .mark(mark::IGNORE),
        script(
            "a_tube_that_nobody_uses_or_watches_vanishes_when_empty",
            "a: use t -> USING t
             b: stats-tube t => current-using: 1
             a: use default -> USING default
             b: stats-tube t -> NOT_FOUND
             a: watch t -> WATCHING 2
             b: stats-tube t => current-watching: 1, current-using: 0
             a: ignore t -> WATCHING 1
             b: stats-tube t -> NOT_FOUND",
        ),
        script(
            "a_tube_vanishes_with_its_last_job",
            "a: use t -> USING t
             a: put 0 0 60 1 | x -> INSERTED 1
             a: use default -> USING default
             a: stats-tube t => current-jobs-ready: 1, current-using: 0
             a: delete 1 -> DELETED
             a: stats-tube t -> NOT_FOUND
             a: stats => current-tubes: 1",
        ),
        script(
            "a_tube_lives_while_a_job_of_it_is_delayed",
            "a: use t -> USING t
             a: put 0 600 60 1 | x -> INSERTED 1
             a: use default -> USING default
             a: stats-tube t => current-jobs-delayed: 1
             a: delete 1 -> DELETED
             a: stats-tube t -> NOT_FOUND",
        ),
        script(
            "a_tube_lives_while_a_job_of_it_is_buried",
            "a: use t -> USING t
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: bury 1 0 -> BURIED
             a: use default -> USING default
             a: stats-tube t => current-jobs-buried: 1
             a: delete 1 -> DELETED
             a: stats-tube t -> NOT_FOUND",
        ),
        script(
            "a_tube_lives_while_a_job_of_it_is_reserved",
            "a: use t -> USING t
             a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve-job 1 -> RESERVED 1 1 | x
             a: use default -> USING default
             a: stats-tube t => current-jobs-reserved: 1
             a: delete 1 -> DELETED
             a: stats-tube t -> NOT_FOUND",
        ),
        script(
            "a_tube_vanishes_when_its_last_user_leaves",
            "a: use t -> USING t
             a: watch u -> WATCHING 2
             b: stats => current-tubes: 3
             a: <close>
             until b: stats => current-tubes: 1
             b: stats-tube t -> NOT_FOUND
             b: stats-tube u -> NOT_FOUND",
        ),
        script(
            "a_tube_that_vanished_starts_from_zero",
            "a: use t -> USING t
             a: put 0 0 60 1 | x -> INSERTED 1
             a: delete 1 -> DELETED
             a: stats-tube t => total-jobs: 1, cmd-delete: 1
             a: use default -> USING default
             a: use t -> USING t
             a: stats-tube t => total-jobs: 0, cmd-delete: 0",
        ),
        script(
            "default_never_vanishes",
            "a: use t -> USING t
             a: watch t -> WATCHING 2
             a: ignore default -> WATCHING 1
             a: stats-tube default => current-using: 0, current-watching: 0",
        ),
        script(
            "tubes_are_listed_in_the_order_of_their_making",
            r"a: use c -> USING c
              a: watch a -> WATCHING 2
              a: watch b -> WATCHING 3
              b: list-tubes -> OK 26 | ---\n- default\n- c\n- a\n- b\n",
        )
        .habit(),
        script(
            "the_last_tube_takes_the_place_of_a_removed_one",
            r"a: watch a -> WATCHING 2
              a: watch b -> WATCHING 3
              a: watch c -> WATCHING 4
              a: watch d -> WATCHING 5
              a: ignore a -> WATCHING 4
              a: list-tubes-watched -> OK 26 | ---\n- default\n- d\n- b\n- c\n
              a: list-tubes -> OK 26 | ---\n- default\n- d\n- b\n- c\n
              a: ignore default -> WATCHING 3
              a: list-tubes-watched -> OK 16 | ---\n- c\n- d\n- b\n
              a: list-tubes -> OK 26 | ---\n- default\n- d\n- b\n- c\n",
        )
        .habit(),
        script(
            "the_last_tube_takes_the_place_of_each_that_a_leaving_client_watched",
            r"a: watch a -> WATCHING 2
              a: watch b -> WATCHING 3
              b: watch c -> WATCHING 2
              b: watch d -> WATCHING 3
              a: <close>
              until b: stats => current-connections: 1
              b: list-tubes -> OK 22 | ---\n- default\n- c\n- d\n",
        )
        .habit(),
        script(
            "a_leaving_client_gives_up_its_watched_tubes_before_its_used_one",
            r"a: use a -> USING a
              a: watch b -> WATCHING 2
              b: watch c -> WATCHING 2
              b: watch d -> WATCHING 3
              a: <close>
              until b: stats => current-connections: 1
              b: list-tubes -> OK 22 | ---\n- default\n- c\n- d\n",
        )
        .habit(),
        script(
            "use_and_watch_of_the_same_tube_are_counted_apart",
            "a: use t -> USING t
             a: watch t -> WATCHING 2
             b: use t -> USING t
             c: watch t -> WATCHING 2
             c: stats-tube t => current-using: 2, current-watching: 2
             a: use default -> USING default
             c: stats-tube t => current-using: 1, current-watching: 2",
        )
        .mark(mark::STATS_TUBE),
        script(
            "counts_of_users_fall_when_clients_leave",
            "a: use t -> USING t
             a: watch t -> WATCHING 2
             b: use t -> USING t
             b: stats-tube t => current-using: 2, current-watching: 1
             a: <close>
             until b: stats-tube t => current-using: 1, current-watching: 0
             b: stats-tube default => current-watching: 1",
        )
        .mark(mark::STATS_TUBE),
        script(
            "a_tube_named_like_a_command",
            "a: use stats -> USING stats
             a: watch quit -> WATCHING 2
             a: stats-tube quit => name: quit",
        ),
    ];
    cases.push(
        code("a_thousand_tubes", |bench| {
            let client = bench.client("a")?;
            for number in 1..=1000 {
                let reply = format!("WATCHING {}\r\n", number + 1);
                client.exchange(format!("watch tube-{number}\r\n").as_bytes(), reply.as_bytes())?;
            }
            let list = client.ask(b"list-tubes\r\n")?;
            let expected: String = (1..=1000).map(|number| format!("- tube-{number}\n")).collect();
            let text = format!("---\n- default\n{expected}");
            if list != format!("OK {}\r\n{text}\r\n", text.len()).into_bytes() {
                return Err(client.failure("expected the list of all tubes in order"));
            }
            for number in (1..=1000).rev() {
                let reply = format!("WATCHING {number}\r\n");
                client.exchange(format!("ignore tube-{number}\r\n").as_bytes(), reply.as_bytes())?;
            }
            bench.play(r"a: list-tubes -> OK 14 | ---\n- default\n")
        })
        .habit(),
    );
    cases
}
