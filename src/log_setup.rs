//! Sets up the log: its level and its format.
//!
//! Owns: the format of the lines, which `start` chooses once. Never decides what is logged. `main` drives it.
//!
//! A line on a terminal or in a file has its time, level and message. If stderr is the journal, the
//! journal adds the time, and the level is before the line as `<N>`, as `sd-daemon(3)` specifies.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use env_logger::{Builder, Target};
use humantime::format_rfc3339_millis;
use log::kv::{self, Key, Value, VisitSource};
use log::{Level, LevelFilter, Record};
use serde_core::ser::{Error as _, Serialize, SerializeMap, Serializer};

use crate::json;
use crate::options::LogFormat;

/// Starts the log on stderr. `verbosity` counts `-V`: one for connections, two for commands and replies. The variable
/// `RUST_LOG` overrides it; there, the crates of the server are modules of `beanstalkd`, as in `target`.
///
/// # Panics
/// If it is called twice.
pub fn start(format: LogFormat, verbosity: u8) {
    let is_journal = stderr_is_journal();
    let mut builder = Builder::new();
    builder
        .target(Target::Stderr)
        .parse_filters(
            &std::env::var("RUST_LOG").map_or_else(|_| default_filter(verbosity), |text| by_crate(&text)),
        )
        .format(move |out, record| write_line(out, record, format, is_journal, SystemTime::now()))
        .init();
}

/// Formats a number with a noun: `1 job`, `2 jobs`.
pub struct Count(pub u64, pub &'static str);

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, thing) = self;
        write!(out, "{count} {thing}{}", if *count == 1 { "" } else { "s" })
    }
}

/// Reports an error on stderr in one line before the log has started; in the journal it has the priority of an error.
pub fn report(program: &str, message: fmt::Arguments<'_>) {
    if stderr_is_journal() {
        eprintln!("<{}>{message}", priority(Level::Error));
    } else {
        eprintln!("{program}: {message}");
    }
}

/// The filter that applies without `RUST_LOG`. From the dependencies it logs only warnings and errors.
fn default_filter(verbosity: u8) -> String {
    let level = match verbosity {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    format!("warn,{}={level}", env!("CARGO_PKG_NAME"))
}

/// The prefix of the names of the server's crates.
const CRATE: &str = concat!(env!("CARGO_PKG_NAME"), "_");
/// The prefix of the crates in filters and in the log, which do not show the division into crates.
const MODULE: &str = concat!(env!("CARGO_PKG_NAME"), "::");
/// The only crate below the server that logs.
const LOGGING: &str = "binlog";

/// A filter with the full names of the crates.
fn by_crate(filter: &str) -> String {
    filter.replace(&format!("{MODULE}{LOGGING}"), &format!("{CRATE}{LOGGING}"))
}

/// The module of a record.
fn module_of(target: &str) -> String {
    target.strip_prefix(CRATE).map_or_else(|| target.to_owned(), |rest| format!("{MODULE}{rest}"))
}

fn write_line(
    out: &mut dyn Write,
    record: &Record<'_>,
    format: LogFormat,
    is_journal: bool,
    time: SystemTime,
) -> io::Result<()> {
    if is_journal {
        write!(out, "<{}>", priority(record.level()))?;
    }
    match format {
        LogFormat::Json => json::write_line(out, &JsonLine { time, record }),
        LogFormat::Text if is_journal => writeln!(out, "{}", record.args()),
        LogFormat::Text => {
            writeln!(out, "{} {} {}", format_rfc3339_millis(time), word(record.level()), record.args())
        }
    }
}

/// A record as a JSON object.
struct JsonLine<'r> {
    time: SystemTime,
    record: &'r Record<'r>,
}

impl Serialize for JsonLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { time, record } = self;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("time", &format_args!("{}", format_rfc3339_millis(*time)))?;
        line.serialize_entry("level", word(record.level()))?;
        line.serialize_entry("target", &module_of(record.target()))?;
        line.serialize_entry("message", record.args())?;
        record.key_values().visit(&mut RecordFields(&mut line)).map_err(S::Error::custom)?;
        line.end()
    }
}

/// The fields of a record as members of its object: numbers as numbers, and all others as texts.
struct RecordFields<'m, M>(&'m mut M);

impl<'kvs, M: SerializeMap> VisitSource<'kvs> for RecordFields<'_, M> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        let written = match value.to_u64() {
            Some(number) => self.0.serialize_entry(key.as_str(), &number),
            None => self.0.serialize_entry(key.as_str(), &format_args!("{value}")),
        };
        written.map_err(|_| kv::Error::msg("a field cannot be written"))
    }
}

/// The level as a priority of `syslog(3)`.
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

/// Whether stderr is the journal's stream. Children whose stderr is redirected inherit `JOURNAL_STREAM`,
/// so its value is compared with stderr (`systemd.exec(5)`).
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

    fn line(format: LogFormat, is_journal: bool) -> String {
        written(format, is_journal, format_args!("accept: \"{}\"\n", 24))
    }

    /// The message is an argument, because only Rust 1.89 and later keep the parts of `format_args!` in a `let` alive.
    fn written(format: LogFormat, is_journal: bool, message: fmt::Arguments<'_>) -> String {
        let mut out = Vec::new();
        let record = Record::builder().level(Level::Warn).target("beanstalkd").args(message).build();
        write_line(&mut out, &record, format, is_journal, UNIX_EPOCH).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_in_the_journal_has_a_priority_and_no_time() {
        assert_eq!(line(LogFormat::Text, false), "1970-01-01T00:00:00.000Z warn accept: \"24\"\n\n");
        assert_eq!(line(LogFormat::Text, true), "<4>accept: \"24\"\n\n");
        let message = r#""message":"accept: \"24\"\n""#;
        let json = format!(
            r#"{{"time":"1970-01-01T00:00:00.000Z","level":"warn","target":"beanstalkd",{message}}}"#
        );
        assert_eq!(line(LogFormat::Json, false), format!("{json}\n"));
        assert_eq!(line(LogFormat::Json, true), format!("<4>{json}\n"));
    }

    #[test]
    fn fields_are_members_of_the_object() {
        let fields = [("identity", Value::from("a\"b")), ("withheld", Value::from(7_u64))];
        let mut out = Vec::new();
        let record = Record::builder().args(format_args!("x")).key_values(&fields).build();
        write_line(&mut out, &record, LogFormat::Json, false, UNIX_EPOCH).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert!(line.ends_with("\"message\":\"x\",\"identity\":\"a\\\"b\",\"withheld\":7}\n"), "{line}");
    }

    #[test]
    fn the_crates_of_the_server_are_modules_in_filters_and_in_the_log() {
        let filter = "warn,beanstalkd::binlog=debug,beanstalkd::server=trace,beanstalkd=info/lease";
        assert_eq!(
            by_crate(filter),
            "warn,beanstalkd_binlog=debug,beanstalkd::server=trace,beanstalkd=info/lease"
        );
        assert_eq!(by_crate("beanstalkd_binlog::postgres=debug"), "beanstalkd_binlog::postgres=debug");
        for (target, module) in [
            ("beanstalkd_binlog::postgres::claim", "beanstalkd::binlog::postgres::claim"),
            ("beanstalkd::server", "beanstalkd::server"),
            ("rustls::conn", "rustls::conn"),
        ] {
            assert_eq!(module_of(target), module);
        }
    }

    #[test]
    fn dependencies_log_only_warnings_at_any_verbosity() {
        for (verbosity, level) in [(0, "INFO"), (1, "DEBUG"), (2, "TRACE"), (9, "TRACE")] {
            assert_eq!(default_filter(verbosity), format!("warn,beanstalkd={level}"));
        }
    }
}
