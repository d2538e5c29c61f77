//! Command lines: their ends, their lengths, invalid bytes, and how they are split into reads.

use crate::case::{Bench, Case, code, script};
use crate::mark::{self, Mark};
use beanstalkd_testkit::client::Failure;

/// The longest line, with its CRLF.
const MAX_LINE_BYTES: usize = 224;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        script(
            "an_empty_line_is_an_unknown_command",
            r"a: \r\n\c -> UNKNOWN_COMMAND
              a: \r\n\r\n\c -> UNKNOWN_COMMAND | UNKNOWN_COMMAND",
        )
        .habit(),
        script(
            "a_leading_space_makes_a_command_unknown",
            r"a: \sstats -> UNKNOWN_COMMAND
              a: \s -> UNKNOWN_COMMAND
              a: \tstats -> UNKNOWN_COMMAND",
        )
        .habit(),
        script(
            "a_nul_anywhere_is_bad_format",
            r"a: \0 -> BAD_FORMAT
              a: \0stats -> BAD_FORMAT
              a: stats\0 -> BAD_FORMAT
              a: st\0ats -> BAD_FORMAT
              a: nonsense\0 -> BAD_FORMAT
              a: use a\0 -> BAD_FORMAT
              a: delete 1\0 -> BAD_FORMAT
              a: quit\0 -> BAD_FORMAT
              a: list-tube-used -> USING default",
        )
        .habit(),
        script(
            "a_nul_in_the_header_of_a_put_swallows_no_body",
            r"a: put 0 0 10 1\0 | x -> BAD_FORMAT | UNKNOWN_COMMAND",
        )
        .habit(),
        script(
            "a_lone_lf_does_not_end_a_line",
            r"a: stats\nstats -> BAD_FORMAT
              a: \nstats -> UNKNOWN_COMMAND
              a: nonsense\n -> UNKNOWN_COMMAND
              a: use a\n -> BAD_FORMAT
              a: list-tube-used\n -> BAD_FORMAT",
        )
        .habit(),
        script(
            "a_line_without_its_end_gets_no_reply",
            r"a: list-tube-used\c ->
              b: list-tube-used -> USING default
              a: \r\c ->
              b: list-tube-used -> USING default
              a: \n\c -> USING default",
        )
        .mark(mark::PROTOCOL),
        script(
            "commands_are_in_lower_case",
            "a: STATS -> UNKNOWN_COMMAND
             a: Put 0 0 1 1 -> UNKNOWN_COMMAND
             a: lisT-tubes -> UNKNOWN_COMMAND",
        )
        .mark(mark::UNKNOWN_COMMAND),
        script(
            "high_bytes_are_unknown",
            r"a: \xff\xfe -> UNKNOWN_COMMAND
              a: \x80stats -> UNKNOWN_COMMAND
              a: stats\xe4 -> BAD_FORMAT",
        )
        .habit(),
    ];
    for (name, line, reply) in [
        ("before_the_end", r"list-tube-used\r", "BAD_FORMAT"),
        ("within_a_command", r"list-\rtube-used", "UNKNOWN_COMMAND"),
        ("within_a_name", r"use a\rb", "BAD_FORMAT"),
        ("alone", r"\r", "UNKNOWN_COMMAND"),
        ("after_a_number", r"delete 1\r", "BAD_FORMAT"),
        ("twice", r"stats\r\r", "BAD_FORMAT"),
    ] {
        cases.push(
            script(
                format!("a_bare_cr_{name}"),
                format!("a: {line} -> {reply}\na: list-tube-used -> USING default"),
            )
            .ours()
            .deviation("bare-cr"),
        );
    }
    cases.extend(lengths());
    cases.extend(splits());
    cases
}

fn lengths() -> Vec<Case> {
    let mut cases = Vec::new();
    for length in
        [222, 223, 224, 225, 226, 227, 447, 448, 449, 450, 451, 672, 673, 674, 1000, 4096, 65_536, 1_000_000]
    {
        let mark = if length <= MAX_LINE_BYTES { mark::UNKNOWN_COMMAND } else { mark::BAD_FORMAT };
        let unknown = code(format!("an_unknown_command_of_{length}_bytes"), move |bench| {
            let line = [vec![b'x'; length - 2], b"\r\nlist-tube-used\r\n".to_vec()].concat();
            let reply = if length <= MAX_LINE_BYTES { "UNKNOWN_COMMAND" } else { "BAD_FORMAT" };
            exchange_and_finish(bench, &line, &format!("{reply}\r\nUSING default\r\n"))
        })
        .mark(mark);
        // C's buffer ends just between CR and LF at each multiple of the limit.
        cases.push(if length > MAX_LINE_BYTES && length % MAX_LINE_BYTES == 1 {
            unknown.deviation("long-line")
        } else {
            unknown
        });
    }
    for length in [223, 224, 225, 226] {
        let delete = code(format!("a_delete_of_{length}_bytes"), move |bench| {
            bench.steps("a: put 0 0 10 1 | x -> INSERTED 1")?;
            let zeros = "0".repeat(length - "delete 1\r\n".len());
            let reply = if length <= MAX_LINE_BYTES { "DELETED" } else { "BAD_FORMAT" };
            let line = format!("delete {zeros}1\r\nlist-tube-used\r\n");
            exchange_and_finish(bench, line.as_bytes(), &format!("{reply}\r\nUSING default\r\n"))
        });
        cases.push(if length == 225 { delete.deviation("long-line") } else { delete });
        let put = code(format!("a_put_header_of_{length}_bytes"), move |bench| {
            let zeros = "0".repeat(length - "put 0 0 10 4\r\n".len());
            let line = format!("put {zeros}0 0 10 4\r\nquit\r\nlist-tube-used\r\n");
            let reply =
                if length <= MAX_LINE_BYTES { "INSERTED 1\r\nUSING default\r\n" } else { "BAD_FORMAT\r\n" };
            exchange_and_finish(bench, line.as_bytes(), reply)
        })
        .habit();
        cases.push(if length == 225 { put.deviation("long-line") } else { put });
    }
    cases.push(
        code("an_endless_line_is_answered_at_its_end_alone", |bench| {
            let client = bench.client("a")?;
            for _ in 0..100 {
                client.send(&[b'y'; 1000])?;
            }
            bench.settle()?;
            bench.play(
                r"a: y -> BAD_FORMAT
                     a: list-tube-used -> USING default",
            )
        })
        .habit(),
    );
    cases.push(
        code("an_endless_line_keeps_a_nul_and_a_bare_lf", |bench| {
            let line =
                [vec![b'z'; 300], b"\0\n\0".to_vec(), vec![b'z'; 300], b"\r\nlist-tube-used\r\n".to_vec()]
                    .concat();
            exchange_and_finish(bench, &line, "BAD_FORMAT\r\nUSING default\r\n")
        })
        .habit(),
    );
    cases
}

fn exchange_and_finish(bench: &mut Bench, said: &[u8], expected: &str) -> Result<(), Failure> {
    bench.client("a")?.exchange(said, expected.as_bytes())?;
    bench.finish()
}

/// Conversations without ids, so that one server can repeat them.
const CONVERSATIONS: [(&str, &str, &str); 6] = [
    (
        "a_put_with_a_body_and_what_follows",
        "use t\r\nput 0 0 10 5\r\nhello\r\npeek-delayed\r\n",
        "USING t\r\nINSERTED #\r\nNOT_FOUND\r\n",
    ),
    (
        "a_put_without_its_crlf",
        "put 0 0 10 2\r\nhello\r\nlist-tube-used\r\n",
        "EXPECTED_CRLF\r\nUNKNOWN_COMMAND\r\nUSING default\r\n",
    ),
    (
        "errors",
        "\r\nnonsense\r\nput x\r\ndelete 0\r\nlist-tube-used\r\n",
        "UNKNOWN_COMMAND\r\nUNKNOWN_COMMAND\r\nBAD_FORMAT\r\nNOT_FOUND\r\nUSING default\r\n",
    ),
    (
        "watching",
        "watch a\r\nwatch b\r\nignore a\r\nignore default\r\nignore b\r\n",
        "WATCHING 2\r\nWATCHING 3\r\nWATCHING 2\r\nWATCHING 1\r\nNOT_IGNORED\r\n",
    ),
    (
        "a_body_of_crlfs",
        "put 0 600 10 4\r\n\r\n\r\n\r\nlist-tube-used\r\n",
        "INSERTED #\r\nUSING default\r\n",
    ),
    (
        "a_body_too_big",
        "put 0 0 10 20\r\nstats\r\nstats\r\n123456\r\nlist-tube-used\r\n",
        "JOB_TOO_BIG\r\nUSING default\r\n",
    ),
];

/// The conversations whose replies the protocol document defines.
const PROMISED: &[&str] = &["a_put_with_a_body_and_what_follows", "watching", "a_body_of_crlfs"];

fn splits() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, said, expected) in CONVERSATIONS {
        let in_two = code(format!("{name}_split_at_each_byte"), move |bench| {
            let mut next_id = 0;
            (1..said.len()).try_for_each(|at| {
                let (head, tail) = said.as_bytes().split_at(at);
                converse(bench, &[head, tail], expected, &mut next_id)
            })
        });
        let bytewise = code(format!("{name}_byte_by_byte"), move |bench| {
            let bytes: Vec<&[u8]> = said.as_bytes().chunks(1).collect();
            converse(bench, &bytes, expected, &mut 0)
        });
        let mark = if PROMISED.contains(&name) { mark::PROTOCOL } else { Mark::Habit };
        cases.push(in_two.flags(&["-z", "10"]).mark(mark));
        cases.push(bytewise.flags(&["-z", "10"]).mark(mark));
    }
    cases
}

fn converse(bench: &mut Bench, chunks: &[&[u8]], expected: &str, next_id: &mut u64) -> Result<(), Failure> {
    // The header takes the id, even if the body then lacks its CRLF.
    *next_id += 1;
    let expected = expected.replace('#', &next_id.to_string());
    let mut client = bench.connect()?;
    for chunk in chunks {
        client.send(chunk)?;
        bench.settle()?;
    }
    client.expect(expected.as_bytes())?;
    client.half_close()?;
    client.expect_closed()
}
