//! Many commands in few writes. The server sends every reply, in order.

use crate::case::{Bench, Case, code, script};
use crate::mark;
use beanstalkd_testkit::client::Failure;
use std::fmt::Write as _;

/// The number of commands in a large write.
const MANY: usize = 10_000;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        script(
            "all_commands_on_a_job_in_one_write",
            "a: put 0 0 60 1 | x | reserve | bury 1 0 | kick 1 | peek-ready | delete 1 | list-tube-used \
             -> INSERTED 1 | RESERVED 1 1 | x | BURIED | KICKED 1 | FOUND 1 1 | x | DELETED | USING default",
        )
        .fresh(),
        script(
            "commands_behind_a_blocking_reserve_are_kept",
            "a: reserve | list-tube-used | use t ->
             waiting 1
             b: put 0 0 60 1 | x -> INSERTED 1
             a: -> RESERVED 1 1 | x | USING default | USING t",
        ),
        script(
            "commands_behind_a_reserve_that_times_out_are_kept",
            "a: reserve-with-timeout 1 | list-tube-used -> TIMED_OUT | USING default",
        ),
        script(
            "commands_sent_while_a_reserve_waits_are_kept",
            "a: reserve ->
             waiting 1
             a: use t ->
             b: stats-tube t -> NOT_FOUND
             b: put 0 0 60 1 | x -> INSERTED 1
             a: -> RESERVED 1 1 | x | USING t",
        ),
        script(
            "a_put_behind_a_blocking_reserve_waits_for_it",
            "a: reserve | put 0 0 60 1 | y ->
             waiting 1
             b: stats => total-jobs: 0
             b: put 0 0 60 1 | x -> INSERTED 1
             a: -> RESERVED 1 1 | x | INSERTED 2",
        ),
        script(
            "a_put_before_its_own_reserve",
            "a: put 0 0 60 1 | x | reserve | put 0 0 60 1 | y | reserve \
             -> INSERTED 1 | RESERVED 1 1 | x | INSERTED 2 | RESERVED 2 1 | y",
        ),
        script(
            "several_reserves_in_a_row",
            "a: reserve | reserve | reserve-with-timeout 0 ->
             waiting 1
             b: put 0 0 60 1 | x -> INSERTED 1
             a: -> RESERVED 1 1 | x
             waiting 1
             b: put 0 0 60 1 | y -> INSERTED 2
             a: -> RESERVED 2 1 | y | TIMED_OUT",
        ),
        script(
            "quit_in_the_middle_discards_the_rest",
            "a: list-tube-used | quit | use t ->
             a: -> USING default
             a: -> <closed>
             b: stats-tube t -> NOT_FOUND
             b: stats => cmd-use: 0",
        )
        .mark(mark::QUIT),
        script(
            "commands_after_errors_are_executed",
            "a: delete x | delete 1 | foo | list-tube-used | put x | use t \
             -> BAD_FORMAT | NOT_FOUND | UNKNOWN_COMMAND | USING default | BAD_FORMAT | USING t",
        )
        .habit(),
    ];
    cases.push(code("ten_thousand_commands_in_one_write", |bench| {
        bulk(bench, "list-tube-used\r\n".repeat(MANY), "USING default\r\n".repeat(MANY))
    }));
    cases.push(code("ten_thousand_unknown_commands_in_one_write", |bench| {
        bulk(bench, "foo\r\n".repeat(MANY), "UNKNOWN_COMMAND\r\n".repeat(MANY))
    }));
    cases.push(code("ten_thousand_puts_then_reserves_then_deletes_in_one_write", |bench| {
        let (mut said, mut expected) = (String::new(), String::new());
        for id in 1..=MANY {
            said.push_str("put 0 0 600 5\r\nhello\r\n");
            let _ = write!(expected, "INSERTED {id}\r\n");
        }
        for id in 1..=MANY {
            said.push_str("reserve\r\n");
            let _ = write!(expected, "RESERVED {id} 5\r\nhello\r\n");
        }
        for id in 1..=MANY {
            let _ = write!(said, "delete {id}\r\n");
            expected.push_str("DELETED\r\n");
        }
        bulk(bench, said, expected)?;
        bench.play("a: stats => total-jobs: 10000, cmd-delete: 10000, current-jobs-reserved: 0")
    }));
    cases.push(code("a_thousand_large_replies_to_one_write", |bench| {
        let body = "b".repeat(60_000);
        bench
            .client("a")?
            .exchange(format!("put 0 0 60 60000\r\n{body}\r\n").as_bytes(), b"INSERTED 1\r\n")?;
        let found = format!("FOUND 1 60000\r\n{body}\r\n");
        bulk(bench, "peek 1\r\n".repeat(1000), found.repeat(1000))
    }));
    cases.push(code("a_client_that_does_not_read_holds_up_nobody", |bench| {
        let body = "b".repeat(60_000);
        let client = bench.client("a")?;
        client.exchange(format!("put 0 0 60 60000\r\n{body}\r\n").as_bytes(), b"INSERTED 1\r\n")?;
        let sender = client.send_in_background("peek 1\r\n".repeat(MANY).into_bytes())?;
        bench.steps(
            "b: put 0 0 60 1 | x -> INSERTED 2
             b: list-tube-used -> USING default
             b: delete 2 -> DELETED",
        )?;
        let client = bench.client("a")?;
        let found = format!("FOUND 1 60000\r\n{body}\r\n");
        for _ in 0..MANY / 10 {
            client.expect(found.as_bytes())?;
        }
        bench.steps("a: <close>")?;
        // The rest of the write may fail, because the server has closed the connection.
        let _ = sender.join();
        bench.play("b: delete 1 -> DELETED")
    }));
    cases
}

fn bulk(bench: &mut Bench, said: String, expected: String) -> Result<(), Failure> {
    let client = bench.client("a")?;
    let sender = client.send_in_background(said.into_bytes())?;
    let mut rest = expected.as_bytes();
    // In pieces, so that the client does not hold all replies in memory.
    while !rest.is_empty() {
        let (head, tail) = rest.split_at(rest.len().min(65_536));
        client.expect(head)?;
        rest = tail;
    }
    sender.join().expect("the sender does not panic")?;
    Ok(())
}
