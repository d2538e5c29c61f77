//! The metrics in the text format of Prometheus (version 0.0.4).
//!
//! Owns: the order of the series. The format requires that all lines of a family are together, so the tubes of the
//! snapshot are read once for each family.

use std::fmt::Display;

use super::rendering::{Rendering, ResponseFormat};
use super::snapshot::{Snapshot, TubeChoice};
use super::{SLICE_BYTES, Sources, put};
use crate::clock::{NS_PER_S, Timestamp};
use crate::queue::{Durations, TOTAL_BOUNDS, TubeView};
use crate::stats::{
    DATABASE, Figure, Histogram, IDENTITY, IdentityView, Read, SERVER, Series, ServerView, StatsSubject,
    TUBE, Timings,
};
use crate::tls;

/// The media type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text format.
#[derive(Debug)]
pub(crate) struct TextFormat;

/// The next line: the row of its figure in the table, and the index of its tube.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NextLine {
    row: usize,
    tube: usize,
}

/// A scrape with the series of at most this many tubes; nothing is rendered yet.
pub(crate) fn scrape(max_tubes: usize, sources: &Sources<'_>) -> Rendering<TextFormat> {
    Rendering::new(TubeChoice::Oldest(max_tubes), sources)
}

impl ResponseFormat for TextFormat {
    type Position = NextLine;

    fn write_server(sources: &Sources<'_>, snapshot: &Snapshot, out: &mut String) {
        write_server(sources, snapshot.omitted, out);
    }

    fn write_tubes(snapshot: &Snapshot, position: NextLine, out: &mut String) -> Option<NextLine> {
        let tubes = snapshot.tubes();
        if tubes.is_empty() {
            return None;
        }
        let mut start = position.tube;
        // After the last row of the table, this loop does nothing.
        for (row, figure) in TUBE.iter().enumerate().skip(position.row) {
            let Some(family) = Family::of(figure, "tube_") else { continue };
            if start == 0 {
                head(out, &family.name, family.kind, family.help);
            }
            for (index, tube) in tubes.iter().enumerate().skip(start) {
                // Tube names contain no byte that needs an escape.
                let parts = [family.name.as_str(), "{tube=\"", tube.name.as_str(), "\"} "];
                parts.into_iter().for_each(|part| out.push_str(part));
                push_value(out, &figure.read, tube);
                out.push('\n');
                let next = index + 1;
                if out.len() >= SLICE_BYTES && next < tubes.len() {
                    return Some(NextLine { row, tube: next });
                }
            }
            start = 0;
        }
        let position = NextLine { row: position.row.max(TUBE.len()), tube: start };
        write_times(tubes, position, out)
    }
}

type TimesOf = fn(&TubeView) -> Durations;

/// The histograms of the tubes from which a job was reserved; they come after the rows of the table.
const TIMES: [(&str, &str, TimesOf); 2] = [
    ("beanstalkd_tube_wait_seconds", "How long jobs were ready before they were reserved.", TubeView::wait),
    ("beanstalkd_tube_run_seconds", "How long clients had jobs before they deleted them.", TubeView::run),
];

/// Writes histograms of tubes until `out` has a slice; returns the position after them.
fn write_times(tubes: &[TubeView], position: NextLine, out: &mut String) -> Option<NextLine> {
    if tubes.iter().all(|tube| tube.times.is_none()) {
        return None;
    }
    let mut start = position.tube;
    for (row, &(family, help, read)) in TIMES.iter().enumerate().skip(position.row - TUBE.len()) {
        if start == 0 {
            head(out, family, "histogram", help);
        }
        for (index, tube) in tubes.iter().enumerate().skip(start).filter(|(_, tube)| tube.times.is_some()) {
            write_durations(family, tube.name.as_str(), &read(tube), out);
            if out.len() >= SLICE_BYTES && index + 1 < tubes.len() {
                return Some(NextLine { row: TUBE.len() + row, tube: index + 1 });
            }
        }
        start = 0;
    }
    None
}

fn write_durations(family: &str, tube: &str, durations: &Durations, out: &mut String) {
    let mut sum = 0;
    let bounds = TOTAL_BOUNDS.iter().copied().chain(["+Inf"]);
    for (bound, count) in bounds.zip(durations.totals) {
        sum += count;
        put(out, format_args!("{family}_bucket{{tube=\"{tube}\",le=\"{bound}\"}} {sum}\n"));
    }
    let total = NsAsSeconds(durations.total_sum_ns);
    put(out, format_args!("{family}_sum{{tube=\"{tube}\"}} {total}\n"));
    put(out, format_args!("{family}_count{{tube=\"{tube}\"}} {sum}\n"));
}

/// A figure with a family of its own.
struct Family {
    name: String,
    kind: &'static str,
    help: &'static str,
}

impl Family {
    /// The family of `figure`, with a name that begins with `prefix`; `None` if the figure has no family of its own.
    fn of<S: StatsSubject>(figure: &Figure<S>, prefix: &str) -> Option<Self> {
        let Series::Own { name, help } = figure.series else { return None };
        let (kind, total) = match figure.read {
            Read::Counter(_) | Read::Command(..) | Read::Seconds(_) | Read::Microseconds(_) => {
                ("counter", "_total")
            }
            Read::Gauge(_) | Read::Flag(_) | Read::Word(_) | Read::Text(_) => ("gauge", ""),
        };
        let name = name.map_or_else(|| figure.key.replace('-', "_"), str::to_owned);
        Some(Self { name: format!("beanstalkd_{prefix}{name}{total}"), kind, help })
    }
}

/// Writes a value in the unit of the metrics. A word has the value 1, because the word itself is a label.
fn push_value<S: StatsSubject>(out: &mut String, read: &Read<S>, view: &S::View<'_>) {
    let mut buffer = itoa::Buffer::new();
    match read {
        Read::Counter(read) | Read::Gauge(read) => out.push_str(buffer.format(read(view))),
        Read::Command(read, verb) => out.push_str(buffer.format(read(view, *verb))),
        Read::Microseconds(read) => {
            put(out, format_args!("{}", NsAsSeconds(read(view).saturating_mul(1000))))
        }
        Read::Seconds(read) => put(out, format_args!("{}", NsAsSeconds(read(view).as_nanos() as u64))),
        Read::Flag(read) => out.push(if read(view) { '1' } else { '0' }),
        Read::Word(_) | Read::Text(_) => out.push('1'),
    }
}

/// Writes a line of a family.
fn row<S: StatsSubject>(
    out: &mut String,
    family: &Family,
    labels: &[(&str, &str)],
    read: &Read<S>,
    view: &S::View<'_>,
) {
    push_series(out, &family.name, labels);
    push_value(out, read, view);
    out.push('\n');
}

/// Writes all metrics except the metrics of tubes.
fn write_server(sources: &Sources<'_>, omitted: usize, out: &mut String) {
    let server = &sources.server;
    write_figures(server, out);
    write_identities(server, out);
    write_database(server, out);
    let help = "Tubes without series because of --metrics-tubes.";
    single(out, "beanstalkd_metrics_tubes_omitted", "gauge", help, omitted);
    let Timings { turns, commands, syncs } = server.timings;
    let help = "Turns of the loop, from waking to handing all replies to the system.";
    histogram(out, "beanstalkd_turn_seconds", help, turns);
    let help = "Commands, each with the turn that executed it; waiting for a job is not counted.";
    histogram(out, "beanstalkd_command_seconds", help, commands);
    let help = "Syncs of the binlog, from request to completion.";
    histogram(out, "beanstalkd_binlog_sync_seconds", help, syncs);
    if let Some(tls) = &server.tls {
        write_tls(tls, server.now, out);
    }
    write_process(sources, out);
}

/// Writes the figures of the TLS listeners.
fn write_tls(tls: &tls::TlsFigures, now: Timestamp, out: &mut String) {
    let connections = "Connections over TLS, those in their handshake included.";
    single(out, "beanstalkd_tls_connections", "gauge", connections, tls.open_connections);
    let handshakes = "beanstalkd_tls_handshakes_total";
    head(out, handshakes, "counter", "TLS handshakes that succeeded.");
    line(out, handshakes, &[("kind", "full")], tls.full_handshakes);
    line(out, handshakes, &[("kind", "resumed")], tls.resumed_handshakes);
    let failures = "beanstalkd_tls_handshake_failures_total";
    head(out, failures, "counter", "TLS handshakes that failed, by reason.");
    for (reason, count) in tls.failed_handshakes {
        line(out, failures, &[("reason", reason)], count);
    }
    let left_s = tls.expires_at_s as i64 - (now.0 / NS_PER_S) as i64;
    let days = "Days until the certificate of --tls-cert expires; negative afterwards.";
    single(out, "beanstalkd_tls_certificate_days_left", "gauge", days, left_s.div_euclid(86_400));
}

/// Writes the figures of the identities of access rules.
fn write_identities(server: &ServerView<'_>, out: &mut String) {
    let Some(identities) = server.identities else { return };
    for figure in IDENTITY {
        let Some(family) = Family::of(figure, "") else { continue };
        head(out, &family.name, family.kind, family.help);
        for figures in identities.figures() {
            // Names contain no byte that needs an escape.
            let view = IdentityView { figures, queue: server.queue };
            row(out, &family, &[("identity", &figures.name)], &figure.read, &view);
        }
    }
}

/// Writes the figures of the binlog's database.
fn write_database(server: &ServerView<'_>, out: &mut String) {
    let Some(database) = &server.binlog.database else { return };
    for figure in DATABASE {
        let Some(family) = Family::of(figure, "") else { continue };
        head(out, &family.name, family.kind, family.help);
        row(out, &family, &[], &figure.read, database);
    }
}

/// Writes the figures of `stats`: first the figures with families of their own, then all commands, then all texts.
fn write_figures(server: &ServerView<'_>, out: &mut String) {
    for figure in SERVER.iter() {
        let Some(family) = Family::of(figure, "") else { continue };
        head(out, &family.name, family.kind, family.help);
        let state = if let Read::Word(read) = figure.read { Some(("state", read(server))) } else { None };
        row(out, &family, state.as_slice(), &figure.read, server);
    }
    head(out, "beanstalkd_commands_total", "counter", "Commands, by their word in the protocol.");
    for figure in SERVER.iter().filter(|figure| matches!(figure.series, Series::Command)) {
        let command = figure.key.trim_start_matches("cmd-");
        line(out, "beanstalkd_commands_total", &[("command", command)], figure.value(server));
    }
    head(out, "beanstalkd_info", "gauge", "1, with facts about the server as labels.");
    let texts = SERVER.iter().filter(|figure| matches!(figure.series, Series::Info));
    let texts: Vec<_> = texts.map(|figure| (figure.key, figure.value(server).to_string())).collect();
    let texts: Vec<_> = texts.iter().map(|(key, text)| (*key, text.as_str())).collect();
    line(out, "beanstalkd_info", &texts, 1);
}

/// Writes the metrics of the process, under the names that all exporters use.
fn write_process(sources: &Sources<'_>, out: &mut String) {
    let Sources { server, usage, .. } = sources;
    let cpu = (server.info.cpu_time)();
    let usage = usage(server.queue.figures().clients);
    let cpu_time = NsAsSeconds((cpu.user + cpu.system).as_nanos() as u64);
    single(out, "process_cpu_seconds_total", "counter", "Processor time used.", cpu_time);
    let started_at = NsAsSeconds(server.info.started_at.0);
    single(out, "process_start_time_seconds", "gauge", "Start of the process since 1970.", started_at);
    let optional = [
        ("process_resident_memory_bytes", "Memory in RAM.", usage.resident_bytes),
        ("process_virtual_memory_bytes", "Address space.", usage.virtual_bytes),
        ("process_open_fds", "Open descriptors.", usage.open_files),
        ("process_max_fds", "The maximum number of open descriptors.", usage.max_files),
    ];
    for (name, help, value) in optional {
        if let Some(value) = value {
            single(out, name, "gauge", help, value);
        }
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
    line(out, &format!("{name}_sum"), &[], NsAsSeconds(histogram.sum_ns()));
    line(out, &format!("{name}_count"), &[], histogram.count());
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    put(out, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl Display) {
    push_series(out, name, labels);
    put(out, format_args!("{value}\n"));
}

/// Writes the part of a line before the value.
fn push_series(out: &mut String, name: &str, labels: &[(&str, &str)]) {
    out.push_str(name);
    for (index, (label, text)) in labels.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        put(out, format_args!("{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' }));
    }
    out.push_str(if labels.is_empty() { " " } else { "} " });
}

/// Nanoseconds, written as seconds.
struct NsAsSeconds(u64);

impl Display for NsAsSeconds {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
