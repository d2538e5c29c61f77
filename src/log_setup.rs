//! How the log is written: the level and the format.
//!
//! Owns: the choice of the lines' form, made once by `start`. Never decides what is logged. `main` drives it.
//!
//! A line on a terminal or in a file bears its time, level and message. Where stderr is the journal, the
//! journal keeps the time, and the level goes before the line as `<N>`, as `sd-daemon(3)` says.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use env_logger::{Builder, Target};
use humantime::format_rfc3339_millis;
use log::{Level, LevelFilter, Record};

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
