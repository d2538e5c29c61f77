//! A client that closes its sending half still gets all its replies.

use crate::case::{Case, code, script};
use crate::mark;

pub fn cases() -> Vec<Case> {
    vec![
        script(
            "a_command_then_half_close_is_answered_and_closed",
            "a: list-tube-used ->
             a: <half-close>
             a: -> USING default
             a: -> <closed>",
        ),
        code("stats_then_half_close_prints_the_stats", |bench| {
            // printf 'stats\r\n' | nc host port
            let client = bench.client("a")?;
            client.send(b"stats\r\n")?;
            client.half_close()?;
            let reply = client.read_reply()?;
            if !reply.starts_with(b"OK ") || !reply.ends_with(b"\n\r\n") {
                return Err(client.failure("expected the reply to stats"));
            }
            client.expect_closed()
        }),
        script(
            "a_half_close_without_a_command_closes",
            "a: list-tube-used -> USING default
             a: <half-close>
             a: -> <closed>",
        ),
        script(
            "a_half_close_in_the_middle_of_a_line_closes",
            r"a: list-tube-used\c ->
              a: <half-close>
              a: -> <closed>",
        ),
        script(
            "a_half_close_in_the_middle_of_a_body_closes",
            r"a: put 0 0 60 10 | hello\c ->
              a: <half-close>
              a: -> <closed>
              b: stats => total-jobs: 0",
        ),
        script(
            "a_half_close_in_a_body_that_is_too_big_closes",
            r"a: put 0 0 60 100000 | hello\c ->
              a: <half-close>
              a: -> <closed>",
        ),
        script(
            "a_half_close_while_waiting_is_timed_out",
            "a: reserve ->
             waiting 1
             a: <half-close>
             a: -> TIMED_OUT
             a: -> <closed>",
        ).mark(mark::RESERVE),
        script(
            "a_half_close_while_waiting_with_a_time_limit_is_timed_out",
            "a: reserve-with-timeout 1000 ->
             waiting 1
             a: <half-close>
             a: -> TIMED_OUT
             a: -> <closed>",
        ).mark(mark::RESERVE),
        script(
            "commands_behind_the_reserve_still_run_after_a_half_close",
            "a: reserve | use t | put 0 0 60 1 | x | list-tube-used ->
             waiting 1
             a: <half-close>
             a: -> TIMED_OUT | USING t | INSERTED 1 | USING t
             a: -> <closed>
             b: peek 1 -> FOUND 1 1 | x",
        ),
        script(
            "a_reserve_sent_with_a_half_close_takes_a_ready_job",
            "b: put 0 0 60 1 | x -> INSERTED 1
             a: reserve ->
             a: <half-close>
             a: -> RESERVED 1 1 | x
             a: -> <closed>
             until b: stats => current-jobs-ready: 1, current-jobs-reserved: 0",
        ),
        script(
            "a_reserve_sent_with_a_half_close_does_not_wait",
            "a: reserve ->
             a: <half-close>
             a: -> TIMED_OUT
             a: -> <closed>",
        ).mark(mark::RESERVE),
        script(
            "two_reserves_sent_with_a_half_close_are_both_timed_out",
            "a: reserve | reserve | list-tube-used ->
             a: <half-close>
             a: -> TIMED_OUT | TIMED_OUT | USING default
             a: -> <closed>",
        ),
        script(
            "a_half_closed_client_that_waited_gets_no_job",
            "a: reserve ->
             waiting 1
             a: <half-close>
             a: -> TIMED_OUT
             a: -> <closed>
             b: put 0 0 60 1 | x -> INSERTED 1
             b: stats-job 1 => state: ready, reserves: 0",
        ).mark(mark::RESERVE),
        code("a_thousand_commands_then_half_close_are_all_answered", |bench| {
            let client = bench.client("a")?;
            client.send("list-tube-used\r\n".repeat(1000).as_bytes())?;
            client.half_close()?;
            client.expect("USING default\r\n".repeat(1000).as_bytes())?;
            client.expect_closed()
        }),
        code("large_replies_after_a_half_close_are_all_sent", |bench| {
            let body = "b".repeat(60_000);
            let client = bench.client("a")?;
            client.exchange(format!("put 0 0 60 60000\r\n{body}\r\n").as_bytes(), b"INSERTED 1\r\n")?;
            client.send("peek 1\r\n".repeat(100).as_bytes())?;
            client.half_close()?;
            let found = format!("FOUND 1 60000\r\n{body}\r\n");
            for _ in 0..100 {
                client.expect(found.as_bytes())?;
            }
            client.expect_closed()
        }),
        code("unsent_replies_of_a_half_closed_client_cost_no_time", |bench| {
            let body = "b".repeat(60_000);
            let client = bench.client("a")?;
            client.exchange(format!("put 0 0 60 60000\r\n{body}\r\n").as_bytes(), b"INSERTED 1\r\n")?;
            // More than the socket's buffers hold, and the client does not read.
            client.send("peek 1\r\n".repeat(100).as_bytes())?;
            client.half_close()?;
            bench.require_idle()
        }).ours()
        .deviation("half-close-spin"),
        script(
            "counts_of_connections_fall_after_a_half_close",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             b: stats => current-connections: 2, current-producers: 1, current-workers: 1
             a: <half-close>
             a: -> <closed>
             b: stats => current-connections: 1, current-producers: 0, current-workers: 0, total-connections: 2",
        ).mark(mark::STATS),
    ]
}
