//! How the log is written: the level, the format, and how often one thing is said.
//!
//! Owns: the choice of the lines' form, made once by `start`, and [`RateLimit`], by which those who warn
//! keep the log readable. Never decides what is logged. `main` drives `start`.
//!
//! A line on a terminal or in a file bears its time, level and message. Where stderr is the journal, the
//! journal keeps the time, and the level goes before the line as `<N>`, as `sd-daemon(3)` says.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use env_logger::{Builder, Target};
use humantime::format_rfc3339_millis;
use log::{Level, LevelFilter, Record};

use crate::clock::Timestamp;
use crate::json;
use crate::options::LogFormat;

/// Starts the log on stderr. `verbosity` counts `-V`: one for connections, two for commands and replies.
/// The variable `RUST_LOG` overrides it.
///
/// # Panics
/// When called twice.
pub fn start(format: LogFormat, verbosity: u8) {
    let journal = stderr_is_journal();
    let mut builder = Builder::new();
    builder
        .target(Target::Stderr)
        .parse_filters(&std::env::var("RUST_LOG").unwrap_or_else(|_| default_filter(verbosity)))
        .format(move |out, record| write_line(out, record, format, journal, SystemTime::now()))
        .init();
}

/// What is logged unless `RUST_LOG` says otherwise. Libraries tell of their inner life only when asked.
fn default_filter(verbosity: u8) -> String {
    let level = match verbosity {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    format!("warn,{}={level}", env!("CARGO_PKG_NAME"))
}

fn write_line(
    out: &mut dyn Write,
    record: &Record<'_>,
    format: LogFormat,
    journal: bool,
    time: SystemTime,
) -> io::Result<()> {
    if journal {
        write!(out, "<{}>", priority(record.level()))?;
    }
    match format {
        LogFormat::Json => writeln!(
            out,
            r#"{{"time":"{}","level":"{}","target":{},"message":{}}}"#,
            format_rfc3339_millis(time),
            word(record.level()),
            json::Text(record.target()),
            json::Text(&record.args().to_string()),
        ),
        LogFormat::Text if journal => writeln!(out, "{}", record.args()),
        LogFormat::Text => {
            writeln!(out, "{} {} {}", format_rfc3339_millis(time), word(record.level()), record.args())
        }
    }
}

/// The level as `syslog(3)` counts it.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// Whether stderr is the stream that the journal has named: `JOURNAL_STREAM` is inherited by children
/// whose stderr is redirected, so it is compared (`systemd.exec(5)`).
fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let metadata = stderr.and_then(|stderr| stderr.metadata());
    metadata.is_ok_and(|metadata| stream == format!("{}:{}", metadata.dev(), metadata.ino()))
}

/// Lets one message of a kind through in a while, and counts the others, so that trouble that comes with
/// every connection or every turn does not fill the log.
///
/// ```
/// # use std::time::Duration;
/// # use beanstalkd::{clock::Timestamp, log_setup::RateLimit};
/// let mut limit = RateLimit::every(Duration::from_secs(10));
/// let said = [0, 1, 2, 11].map(|s| {
///     limit.admit(Timestamp(0).plus_seconds(s)).map(|withheld| format!("accept fails{withheld}"))
/// });
/// assert_eq!(said[0].as_deref(), Some("accept fails"));
/// assert_eq!(said[3].as_deref(), Some("accept fails (and 2 times more before)"));
/// assert_eq!((&said[1], &said[2]), (&None, &None));
/// ```
#[derive(Debug)]
pub struct RateLimit {
    interval: Duration,
    next_at: Timestamp,
    withheld: u64,
}

/// How many messages were withheld before the one that is let through; nothing to see where it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withheld(pub u64);

impl RateLimit {
    /// A limit that lets the first message through, and then at most one in each `interval`.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { interval, next_at: Timestamp(0), withheld: 0 }
    }

    /// Whether a message may be written now; `None` counts it as withheld.
    pub fn admit(&mut self, now: Timestamp) -> Option<Withheld> {
        if now < self.next_at {
            self.withheld += 1;
            return None;
        }
        self.next_at = now + u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        Some(Withheld(std::mem::take(&mut self.withheld)))
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => out.write_str(" (and once more before)"),
            times => write!(out, " (and {times} times more before)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn line(format: LogFormat, journal: bool) -> String {
        let mut out = Vec::new();
        let message = format_args!("accept: \"{}\"\n", 24);
        let record = Record::builder().level(Level::Warn).target("beanstalkd").args(message).build();
        write_line(&mut out, &record, format, journal, UNIX_EPOCH).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_bear_what_their_reader_lacks() {
        assert_eq!(line(LogFormat::Text, false), "1970-01-01T00:00:00.000Z warn accept: \"24\"\n\n");
        assert_eq!(line(LogFormat::Text, true), "<4>accept: \"24\"\n\n");
        let json = r#"{"time":"1970-01-01T00:00:00.000Z","level":"warn","target":"beanstalkd","message":"accept: \"24\"\n"}"#;
        assert_eq!(line(LogFormat::Json, false), format!("{json}\n"));
        assert_eq!(line(LogFormat::Json, true), format!("<4>{json}\n"));
    }

    #[test]
    fn libraries_stay_silent_however_verbose_the_server_is() {
        for (verbosity, level) in [(0, "INFO"), (1, "DEBUG"), (2, "TRACE"), (9, "TRACE")] {
            assert_eq!(default_filter(verbosity), format!("warn,beanstalkd={level}"));
        }
    }
}
