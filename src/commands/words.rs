//! The words for a command in the log: the lines of `-VV`, which have each command and the first line of each reply,
//! and the lines of the audit.
//!
//! Never logs a body, a tag or a token, because these may be secret.

use std::fmt::Write as _;

use log::trace;

use super::{CommandRow, Subject};
use crate::protocol::{Command, target_of};
use crate::queue::ClientId;
use crate::tube_name::TubeNameRef;

/// Logs a command. `used_tube` is the tube that the client uses.
#[cold]
pub(super) fn log_command(client: ClientId, command: &Command<'_>, used_tube: &str) {
    trace!(command_of = client.index; "<{} command {}", client.index, in_words(command, used_tube, WordsFor::Log));
}

/// Logs the first line of a reply. The body after it may be long, or secret.
#[cold]
pub(super) fn log_reply(client: ClientId, reply: &[u8]) {
    let line = reply.split(|&byte| byte == b'\r').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    trace!(reply_to = client.index; ">{} reply {line}", client.index);
}

/// The reader of the words of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordsFor {
    Log,
    Audit,
}

/// The command, with the jobs and tubes that it names, and for the audit with its number. It contains only names and
/// numbers.
pub(super) fn in_words(command: &Command<'_>, used_tube: &str, reader: WordsFor) -> String {
    let row = CommandRow::of(command);
    let mut words = command.verb().as_str().to_owned();
    let of = match reader {
        WordsFor::Audit => "of ",
        WordsFor::Log => "",
    };
    // Writing to a string does not fail.
    let _ = match (row.subject, row.number) {
        (Subject::Used, Some(number)) => write!(words, " {number} {of}{used_tube}"),
        (subject, Some(number)) if reader == WordsFor::Audit => {
            add_subject(&mut words, subject, used_tube).and_then(|()| write!(words, " {number}"))
        }
        (subject, _) => add_subject(&mut words, subject, used_tube),
    };
    words
}

fn add_subject(words: &mut String, subject: Subject<'_>, used_tube: &str) -> std::fmt::Result {
    match subject {
        Subject::Used => write!(words, " {used_tube}"),
        Subject::Target(text) => write!(words, " {}", target_of(text).map_or(used_tube, TubeNameRef::as_str)),
        Subject::Named(name) | Subject::Group(name) | Subject::Mentioned(name) => write!(words, " {name}"),
        Subject::OfJob(id) => write!(words, " {}", id.0),
        Subject::OfJobAndNamed(id, name) => write!(words, " {} {name}", id.0),
        Subject::OfJobs(ids) => ids.iter().try_for_each(|id| write!(words, " {}", id.0)),
        Subject::Nothing | Subject::AnyTube | Subject::Every | Subject::Watched => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::parse;

    #[test]
    fn a_command_is_logged_with_its_jobs_and_tubes_and_without_what_may_be_secret() {
        for (line, words) in [
            ("put 0 0 60 5", "put mail"),
            ("put 0 0 60 5 idp:secret", "put mail"),
            ("put 0 0 60 5 idp:secret tub:post", "put post"),
            ("use post", "use post"),
            ("watch post", "watch post"),
            ("delete 7", "delete 7"),
            ("release 7 1 2", "release 7"),
            ("kick 9", "kick 9 mail"),
            ("peek-buried", "peek-buried mail"),
            ("move 7 post", "move 7 post"),
            ("delete-batch 7 8", "delete-batch 7 8"),
            ("pause-tube post 5", "pause-tube post"),
            ("auth secret-token", "auth"),
            ("reserve", "reserve"),
            ("stats", "stats"),
        ] {
            let command = parse(line.as_bytes()).unwrap();
            assert_eq!(in_words(&command, "mail", WordsFor::Log), words, "{line}");
        }
    }
}
