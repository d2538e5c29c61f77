//! The figures of the page, as JSON.
//!
//! Owns: the format that the script of the page reads. The keys are the keys of `stats` and `stats-tube`.

use serde_core::Serialize;

use super::history::SERIES;
use super::query::Query;
use crate::http::api::write::{self, write_tubes};
use crate::http::rendering::{Form, Rendering};
use crate::http::snapshot::{Choice, Snapshot};
use crate::http::{Sources, put};
use crate::json::{self, Object};
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
        json::push(out, &write::figures(&SERVER, &sources.server));
        out.push_str(",\"history\":");
        json::push(out, &history(sources));
        put(out, format_args!(",\"tubes_omitted\":{},\"tubes\":[", snapshot.omitted));
    }

    fn write_tubes(snapshot: &Snapshot, first: usize, out: &mut String) -> Option<usize> {
        if let Some(next) = write_tubes(snapshot, first, out) {
            return Some(next);
        }
        out.push_str("]}");
        None
    }
}

/// How long ago each sample was taken, then the values of each series.
pub fn history<'s>(sources: &'s Sources<'_>) -> impl Serialize + 's {
    let (now, samples) = (sources.server.now, || sources.history.samples());
    let ages: Vec<u64> = samples().map(|(at, _)| now.since_ns(*at) / 1_000_000).collect();
    let values = move |place: usize| samples().map(|(_, values)| values[place]).collect();
    let series = SERIES.into_iter().enumerate().map(move |(place, key)| (key, values(place)));
    Object([("ages_ms", ages)].into_iter().chain(series))
}
