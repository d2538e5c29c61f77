//! Every number of every command at its edges.

use crate::case::{Case, Needs, script};
use crate::mark::{self, Mark};

/// The range of a number in a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Up to 2^32 - 1.
    U32,
    /// Up to 2^64 - 1.
    U64,
}

/// A number of a command, for which `#` stands. Each command runs after job 1 was put. The same
/// client has also reserved the job, unless the command needs a ready one.
struct Argument {
    name: &'static str,
    command: &'static str,
    setup: &'static str,
    takes: Takes,
    /// Whether the number ends the line, so that nothing may follow it.
    last: bool,
    /// The reply to a valid number that is the id of the job.
    reply_to_1: &'static str,
    /// The reply to every other valid number.
    reply: &'static str,
}

const RESERVED: &str = "a: put 0 0 600 1 | x -> INSERTED 1
    a: reserve -> RESERVED 1 1 | x";
const READY: &str = "a: put 0 0 600 1 | x -> INSERTED 1";
const NONE: &str = "";

const fn argument(
    name: &'static str,
    command: &'static str,
    setup: &'static str,
    takes: Takes,
    last: bool,
    replies: (&'static str, &'static str),
) -> Argument {
    Argument { name, command, setup, takes, last, reply_to_1: replies.0, reply: replies.1 }
}

const fn same(reply: &'static str) -> (&'static str, &'static str) {
    (reply, reply)
}

const ARGUMENTS: &[Argument] = &[
    argument("put_priority", "put # 0 10 0 | ", NONE, Takes::U32, false, same("INSERTED 1")),
    argument("put_delay", "put 0 # 10 0 | ", NONE, Takes::U32, false, same("INSERTED 1")),
    argument("put_ttr", "put 0 0 # 0 | ", NONE, Takes::U32, false, same("INSERTED 1")),
    argument("release_id", "release # 0 0", RESERVED, Takes::U64, false, ("RELEASED", "NOT_FOUND")),
    argument("release_priority", "release 1 # 0", RESERVED, Takes::U32, false, same("RELEASED")),
    argument("release_delay", "release 1 0 #", RESERVED, Takes::U32, true, same("RELEASED")),
    argument("bury_id", "bury # 0", RESERVED, Takes::U64, false, ("BURIED", "NOT_FOUND")),
    argument("bury_priority", "bury 1 #", RESERVED, Takes::U32, true, same("BURIED")),
    argument("delete_id", "delete #", RESERVED, Takes::U64, true, ("DELETED", "NOT_FOUND")),
    argument("touch_id", "touch #", RESERVED, Takes::U64, true, ("TOUCHED", "NOT_FOUND")),
    argument("peek_id", "peek #", RESERVED, Takes::U64, true, ("FOUND 1 1 | x", "NOT_FOUND")),
    argument("reserve_job_id", "reserve-job #", READY, Takes::U64, true, ("RESERVED 1 1 | x", "NOT_FOUND")),
    argument("kick_job_id", "kick-job #", NONE, Takes::U64, true, same("NOT_FOUND")),
    argument("stats_job_id", "stats-job #", NONE, Takes::U64, true, same("NOT_FOUND")),
    argument("pause_tube_delay", "pause-tube default #", NONE, Takes::U32, true, same("PAUSED")),
];

/// A spelling of a number, with a name for the case, and its value if it is valid.
struct Written {
    name: &'static str,
    text: &'static str,
    value: Option<u128>,
    /// Whether it is valid only if something else follows on the line.
    not_last: bool,
    /// Whether it is valid only because C accepts more than the protocol document says.
    loose: bool,
}

const fn fine(name: &'static str, text: &'static str, value: u128) -> Written {
    Written { name, text, value: Some(value), not_last: false, loose: false }
}

const fn loose(name: &'static str, text: &'static str, value: u128) -> Written {
    Written { loose: true, ..fine(name, text, value) }
}

const fn bad(name: &'static str, text: &'static str) -> Written {
    Written { name, text, value: None, not_last: false, loose: false }
}

const NUMBERS: &[Written] = &[
    fine("0", "0", 0),
    fine("1", "1", 1),
    fine("1023", "1023", 1023),
    fine("1024", "1024", 1024),
    fine("2_pow_31_minus_1", "2147483647", 2_147_483_647),
    fine("2_pow_31", "2147483648", 2_147_483_648),
    fine("2_pow_32_minus_1", "4294967295", 4_294_967_295),
    fine("2_pow_32", "4294967296", 4_294_967_296),
    fine("2_pow_32_plus_1", "4294967297", 4_294_967_297),
    fine("2_pow_63", "9223372036854775808", 9_223_372_036_854_775_808),
    fine("2_pow_64_minus_1", "18446744073709551615", 18_446_744_073_709_551_615),
    fine("2_pow_64", "18446744073709551616", 18_446_744_073_709_551_616),
    fine("2_pow_64_plus_1", "18446744073709551617", 18_446_744_073_709_551_617),
    fine("40_digits", "9999999999999999999999999999999999999999", u128::MAX),
    loose("leading_zeros", "0000000001", 1),
    loose("30_leading_zeros", "0000000000000000000000000000001", 1),
    loose("leading_spaces", "   1", 1),
    Written { not_last: true, ..loose("trailing_space", "1\\s", 1) },
    bad("negative", "-1"),
    bad("negative_zero", "-0"),
    bad("signed", "+1"),
    bad("leading_tab", "\\t1"),
    bad("trailing_tab", "1\\t"),
    bad("trailing_letter", "1x"),
    bad("letter", "x"),
    bad("hexadecimal", "0x10"),
    bad("fraction", "1.5"),
    bad("comma", "1,"),
    bad("exponent", "1e3"),
    bad("nothing", ""),
    bad("high_byte", "\\xb2"),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for argument in ARGUMENTS {
        // A number of seconds may have a fraction here: see `fractions`.
        let has_seconds = argument.name.ends_with("_delay") || argument.name.ends_with("_ttr");
        let numbers = NUMBERS.iter().filter(|number| !(has_seconds && number.name == "fraction"));
        cases.extend(numbers.map(|number| number_for(argument, number)));
    }
    cases.extend(timeouts());
    cases.extend(kick_bounds());
    cases.extend(sizes());
    cases
}

fn number_for(argument: &Argument, number: &Written) -> Case {
    let limit = match argument.takes {
        Takes::U32 => u128::from(u32::MAX),
        Takes::U64 => u128::from(u64::MAX),
    };
    let fine = match number.value {
        Some(value) => value <= limit && !(argument.last && number.not_last),
        None => false,
    };
    let command = argument.command.replace('#', number.text);
    let reply = match (fine, number.value) {
        (true, Some(1)) => argument.reply_to_1.to_owned(),
        (true, _) => argument.reply.to_owned(),
        // A refused put does not take its body. The server executes it as a command, here an empty one.
        (false, _) if argument.command.starts_with("put") => "BAD_FORMAT | UNKNOWN_COMMAND".to_owned(),
        (false, _) => "BAD_FORMAT".to_owned(),
    };
    // The document gives the range of numbers of 32 bits and of no others. It does not mention zeros and spaces, nor
    // what happens to the body of a refused put.
    let is_documented = match number.value {
        Some(value) => value <= limit && !number.loose || argument.takes == Takes::U32,
        None => true,
    };
    let silent = !is_documented || number.loose || !fine && argument.command.starts_with("put");
    let case = script(
        format!("{}_{}", argument.name, number.name),
        format!("{}\na: {command} -> {reply}", argument.setup),
    );
    // Each of these spellings is the id of the first job.
    let case = if number.loose && argument.takes == Takes::U64 { case.fresh() } else { case };
    if silent { case.habit() } else { case }
}

/// `reserve-with-timeout` stops reading after its number, and takes up to 2^31 - 1.
fn timeouts() -> Vec<Case> {
    let accepted = [
        "0",
        "1",
        "1023",
        "1024",
        "2147483647",
        " 1",
        "00",
        "0x",
        "0abc",
        "0 1 2",
        "0 0",
        "0\\s",
        "0\\t",
        "1.5",
    ];
    let refused = [
        "2147483648",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "+1",
        "x",
        "",
        "\\s",
        "\\t1",
    ];
    let named = |text: &str| text.replace(' ', "_");
    let mut cases: Vec<Case> = accepted
        .iter()
        .map(|text| {
            script(
                format!("reserve_with_timeout_takes_[{}]", named(text)),
                format!("{READY}\na: reserve-with-timeout {text} -> RESERVED 1 1 | x"),
            )
            .mark(if text.parse::<u32>().is_ok() && *text != "00" {
                mark::RESERVE
            } else {
                Mark::Habit
            })
        })
        .collect();
    cases.extend(refused.iter().map(|text| {
        script(
            format!("reserve_with_timeout_refuses_[{}]", named(text)),
            format!("{READY}\na: reserve-with-timeout {text} -> BAD_FORMAT"),
        )
        .needs(Needs::Since113)
        .mark(if ["-1", "x", ""].contains(text) { mark::BAD_FORMAT } else { Mark::Habit })
    }));
    cases
}

/// `kick` accepts the same spellings as C's strtoul. A bound that does not fit is cut to the largest number.
fn kick_bounds() -> Vec<Case> {
    let bounds = [
        ("0", "KICKED 0"),
        ("1", "KICKED 1"),
        ("2", "KICKED 2"),
        ("10", "KICKED 2"),
        ("2147483648", "KICKED 2"),
        ("4294967295", "KICKED 2"),
        ("4294967296", "KICKED 2"),
        ("4294967297", "KICKED 2"),
        ("18446744073709551615", "KICKED 2"),
        ("18446744073709551616", "BAD_FORMAT"),
        ("-1", "KICKED 2"),
        ("-0", "KICKED 0"),
        ("-4294967296", "KICKED 2"),
        ("-18446744073709551616", "BAD_FORMAT"),
        ("+1", "KICKED 1"),
        ("001", "KICKED 1"),
        (" 1", "KICKED 1"),
        ("\\t1", "KICKED 1"),
        ("1\\s", "KICKED 1"),
        ("1x", "KICKED 1"),
        ("1 2", "KICKED 1"),
        ("0x10", "KICKED 0"),
        ("", "BAD_FORMAT"),
        ("\\s", "BAD_FORMAT"),
        ("x", "BAD_FORMAT"),
        ("-", "BAD_FORMAT"),
        ("- 1", "BAD_FORMAT"),
        ("--1", "BAD_FORMAT"),
    ];
    let setup = "a: put 0 600 600 1 | x -> INSERTED 1
        a: put 0 600 600 1 | y -> INSERTED 2";
    bounds
        .iter()
        .map(|(bound, reply)| {
            let case = script(
                format!("kick_[{}]", bound.replace(' ', "_")),
                format!("{setup}\na: kick {bound} -> {reply}"),
            );
            let wraps = ["4294967296", "4294967297", "-4294967296"].contains(bound);
            match *bound {
                "0" | "1" | "2" | "10" | "2147483648" | "4294967295" => case.mark(mark::KICK),
                "" | "x" | "-" | "--1" => case.mark(mark::BAD_FORMAT),
                _ if wraps => case.deviation("kick-wraps").ours(),
                _ => case.habit(),
            }
        })
        .collect()
}

/// The size of a put. The body of a put that is too large is skipped; that of a malformed put is not.
fn sizes() -> Vec<Case> {
    let refused = [
        "-1",
        "+1",
        "x",
        "1x",
        "1\\s",
        "1\\t",
        "1 1",
        "4294967296",
        "18446744073709551616",
        "0x1",
        "\\t1",
        "",
    ];
    let mut cases: Vec<Case> = refused
        .iter()
        .map(|size| {
            script(
                format!("put_size_refuses_[{}]", size.replace(' ', "_")),
                format!("a: put 0 0 10 {size} -> BAD_FORMAT\na: list-tube-used -> USING default"),
            )
            .mark(if ["-1", "x", "1x", "1 1", "0x1", ""].contains(size) {
                mark::BAD_FORMAT
            } else {
                Mark::Habit
            })
        })
        .collect();
    for (size, body) in
        [("0", "\\r\\n\\c"), ("000", "\\r\\n\\c"), ("1", "x"), ("  1", "x"), ("0000000000001", "x")]
    {
        cases.push(
            script(
                format!("put_size_takes_[{}]", size.replace(' ', "_")),
                format!(
                    "a: put 0 0 10 {size} | {body} -> INSERTED 1\na: peek 1 -> FOUND 1 {} | {body}",
                    usize::from(body == "x")
                ),
            )
            .mark(if ["0", "1"].contains(&size) { mark::PUT } else { Mark::Habit }),
        );
    }
    for size in ["65537", "2147483647", "2147483648", "4294967295"] {
        cases.push(
            script(
                format!("put_size_{size}_swallows_what_follows"),
                format!(
                    "a: put 0 0 10 {size} | stats ->
                 a: list-tube-used ->
                 b: stats => total-jobs: 0, current-producers: 0, cmd-put: 1"
                ),
            )
            .habit(),
        );
    }
    cases
}
