//! The replies of the protocol, and their parser, which accepts incomplete and malformed bytes.

use crate::data::State;
use crate::error::Refusal;
use std::fmt;

/// The longest reply line that is accepted, in bytes: more than the longest of the protocol, USING with a tube name.
const MAX_LINE_BYTES: usize = 1024;

/// The longest body or data that is accepted, in bytes: the greatest limit that a server can have for a job.
const MAX_DATA_BYTES: u64 = 1 << 30;

/// The greatest number of jobs in a batch.
const MAX_BATCH: u64 = 1000;

/// A job with its body, from a reserve or a peek.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The id.
    pub id: u64,
    /// The body.
    pub body: Vec<u8>,
}

/// The result of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted {
    /// The id of the new job, or of the existing job with the same idempotency key.
    pub id: u64,
    /// If a job with the same key exists, or the key still counts: the state of that job, or DELETED. The put has stored
    /// nothing then.
    pub existing: Option<String>,
    /// The new priority of the existing job, if the put was more urgent.
    pub pri: Option<u32>,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the protocol's word")]
pub enum Reply {
    Inserted(Inserted),
    Using(String),
    Reserved(Job),
    Found(Job),
    Ok(Vec<u8>),
    Watching(u64),
    /// With a count as the reply to `kick`, without one as the reply to `kick-job`.
    Kicked(Option<u64>),
    Deleted,
    Released,
    /// With an id as C's reply to a put for which its ready queue has no memory.
    Buried(Option<u64>),
    Touched,
    Paused,
    /// `drain` was done, or `put` was refused.
    Draining,
    NotDraining,
    Flushed(u64),
    Moved,
    Reprioritized,
    ReservedBatch(Vec<Job>),
    DeletedBatch {
        deleted: u64,
        not_found: u64,
    },
    TouchedAll(u64),
    Authenticated,
    Refused(Refusal),
}

/// Why bytes are not a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// No line end within 1024 bytes.
    LineTooLong,
    /// The line is not a reply of the protocol.
    UnknownLine(String),
    /// The line announces more than 1 GiB.
    DataTooLong(u64),
    /// CR LF does not follow the data.
    MissingCrlf,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LineTooLong => write!(f, "a line of more than {MAX_LINE_BYTES} bytes"),
            Self::UnknownLine(line) => write!(f, "the line \"{line}\""),
            Self::DataTooLong(bytes) => write!(f, "{bytes} bytes of data are announced"),
            Self::MissingCrlf => f.write_str("the data does not end where its size says"),
        }
    }
}

impl std::error::Error for ParseError {}

/// The result of parsing the bytes received so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// A whole reply, and its length in bytes.
    Whole(Reply, usize),
    /// The beginning of a reply that has at least this many bytes.
    Needs(usize),
}

impl Reply {
    /// Parses the reply at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Parsed, ParseError> {
        let Some((line, taken)) = line(bytes)? else { return Ok(Parsed::Needs(bytes.len() + 1)) };
        let unknown = || ParseError::UnknownLine(line.escape_ascii().to_string());
        let text = std::str::from_utf8(line).map_err(|_| unknown())?;
        let mut words = text.split(' ');
        let word = words.next().unwrap_or_default();
        let arguments: Vec<&str> = words.collect();
        match (word, arguments.as_slice()) {
            ("RESERVED" | "FOUND", [_, _]) | ("OK", [_]) => {
                with_data(word, &arguments, bytes, taken, unknown)
            }
            ("RESERVED_BATCH", [count]) => {
                let count = number(count).filter(|count| *count <= MAX_BATCH).ok_or_else(unknown)?;
                batch(count, bytes, taken)
            }
            _ => match short(word, &arguments) {
                Some(reply) => Ok(Parsed::Whole(reply, taken)),
                None => Err(unknown()),
            },
        }
    }
}

/// The first line without its line end, and its length with the line end.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, ParseError> {
    let window = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    match window.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => Ok(Some((&bytes[..end], end + 2))),
        None if bytes.len() >= MAX_LINE_BYTES => Err(ParseError::LineTooLong),
        None => Ok(None),
    }
}

/// Parses digits; unlike Rust's parser, it refuses a sign.
fn number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// The data of `size` bytes from `start`, and the end of the CR LF after it; or `Err` with the number of bytes needed.
fn data(bytes: &[u8], start: usize, size: u64) -> Result<Result<(&[u8], usize), usize>, ParseError> {
    if size > MAX_DATA_BYTES {
        return Err(ParseError::DataTooLong(size));
    }
    let end = start + size as usize;
    if bytes.len() < end + 2 {
        return Ok(Err(end + 2));
    }
    if &bytes[end..end + 2] != b"\r\n" {
        return Err(ParseError::MissingCrlf);
    }
    Ok(Ok((&bytes[start..end], end + 2)))
}

fn with_data(
    word: &str,
    arguments: &[&str],
    bytes: &[u8],
    taken: usize,
    unknown: impl Fn() -> ParseError,
) -> Result<Parsed, ParseError> {
    let numbers: Option<Vec<u64>> = arguments.iter().map(|argument| number(argument)).collect();
    let numbers = numbers.ok_or_else(unknown)?;
    let size = numbers[numbers.len() - 1];
    match data(bytes, taken, size)? {
        Err(needs) => Ok(Parsed::Needs(needs)),
        Ok((data, end)) => {
            let body = data.to_vec();
            let reply = match word {
                "OK" => Reply::Ok(body),
                "FOUND" => Reply::Found(Job { id: numbers[0], body }),
                _ => Reply::Reserved(Job { id: numbers[0], body }),
            };
            Ok(Parsed::Whole(reply, end))
        }
    }
}

/// Parses `count` RESERVED replies from `start`. Copies the bodies only when all have arrived.
fn batch(count: u64, bytes: &[u8], start: usize) -> Result<Parsed, ParseError> {
    let mut found = Vec::new();
    let mut at = start;
    for _ in 0..count {
        let Some((line, taken)) = line(&bytes[at..])? else { return Ok(Parsed::Needs(bytes.len() + 1)) };
        let numbers = std::str::from_utf8(line)
            .ok()
            .and_then(|text| text.strip_prefix("RESERVED "))
            .and_then(|rest| rest.split_once(' '))
            .and_then(|(id, size)| Some((number(id)?, number(size)?)));
        let (id, size) = numbers.ok_or_else(|| ParseError::UnknownLine(line.escape_ascii().to_string()))?;
        match data(bytes, at + taken, size)? {
            Err(needs) => return Ok(Parsed::Needs(needs)),
            Ok((body, end)) => {
                found.push((id, body));
                at = end;
            }
        }
    }
    let jobs = found.into_iter().map(|(id, body)| Job { id, body: body.to_vec() }).collect();
    Ok(Parsed::Whole(Reply::ReservedBatch(jobs), at))
}

/// Parses a reply that consists of a line only.
fn short(word: &str, arguments: &[&str]) -> Option<Reply> {
    let reply = match (word, arguments) {
        ("INSERTED", [id, rest @ ..]) => Reply::Inserted(inserted(id, rest)?),
        ("USING", [tube]) => Reply::Using((*tube).to_owned()),
        ("WATCHING", [count]) => Reply::Watching(number(count)?),
        ("KICKED", []) => Reply::Kicked(None),
        ("KICKED", [count]) => Reply::Kicked(Some(number(count)?)),
        ("BURIED", []) => Reply::Buried(None),
        ("BURIED", [id]) => Reply::Buried(Some(number(id)?)),
        ("FLUSHED", [count]) => Reply::Flushed(number(count)?),
        ("DELETED_BATCH", [deleted, not_found]) => {
            Reply::DeletedBatch { deleted: number(deleted)?, not_found: number(not_found)? }
        }
        ("TOUCHED_ALL", [count]) => Reply::TouchedAll(number(count)?),
        ("EXISTS", [id]) => Reply::Refused(Refusal::Exists(number(id)?)),
        (_, []) => alone(word)?,
        _ => return None,
    };
    Some(reply)
}

fn alone(word: &str) -> Option<Reply> {
    Some(match word {
        "DELETED" => Reply::Deleted,
        "RELEASED" => Reply::Released,
        "TOUCHED" => Reply::Touched,
        "PAUSED" => Reply::Paused,
        "DRAINING" => Reply::Draining,
        "NOT_DRAINING" => Reply::NotDraining,
        "MOVED" => Reply::Moved,
        "REPRIORITIZED" => Reply::Reprioritized,
        "BAD_FORMAT" => Reply::Refused(Refusal::BadFormat),
        "UNKNOWN_COMMAND" => Reply::Refused(Refusal::UnknownCommand),
        "OUT_OF_MEMORY" => Reply::Refused(Refusal::OutOfMemory),
        "INTERNAL_ERROR" => Reply::Refused(Refusal::InternalError),
        "JOB_TOO_BIG" => Reply::Refused(Refusal::JobTooBig),
        "EXPECTED_CRLF" => Reply::Refused(Refusal::ExpectedCrlf),
        "NOT_FOUND" => Reply::Refused(Refusal::NotFound),
        "NOT_IGNORED" => Reply::Refused(Refusal::NotIgnored),
        "TIMED_OUT" => Reply::Refused(Refusal::TimedOut),
        "DEADLINE_SOON" => Reply::Refused(Refusal::DeadlineSoon),
        "ABORTED" => Reply::Refused(Refusal::Aborted),
        "AUTHENTICATED" => Reply::Authenticated,
        "FORBIDDEN" => Reply::Refused(Refusal::Forbidden),
        "UNAUTHORIZED" => Reply::Refused(Refusal::Unauthorized),
        "TOO_MANY_CONNECTIONS" => Reply::Refused(Refusal::TooManyConnections),
        _ => return None,
    })
}

fn inserted(id: &str, rest: &[&str]) -> Option<Inserted> {
    let id = number(id)?;
    let known = |word: &str| word == "DELETED" || State::from_word(&word.to_ascii_lowercase()).is_some();
    match rest {
        [] => Some(Inserted { id, existing: None, pri: None }),
        [word] if known(word) => Some(Inserted { id, existing: Some((*word).to_owned()), pri: None }),
        [word, pri] if known(word) => {
            let pri = u32::try_from(number(pri)?).ok()?;
            Some(Inserted { id, existing: Some((*word).to_owned()), pri: Some(pri) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[&str] = &[
        "INSERTED 1\r\n",
        "INSERTED 7 READY 50\r\n",
        "INSERTED 7 DELETED\r\n",
        "USING mail\r\n",
        "RESERVED 5 5\r\nhello\r\n",
        "FOUND 5 2\r\n\r\n\r\n",
        "OK 4\r\n---\n\r\n",
        "WATCHING 2\r\n",
        "KICKED\r\n",
        "KICKED 3\r\n",
        "BURIED\r\n",
        "BURIED 9\r\n",
        "FLUSHED 600000\r\n",
        "RESERVED_BATCH 0\r\n",
        "RESERVED_BATCH 2\r\nRESERVED 1 1\r\na\r\nRESERVED 2 0\r\n\r\n",
        "DELETED_BATCH 2 1\r\n",
        "TOUCHED_ALL 4\r\n",
        "EXISTS 12\r\n",
        "NOT_DRAINING\r\n",
        "DEADLINE_SOON\r\n",
    ];

    #[test]
    fn a_partial_reply_needs_more_bytes_and_a_whole_one_is_parsed_exactly() {
        for text in REPLIES {
            for cut in 0..text.len() {
                match Reply::parse(&text.as_bytes()[..cut]) {
                    Ok(Parsed::Needs(needs)) => {
                        assert!(needs > cut && needs <= text.len(), "{text:?} at {cut}")
                    }
                    other => panic!("{text:?} at {cut}: {other:?}"),
                }
            }
            let followed = format!("{text}DELETED\r\n");
            match Reply::parse(followed.as_bytes()) {
                Ok(Parsed::Whole(_, taken)) => assert_eq!(taken, text.len(), "{text:?}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn malformed_replies_are_errors() {
        for text in [
            "\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
            "INSERTED\r\n",
            "INSERTED x\r\n",
            "INSERTED +1\r\n",
            "INSERTED 1 SLEEPING\r\n",
            "INSERTED 99999999999999999999\r\n",
            "RESERVED 1\r\n",
            "RESERVED 1 -1\r\n",
            "OK 99999999999\r\n",
            "OK 1\r\nabc",
            "RESERVED_BATCH 1001\r\n",
            "RESERVED_BATCH 1\r\nFOUND 1 1\r\na\r\n",
            "DELETED 1\r\n",
            "\u{e4}\r\n",
        ] {
            assert!(Reply::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert_eq!(Reply::parse(&[b'x'; MAX_LINE_BYTES]), Err(ParseError::LineTooLong));
        assert_eq!(Reply::parse(&[b'x'; MAX_LINE_BYTES - 1]), Ok(Parsed::Needs(MAX_LINE_BYTES)));
        assert!(Reply::parse(b"\xff\xfe\r\n").is_err());
    }

    #[test]
    fn corrupted_replies_never_panic() {
        // Replaces each byte of each reply by some that matter to a parser.
        for text in REPLIES {
            for at in 0..text.len() {
                for byte in [0, b' ', b'\r', b'\n', b'-', b'9', b'R', 0xff] {
                    let mut bytes = text.as_bytes().to_vec();
                    bytes[at] = byte;
                    let _ = Reply::parse(&bytes);
                }
            }
        }
    }
}
