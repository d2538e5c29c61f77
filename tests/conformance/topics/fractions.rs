//! Fractions of a second, in each number of seconds of each command.

use crate::case::{Case, Needs, script};

/// A number of seconds of a command, for which `#` stands; the steps before it, and the reply.
const ARGUMENTS: [(&str, &str, &str, &str); 8] = [
    ("the_delay_of_a_put", "", "put 0 # 60 1 | x", "INSERTED 1"),
    ("the_ttr_of_a_put", "", "put 0 0 # 1 | x", "INSERTED 1"),
    ("the_delay_of_a_release", RESERVED, "release 1 0 #", "RELEASED"),
    ("the_time_of_a_touch", RESERVED, "touch 1 #", "TOUCHED"),
    ("the_length_of_a_pause", "", "pause-tube default #", "PAUSED"),
    ("the_time_out_of_a_reserve", RESERVED, "reserve-with-timeout #", "TIMED_OUT"),
    ("the_time_out_of_a_batch", RESERVED, "reserve-batch 5 #", "TIMED_OUT"),
    ("the_time_out_of_an_abortable_reserve", RESERVED, "reserve-with-abort #", "TIMED_OUT"),
];

const RESERVED: &str = "a: put 0 0 600 1 | x -> INSERTED 1
    a: reserve -> RESERVED 1 1 | x";

/// Texts that are not a number of seconds, with names for the cases.
const MALFORMED: [(&str, &str); 6] = [
    ("without_a_digit_before_the_point", ".5"),
    ("without_a_digit_behind_the_point", "5."),
    ("with_four_digits_behind_the_point", "0.5000"),
    ("with_a_letter_behind_the_point", "0.x"),
    ("with_a_sign_behind_the_point", "0.-1"),
    ("with_a_space_behind_the_point", "0.\\s5"),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (argument, before, command, reply) in ARGUMENTS {
        for text in ["0.5", "0.25", "0.001", "0.000", "00.50"] {
            let command = command.replace('#', text);
            cases.push(script(
                format!("{argument}_may_be_{text}"),
                format!("{before}\na: {command} -> {reply}"),
            ));
        }
        for (name, text) in MALFORMED {
            let is_put = command.starts_with("put");
            // Like after any other error in the line of a put, the server reads the body as a command.
            let reply = if is_put { "BAD_FORMAT | UNKNOWN_COMMAND" } else { "BAD_FORMAT" };
            let command = command.replace('#', text);
            let case = script(format!("{argument}_{name}"), format!("{before}\na: {command} -> {reply}"));
            let is_ignored_by_c = command.starts_with("reserve-with-timeout 0");
            cases.push(if is_ignored_by_c { case.deviation("fraction-ignored") } else { case });
        }
    }
    cases.extend(times());
    cases.into_iter().map(|case| case.needs(Needs::Work).ours()).collect()
}

fn times() -> Vec<Case> {
    vec![
        script(
            "stats_have_whole_seconds_rounded_down",
            "a: put 0 100.999 60.999 1 | x -> INSERTED 1
             a: stats-job 1 => delay: 100, ttr: 60, time-left: 90..100
             a: stats-job 1 => age: 0..10
             a: pause-tube default 100.5 -> PAUSED
             a: stats-tube default => pause: 100, pause-time-left: 90..100",
        ),
        script(
            "a_ttr_below_1_counts_as_1",
            "a: put 0 0 0.5 1 | x -> INSERTED 1
             a: stats-job 1 => ttr: 1",
        ),
        script(
            "a_time_out_above_the_largest_by_a_thousandth_is_of_bad_format",
            "a: reserve-with-timeout 2147483647.001 -> BAD_FORMAT
             a: reserve-with-abort 2147483647.001 -> BAD_FORMAT",
        ),
        script(
            "a_delay_of_half_a_second_ends",
            "a: put 0 0.5 60 1 | x -> INSERTED 1
             a: reserve-with-timeout 0 -> TIMED_OUT
             a: reserve-with-timeout 60 -> RESERVED 1 1 | x",
        ),
        script(
            "a_ttr_is_not_cut_to_whole_seconds",
            "a: put 0 0 1.999 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: reserve-with-timeout 0.25 -> TIMED_OUT
             a: reserve-with-timeout 60 -> DEADLINE_SOON",
        ),
        script(
            "tags_take_fractions",
            "a: put 0 0 60 1 idp:k:0.5 exp:60.125 | x -> INSERTED 1
             a: stats-job 1 => idempotency-ttl: 1, expires-in: 50..61
             a: put 0 0 60 4 idp:k:.5 | quit -> BAD_FORMAT
             a: put 0 0 60 4 exp:0.0 | quit -> BAD_FORMAT
             a: put 0 0 60 4 exp:1.0000 | quit -> BAD_FORMAT
             a: put 0 0 60 4 con:k:1.5 | quit -> BAD_FORMAT
             a: put 0.5 0 60 4 | quit -> BAD_FORMAT
             a: -> <closed>",
        ),
        script(
            "other_numbers_take_no_fraction",
            "a: put 0 0 60 1 | x -> INSERTED 1
             a: reserve -> RESERVED 1 1 | x
             a: touch 1.5 -> BAD_FORMAT
             a: bury 1 0.5 -> BAD_FORMAT
             a: reserve-batch 1.5 -> BAD_FORMAT
             a: list-jobs default ready 1.5 -> BAD_FORMAT
             a: delete 1.0 -> BAD_FORMAT",
        ),
    ]
}
