//! Command lines: from bytes to a [`Command`], and back.
//!
//! Like C beanstalkd, the parser recognises a command by its prefix and then checks the rest. A line without a known
//! prefix is UNKNOWN_COMMAND; a wrong rest is BAD_FORMAT.

use super::MAX_LINE_BYTES;
use super::argument::{Argument, arguments, name};
use super::fields::FieldList;
use super::manage::{
    ClientCursor, JobCursor, MAX_LONG_LINE_BYTES, id_and_priority, id_and_tube, list_clients, list_jobs,
};
use super::put_line::{MAX_PUT_LINE_BYTES, PutHeader, numbers_of_put, tagged_put};
#[cfg(any(test, feature = "samples"))]
use super::samples::{Arguments, FromArgument};
use super::session::{Grace, session};
use super::workers::{
    IdList, MAX_DELETE_BATCH_LINE_BYTES, MAX_TIMEOUT, ModeWord, complete, optional_timeout, reserve_batch,
    touch, wait_job, watch,
};
use crate::job::{Counting, JobId, JobState, Priority};
use crate::number::{as_strtoul, leading_u32, leading_u64, skip_spaces, whole_u32, whole_u64};
use crate::seconds::Seconds;
use crate::tube_name::{TubeNameRef, is_name_byte};

/// The grammar of the lines with one prefix.
struct Grammar {
    /// The prefix: the command's word, and a space if C does not recognise the command without it.
    prefix: &'static str,
    /// Makes a command from the rest of the line; `None` if the rest is wrong. Of several rows with the same prefix,
    /// the first that accepts the line counts.
    parse: for<'a> fn(&'a [u8]) -> Option<Command<'a>>,
    /// The maximum length of a line, in bytes with its CRLF.
    max_line_bytes: usize,
}

/// The origin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// C has the command, and counts it in its `stats`.
    C,
    /// C has the command, but does not count it.
    UncountedByC,
    /// The command is ours: `stats` lists it under `extensions`.
    Ours,
    /// The command is ours, and only a server with access rules has it.
    OursGuarded,
}

macro_rules! commands {
    ($(
        $prefix:literal $verb:ident $(($argument:ident: $of:ty))? $({ $($field:ident: $field_of:ty),+ })?
        $origin:ident $(up to $max:expr)? => $parse:expr;
    )+) => {
        /// A command. Its names are valid; a parsed one also has its numbers in range.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
        pub enum Command<'a> {
            $($verb $(($of))? $({ $($field: $field_of),+ })?,)+
            /// A `put` with this text after its size. The text is parsed later, because the size is checked first.
            PutWith(PutHeader, &'a [u8]),
        }

        /// A command without its arguments, for the counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the protocol's own words; doc/protocol.md explains them")]
        pub enum Verb {
            $($verb,)+
        }

        impl Verb {
            /// All verbs, in the order in which `stats` counts them.
            pub const ALL: [Self; [$($prefix),+].len()] = [$(Self::$verb),+];

            /// The key under which `stats` counts the command.
            #[must_use]
            pub const fn counter_key(self) -> &'static str {
                match self {
                    $(Self::$verb => concat!("cmd-", $prefix).trim_ascii_end(),)+
                }
            }

            /// The origin of the command.
            #[must_use]
            pub const fn origin(self) -> Origin {
                match self {
                    $(Self::$verb => Origin::$origin,)+
                }
            }
        }

        impl<'a> Command<'a> {
            /// The command of this verb, with its arguments.
            #[cfg(any(test, feature = "samples"))]
            #[must_use]
            pub fn with_arguments(verb: Verb, arguments: &Arguments<'a>) -> Self {
                match verb {
                    $(Verb::$verb => Self::$verb
                        $((FromArgument::from_argument(arguments.$argument)))?
                        $({ $($field: FromArgument::from_argument(arguments.$field)),+ })?,)+
                }
            }

            /// The command without its arguments.
            #[must_use]
            pub fn verb(&self) -> Verb {
                match self {
                    $(Self::$verb { .. } => Verb::$verb,)+
                    Self::PutWith(..) => Verb::Put,
                }
            }

            /// Appends the command's line, without its CRLF.
            pub fn write(&self, line: &mut Vec<u8>) {
                line.extend_from_slice(self.verb().as_str().as_bytes());
                match *self {
                    $(Self::$verb $(($argument))? $({ $($field),+ })? => {
                        $($argument.write(line);)?
                        $($($field.write(line);)+)?
                    })+
                    Self::PutWith(header, text) => {
                        header.write(line);
                        line.extend_from_slice(text);
                    }
                }
            }
        }

        static GRAMMAR: [Grammar; Verb::COUNT] = [$(
            Grammar { prefix: $prefix, parse: $parse, max_line_bytes: [$($max,)? MAX_LINE_BYTES][0] }
        ),+];

        /// For each first byte, the rows of `GRAMMAR` that begin with it, as bits.
        static ROWS: [u64; 128] = {
            let (mut rows, mut next_row) = ([0; 128], 1);
            $(
                rows[$prefix.as_bytes()[0] as usize] |= next_row;
                next_row <<= 1;
            )+
            assert!(next_row != 0, "each row has a bit");
            rows
        };
    };
}

// The table of commands: word, arguments, origin, grammar. A line is the word and the arguments, in the order
// of the row, which the grammar must take. A new command is a row here, at the end of `Ours`, and one in the table of
// the server. The rows have the order of the counters in `stats`: C's order, then ours.
#[rustfmt::skip]
commands! {
    "put " Put(header: PutHeader) C => put;
    "peek " Peek(id: JobId) C => |rest| id(rest).map(Command::Peek);
    "peek-ready" PeekReady C => |rest| alone(rest, Command::PeekReady);
    "peek-delayed" PeekDelayed C => |rest| alone(rest, Command::PeekDelayed);
    "peek-buried" PeekBuried C => |rest| alone(rest, Command::PeekBuried);
    "reserve" Reserve C => |rest| alone(rest, Command::Reserve);
    "reserve-with-timeout " ReserveWithTimeout { timeout_s: Seconds } C => reserve_with_timeout;
    "delete " Delete(id: JobId) C => |rest| id(rest).map(Command::Delete);
    "release " Release { id: JobId, priority: Priority, delay_s: Seconds, counting: Counting } C => release;
    "use " Use(tube: TubeNameRef<'a>) C => |rest| name(rest).map(Command::Use);
    "watch " Watch { tube: TubeNameRef<'a>, weight: u16 } C
        => |rest| watch(rest).map(|(tube, weight)| Command::Watch { tube, weight });
    "ignore " Ignore(tube: TubeNameRef<'a>) C => |rest| name(rest).map(Command::Ignore);
    "bury " Bury { id: JobId, priority: Priority } C => bury;
    "kick " Kick { bound: u64 } C => |rest| as_strtoul(rest).map(|bound| Command::Kick { bound });
    "touch " Touch { id: JobId, for_s: Option<Seconds> } C
        => |rest| touch(rest).map(|(id, for_s)| Command::Touch { id, for_s });
    "stats" Stats C => |rest| alone(rest, Command::Stats);
    "stats-job " StatsJob(id: JobId) C => |rest| id(rest).map(Command::StatsJob);
    "stats-tube " StatsTube(tube: TubeNameRef<'a>) C => |rest| name(rest).map(Command::StatsTube);
    "list-tubes" ListTubes C => |rest| alone(rest, Command::ListTubes);
    "list-tube-used" ListTubeUsed C => |rest| alone(rest, Command::ListTubeUsed);
    "list-tubes-watched" ListTubesWatched C => |rest| alone(rest, Command::ListTubesWatched);
    "pause-tube" PauseTube { tube: TubeNameRef<'a>, delay_s: Seconds } C => pause_tube;
    "reserve-job " ReserveJob(id: JobId) UncountedByC => |rest| id(rest).map(Command::ReserveJob);
    "kick-job " KickJob(id: JobId) UncountedByC => |rest| id(rest).map(Command::KickJob);
    "quit" Quit UncountedByC => |_| Some(Command::Quit);
    "flush-tube" FlushTube(tube: TubeNameRef<'a>) Ours => |rest| name(arguments(rest)?).map(Command::FlushTube);
    "flush-buried" FlushBuried(tube: TubeNameRef<'a>) Ours => |rest| name(arguments(rest)?).map(Command::FlushBuried);
    "list-jobs" ListJobs { tube: TubeNameRef<'a>, state: JobState, limit: u32, after: Option<JobCursor> } Ours
        up to MAX_LONG_LINE_BYTES
        => |rest| list_jobs(rest).map(|(tube, state, limit, after)| Command::ListJobs { tube, state, limit, after });
    "peek-reserved" PeekReserved Ours => |rest| alone(rest, Command::PeekReserved);
    "move" Move { id: JobId, tube: TubeNameRef<'a> } Ours up to MAX_LONG_LINE_BYTES
        => |rest| id_and_tube(rest).map(|(id, tube)| Command::Move { id, tube });
    "reprioritize" Reprioritize { id: JobId, priority: Priority } Ours
        => |rest| id_and_priority(rest).map(|(id, priority)| Command::Reprioritize { id, priority });
    "drain" Drain Ours => |rest| alone(rest, Command::Drain);
    "undrain" Undrain Ours => |rest| alone(rest, Command::Undrain);
    "reserve-batch" ReserveBatch { max_jobs: u32, timeout_s: Option<Seconds> } Ours
        => |rest| reserve_batch(rest).map(|(max_jobs, timeout_s)| Command::ReserveBatch { max_jobs, timeout_s });
    "delete-batch" DeleteBatch(ids: IdList<'a>) Ours
        up to MAX_DELETE_BATCH_LINE_BYTES => |rest| IdList::parse(rest).map(Command::DeleteBatch);
    "touch-all" TouchAll Ours => |rest| alone(rest, Command::TouchAll);
    "reserve-mode" ReserveMode(mode: ModeWord) Ours
        => |rest| arguments(rest).and_then(ModeWord::of_word).map(Command::ReserveMode);
    "reserve-with-abort" ReserveWithAbort { timeout_s: Option<Seconds> } Ours
        => |rest| optional_timeout(rest).map(|timeout_s| Command::ReserveWithAbort { timeout_s });
    "stats-group " StatsGroup(group: TubeNameRef<'a>) Ours => |rest| name(rest).map(Command::StatsGroup);
    "session" Session { name: TubeNameRef<'a>, grace: Grace } Ours
        => |rest| session(rest).map(|(name, grace)| Command::Session { name, grace });
    "list-clients" ListClients { limit: u32, after_client: Option<ClientCursor> } Ours
        => |rest| list_clients(rest).map(|(limit, after_client)| Command::ListClients { limit, after_client });
    "kill-client" KillClient { number: u64 } Ours
        => |rest| whole_u64(arguments(rest)?).map(|number| Command::KillClient { number });
    "complete" Complete { id: JobId, count: u32 } Ours
        => |rest| complete(rest).map(|(id, count)| Command::Complete { id, count });
    "wait-job" WaitJob { id: JobId, timeout_s: Option<Seconds> } Ours
        => |rest| wait_job(rest).map(|(id, timeout_s)| Command::WaitJob { id, timeout_s });
    "reserve-fields" ReserveFields(fields: FieldList) Ours
        => |rest| FieldList::parse(rest).map(Command::ReserveFields);
    // The rest of the line is the token, valid or not.
    "auth " Auth(token: &'a [u8]) OursGuarded => |token| Some(Command::Auth(token));
}

impl Verb {
    /// The number of verbs.
    pub const COUNT: usize = Self::ALL.len();

    /// The command's word in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.counter_key().split_at("cmd-".len()).1
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
    // The commands of a plain cycle come before the table, so that their parsers are inlined.
    let parsed = match line.first() {
        Some(b'p') => line.strip_prefix(b"put ").and_then(put_in_whole_seconds),
        Some(b'r') if line == b"reserve" => Some(Command::Reserve),
        Some(b'd') => line.strip_prefix(b"delete ").and_then(id).map(Command::Delete),
        _ => None,
    };
    match parsed {
        Some(Command::PutWith(_, text)) if memchr::memchr(0, text).is_some() => parse_by_table(line),
        Some(command) => Ok(command),
        None => parse_by_table(line),
    }
}

#[inline(never)]
fn parse_by_table(line: &[u8]) -> Result<Command<'_>, ParseError> {
    // To C, a line that contains a NUL has a wrong length. A NUL after the first tag makes only that tag wrong.
    if memchr::memchr(0, line).is_some() && tagged_put(line).is_none() {
        return Err(ParseError::BadFormat);
    }
    let mut error = ParseError::UnknownCommand;
    for row in rows_of(line) {
        let Some(rest) = line.strip_prefix(row.prefix.as_bytes()) else { continue };
        if let Some(command) = (row.parse)(rest) {
            return Ok(command);
        }
        error = ParseError::BadFormat;
    }
    Err(error)
}

/// The rows whose prefix begins with the same byte as the line.
fn rows_of(line: &[u8]) -> impl Iterator<Item = &'static Grammar> {
    let mut rows = line.first().and_then(|&first| ROWS.get(usize::from(first))).copied().unwrap_or(0);
    std::iter::from_fn(move || {
        let row = GRAMMAR.get(rows.trailing_zeros() as usize)?;
        rows &= rows - 1;
        Some(row)
    })
}

/// The maximum length of a line that begins like this, in bytes with its CRLF. For a `put` it is the length with tags,
/// because tags may begin anywhere in the line: [`tagged_put`](super::tagged_put) judges the whole line.
#[must_use]
pub fn longest_line(start: &[u8]) -> usize {
    if start.starts_with(b"put ") {
        return MAX_PUT_LINE_BYTES;
    }
    let is_meant = |row: &&Grammar| {
        let rest = start.strip_prefix(row.prefix.trim_ascii_end().as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b" "))
    };
    rows_of(start).find(is_meant).map_or(MAX_LINE_BYTES, |row| row.max_line_bytes)
}

fn alone<'a>(rest: &[u8], command: Command<'a>) -> Option<Command<'a>> {
    rest.is_empty().then_some(command)
}

#[inline(always)]
fn id(rest: &[u8]) -> Option<JobId> {
    whole_u64(rest).map(JobId)
}

fn put(rest: &[u8]) -> Option<Command<'_>> {
    put_with::<true>(rest)
}

/// Parses a `put` without a fraction of a second; most puts have none.
#[inline]
fn put_in_whole_seconds(rest: &[u8]) -> Option<Command<'_>> {
    put_with::<false>(rest)
}

#[inline(always)]
fn put_with<const FRACTIONS: bool>(rest: &[u8]) -> Option<Command<'_>> {
    let (header, rest) = numbers_of_put::<FRACTIONS>(rest)?;
    Some(if rest.is_empty() { Command::Put(header) } else { Command::PutWith(header, rest) })
}

fn reserve_with_timeout(rest: &[u8]) -> Option<Command<'_>> {
    let (timeout_s, _) = Seconds::leading(rest)?;
    (timeout_s <= MAX_TIMEOUT).then_some(Command::ReserveWithTimeout { timeout_s })
}

fn release(rest: &[u8]) -> Option<Command<'_>> {
    let (id, rest) = leading_u64(rest)?;
    let (priority, rest) = leading_u32(rest)?;
    let (delay_s, rest) = Seconds::leading(rest)?;
    let counting = match rest {
        b"" => Counting::Counted,
        b" uncounted" => Counting::Uncounted,
        _ => return None,
    };
    Some(Command::Release { id: JobId(id), priority: Priority(priority), delay_s, counting })
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
    let delay_s = Seconds::parse(rest)?;
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
    fn a_line_without_a_known_prefix_is_an_unknown_command() {
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
    fn a_known_prefix_with_a_wrong_rest_is_bad_format() {
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
    fn numbers_may_have_leading_spaces_and_zeros_but_no_sign_and_no_suffix() {
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
    fn the_table_parses_put_reserve_and_delete_as_the_shortcut_does() {
        for line in
            ["put 1 2 3 4", "put 1 2 3 4 idp:a", "put 1 2 3 4\0", "put x", "reserve", "delete 7", "delete x"]
        {
            assert_eq!(parse_by_table(line.as_bytes()), parse(line.as_bytes()), "{line:?}");
        }
    }

    #[test]
    fn every_word_and_counter_is_that_of_its_row() {
        assert_eq!((Verb::Put.as_str(), Verb::Put.counter_key()), ("put", "cmd-put"));
        assert_eq!((Verb::Stats.as_str(), Verb::ListTubeUsed.as_str()), ("stats", "list-tube-used"));
        for (verb, row) in Verb::ALL.into_iter().zip(&GRAMMAR) {
            assert_eq!(verb.as_str(), row.prefix.trim_end());
            assert_eq!(Verb::ALL[verb as usize], verb);
        }
    }

    #[test]
    fn a_line_with_a_nul_is_bad_format() {
        bad(&["\0", "foo\0", "reserve\0", "delete 1\0", "put 0 0 1 1\0", "put 0 0 1 1 x\0"]);
        bad(&["quit\0", "kick 1\0", "reserve-with-timeout 0\0", "pause-tube a\0 1"]);
    }

    #[test]
    fn arguments_that_c_accepts_with_a_wrong_end_are_accepted() {
        assert_eq!(
            parse(b"reserve-with-timeout 0abc"),
            Ok(Command::ReserveWithTimeout { timeout_s: 0.into() })
        );
        assert_eq!(
            parse(b"reserve-with-timeout 0 0"),
            Ok(Command::ReserveWithTimeout { timeout_s: 0.into() })
        );
        bad(&["reserve-with-timeout x", "reserve-with-timeout ", "reserve-with-timeout 2147483648"]);
        assert_eq!(parse(b"quitx"), Ok(Command::Quit));
        assert_eq!(
            parse(b"pause-tubeX 1"),
            Ok(Command::PauseTube { tube: name(b"X").unwrap(), delay_s: 1.into() })
        );
        assert_eq!(
            parse(b"pause-tube   a   2"),
            Ok(Command::PauseTube { tube: name(b"a").unwrap(), delay_s: 2.into() })
        );
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
