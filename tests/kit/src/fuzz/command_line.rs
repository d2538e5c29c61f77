//! Arbitrary bytes as a command line.

use beanstalkd::protocol::{Command, CursorText, ParseError, PutHeader, parse, parse_tags};
use beanstalkd::tags::TagSet;

/// Parses `line`. A parsed command, written in its plainest form, must parse to the same command.
pub fn check(line: &[u8]) {
    let parsed = parse(line);
    if line.contains(&0) {
        // The body of a put with tags is skipped, whatever is wrong with them.
        let is_refused = match parsed {
            Ok(Command::PutWith(_, text)) => parse_tags(text).is_err(),
            parsed => parsed == Err(ParseError::BadFormat),
        };
        assert!(is_refused, "a line with a NUL is refused");
    }
    if let Ok(Command::PutWith(header, text)) = parsed {
        let plainest = [plain(&Command::Put(header)).as_bytes(), text].concat();
        assert_eq!(parse(&plainest), parsed);
        if let Ok(tags) = parse_tags(text) {
            let mut bytes = Vec::new();
            tags.encode(&mut bytes).expect("there is memory");
            assert_eq!(TagSet::decode(&bytes), Some(tags));
        }
        return;
    }
    if let Ok(Command::Auth(token)) = parsed {
        assert_eq!([b"auth ", token].concat(), line, "a token is any bytes");
        return;
    }
    if let Ok(command) = parsed {
        let plain = plain(&command);
        let again = parse(plain.as_bytes());
        match (command, again) {
            // They are kept as they were written.
            (Command::DeleteBatch(ids), Ok(Command::DeleteBatch(again))) => {
                assert!(ids.iter().eq(again.iter()), "{plain}");
            }
            (command, again) => assert_eq!(again, Ok(command)),
        }
    }
}

/// The plainest line for a command.
fn plain(command: &Command<'_>) -> String {
    let word = command.verb().as_str();
    match *command {
        Command::Put(PutHeader { priority, delay_s, ttr_s, size, .. })
        | Command::PutWith(PutHeader { priority, delay_s, ttr_s, size, .. }, _) => {
            format!("{word} {} {delay_s} {ttr_s} {size}", priority.0)
        }
        Command::Use(tube) | Command::Ignore(tube) | Command::StatsTube(tube) | Command::StatsGroup(tube) => {
            format!("{word} {tube}")
        }
        Command::ReserveJob(id)
        | Command::Delete(id)
        | Command::Touch(id)
        | Command::Peek(id)
        | Command::KickJob(id)
        | Command::StatsJob(id) => format!("{word} {}", id.0),
        Command::ReserveWithTimeout { timeout_s } => format!("{word} {timeout_s}"),
        Command::Release { id, priority, delay_s } => format!("{word} {} {} {delay_s}", id.0, priority.0),
        Command::Bury { id, priority } => format!("{word} {} {}", id.0, priority.0),
        Command::Kick { bound } => format!("{word} {bound}"),
        Command::PauseTube { tube, delay_s } => format!("{word} {tube} {delay_s}"),
        Command::FlushTube(tube) | Command::FlushBuried(tube) => format!("{word} {tube}"),
        Command::ListJobs { tube, state, limit, after } => {
            let after = after.map(|after| format!(" {}", CursorText(state, after))).unwrap_or_default();
            format!("{word} {tube} {} {limit}{after}", state.as_str())
        }
        Command::Move { id, tube } => format!("{word} {} {tube}", id.0),
        Command::Reprioritize { id, priority } => format!("{word} {} {}", id.0, priority.0),
        Command::Watch { tube, weight } => format!("{word} {tube} {weight}"),
        Command::ReserveBatch { most, timeout_s } => format!("{word} {most}{}", optional(timeout_s)),
        Command::ReserveWithAbort { timeout_s } => format!("{word}{}", optional(timeout_s)),
        Command::DeleteBatch(ids) => {
            assert_eq!(ids.iter().count(), ids.count());
            ids.iter().fold(word.to_owned(), |line, id| format!("{line} {}", id.0))
        }
        Command::ReserveMode(mode) => format!("{word} {}", mode.as_str()),
        Command::Reserve
        | Command::TouchAll
        | Command::PeekReserved
        | Command::Drain
        | Command::Undrain
        | Command::PeekReady
        | Command::PeekDelayed
        | Command::PeekBuried
        | Command::Stats
        | Command::ListTubes
        | Command::ListTubeUsed
        | Command::ListTubesWatched
        | Command::Quit => word.to_owned(),
        Command::Auth(_) => unreachable!("its token may be no text"),
    }
}

/// A number behind a space, if there is one.
fn optional(number: Option<u32>) -> String {
    number.map(|number| format!(" {number}")).unwrap_or_default()
}
