//! The lines of `-VV`: each command with the jobs and tubes that it names, and the first line of each reply.
//!
//! Never: logs a body, a tag or a token, which may be secret.

use std::fmt::Write as _;

use log::trace;

use crate::protocol::Command;
use crate::queue::ClientId;

/// Logs a command. `used_tube` is the tube that the client uses.
#[cold]
pub(super) fn log_command(client: ClientId, command: &Command<'_>, used_tube: &str) {
    trace!(command_of = client.index; "<{} command {}", client.index, in_words(command, used_tube));
}

/// Logs the first line of a reply. The body after it may be long, or secret.
#[cold]
pub(super) fn log_reply(client: ClientId, reply: &[u8]) {
    let line = reply.split(|&byte| byte == b'\r').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    trace!(reply_to = client.index; ">{} reply {line}", client.index);
}

fn in_words(command: &Command<'_>, used_tube: &str) -> String {
    let mut words = command.verb().as_str().to_owned();
    // Writing to a string does not fail.
    let _ = match command {
        Command::Put(_)
        | Command::PutWith(..)
        | Command::PeekReady
        | Command::PeekDelayed
        | Command::PeekBuried
        | Command::PeekReserved => write!(words, " {used_tube}"),
        Command::Kick { bound } => write!(words, " {bound} {used_tube}"),
        Command::Use(name)
        | Command::Watch { tube: name, .. }
        | Command::Ignore(name)
        | Command::StatsTube(name)
        | Command::StatsGroup(name)
        | Command::PauseTube { tube: name, .. }
        | Command::FlushTube(name)
        | Command::FlushBuried(name)
        | Command::ListJobs { tube: name, .. } => write!(words, " {name}"),
        Command::Move { id, tube } => write!(words, " {} {tube}", id.0),
        Command::ReserveJob(id)
        | Command::Delete(id)
        | Command::Release { id, .. }
        | Command::Bury { id, .. }
        | Command::Touch(id)
        | Command::Peek(id)
        | Command::KickJob(id)
        | Command::StatsJob(id)
        | Command::Reprioritize { id, .. } => write!(words, " {}", id.0),
        Command::DeleteBatch(ids) => ids.iter().try_for_each(|id| write!(words, " {}", id.0)),
        _ => Ok(()),
    };
    words
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
            assert_eq!(in_words(&command, "mail"), words, "{line}");
        }
    }
}
