//! Command lines: from bytes to a [`Command`].
//!
//! Like C beanstalkd, the parser recognises a command by its prefix and then checks the rest. A line without a known
//! prefix is UNKNOWN_COMMAND; a wrong rest is BAD_FORMAT.

use super::workers::{self, IdList, ModeWord};
use super::{manage, put_tags};
use crate::job::{JobId, JobState, Priority};
use crate::number::{as_strtoul, leading_u32, leading_u64, skip_spaces, whole_u32, whole_u64};
use crate::tube_name::{TubeName, is_name_byte};

/// The longest time-out of a reserve, in seconds: what C's `int` holds.
pub(super) const MAX_TIMEOUT_S: u32 = i32::MAX as u32;

/// A parsed command line. Its names are valid and its numbers are in range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
pub enum Command<'a> {
    Put(PutHeader),
    /// A `put` with this text behind its size, which is not judged yet: the size comes first.
    PutWith(PutHeader, &'a [u8]),
    Use(&'a str),
    Reserve,
    ReserveWithTimeout {
        timeout_s: u32,
    },
    ReserveJob(JobId),
    Delete(JobId),
    Release {
        id: JobId,
        priority: Priority,
        delay_s: u32,
    },
    Bury {
        id: JobId,
        priority: Priority,
    },
    Touch(JobId),
    Watch {
        tube: &'a str,
        weight: u16,
    },
    Ignore(&'a str),
    Peek(JobId),
    PeekReady,
    PeekDelayed,
    PeekBuried,
    Kick {
        bound: u64,
    },
    KickJob(JobId),
    Stats,
    StatsJob(JobId),
    StatsTube(&'a str),
    StatsGroup(&'a str),
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    PauseTube {
        tube: &'a str,
        delay_s: u32,
    },
    FlushTube(&'a str),
    FlushBuried(&'a str),
    ListJobs {
        tube: &'a str,
        state: JobState,
        limit: u32,
        after: Option<Cursor>,
    },
    PeekReserved,
    Move {
        id: JobId,
        tube: &'a str,
    },
    Reprioritize {
        id: JobId,
        priority: Priority,
    },
    Drain,
    Undrain,
    ReserveBatch {
        most: u32,
        timeout_s: Option<u32>,
    },
    DeleteBatch(IdList<'a>),
    TouchAll,
    ReserveMode(ModeWord),
    ReserveWithAbort {
        timeout_s: Option<u32>,
    },
    /// What follows the word: a token, or what should be one.
    Auth(&'a [u8]),
    Quit,
}

/// Where a page of `list-jobs` has ended: the place of its last job in the order of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Whether it is behind a delayed job that is held.
    pub is_held: bool,
    /// What decides the order: a ready job's priority, the deadline of a delayed or reserved job in nanoseconds since
    /// 1970, a buried job's number in the order of burial.
    pub position: u64,
    /// The job, which decides among jobs with the same position.
    pub id: JobId,
}

/// The line of a `put`; the body follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutHeader {
    /// The new job's priority.
    pub priority: Priority,
    /// Seconds before it becomes ready.
    pub delay_s: u32,
    /// Time to run, in seconds.
    pub ttr_s: u32,
    /// Length of the body in bytes, without its CRLF.
    pub size: u32,
    /// Whether tags follow the size.
    pub has_tags: bool,
}

/// A command without its arguments, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
pub enum Verb {
    Put,
    Use,
    Reserve,
    ReserveWithTimeout,
    ReserveJob,
    Delete,
    Release,
    Bury,
    Touch,
    Watch,
    Ignore,
    Peek,
    PeekReady,
    PeekDelayed,
    PeekBuried,
    Kick,
    KickJob,
    Stats,
    StatsJob,
    StatsTube,
    StatsGroup,
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    PauseTube,
    FlushTube,
    FlushBuried,
    ListJobs,
    PeekReserved,
    Move,
    Reprioritize,
    Drain,
    Undrain,
    ReserveBatch,
    DeleteBatch,
    TouchAll,
    ReserveMode,
    ReserveWithAbort,
    Auth,
    Quit,
}

impl Verb {
    /// How many verbs there are.
    pub const COUNT: usize = Self::Quit as usize + 1;

    /// All of them.
    #[rustfmt::skip]
    pub const ALL: [Self; Self::COUNT] = [
        Self::Put, Self::Use, Self::Reserve, Self::ReserveWithTimeout, Self::ReserveJob, Self::Delete,
        Self::Release, Self::Bury, Self::Touch, Self::Watch, Self::Ignore, Self::Peek, Self::PeekReady,
        Self::PeekDelayed, Self::PeekBuried, Self::Kick, Self::KickJob, Self::Stats, Self::StatsJob,
        Self::StatsTube, Self::StatsGroup, Self::ListTubes, Self::ListTubeUsed, Self::ListTubesWatched,
        Self::PauseTube, Self::FlushTube, Self::FlushBuried, Self::ListJobs, Self::PeekReserved,
        Self::Move, Self::Reprioritize, Self::Drain, Self::Undrain, Self::ReserveBatch, Self::DeleteBatch,
        Self::TouchAll, Self::ReserveMode, Self::ReserveWithAbort, Self::Auth, Self::Quit,
    ];

    /// The word of the protocol.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Use => "use",
            Self::Reserve => "reserve",
            Self::ReserveWithTimeout => "reserve-with-timeout",
            Self::ReserveJob => "reserve-job",
            Self::Delete => "delete",
            Self::Release => "release",
            Self::Bury => "bury",
            Self::Touch => "touch",
            Self::Watch => "watch",
            Self::Ignore => "ignore",
            Self::Peek => "peek",
            Self::PeekReady => "peek-ready",
            Self::PeekDelayed => "peek-delayed",
            Self::PeekBuried => "peek-buried",
            Self::Kick => "kick",
            Self::KickJob => "kick-job",
            Self::Stats => "stats",
            Self::StatsJob => "stats-job",
            Self::StatsTube => "stats-tube",
            Self::StatsGroup => "stats-group",
            Self::ListTubes => "list-tubes",
            Self::ListTubeUsed => "list-tube-used",
            Self::ListTubesWatched => "list-tubes-watched",
            Self::PauseTube => "pause-tube",
            Self::FlushTube => "flush-tube",
            Self::FlushBuried => "flush-buried",
            Self::ListJobs => "list-jobs",
            Self::PeekReserved => "peek-reserved",
            Self::Move => "move",
            Self::Reprioritize => "reprioritize",
            Self::Drain => "drain",
            Self::Undrain => "undrain",
            Self::ReserveBatch => "reserve-batch",
            Self::DeleteBatch => "delete-batch",
            Self::TouchAll => "touch-all",
            Self::ReserveMode => "reserve-mode",
            Self::ReserveWithAbort => "reserve-with-abort",
            Self::Auth => "auth",
            Self::Quit => "quit",
        }
    }
}

impl Command<'_> {
    /// The command without its arguments.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            Self::Put(_) | Self::PutWith(..) => Verb::Put,
            Self::Use(_) => Verb::Use,
            Self::Reserve => Verb::Reserve,
            Self::ReserveWithTimeout { .. } => Verb::ReserveWithTimeout,
            Self::ReserveJob(_) => Verb::ReserveJob,
            Self::Delete(_) => Verb::Delete,
            Self::Release { .. } => Verb::Release,
            Self::Bury { .. } => Verb::Bury,
            Self::Touch(_) => Verb::Touch,
            Self::Watch { .. } => Verb::Watch,
            Self::Ignore(_) => Verb::Ignore,
            Self::Peek(_) => Verb::Peek,
            Self::PeekReady => Verb::PeekReady,
            Self::PeekDelayed => Verb::PeekDelayed,
            Self::PeekBuried => Verb::PeekBuried,
            Self::Kick { .. } => Verb::Kick,
            Self::KickJob(_) => Verb::KickJob,
            Self::Stats => Verb::Stats,
            Self::StatsJob(_) => Verb::StatsJob,
            Self::StatsTube(_) => Verb::StatsTube,
            Self::StatsGroup(_) => Verb::StatsGroup,
            Self::ListTubes => Verb::ListTubes,
            Self::ListTubeUsed => Verb::ListTubeUsed,
            Self::ListTubesWatched => Verb::ListTubesWatched,
            Self::PauseTube { .. } => Verb::PauseTube,
            Self::FlushTube(_) => Verb::FlushTube,
            Self::FlushBuried(_) => Verb::FlushBuried,
            Self::ListJobs { .. } => Verb::ListJobs,
            Self::PeekReserved => Verb::PeekReserved,
            Self::Move { .. } => Verb::Move,
            Self::Reprioritize { .. } => Verb::Reprioritize,
            Self::Drain => Verb::Drain,
            Self::Undrain => Verb::Undrain,
            Self::ReserveBatch { .. } => Verb::ReserveBatch,
            Self::DeleteBatch(_) => Verb::DeleteBatch,
            Self::TouchAll => Verb::TouchAll,
            Self::ReserveMode(_) => Verb::ReserveMode,
            Self::ReserveWithAbort { .. } => Verb::ReserveWithAbort,
            Self::Auth(_) => Verb::Auth,
            Self::Quit => Verb::Quit,
        }
    }
}

/// Why a line is not a valid command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The arguments are wrong.
    BadFormat,
    /// There is no such command.
    UnknownCommand,
}

/// Parses the command on `line`, which does not include the CRLF.
///
/// # Errors
/// The reply that C beanstalkd 1.13 would send.
#[inline]
pub fn parse(line: &[u8]) -> Result<Command<'_>, ParseError> {
    let parsed = parse_words(line);
    match parsed {
        // Each byte of these lines has been judged.
        Ok(Command::Put(_) | Command::Reserve | Command::Delete(_)) => parsed,
        // To C, a line that holds a NUL has a wrong length. Behind a tag it spoils the tag alone.
        _ if memchr::memchr(0, line).is_some() && !put_tags::has_tag(line) => Err(ParseError::BadFormat),
        _ => parsed,
    }
}

fn parse_words(line: &[u8]) -> Result<Command<'_>, ParseError> {
    let parsed = match line.first() {
        Some(b'p') => parse_p(line),
        Some(b'r') => parse_r(line),
        Some(b'd') => after(line, b"delete ")
            .map(|rest| id(rest).map(Command::Delete))
            .or_else(|| after(line, workers::DELETE_BATCH).map(workers::delete_batch))
            .or_else(|| after(line, b"drain").map(|rest| alone(rest, Command::Drain))),
        Some(b'b') => after(line, b"bury ").map(bury),
        Some(b't') => after(line, b"touch ")
            .map(|rest| id(rest).map(Command::Touch))
            .or_else(|| after(line, b"touch-all").map(|rest| alone(rest, Command::TouchAll))),
        Some(b'u') => after(line, b"use ")
            .map(|rest| name(rest).map(Command::Use))
            .or_else(|| after(line, b"undrain").map(|rest| alone(rest, Command::Undrain))),
        Some(b'w') => after(line, b"watch ").map(workers::watch),
        Some(b'i') => after(line, b"ignore ").map(|rest| name(rest).map(Command::Ignore)),
        Some(b'k') => parse_k(line),
        Some(b's') => parse_s(line),
        Some(b'l') => parse_l(line),
        Some(b'f') => manage::parse_f(line),
        Some(b'm') => after(line, b"move").map(manage::move_job),
        Some(b'a') => after(line, b"auth ").map(|token| Some(Command::Auth(token))),
        Some(b'q') => after(line, b"quit").map(|_| Some(Command::Quit)),
        _ => None,
    };
    parsed.ok_or(ParseError::UnknownCommand)?.ok_or(ParseError::BadFormat)
}

/// `None`: the line is another command. `Some(None)`: it is this command, with wrong arguments.
pub(super) type Parsed<'a> = Option<Option<Command<'a>>>;

fn parse_p(line: &[u8]) -> Parsed<'_> {
    after(line, b"put ")
        .map(put)
        .or_else(|| after(line, b"peek ").map(|rest| id(rest).map(Command::Peek)))
        .or_else(|| after(line, b"peek-ready").map(|rest| alone(rest, Command::PeekReady)))
        .or_else(|| after(line, b"peek-delayed").map(|rest| alone(rest, Command::PeekDelayed)))
        .or_else(|| after(line, b"peek-buried").map(|rest| alone(rest, Command::PeekBuried)))
        .or_else(|| after(line, b"pause-tube").map(pause_tube))
        .or_else(|| after(line, b"peek-reserved").map(|rest| alone(rest, Command::PeekReserved)))
}

fn parse_r(line: &[u8]) -> Parsed<'_> {
    after(line, b"reserve-with-timeout ")
        .map(reserve_with_timeout)
        .or_else(|| after(line, b"reserve-job ").map(|rest| id(rest).map(Command::ReserveJob)))
        .or_else(|| after(line, b"reserve").map(reserve))
        .or_else(|| after(line, b"release ").map(release))
        .or_else(|| after(line, b"reprioritize").map(manage::reprioritize))
}

fn parse_k(line: &[u8]) -> Parsed<'_> {
    after(line, b"kick ")
        .map(|rest| as_strtoul(rest).map(|bound| Command::Kick { bound }))
        .or_else(|| after(line, b"kick-job ").map(|rest| id(rest).map(Command::KickJob)))
}

fn parse_s(line: &[u8]) -> Parsed<'_> {
    after(line, b"stats-job ")
        .map(|rest| id(rest).map(Command::StatsJob))
        .or_else(|| after(line, b"stats-tube ").map(|rest| name(rest).map(Command::StatsTube)))
        .or_else(|| after(line, b"stats-group ").map(|rest| name(rest).map(Command::StatsGroup)))
        .or_else(|| after(line, b"stats").map(|rest| alone(rest, Command::Stats)))
}

fn parse_l(line: &[u8]) -> Parsed<'_> {
    after(line, b"list-tubes-watched")
        .map(|rest| alone(rest, Command::ListTubesWatched))
        .or_else(|| after(line, b"list-tube-used").map(|rest| alone(rest, Command::ListTubeUsed)))
        .or_else(|| after(line, b"list-tubes").map(|rest| alone(rest, Command::ListTubes)))
        .or_else(|| after(line, b"list-jobs").map(manage::list_jobs))
}

pub(super) fn after<'a>(line: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(prefix)
}

fn alone<'a>(rest: &[u8], command: Command<'a>) -> Option<Command<'a>> {
    rest.is_empty().then_some(command)
}

fn id(rest: &[u8]) -> Option<JobId> {
    whole_u64(rest).map(JobId)
}

pub(super) fn name(rest: &[u8]) -> Option<&str> {
    TubeName::check(rest)
}

fn put(rest: &[u8]) -> Option<Command<'_>> {
    let (header, rest) = put_numbers(rest)?;
    Some(if rest.is_empty() { Command::Put(header) } else { Command::PutWith(header, rest) })
}

/// The numbers of a `put`, and what follows the last.
#[inline]
pub(super) fn put_numbers(rest: &[u8]) -> Option<(PutHeader, &[u8])> {
    let (priority, rest) = leading_u32(rest)?;
    let (delay_s, rest) = leading_u32(rest)?;
    let (ttr_s, rest) = leading_u32(rest)?;
    let (size, rest) = leading_u32(rest)?;
    Some((PutHeader { priority: Priority(priority), delay_s, ttr_s, size, has_tags: false }, rest))
}

/// `reserve` alone, or one of ours that begins so.
fn reserve(rest: &[u8]) -> Option<Command<'_>> {
    if rest.is_empty() { Some(Command::Reserve) } else { workers::reserve(rest) }
}

fn reserve_with_timeout(rest: &[u8]) -> Option<Command<'_>> {
    let (timeout_s, _) = leading_u32(rest)?;
    (timeout_s <= MAX_TIMEOUT_S).then_some(Command::ReserveWithTimeout { timeout_s })
}

fn release(rest: &[u8]) -> Option<Command<'_>> {
    let (id, rest) = leading_u64(rest)?;
    let (priority, rest) = leading_u32(rest)?;
    let delay_s = whole_u32(rest)?;
    Some(Command::Release { id: JobId(id), priority: Priority(priority), delay_s })
}

fn bury(rest: &[u8]) -> Option<Command<'_>> {
    let (id, rest) = leading_u64(rest)?;
    let priority = whole_u32(rest)?;
    Some(Command::Bury { id: JobId(id), priority: Priority(priority) })
}

/// Unlike other names, this name may follow the command's word without a space or after several spaces.
fn pause_tube(rest: &[u8]) -> Option<Command<'_>> {
    let rest = skip_spaces(rest);
    let length = rest.iter().position(|&byte| !is_name_byte(byte)).unwrap_or(rest.len());
    let (tube, rest) = rest.split_at(length);
    let delay_s = whole_u32(rest)?;
    Some(Command::PauseTube { tube: name(tube)?, delay_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(lines: &[&str]) {
        for line in lines {
            assert_eq!(parse(line.as_bytes()), Err(ParseError::BadFormat), "{line:?}");
        }
    }

    fn unknown(lines: &[&str]) {
        for line in lines {
            assert_eq!(parse(line.as_bytes()), Err(ParseError::UnknownCommand), "{line:?}");
        }
    }

    #[test]
    fn a_line_that_begins_like_no_command_is_unknown() {
        unknown(&[
            "",
            " stats",
            "put",
            "delete",
            "STATS",
            "peek",
            "pea",
            "list-tube",
            "kick",
            "use",
            "bury",
            "release",
        ]);
    }

    #[test]
    fn a_line_that_begins_like_a_command_and_goes_on_otherwise_is_of_bad_format() {
        bad(&[
            "stats ",
            "stats-foo",
            "stats-tube",
            "statsfoo",
            "stats-jobX 1",
            "list-tubes x",
            "list-tubes-watch",
        ]);
        bad(&[
            "reserve-foo",
            "reserveX",
            "reserve-with",
            "reserve-job",
            "reserve-with-timeout",
            "peek-readyx",
        ]);
        bad(&[
            "use  a",
            "watch a ",
            "ignore -a",
            "stats-tube a b",
            "pause-tube a",
            "pause-tube  1 1x",
            "stats\0",
        ]);
    }

    #[test]
    fn numbers_take_leading_spaces_and_zeros_but_no_sign_and_nothing_behind() {
        assert_eq!(parse(b"delete   007"), Ok(Command::Delete(JobId(7))));
        assert_eq!(parse(b"delete 18446744073709551615"), Ok(Command::Delete(JobId(u64::MAX))));
        let zeros = "0".repeat(30);
        assert_eq!(parse(format!("delete {zeros}12").as_bytes()), Ok(Command::Delete(JobId(12))));
        bad(&[
            "delete 18446744073709551616",
            "delete 99999999999999999999",
            "delete 100000000000000000000000",
            "delete -1",
            "delete +1",
            "delete 1 ",
            "delete 1x",
            "delete ",
            "delete \t1",
        ]);
        bad(&[
            "bury 1 4294967296",
            "bury 1",
            "release 1 2",
            "release 1 2 3 4",
            "put 1 2 3",
            "put -1 0 0 0",
            "put a",
        ]);
    }

    #[test]
    fn a_nul_anywhere_is_of_bad_format() {
        bad(&["\0", "foo\0", "reserve\0", "delete 1\0", "put 0 0 1 1\0", "put 0 0 1 1 x\0"]);
        bad(&["quit\0", "kick 1\0", "reserve-with-timeout 0\0", "pause-tube a\0 1"]);
    }

    #[test]
    fn the_loose_ends_of_c_are_kept() {
        assert_eq!(parse(b"reserve-with-timeout 0abc"), Ok(Command::ReserveWithTimeout { timeout_s: 0 }));
        assert_eq!(parse(b"reserve-with-timeout 0 0"), Ok(Command::ReserveWithTimeout { timeout_s: 0 }));
        bad(&["reserve-with-timeout x", "reserve-with-timeout ", "reserve-with-timeout 2147483648"]);
        assert_eq!(parse(b"quitx"), Ok(Command::Quit));
        assert_eq!(parse(b"pause-tubeX 1"), Ok(Command::PauseTube { tube: "X", delay_s: 1 }));
        assert_eq!(parse(b"pause-tube   a   2"), Ok(Command::PauseTube { tube: "a", delay_s: 2 }));
    }

    #[test]
    fn kick_takes_what_strtoul_takes() {
        for (line, bound) in
            [("1x", 1), ("+1", 1), ("\t2", 2), ("-1", u64::MAX), ("4294967296", 1 << 32), ("-0", 0)]
        {
            assert_eq!(parse(format!("kick {line}").as_bytes()), Ok(Command::Kick { bound }), "{line:?}");
        }
        bad(&["kick 18446744073709551616", "kick ", "kick x", "kick - 1", "kick +-1"]);
    }
}
