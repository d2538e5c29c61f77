//! `reserve-fields`: the further fields in a connection's RESERVED lines, after id and size.

use crate::case::{Case, Needs, code, script};

/// Malformed lines of the command.
const MALFORMED: [&str; 10] = [
    "reserve-fields\\s",
    "reserve-fields  tube",
    "reserve-fields tube\\s",
    "reserve-fields tube  age",
    "reserve-fields tube tube",
    "reserve-fields tube age tube",
    "reserve-fields TUBE",
    "reserve-fields body",
    "reserve-fields tube,age",
    "reserve-fieldstube",
];

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = vec![code("malformed_lines", |bench| {
        let lines: Vec<String> = MALFORMED.iter().map(|line| format!("a: {line} -> BAD_FORMAT")).collect();
        bench.play(&lines.join("\n"))
    })];
    cases.extend(talks().map(|(name, text)| script(name, text)));
    cases.into_iter().map(|case| case.needs(Needs::Extension).ours()).collect()
}

fn talks() -> impl Iterator<Item = (&'static str, &'static str)> {
    [
        (
            "each_field_comes_in_the_order_of_the_command",
            "a: use mail -> USING mail
             a: put 5 0 61.5 5 | hello -> INSERTED 1
             a: watch mail -> WATCHING 2
             a: reserve-fields tube attempts timeouts releases age pri ttr trace -> \
             USING tube attempts timeouts releases age pri ttr trace
             a: reserve -> RESERVED 1 5 mail 1 0 0 0 5 61 - | hello
             a: release 1 7 0 -> RELEASED
             a: reserve-fields ttr tube -> USING ttr tube
             a: reserve -> RESERVED 1 5 61 mail | hello
             a: release 1 7 0 uncounted -> RELEASED
             a: reserve-fields releases attempts pri -> USING releases attempts pri
             a: reserve -> RESERVED 1 5 1 3 7 | hello",
        ),
        (
            "without_fields_the_line_is_that_of_c",
            "a: put 5 0 60 1 | x -> INSERTED 1
             a: reserve-fields tube -> USING tube
             a: reserve -> RESERVED 1 1 default | x
             a: release 1 5 0 -> RELEASED
             a: reserve-fields -> USING
             a: reserve -> RESERVED 1 1 | x",
        ),
        (
            "fields_are_those_of_one_connection",
            "a: put 5 0 60 1 | x -> INSERTED 1
             b: reserve-fields attempts -> USING attempts
             c: reserve-fields pri tube -> USING pri tube
             a: reserve -> RESERVED 1 1 | x
             a: release 1 5 0 -> RELEASED
             b: reserve -> RESERVED 1 1 2 | x
             b: release 1 5 0 -> RELEASED
             c: reserve -> RESERVED 1 1 5 default | x
             c: release 1 5 0 -> RELEASED
             b: <close>
             d: reserve -> RESERVED 1 1 | x",
        ),
        (
            "every_reserve_has_them_and_no_peek",
            "a: reserve-fields attempts tube -> USING attempts tube
             a: put 5 0 60 1 | x -> INSERTED 1
             a: put 5 0 60 2 | yy -> INSERTED 2
             a: reserve-batch 2 -> RESERVED_BATCH 2 | RESERVED 1 1 1 default | x | RESERVED 2 2 1 default | yy
             a: release 1 5 0 -> RELEASED
             a: peek 1 -> FOUND 1 1 | x
             a: reserve-with-timeout 0 -> RESERVED 1 1 2 default | x
             a: bury 1 5 -> BURIED
             a: reserve-job 1 -> RESERVED 1 1 3 default | x
             a: release 1 5 0 -> RELEASED
             a: reserve-with-abort -> RESERVED 1 1 4 default | x
             a: reserve-batch 5 -> RESERVED_BATCH 0",
        ),
        (
            "a_waiting_client_gets_its_fields",
            "a: reserve-fields tube pri -> USING tube pri
             a: reserve ->
             waiting 1
             b: put 9 0 60 1 | x -> INSERTED 1
             a: -> RESERVED 1 1 default 9 | x
             a: reserve-batch 3 10 ->
             waiting 1
             b: put 8 0 60 1 | y -> INSERTED 2
             a: -> RESERVED_BATCH 1 | RESERVED 2 1 default 8 | y",
        ),
        (
            "a_time_out_counts_and_a_move_changes_the_tube",
            "a: put 5 0 1 1 | x -> INSERTED 1
             a: reserve-fields timeouts attempts tube -> USING timeouts attempts tube
             a: reserve -> RESERVED 1 1 0 1 default | x
             a: reserve-with-timeout 5 -> DEADLINE_SOON
             until a: stats-job 1 => timeouts: 1
             b: move 1 t -> MOVED
             a: watch t -> WATCHING 2
             a: reserve -> RESERVED 1 1 1 2 t | x",
        ),
    ]
    .into_iter()
}
