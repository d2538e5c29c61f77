//! The metrics in the text format of Prometheus (version 0.0.4).
//!
//! Owns: the order of the series. All lines of a family stand together, as the format demands, so the tubes are
//! gone through once for each family; their figures are those of the snapshot.

use std::fmt::Display;

use super::families::{SERVER, TUBE};
use super::snapshot::{Choice, Snapshot};
use super::{Histogram, ProcessFigures, SLICE_BYTES, Sources, Value, put};
use crate::clock::Timestamp;

/// The media type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is said of a key that the table of names lacks.
const UNNAMED_HELP: &str = "See stats.";

/// A scrape, as far as it is rendered.
#[derive(Debug)]
pub struct Scrape {
    snapshot: Snapshot,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Gather,
    Server,
    /// The next line is that of this sample in this family.
    Tubes {
        family: usize,
        sample: usize,
    },
}

impl Scrape {
    /// A scrape of which nothing is rendered yet.
    pub fn new(sources: &dyn Sources) -> Self {
        let snapshot = Snapshot::new(Choice::Oldest(sources.max_tubes()), sources.queue());
        Self { snapshot, stage: Stage::Gather }
    }

    /// Does a slice of the work; tells whether it was the last one.
    pub fn render(&mut self, sources: &dyn Sources, out: &mut String) -> bool {
        match self.stage {
            Stage::Gather => {
                if self.snapshot.gather(sources.queue(), sources.now()) {
                    self.stage = Stage::Server;
                }
                false
            }
            Stage::Server => {
                write_server(sources, self.snapshot.omitted, out);
                self.stage = Stage::Tubes { family: 0, sample: 0 };
                self.snapshot.samples().is_empty()
            }
            Stage::Tubes { family, sample } => {
                let next = self.write_tubes(family, sample, out);
                next.is_none_or(|stage| {
                    self.stage = stage;
                    false
                })
            }
        }
    }

    /// Writes lines of tubes until there is a slice of them; returns where to go on.
    fn write_tubes(&self, first_family: usize, first_sample: usize, out: &mut String) -> Option<Stage> {
        let mut start = first_sample;
        for (number, family) in TUBE.iter().enumerate().skip(first_family) {
            let total = if family.is_counter { "_total" } else { "" };
            let name = format!("beanstalkd_tube_{}{total}", family.name);
            if start == 0 {
                head(out, &name, if family.is_counter { "counter" } else { "gauge" }, family.help);
            }
            for (place, sample) in self.snapshot.samples().iter().enumerate().skip(start) {
                // The bytes that a tube's name may have need no escapes.
                let parts = [name.as_str(), "{tube=\"", sample.name.as_str(), "\"} "];
                parts.into_iter().for_each(|part| out.push_str(part));
                out.push_str(itoa::Buffer::new().format(sample.values[number]));
                out.push('\n');
                let next = place + 1;
                if out.len() >= SLICE_BYTES && next < self.snapshot.samples().len() {
                    return Some(Stage::Tubes { family: number, sample: next });
                }
            }
            start = 0;
        }
        None
    }
}

/// Everything but the tubes.
fn write_server(sources: &dyn Sources, omitted: usize, out: &mut String) {
    let mut commands = Vec::new();
    let mut texts = Vec::new();
    sources.each_value(&mut |key, value| match (key.strip_prefix("cmd-"), value) {
        (Some(command), Value::Counter(number)) => commands.push((command, number)),
        (_, Value::Text(text) | Value::Token(text)) => texts.push((key, text)),
        (_, Value::Word(word @ ("true" | "false"))) => number(out, key, "gauge", u8::from(word == "true")),
        (_, Value::Word(word)) => state(out, key, word),
        (_, Value::Counter(us)) if key.ends_with("-microseconds") => {
            number(out, key, "counter", Seconds(us.saturating_mul(1000)));
        }
        (_, Value::Counter(count)) => number(out, key, "counter", count),
        (_, Value::Gauge(count)) => number(out, key, "gauge", count),
        (_, Value::Seconds(time)) => number(out, key, "counter", Seconds(time.as_nanos() as u64)),
    });
    head(out, "beanstalkd_commands_total", "counter", "Commands, by their word in the protocol.");
    for (command, count) in commands {
        line(out, "beanstalkd_commands_total", &[("command", command)], count);
    }
    head(out, "beanstalkd_info", "gauge", "1, with what the server says of itself.");
    let labels: Vec<_> = texts.iter().map(|(key, text)| (*key, text.as_str())).collect();
    line(out, "beanstalkd_info", &labels, 1);
    single(
        out,
        "beanstalkd_metrics_tubes_omitted",
        "gauge",
        "Tubes without series because of --metrics-tubes.",
        omitted,
    );
    let timings = sources.timings();
    histogram(
        out,
        "beanstalkd_turn_seconds",
        "Turns of the loop, from waking to handing all replies to the system.",
        &timings.turns,
    );
    histogram(
        out,
        "beanstalkd_command_seconds",
        "Commands, each with the turn that executed it; waiting for a job is not counted.",
        &timings.commands,
    );
    histogram(
        out,
        "beanstalkd_binlog_sync_seconds",
        "Syncs of the binlog, from request to completion.",
        &timings.syncs,
    );
    process(out, &sources.process(), sources.started_at());
}

/// The process, under the names that all exporters share.
fn process(out: &mut String, figures: &ProcessFigures, started_at: Timestamp) {
    single(
        out,
        "process_cpu_seconds_total",
        "counter",
        "Processor time used.",
        Seconds(figures.cpu.as_nanos() as u64),
    );
    single(
        out,
        "process_start_time_seconds",
        "gauge",
        "Start of the process since 1970.",
        Seconds(started_at.0),
    );
    let optional = [
        ("process_resident_memory_bytes", "Memory in RAM.", figures.resident_bytes),
        ("process_virtual_memory_bytes", "Address space.", figures.virtual_bytes),
        ("process_open_fds", "Open descriptors.", figures.open_files),
        ("process_max_fds", "The most descriptors that may be open.", figures.max_files),
    ];
    for (name, help, value) in optional {
        if let Some(value) = value {
            single(out, name, "gauge", help, value);
        }
    }
}

/// The series of a key of `stats` that is a number.
fn number(out: &mut String, key: &str, kind: &str, value: impl Display) {
    let (name, help) = named(key);
    let total = if kind == "counter" { "_total" } else { "" };
    single(out, &format!("{name}{total}"), kind, help, value);
}

/// The series of a key of `stats` that is a word: the word is a label.
fn state(out: &mut String, key: &str, word: &str) {
    let (name, help) = named(key);
    head(out, &name, "gauge", help);
    line(out, &name, &[("state", word)], 1);
}

/// The name, without `_total`, and the meaning of the series of a key.
fn named(key: &str) -> (String, &'static str) {
    match SERVER.iter().find(|family| family.key == key) {
        Some(family) => (format!("beanstalkd_{}", family.name), family.help),
        None => (format!("beanstalkd_{}", key.replace('-', "_")), UNNAMED_HELP),
    }
}

fn single(out: &mut String, name: &str, kind: &str, help: &str, value: impl Display) {
    head(out, name, kind, help);
    line(out, name, &[], value);
}

fn histogram(out: &mut String, name: &str, help: &str, histogram: &Histogram) {
    head(out, name, "histogram", help);
    let bucket = format!("{name}_bucket");
    for (bound, count) in histogram.buckets() {
        line(out, &bucket, &[("le", bound)], count);
    }
    line(out, &bucket, &[("le", "+Inf")], histogram.count());
    line(out, &format!("{name}_sum"), &[], Seconds(histogram.sum_ns()));
    line(out, &format!("{name}_count"), &[], histogram.count());
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    put(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl Display) {
    out.push_str(name);
    for (place, (label, text)) in labels.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        put(out, format_args!("{}{label}=\"{text}\"", if place == 0 { '{' } else { ',' }));
    }
    put(out, format_args!("{} {value}\n", if labels.is_empty() { "" } else { "}" }));
}

/// Nanoseconds, written as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
