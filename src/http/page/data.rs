//! The figures of the page, as JSON.
//!
//! Owns: the format that the script of the page reads. The keys are the keys of `stats` and `stats-tube`.

use super::history::SERIES;
use super::query::Query;
use crate::http::api::write::{write_object, write_tubes};
use crate::http::rendering::{Form, Rendering};
use crate::http::snapshot::{Choice, Snapshot};
use crate::http::{Sources, put};
use crate::stats::SERVER;

/// The media type.
pub const CONTENT_TYPE: &str = "application/json";

/// How many tubes the page shows at a time: more than a person reads. They are chosen among all tubes.
const TUBES: usize = 500;

/// The form of the figures.
#[derive(Debug)]
pub struct Json;

/// The figures with the first tubes of `query`; nothing is rendered yet.
pub fn figures(sources: &Sources<'_>, query: Query) -> Rendering<Json> {
    Rendering::new(Choice::First(TUBES, query), sources)
}

impl Form for Json {
    /// The next tube.
    type Place = usize;

    fn write_server(sources: &Sources<'_>, snapshot: &Snapshot, out: &mut String) {
        out.push_str("{\"stats\":");
        write_object(&SERVER, &sources.server, out);
        out.push_str(",\"history\":{");
        write_history(sources, out);
        put(out, format_args!("}},\"tubes_omitted\":{},\"tubes\":[", snapshot.omitted));
    }

    fn write_tubes(snapshot: &Snapshot, first: usize, out: &mut String) -> Option<usize> {
        if let Some(next) = write_tubes(snapshot, first, out) {
            return Some(next);
        }
        out.push_str("]}");
        None
    }
}

/// Writes how long ago each sample was taken, then the values of each series.
pub fn write_history(sources: &Sources<'_>, out: &mut String) {
    let now = sources.server.now;
    let ages = sources.history.samples().map(|(at, _)| now.since_ns(*at) / 1_000_000);
    write_list(out, "ages_ms", ages);
    for (place, series) in SERIES.iter().enumerate() {
        out.push(',');
        write_list(out, series, sources.history.samples().map(|(_, values)| values[place]));
    }
}

fn write_list(out: &mut String, key: &str, numbers: impl Iterator<Item = u64>) {
    put(out, format_args!("\"{key}\":["));
    for (place, number) in numbers.enumerate() {
        put(out, format_args!("{}{number}", if place == 0 { "" } else { "," }));
    }
    out.push(']');
}
