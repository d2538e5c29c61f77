//! Tube names: their bytes, their first byte, their length.

use crate::case::{Bench, Case, code, script};
use beanstalkd_testkit::client::Failure;

const LEGAL: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/;.$_()";

/// The longest name.
const MAX_NAME_BYTES: usize = 200;

/// Each command that takes a name, and its reply to the legal name of a tube that does not exist. `#` is the name.
const COMMANDS: [(&str, &str, &str); 5] = [
    ("use", "use #", "USING #"),
    ("watch", "watch #", "WATCHING 2"),
    ("ignore", "ignore #", "WATCHING 1"),
    ("stats_tube", "stats-tube #", "NOT_FOUND"),
    ("pause_tube", "pause-tube # 1", "NOT_FOUND"),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (verb, command, reply) in COMMANDS {
        cases.push(code(format!("{verb}_takes_each_legal_byte"), move |bench| {
            let alone = LEGAL.iter().filter(|&&byte| byte != b'-').map(|&byte| vec![byte]);
            let within = LEGAL.iter().map(|&byte| vec![b'a', byte, b'z']);
            alone.chain(within).try_for_each(|name| judge(bench, command, reply, &name))
        }));
        cases.push(code(format!("{verb}_refuses_each_illegal_byte"), move |bench| {
            // The cases in `lines` are about CR and LF. A NUL has a separate rule, with the same reply.
            let illegal = (0..=255u8).filter(|byte| !LEGAL.contains(byte) && !b"\r\n".contains(byte));
            for byte in illegal {
                // A space ends the name of pause-tube, as it should.
                if !(command.starts_with("pause") && byte == b' ') {
                    judge(bench, command, "BAD_FORMAT", &[b'a', byte])?;
                    judge(bench, command, "BAD_FORMAT", &[byte, b'a'])?;
                    judge(bench, command, "BAD_FORMAT", &[b'a', byte, b'b'])?;
                }
                judge(bench, command, "BAD_FORMAT", &[byte])?;
            }
            Ok(())
        }));
        cases.push(code(format!("{verb}_refuses_a_leading_hyphen"), move |bench| {
            judge(bench, command, "BAD_FORMAT", b"-")?;
            judge(bench, command, "BAD_FORMAT", b"-a")
        }));
        for (length, fits) in [
            (1, true),
            (2, true),
            (199, true),
            (MAX_NAME_BYTES, true),
            (MAX_NAME_BYTES + 1, false),
            (202, false),
        ] {
            cases.push(code(format!("{verb}_name_of_{length}_bytes"), move |bench| {
                judge(bench, command, if fits { reply } else { "BAD_FORMAT" }, &vec![b'n'; length])
            }));
        }
        cases.push(code(format!("{verb}_refuses_an_empty_name"), move |bench| {
            judge(bench, command, "BAD_FORMAT", b"")
        }));
    }
    cases.extend(spaces());
    cases
}

fn judge(bench: &mut Bench, command: &str, reply: &str, name: &[u8]) -> Result<(), Failure> {
    let filled = |text: &str| -> Vec<u8> {
        let (before, after) = text.split_once('#').unwrap_or((text, ""));
        let name = if text.contains('#') { name } else { b"" };
        [before.as_bytes(), name, after.as_bytes(), b"\r\n"].concat()
    };
    // A new client, because the replies depend on its used and watched tubes.
    bench.connect()?.exchange(&filled(command), &filled(reply))
}

fn spaces() -> Vec<Case> {
    vec![
        script(
            "use_tolerates_no_extra_space",
            r"a: use  a -> BAD_FORMAT
              a: use a\s -> BAD_FORMAT
              a: use a b -> BAD_FORMAT",
        )
        .habit(),
        script(
            "watch_tolerates_no_extra_space",
            r"a: watch  a -> BAD_FORMAT
              a: watch a\s -> BAD_FORMAT
              a: watch a b -> BAD_FORMAT",
        )
        .habit(),
        script(
            "ignore_tolerates_no_extra_space",
            r"a: ignore  a -> BAD_FORMAT
              a: ignore a\s -> BAD_FORMAT
              a: ignore a b -> BAD_FORMAT",
        )
        .habit(),
        script(
            "stats_tube_tolerates_no_extra_space",
            r"a: stats-tube  default -> BAD_FORMAT
              a: stats-tube default\s -> BAD_FORMAT
              a: stats-tube default x -> BAD_FORMAT",
        )
        .habit(),
        script(
            "pause_tube_tolerates_extra_spaces_before_name_and_delay",
            r"a: pause-tube   default   1 -> PAUSED
              a: pause-tube default 1\s -> BAD_FORMAT
              a: pause-tube default 1 1 -> BAD_FORMAT
              a: pause-tube default -> BAD_FORMAT
              a: pause-tube default\s -> BAD_FORMAT
              a: pause-tube  1 -> BAD_FORMAT",
        )
        .habit(),
        script(
            "names_differ_by_case_and_by_their_last_byte",
            "a: use Tube -> USING Tube
             a: put 0 0 10 1 | x -> INSERTED 1
             a: stats-tube tube -> NOT_FOUND
             a: stats-tube Tub -> NOT_FOUND
             a: stats-tube Tube => current-jobs-ready: 1",
        ),
    ]
}
