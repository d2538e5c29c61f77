//! The server recognizes a command by its prefix: what may follow each prefix, and the replies to wrong words.

use crate::case::{Case, Needs, script};
use crate::mark::{self, Mark};

/// Lines that a new client sends, and their replies.
const LINES: &[(&str, &str)] = &[
    ("reserveX", "BAD_FORMAT"),
    (r"reserve\s", "BAD_FORMAT"),
    ("reserve 1", "BAD_FORMAT"),
    ("reserve-foo", "BAD_FORMAT"),
    ("reserve-", "BAD_FORMAT"),
    ("reserve-with", "BAD_FORMAT"),
    ("reserve-with-timeout", "BAD_FORMAT"),
    ("reserve-with-timeout0", "BAD_FORMAT"),
    ("reserve-job", "BAD_FORMAT"),
    ("reserve-job1", "BAD_FORMAT"),
    (r"reserve-job\s", "BAD_FORMAT"),
    ("reserv", "UNKNOWN_COMMAND"),
    (r"stats\s", "BAD_FORMAT"),
    ("stats x", "BAD_FORMAT"),
    ("statsfoo", "BAD_FORMAT"),
    ("stats-foo", "BAD_FORMAT"),
    ("stats-", "BAD_FORMAT"),
    ("stats-tube", "BAD_FORMAT"),
    (r"stats-tube\s", "BAD_FORMAT"),
    ("stats-tubex", "BAD_FORMAT"),
    ("stats-job", "BAD_FORMAT"),
    (r"stats-job\s", "BAD_FORMAT"),
    ("stats-jobX 1", "BAD_FORMAT"),
    ("stats-job1", "BAD_FORMAT"),
    ("stat", "UNKNOWN_COMMAND"),
    ("list-tubesx", "BAD_FORMAT"),
    (r"list-tubes\s", "BAD_FORMAT"),
    ("list-tubes x", "BAD_FORMAT"),
    ("list-tubes-watch", "BAD_FORMAT"),
    (r"list-tubes-watched\s", "BAD_FORMAT"),
    ("list-tubes-watchedx", "BAD_FORMAT"),
    (r"list-tube-used\s", "BAD_FORMAT"),
    ("list-tube-usedx", "BAD_FORMAT"),
    ("list-tube-used x", "BAD_FORMAT"),
    ("list-tube", "UNKNOWN_COMMAND"),
    ("list-tube-use", "UNKNOWN_COMMAND"),
    ("list", "UNKNOWN_COMMAND"),
    ("peek-readyx", "BAD_FORMAT"),
    (r"peek-ready\s", "BAD_FORMAT"),
    ("peek-delayedx", "BAD_FORMAT"),
    (r"peek-delayed\s", "BAD_FORMAT"),
    ("peek-buriedx", "BAD_FORMAT"),
    (r"peek-buried\s", "BAD_FORMAT"),
    ("peek", "UNKNOWN_COMMAND"),
    (r"peek\s", "BAD_FORMAT"),
    ("peek-", "UNKNOWN_COMMAND"),
    ("peek-read", "UNKNOWN_COMMAND"),
    ("peek1", "UNKNOWN_COMMAND"),
    ("delete", "UNKNOWN_COMMAND"),
    (r"delete\s", "BAD_FORMAT"),
    ("delete1", "UNKNOWN_COMMAND"),
    ("delete 1 2", "BAD_FORMAT"),
    ("release", "UNKNOWN_COMMAND"),
    (r"release\s", "BAD_FORMAT"),
    ("release 1", "BAD_FORMAT"),
    ("release 1 2", "BAD_FORMAT"),
    (r"release 1 2\s", "BAD_FORMAT"),
    ("release 1 2 3 4", "BAD_FORMAT"),
    ("release  1   2  3", "NOT_FOUND"),
    ("bury", "UNKNOWN_COMMAND"),
    (r"bury\s", "BAD_FORMAT"),
    ("bury 1", "BAD_FORMAT"),
    ("bury 1 2 3", "BAD_FORMAT"),
    ("bury   1  2", "NOT_FOUND"),
    ("touch", "UNKNOWN_COMMAND"),
    (r"touch\s", "BAD_FORMAT"),
    ("touch 1 x", "BAD_FORMAT"),
    ("kick", "UNKNOWN_COMMAND"),
    (r"kick\s", "BAD_FORMAT"),
    ("kick1", "UNKNOWN_COMMAND"),
    ("kick-job", "UNKNOWN_COMMAND"),
    (r"kick-job\s", "BAD_FORMAT"),
    ("kick-job 1 2", "BAD_FORMAT"),
    ("kick-", "UNKNOWN_COMMAND"),
    ("use", "UNKNOWN_COMMAND"),
    (r"use\s", "BAD_FORMAT"),
    ("used", "UNKNOWN_COMMAND"),
    ("watch", "UNKNOWN_COMMAND"),
    (r"watch\s", "BAD_FORMAT"),
    ("ignore", "UNKNOWN_COMMAND"),
    (r"ignore\s", "BAD_FORMAT"),
    ("pause-tube", "BAD_FORMAT"),
    (r"pause-tube\s", "BAD_FORMAT"),
    ("pause-tubeX 1", "NOT_FOUND"),
    ("pause-tubedefault 0", "PAUSED"),
    ("pause-tube default", "BAD_FORMAT"),
    ("pause-tub", "UNKNOWN_COMMAND"),
    ("pause", "UNKNOWN_COMMAND"),
    ("put", "UNKNOWN_COMMAND"),
    (r"put\s", "BAD_FORMAT"),
    ("qui", "UNKNOWN_COMMAND"),
    (r"\squit", "UNKNOWN_COMMAND"),
    ("QUIT", "UNKNOWN_COMMAND"),
    ("shutdown", "UNKNOWN_COMMAND"),
    ("version", "UNKNOWN_COMMAND"),
];

/// Known commands with too few or too many arguments, which get BAD_FORMAT by the protocol document.
const ARGUMENTS: &[&str] = &[
    "reserve 1",
    "reserve-with-timeout",
    "reserve-job",
    "stats x",
    "stats-tube",
    "stats-job",
    "list-tubes x",
    "list-tube-used x",
    "delete 1 2",
    "release 1",
    "release 1 2",
    "release 1 2 3 4",
    "bury 1",
    "bury 1 2 3",
    "touch 1 x",
    "kick-job 1 2",
    "pause-tube",
    "pause-tube default",
];

/// Words that are not the beginning of a command, and that no command is the beginning of: the protocol document
/// requires UNKNOWN_COMMAND.
const WORDS: &[&str] = &["shutdown", "version", "QUIT"];

pub fn cases() -> Vec<Case> {
    let named = |line: &str| line.replace(' ', "_");
    let mut cases: Vec<Case> = LINES
        .iter()
        .map(|(line, reply)| {
            // The counts show that the server executed only the commands in the reply.
            let text = format!("a: {line} -> {reply}\na: stats => current-waiting: 0, current-tubes: 1");
            let case = script(format!("[{}]", named(line)), text);
            match *reply {
                "BAD_FORMAT" if ARGUMENTS.contains(line) => case.mark(mark::BAD_FORMAT),
                "UNKNOWN_COMMAND" if WORDS.contains(line) => case.mark(mark::UNKNOWN_COMMAND),
                _ => case,
            }
        })
        .collect();
    for line in ["quit", "quitx", "quit now", r"quit\s", r"quit\t"] {
        cases.push(
            script(
                format!("[{}]_closes", named(line)),
                format!("a: {line} | stats -> <closed>\nb: stats => cmd-stats: 1"),
            )
            .mark(if line == "quit" { mark::QUIT } else { Mark::Habit }),
        );
    }
    cases.push(
        script(
            "a_timeout_of_nothing_is_bad_format",
            r"a: reserve-with-timeout\s -> BAD_FORMAT
              a: stats => cmd-reserve-with-timeout: 0",
        )
        .mark(mark::BAD_FORMAT)
        .needs(Needs::Since113),
    );
    cases
}
