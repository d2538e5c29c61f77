//! The arguments of the commands for operators, which C beanstalkd does not have, and the cursors of their lists.
//!
//! Owns: their grammar, which is stricter than the grammar of C's commands: exactly one space comes after the command's
//! word, and a line that begins with the word but continues in another way is BAD_FORMAT.

use std::fmt::{self, Display};
use std::io::Write;

use super::argument::{Argument, arguments, name, word};
use crate::job::{JobId, JobState, Position, Priority};
use crate::number::{leading_u32, leading_u64, plain_u64, whole_u32};
use crate::tube_name::TubeNameRef;

/// The number of lines on a page of `list-jobs` or `list-clients`, if the command does not give one.
const DEFAULT_LIMIT: u32 = 100;
/// The maximum number of lines on a page.
pub const MAX_LIMIT: u32 = 1000;

/// The longest line of `list-jobs` or `move`, in bytes with its CRLF. It has room for a tube's name of 200 bytes, a
/// limit and a cursor of 50 bytes, and for some leading zeros. Lines of C's commands end at 224 bytes.
pub(super) const MAX_LONG_LINE_BYTES: usize = 320;

/// The prefix of a cursor of `list-clients`.
const CLIENTS: &str = "clients-";

/// The word for the state in the cursor after a held job.
const HELD: &str = "held";

/// `<id> <tube>`
pub(super) fn id_and_tube(rest: &[u8]) -> Option<(JobId, TubeNameRef<'_>)> {
    let (id, rest) = leading_u64(arguments(rest)?)?;
    Some((JobId(id), arguments(rest).and_then(name)?))
}

/// `<id> <pri>`
pub(super) fn id_and_priority(rest: &[u8]) -> Option<(JobId, Priority)> {
    let (id, rest) = leading_u64(arguments(rest)?)?;
    let priority = whole_u32(arguments(rest)?)?;
    Some((JobId(id), Priority(priority)))
}

/// `<tube> <state> [<limit> [<cursor>]]`
pub(super) fn list_jobs(rest: &[u8]) -> Option<(TubeNameRef<'_>, JobState, u32, Option<JobCursor>)> {
    let (tube, rest) = word(arguments(rest)?);
    let tube = name(tube)?;
    let (state, rest) = word(arguments(rest)?);
    let state = JobState::parse(state)?;
    let (limit, after) = page(rest, |text| JobCursor::parse(text, state))?;
    Some((tube, state, limit, after))
}

/// `[<limit> [<cursor>]]`
pub(super) fn list_clients(rest: &[u8]) -> Option<(u32, Option<ClientCursor>)> {
    page(rest, ClientCursor::parse)
}

/// The maximum number of lines on a page, and the cursor after which the page begins.
fn page<T>(rest: &[u8], cursor: impl FnOnce(&[u8]) -> Option<T>) -> Option<(u32, Option<T>)> {
    let (limit, rest) = if rest.is_empty() { (DEFAULT_LIMIT, rest) } else { leading_u32(arguments(rest)?)? };
    let after = if rest.is_empty() { None } else { Some(cursor(arguments(rest)?)?) };
    (1..=MAX_LIMIT).contains(&limit).then_some((limit, after))
}

/// The end of a page of `list-clients`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientCursor {
    /// The index of its last client among all clients. A client keeps its index as long as it is connected.
    pub index: u32,
}

impl ClientCursor {
    /// Parses a cursor, `clients-<index>`.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(CLIENTS.as_bytes())?;
        Some(Self { index: plain_u64(digits)?.try_into().ok()? })
    }
}

impl Display for ClientCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{CLIENTS}{}", self.index)
    }
}

impl Argument for ClientCursor {
    fn write(&self, line: &mut Vec<u8>) {
        write!(line, " {self}").expect("a write to a vector does not fail");
    }
}

/// The end of a page of `list-jobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobCursor {
    /// The state of the jobs in the list.
    pub state: JobState,
    /// The position of the page's last job.
    pub position: Position,
}

impl JobCursor {
    /// Parses a cursor, `<state>-<position>-<id>`, of a list of this state. For a held job, the word `held` replaces
    /// the state.
    #[must_use]
    pub fn parse(text: &[u8], state: JobState) -> Option<Self> {
        let is_held = state == JobState::Delayed && text.starts_with(HELD.as_bytes());
        let word = if is_held { HELD } else { state.as_str() };
        let text = text.strip_prefix(word.as_bytes())?.strip_prefix(b"-")?;
        let hyphen = text.iter().position(|&byte| byte == b'-')?;
        let (number, id) = (plain_u64(&text[..hyphen])?, JobId(plain_u64(&text[hyphen + 1..])?));
        let is_possible = state != JobState::Ready || u32::try_from(number).is_ok();
        is_possible.then_some(Self { state, position: Position { is_held, number, id } })
    }
}

impl Display for JobCursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { is_held, number, id } = self.position;
        let word = if is_held { HELD } else { self.state.as_str() };
        write!(out, "{word}-{number}-{}", id.0)
    }
}

impl Argument for JobCursor {
    fn write(&self, line: &mut Vec<u8>) {
        write!(line, " {self}").expect("a write to a vector does not fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, ParseError, longest_line, parse};

    #[test]
    fn a_page_has_a_tube_a_state_a_limit_and_a_cursor() {
        let page = |limit, after| Command::ListJobs {
            tube: name(b"a").unwrap(),
            state: JobState::Buried,
            limit,
            after,
        };
        assert_eq!(parse(b"list-jobs a buried"), Ok(page(100, None)));
        assert_eq!(parse(b"list-jobs a buried 1"), Ok(page(1, None)));
        assert_eq!(parse(b"list-jobs a buried  01000"), Ok(page(1000, None)));
        let state = JobState::Buried;
        let cursor =
            JobCursor { state, position: Position { is_held: false, number: u64::MAX, id: JobId(7) } };
        let line = format!("list-jobs a buried 5 {cursor}");
        assert_eq!(line, "list-jobs a buried 5 buried-18446744073709551615-7");
        assert_eq!(parse(line.as_bytes()), Ok(page(5, Some(cursor))));
        let state = JobState::Delayed;
        let after = Some(JobCursor { state, position: Position { is_held: true, number: 1, id: JobId(2) } });
        let held = Command::ListJobs { tube: name(b"a").unwrap(), state, limit: 5, after };
        assert_eq!(parse(b"list-jobs a delayed 5 held-1-2"), Ok(held));
    }

    #[test]
    fn a_malformed_page_is_bad_format() {
        for rest in [
            "",
            "x",
            " ",
            " a",
            " a ",
            " a  ready",
            "  a ready",
            " a held",
            " a READY",
            " a ready ",
            " a ready 0",
            " a ready 1001",
            " a ready 4294967296",
            " a ready x",
            " a ready 1 ",
            " a ready 1 0",
            " a ready 1 delayed-1-1",
            " a ready 1 held-1-1",
            " a ready 1 ready-1",
            " a ready 1 ready-1-",
            " a ready 1 ready--1",
            " a ready 1 ready- 1-1",
            " a ready 1 ready-1-1 ",
            " a ready 1 ready-1-1x",
            " a ready 1 ready-4294967296-1",
            " a buried 1 buried-1-18446744073709551616",
            " -a ready",
        ] {
            let line = format!("list-jobs{rest}");
            assert_eq!(parse(line.as_bytes()), Err(ParseError::BadFormat), "{line:?}");
        }
    }

    #[test]
    fn a_page_of_clients_has_a_limit_and_a_cursor() {
        let page = |limit, after_client| Ok(Command::ListClients { limit, after_client });
        assert_eq!(parse(b"list-clients"), page(100, None));
        assert_eq!(parse(b"list-clients 1000"), page(1000, None));
        let last = Some(ClientCursor { index: u32::MAX });
        assert_eq!(parse(b"list-clients 7 clients-4294967295"), page(7, last));
        for rest in [
            "x",
            " ",
            " 0",
            " 1001",
            " x",
            " 1 ",
            " 1 0",
            " 1 clients-",
            " 1 clients- 1",
            " 1 clients--1",
            " 1 clients-4294967296",
            " 1 clients-1 ",
            " clients-1",
        ] {
            let line = format!("list-clients{rest}");
            assert_eq!(parse(line.as_bytes()), Err(ParseError::BadFormat), "{line:?}");
        }
    }

    #[test]
    fn the_other_commands_take_one_space_and_no_further_argument() {
        assert_eq!(parse(b"kill-client 7"), Ok(Command::KillClient { number: 7 }));
        assert_eq!(parse(b"flush-tube a"), Ok(Command::FlushTube(name(b"a").unwrap())));
        assert_eq!(parse(b"flush-buried a"), Ok(Command::FlushBuried(name(b"a").unwrap())));
        assert_eq!(parse(b"move 007 a"), Ok(Command::Move { id: JobId(7), tube: name(b"a").unwrap() }));
        let changed = Command::Reprioritize { id: JobId(7), priority: Priority(u32::MAX) };
        assert_eq!(parse(b"reprioritize 7 4294967295"), Ok(changed));
        assert_eq!(parse(b"peek-reserved"), Ok(Command::PeekReserved));
        assert_eq!(parse(b"drain"), Ok(Command::Drain));
        assert_eq!(parse(b"undrain"), Ok(Command::Undrain));
        for line in [
            "flush-tube",
            "flush-tube ",
            "flush-tubea",
            "flush-tube  a",
            "flush-tube a ",
            "flush-tube a b",
            "flush-buried",
            "flush-buried -a",
            "peek-reserved ",
            "peek-reservedx",
            "move",
            "move 1",
            "move 1 ",
            "move 1 -a",
            "move 1  a",
            "move x a",
            "move -1 a",
            "move1 a",
            "reprioritize",
            "reprioritize 1",
            "reprioritize 1 -1",
            "reprioritize 1 4294967296",
            "reprioritize 1 2 3",
            "reprioritize 1 2 ",
            "drain 1",
            "drained",
            "undrain ",
            "kill-client",
            "kill-client ",
            "kill-client x",
            "kill-client -1",
            "kill-client 1 ",
            "kill-client 1 2",
            "kill-client 18446744073709551616",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(ParseError::BadFormat), "{line:?}");
        }
        for line in ["flush", "flush-all a", "mov 1 a", "drai", "reprio 1 1", "list-job a ready"] {
            assert_eq!(parse(line.as_bytes()), Err(ParseError::UnknownCommand), "{line:?}");
        }
    }

    #[test]
    fn every_name_and_cursor_finds_room_in_a_line() {
        let tube = "t".repeat(200);
        let id = JobId(u64::MAX);
        let cursor = JobCursor {
            state: JobState::Reserved,
            position: Position { is_held: false, number: u64::MAX, id },
        };
        for line in
            [format!("list-jobs {tube} reserved 1000 {cursor}\r\n"), format!("move {} {tube}\r\n", u64::MAX)]
        {
            assert_eq!(longest_line(line.as_bytes()), MAX_LONG_LINE_BYTES);
            assert!(line.len() <= MAX_LONG_LINE_BYTES, "{}", line.len());
        }
    }
}
