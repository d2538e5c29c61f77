//! The arguments of the commands for workers, which C beanstalkd does not have, and of `watch`, which has a weight
//! here.
//!
//! Owns: their grammar. As in `manage`, exactly one space comes after the command's word, and a line that begins with
//! the word and continues differently is BAD_FORMAT.

use super::argument::{Argument, arguments, name, word, words, written_as};
use crate::job::JobId;
use crate::number::{leading_u32, leading_u64, whole_u32};
use crate::seconds::Seconds;
use crate::tube_name::TubeNameRef;

/// The maximum number of jobs of a `reserve-batch`, and of ids of a `delete-batch`.
pub const MAX_BATCH: u32 = 1000;

/// The longest line of ids, in bytes with its CRLF: the word, and [`MAX_BATCH`] times a space and an id of 20 digits.
pub const MAX_DELETE_BATCH_LINE_BYTES: usize = "delete-batch".len() + MAX_BATCH as usize * 21 + 2;

/// The largest weight of a watched tube.
const MAX_WEIGHT: u32 = 9999;

/// The longest time-out of a reserve, in seconds: the maximum of C's `int`.
pub(super) const MAX_TIMEOUT: Seconds = Seconds::new(i32::MAX as u32, 0);

/// The maximum number of puts in a `complete`.
pub const MAX_COMPLETED_PUTS: u32 = 100;

/// The ids of a `delete-batch`, 1 to [`MAX_BATCH`] of them, or of the reply COMPLETED, which may have none; in order.
#[derive(Clone, Copy, Debug)]
pub struct IdList<'a>(IdSource<'a>);

/// The form in which a list has its ids.
#[derive(Clone, Copy, Debug)]
enum IdSource<'a> {
    /// Parsed: the text, in which each id has spaces before it, and the number of ids.
    Text(&'a [u8], u32),
    /// Made by this program.
    Ids(&'a [JobId]),
}

impl<'a> IdList<'a> {
    /// A list of these ids; `None` if it would be empty or too long.
    #[must_use]
    pub fn new(ids: &'a [JobId]) -> Option<Self> {
        (1..=MAX_BATCH as usize).contains(&ids.len()).then_some(Self(IdSource::Ids(ids)))
    }

    /// The ids of a reply: at most [`MAX_BATCH`], possibly none.
    #[must_use]
    pub fn of_reply(ids: &'a [JobId]) -> Self {
        Self(IdSource::Ids(&ids[..ids.len().min(MAX_BATCH as usize)]))
    }

    /// The ids after the word of a reply.
    pub(super) fn parse_reply(text: &'a [u8]) -> Option<Self> {
        if text.is_empty() { Some(Self::of_reply(&[])) } else { Self::parse(text) }
    }

    /// ` <id> …`, after the word.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let (mut rest, mut count) = (text, 0);
        while !rest.is_empty() {
            rest = leading_u64(arguments(rest)?)?.1;
            count += 1;
        }
        (1..=MAX_BATCH).contains(&count).then_some(Self(IdSource::Text(text, count)))
    }

    /// The number of ids.
    #[must_use]
    pub fn count(&self) -> usize {
        match self.0 {
            IdSource::Text(_, count) => count as usize,
            IdSource::Ids(ids) => ids.len(),
        }
    }

    /// The ids.
    pub fn iter(&self) -> impl Iterator<Item = JobId> {
        let (mut rest, ids): (&[u8], &[JobId]) = match self.0 {
            IdSource::Text(text, _) => (text, &[]),
            IdSource::Ids(ids) => (b"", ids),
        };
        let of_text = std::iter::from_fn(move || {
            let (id, behind) = leading_u64(rest)?;
            rest = behind;
            Some(JobId(id))
        });
        of_text.chain(ids.iter().copied())
    }
}

impl PartialEq for IdList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for IdList<'_> {}

impl Argument for IdList<'_> {
    fn write(&self, line: &mut Vec<u8>) {
        self.iter().for_each(|id| id.write(line));
    }
}

words! {
    /// The words for the mode of a reserve. `Default` and `Fifo` are the same mode.
    pub enum ModeWord {
        Fifo = "fifo",
        Default = "default",
        Weighted = "weighted",
        WeightedFair = "weighted-fair",
    }
}

written_as! {
    ModeWord: |mode| mode.as_str();
}

/// ` <n> [<seconds>]`
pub(super) fn reserve_batch(rest: &[u8]) -> Option<(u32, Option<Seconds>)> {
    let (max_jobs, rest) = leading_u32(arguments(rest)?)?;
    let timeout_s = optional_timeout(rest)?;
    (1..=MAX_BATCH).contains(&max_jobs).then_some((max_jobs, timeout_s))
}

/// Nothing, or a space and seconds. The outer `None` means BAD_FORMAT.
pub(super) fn optional_timeout(rest: &[u8]) -> Option<Option<Seconds>> {
    if rest.is_empty() {
        return Some(None);
    }
    Seconds::parse(arguments(rest)?).filter(|&timeout_s| timeout_s <= MAX_TIMEOUT).map(Some)
}

/// `<id> [<seconds>]`
pub(super) fn touch(rest: &[u8]) -> Option<(JobId, Option<Seconds>)> {
    let (id, rest) = leading_u64(rest)?;
    let for_s = if rest.is_empty() { None } else { Some(Seconds::parse(arguments(rest)?)?) };
    Some((JobId(id), for_s))
}

/// `<id> [<seconds>]`, of a wait
pub(super) fn wait_job(rest: &[u8]) -> Option<(JobId, Option<Seconds>)> {
    let (id, rest) = leading_u64(arguments(rest)?)?;
    Some((JobId(id), optional_timeout(rest)?))
}

/// ` <id> <n>`, of a `complete`
pub(super) fn complete(rest: &[u8]) -> Option<(JobId, u32)> {
    let (id, rest) = leading_u64(arguments(rest)?)?;
    let count = whole_u32(arguments(rest)?).filter(|&count| count <= MAX_COMPLETED_PUTS)?;
    Some((JobId(id), count))
}

/// `<tube> [<weight>]`
pub(super) fn watch(rest: &[u8]) -> Option<(TubeNameRef<'_>, u16)> {
    let (tube, rest) = word(rest);
    let weight = if rest.is_empty() { 1 } else { whole_u32(arguments(rest)?)? };
    let tube = name(tube)?;
    (1..=MAX_WEIGHT).contains(&weight).then_some((tube, weight as u16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, ParseError, longest_line, parse};

    fn bad(lines: &[&str]) {
        for line in lines {
            assert_eq!(parse(line.as_bytes()), Err(ParseError::BadFormat), "{line:?}");
        }
    }

    #[test]
    fn a_batch_has_a_size_and_an_optional_time_out() {
        let batch = |max_jobs, timeout_s| Ok(Command::ReserveBatch { max_jobs, timeout_s });
        assert_eq!(parse(b"reserve-batch 1"), batch(1, None));
        assert_eq!(parse(b"reserve-batch  01000"), batch(1000, None));
        assert_eq!(parse(b"reserve-batch 10 0"), batch(10, Some(0.into())));
        assert_eq!(parse(b"reserve-batch 10 2147483647"), batch(10, Some(MAX_TIMEOUT)));
        bad(&[
            "reserve-batch",
            "reserve-batch ",
            "reserve-batch1",
            "reserve-batch 0",
            "reserve-batch 1001",
            "reserve-batch 4294967296",
            "reserve-batch -1",
            "reserve-batch x",
            "reserve-batch 1 ",
            "reserve-batch 1x",
            "reserve-batch 1 x",
            "reserve-batch 1 2147483648",
            "reserve-batch 1 1 1",
        ]);
    }

    #[test]
    fn a_mode_is_one_of_four_words() {
        for (word, mode) in [
            ("fifo", ModeWord::Fifo),
            ("default", ModeWord::Default),
            ("weighted", ModeWord::Weighted),
            ("weighted-fair", ModeWord::WeightedFair),
        ] {
            assert_eq!(parse(format!("reserve-mode {word}").as_bytes()), Ok(Command::ReserveMode(mode)));
        }
        bad(&[
            "reserve-mode",
            "reserve-mode ",
            "reserve-modefifo",
            "reserve-mode  fifo",
            "reserve-mode fifo ",
            "reserve-mode FIFO",
            "reserve-mode fair",
        ]);
    }

    #[test]
    fn an_abortable_reserve_takes_a_time_out_or_none() {
        assert_eq!(parse(b"reserve-with-abort"), Ok(Command::ReserveWithAbort { timeout_s: None }));
        assert_eq!(
            parse(b"reserve-with-abort 7"),
            Ok(Command::ReserveWithAbort { timeout_s: Some(7.into()) })
        );
        bad(&["reserve-with-abort ", "reserve-with-abortx", "reserve-with-abort 7x", "reserve-with-abo"]);
        bad(&["reserve-with-abort 2147483648", "reserve-with-abort 1 2"]);
    }

    #[test]
    fn a_delete_batch_has_one_to_a_thousand_ids() {
        let ids = |line: &str| match parse(line.as_bytes()) {
            Ok(Command::DeleteBatch(list)) => {
                assert_eq!(list.iter().count(), list.count());
                Some(list.iter().map(|id| id.0).collect::<Vec<_>>())
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert_eq!(error, ParseError::BadFormat);
                None
            }
        };
        assert_eq!(ids("delete-batch 7"), Some(vec![7]));
        assert_eq!(ids("delete-batch 7   007 18446744073709551615"), Some(vec![7, 7, u64::MAX]));
        let many = |count| format!("delete-batch{}", " 1".repeat(count));
        assert_eq!(ids(&many(1000)).map(|ids| ids.len()), Some(1000));
        assert_eq!(ids(&many(1001)), None);
        bad(&[
            "delete-batch",
            "delete-batch ",
            "delete-batchx",
            "delete-batch1",
            "delete-batch 1 ",
            "delete-batch 1 x",
            "delete-batch 1,2",
            "delete-batch 1 -2",
            "delete-batch 1 18446744073709551616",
        ]);
        assert_eq!(parse(b"delete-batc 1"), Err(ParseError::UnknownCommand));
    }

    #[test]
    fn the_largest_batch_finds_room_in_a_line() {
        let line = format!("delete-batch{}\r\n", format!(" {}", u64::MAX).repeat(1000));
        assert_eq!((line.len(), longest_line(line.as_bytes())), (MAX_DELETE_BATCH_LINE_BYTES, line.len()));
    }

    #[test]
    fn touch_all_takes_no_argument() {
        assert_eq!(parse(b"touch-all"), Ok(Command::TouchAll));
        bad(&["touch-all ", "touch-all 1", "touch-allx"]);
        assert_eq!(parse(b"touch-al"), Err(ParseError::UnknownCommand));
    }

    #[test]
    fn a_watched_tube_may_have_a_weight() {
        let watch = |weight| Ok(Command::Watch { tube: name(b"a").unwrap(), weight });
        assert_eq!(parse(b"watch a"), watch(1));
        assert_eq!(parse(b"watch a 2"), watch(2));
        assert_eq!(parse(b"watch a  09999"), watch(9999));
        bad(&[
            "watch a ",
            "watch a 0",
            "watch a 10000",
            "watch a -1",
            "watch a 1 ",
            "watch a 1 1",
            "watch  a 1",
        ]);
    }
}
