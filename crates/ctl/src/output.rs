//! Standard output: lines and tables of text, or a JSON value on each line.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use beanstalk_client::{Dictionary, JobInfo, Tag};
use serde_json::{Value, json};

use crate::failure::Result;

/// Standard output.
pub struct Output {
    json: bool,
    out: BufWriter<Stdout>,
}

impl Output {
    /// An output of JSON, or of text.
    pub fn new(json: bool) -> Self {
        Self { json, out: BufWriter::new(io::stdout()) }
    }

    /// Whether the output is JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a JSON value on a line.
    pub fn value(&mut self, value: &Value) -> Result {
        self.json_line(&value.to_string())
    }

    /// Writes lines of JSON. Characters that can control a terminal are written as JSON's escapes, which changes no
    /// value.
    pub fn json_line(&mut self, line: &str) -> Result {
        if line.chars().any(|character| controls_terminal(character) && character != '\n') {
            return Ok(writeln!(self.out, "{}", escaped_json(line))?);
        }
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Writes a line of text, with its control characters escaped.
    pub fn line(&mut self, line: &str) -> Result {
        Ok(writeln!(self.out, "{}", visible(line.as_bytes(), false))?)
    }

    /// Writes `value` if the output is JSON, otherwise `line`.
    pub fn value_or_line(&mut self, value: &Value, line: &str) -> Result {
        if self.json { self.value(value) } else { self.line(line) }
    }

    /// Writes the result of a dry run: how many jobs, tubes or clients the action would change.
    pub fn dry_run(&mut self, action: &str, matched: u64) -> Result {
        let value = json!({ "action": action, "matched": matched, "dry_run": true });
        self.value_or_line(&value, &format!("{matched} matched"))
    }

    /// Writes lines of text.
    pub fn lines(&mut self, lines: &[String]) -> Result {
        lines.iter().try_for_each(|line| self.line(line))
    }

    /// Writes a body byte for byte; on a terminal, with its control characters escaped and with a line end.
    pub fn body(&mut self, body: &[u8]) -> Result {
        if io::stdout().is_terminal() {
            return Ok(writeln!(self.out, "{}", visible(body, true))?);
        }
        Ok(self.out.write_all(body)?)
    }

    /// Flushes the buffer.
    pub fn flush(&mut self) -> Result {
        Ok(self.out.flush()?)
    }
}

/// Prints a message on standard error, on one line. All messages go through this function, because they may contain
/// text of a server that must be escaped. If standard error is closed, the program goes on without it.
pub fn say(message: &str) {
    let _ = writeln!(io::stderr(), "beanstalkctl: {}", visible(message.as_bytes(), false));
}

/// Whether a terminal may not show the character as it is: control characters of ASCII and of Latin-1, separators of
/// lines, and characters that change the direction of the text.
fn controls_terminal(character: char) -> bool {
    let changes_direction = matches!(character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || changes_direction
}

/// JSON without characters that control the terminal. Outside of its texts, JSON has no such characters except line
/// ends.
fn escaped_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match character {
            '\n' => text.push('\n'),
            // All of them have four digits.
            control if controls_terminal(control) => text.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => text.push(other),
        }
    }
    text
}

/// The bytes as text with control characters escaped, so that they cannot control the terminal.
pub fn visible(bytes: &[u8], keep_lines: bool) -> String {
    let mut text = String::new();
    for character in String::from_utf8_lossy(bytes).chars() {
        match character {
            '\n' | '\t' if keep_lines => text.push(character),
            control if controls_terminal(control) => text.extend(control.escape_default()),
            other => text.push(other),
        }
    }
    text
}

/// The lines of a table. The first `left` columns are aligned to the left, the others to the right; columns without a
/// name are left out.
pub fn table(header: &[&str], left: usize, rows: &[Vec<String>]) -> Vec<String> {
    let header = header.iter().map(|&name| name.to_owned()).collect();
    let visible_row = |row: &Vec<String>| row.iter().map(|cell| visible(cell.as_bytes(), false)).collect();
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows.iter().map(visible_row)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let shown = (0..lines[0].len()).filter(|column| !lines[0][*column].is_empty());
    let columns: Vec<(usize, usize)> = shown.map(|column| (column, width(column))).collect();
    let format_line = |line: &Vec<String>| {
        let padded = columns.iter().map(|&(column, width)| {
            if column < left {
                format!("{:<width$}", line[column])
            } else {
                format!("{:>width$}", line[column])
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(format_line).collect()
}

/// The lines of keys with their values, which need no header.
pub fn pairs(pairs: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let rows: Vec<_> = pairs.map(|(key, value)| vec![key, value]).collect();
    table(&["KEY", "VALUE"], 2, &rows).split_off(1)
}

/// A number with its noun: `1 job`, `1,234 jobs`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", with_commas(count))
}

/// The number with a comma after each group of three digits.
pub fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The numbers of jobs by state: `3 ready, 1 buried`.
pub fn by_state(counts: impl IntoIterator<Item = (impl Display, u64)>) -> String {
    let parts = counts.into_iter().map(|(state, count)| format!("{} {state}", with_commas(count)));
    parts.collect::<Vec<_>>().join(", ")
}

/// A time in seconds with its two largest units: `45s`, `3m 0s`, `2h 5m`, `4d 3h`.
pub fn age(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match () {
        () if days > 0 => format!("{days}d {hours}h"),
        () if hours > 0 => format!("{hours}h {minutes}m"),
        () if minutes > 0 => format!("{minutes}m {}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

/// The data of a stats command as a JSON object, with numbers as numbers, after the key `server`.
pub fn dictionary(server: &str, stats: &Dictionary) -> Value {
    let mut object = json!({ "server": server });
    for (key, text) in stats.iter() {
        object[key] = scalar(key, text);
    }
    object
}

/// Keys whose values are text, even if they consist of digits.
const TEXT_KEYS: &[&str] = &[
    "name",
    "tube",
    "version",
    "id",
    "hostname",
    "os",
    "platform",
    "extensions",
    "rule",
    "address",
    "identity",
    "session",
    "using",
];

fn scalar(key: &str, text: &str) -> Value {
    if TEXT_KEYS.contains(&key) {
        return json!(text);
    }
    match text {
        "true" => json!(true),
        "false" => json!(false),
        // Rust's parser takes "inf" and "1e5" for numbers; in stats they are words.
        _ if !text.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte)) => json!(text),
        _ => text
            .parse::<i64>()
            .map(Value::from)
            .or_else(|_| text.parse::<u64>().map(Value::from))
            .or_else(|_| text.parse::<f64>().map(Value::from))
            .unwrap_or_else(|_| json!(text)),
    }
}

/// A job as a JSON object. The last keys are there only if the server reports them and they apply to the job.
pub fn job(info: &JobInfo) -> Value {
    let mut value = json!({
        "id": info.id,
        "tube": info.tube,
        "state": info.state.as_str(),
        "priority": info.pri,
        "age": info.age,
        "delay": info.delay,
        "ttr": info.ttr,
        "time_left": info.time_left,
        "bytes": info.bytes,
        "reserves": info.reserves,
        "timeouts": info.timeouts,
        "releases": info.releases,
        "buries": info.buries,
        "kicks": info.kicks,
        "held": info.held,
        "tags": info.tags.iter().map(Tag::to_string).collect::<Vec<_>>(),
    });
    let waits_for = Some(&info.waits_for).filter(|words| !words.is_empty());
    let optional = [
        ("session", info.session.as_ref().map(|name| json!(name))),
        ("failures", info.failures.map(Value::from)),
        ("dead_from", info.dead_from.as_ref().map(|tube| json!(tube.as_str()))),
        ("dead_since", info.dead_since.map(Value::from)),
        ("waits_for", waits_for.map(|words| json!(words))),
    ];
    for (key, present) in optional {
        if let Some(present) = present {
            value[key] = present;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use beanstalk_client::{Client, Command, Reply};

    use super::*;

    #[test]
    fn numbers_have_commas_and_ages_have_units() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(with_commas), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([5, 65, 3_700, 90_000].map(age), ["5s", "1m 5s", "1h 1m", "1d 1h"]);
        assert_eq!((counted(1, "job"), counted(2, "job")), ("1 job".to_owned(), "2 jobs".to_owned()));
    }

    #[test]
    fn control_characters_of_bodies_are_escaped() {
        assert_eq!(visible(b"a\x1b[2Jb\nc", true), "a\\u{1b}[2Jb\nc");
        assert_eq!(visible(b"a\nb\xff", false), "a\\nb\u{fffd}");
        assert_eq!(visible("\u{9b}1m\u{202e}ä".as_bytes(), false), "\\u{9b}1m\\u{202e}ä");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = json!({ "a\u{85}": "\u{1b}[2J\u{7f}\u{9b}\u{2028}\u{202e}ä\n" });
        let text = escaped_json(&value.to_string());
        assert!(!text.chars().any(controls_terminal), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn values_of_stats_have_their_types() {
        assert_eq!(scalar("uptime", "5"), json!(5));
        assert_eq!(scalar("rusage-utime", "0.25"), json!(0.25));
        assert_eq!(scalar("draining", "false"), json!(false));
        assert_eq!(scalar("id", "123"), json!("123"));
        assert_eq!(scalar("using", "0123"), json!("0123"));
        assert_eq!(scalar("x", "inf"), json!("inf"));
        assert_eq!(scalar("x", "18446744073709551615"), json!(u64::MAX));
    }

    #[test]
    fn quoted_values_of_stats_are_text() {
        let Some(server) = beanstalkd_testkit::installed::ours(&[]) else { return };
        let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
        let clients = Command::ListClients { limit: 1, after_client: None };
        for command in [Command::Stats, Command::StatsTube("default".try_into().unwrap()), clients] {
            let Reply::Data(data) = client.call(command).unwrap() else { panic!("no data") };
            let data = String::from_utf8_lossy(data).replace("- {", "").replace(", ", "\n");
            let quoted: Vec<&str> = data
                .lines()
                .filter_map(|line| Some(line.split_once(": \"")?.0))
                .filter(|key| *key != "next")
                .collect();
            assert!(quoted.len() > 1, "{data}");
            for key in quoted {
                assert!(scalar(key, "1").is_string(), "{key}");
            }
        }
    }
}
