//! The figures of the page, as JSON.
//!
//! Owns: the form that the page's script reads. The keys are those of `stats` and `stats-tube`.

use super::families::TUBE;
use super::history::SERIES;
use super::snapshot::{Choice, Snapshot, TubeSample};
use super::{SLICE_BYTES, Sources, Value, put};
use crate::json;

/// The media type.
pub const CONTENT_TYPE: &str = "application/json";

/// Tubes that the page shows: more than a person looks through.
const TUBES: usize = 500;

/// The figures, as far as they are rendered.
#[derive(Debug)]
pub struct PageData {
    snapshot: Snapshot,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Gather,
    Server,
    /// The next tube is this one.
    Tubes(usize),
}

impl PageData {
    /// Figures of which nothing is rendered yet.
    pub fn new(sources: &dyn Sources) -> Self {
        let snapshot = Snapshot::new(Choice::Fullest(TUBES), sources.queue());
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
                out.push_str("{\"stats\":{");
                write_stats(sources, out);
                out.push_str("},\"history\":{");
                write_history(sources, out);
                let omitted = self.snapshot.omitted;
                put(out, format_args!("}},\"tubes_omitted\":{omitted},\"tubes\":["));
                self.stage = Stage::Tubes(0);
                false
            }
            Stage::Tubes(first) => {
                let samples = self.snapshot.samples();
                for (place, sample) in samples.iter().enumerate().skip(first) {
                    out.push_str(if place == 0 { "" } else { "," });
                    write_tube(sample, out);
                    if out.len() >= SLICE_BYTES {
                        self.stage = Stage::Tubes(place + 1);
                        return false;
                    }
                }
                out.push_str("]}");
                true
            }
        }
    }
}

fn write_stats(sources: &dyn Sources, out: &mut String) {
    let mut separator = "";
    sources.each_value(&mut |key, value| {
        put(out, format_args!("{separator}\"{key}\":"));
        separator = ",";
        match value {
            Value::Word(word) => put(out, format_args!("{}", json::Text(word))),
            Value::Token(text) | Value::Text(text) => put(out, format_args!("{}", json::Text(&text))),
            number => put(out, format_args!("{number}")),
        }
    });
}

/// How long ago each sample was taken, and its values, series by series.
fn write_history(sources: &dyn Sources, out: &mut String) {
    let now = sources.now();
    let ages = sources.history().samples().map(|(at, _)| now.since_ns(*at) / 1_000_000);
    write_list(out, "ages_ms", ages);
    for (place, series) in SERIES.iter().enumerate() {
        out.push(',');
        write_list(out, series, sources.history().samples().map(|(_, values)| values[place]));
    }
}

fn write_list(out: &mut String, key: &str, numbers: impl Iterator<Item = u64>) {
    put(out, format_args!("\"{key}\":["));
    for (place, number) in numbers.enumerate() {
        put(out, format_args!("{}{number}", if place == 0 { "" } else { "," }));
    }
    out.push(']');
}

fn write_tube(sample: &TubeSample, out: &mut String) {
    put(out, format_args!("{{\"name\":{}", json::Text(sample.name.as_str())));
    for (family, value) in TUBE.iter().zip(sample.values) {
        put(out, format_args!(",\"{}\":{value}", family.key));
    }
    out.push('}');
}
