//! The figures of a tube.

use std::time::Duration;

use super::{Figure, Read, TubeStats};

type Row = Figure<TubeStats>;

/// The figures of `stats-tube`.
#[rustfmt::skip]
pub const TUBE: &[Figure<TubeStats>] = &[
    // In the metrics, the name is the label of every other figure.
    Row::plain("name", Read::Text(|tube| tube.name.as_str())),
    Row::gauge("current-jobs-urgent", "Ready jobs with a priority below 1024.", |tube| tube.jobs.urgent),
    Row::gauge("current-jobs-ready", "Ready jobs, even if a pause, a tag or a rule keeps them back.",
        |tube| tube.jobs.ready),
    Row::gauge("current-jobs-reserved", "Jobs that clients have reserved.", |tube| tube.jobs.reserved),
    Row::gauge("current-jobs-delayed", "Jobs whose delay is not over.", |tube| tube.jobs.delayed),
    Row::gauge("current-jobs-buried", "Jobs that wait for a kick.", |tube| tube.jobs.buried),
    Row::counter("total-jobs", "Jobs put.", |tube| tube.counters.puts).named("jobs"),
    Row::gauge("current-using", "Clients that use the tube.", |tube| tube.using.into()),
    Row::gauge("current-watching", "Clients that watch the tube.", |tube| tube.watching.into()),
    Row::gauge("current-waiting", "Clients that wait in a reserve.", |tube| tube.waiting as u64),
    Row::counter("cmd-delete", "Jobs deleted.", |tube| tube.counters.deletes).named("job_deletes"),
    Row::counter("cmd-pause-tube", "Commands pause-tube.", |tube| tube.pauses).named("pauses"),
    Row::gauge("pause", "The length of the present pause.", |tube| tube.pause_s.into()).named("pause_seconds"),
    Row::gauge("pause-time-left", "Time until the pause ends.", |tube| tube.pause_left_s)
        .named("pause_time_left_seconds"),
    // C's keys end here.
    Row::counter("job-reserves", "Reservations, by any command.", |tube| tube.counters.reserves),
    Row::counter("job-timeouts", "Reservations whose time to run has ended.", |tube| tube.counters.timeouts),
    Row::counter("job-releases", "Releases by clients.", |tube| tube.counters.releases),
    Row::counter("job-buries", "Burials by clients.", |tube| tube.counters.buries),
    Row::counter("job-kicks", "Jobs kicked.", |tube| tube.counters.kicks),
    Row::counter("job-poisoned", "Jobs buried by --max-timeouts, --max-releases or a rule.",
        |tube| tube.counters.poisoned),
    Row::counter("job-expirations", "Jobs deleted because their tag exp, or the max-age of a rule, was over.",
        |tube| tube.counters.expirations),
    Row::gauge("current-cooldowns", "Keys of deleted jobs that still count.", |tube| tube.cooldowns.count),
    Row::gauge("cooldown-bytes", "Memory that the cooldowns take.", |tube| tube.cooldowns.bytes),
    Row::gauge("oldest-ready-age", "Time since the put of the oldest ready job.", |tube| tube.oldest_ready_age_s)
        .named("oldest_ready_age_seconds"),
    Row::gauge("oldest-delayed-age", "Time since the put of the oldest delayed job.", |tube| tube.oldest_delayed_age_s)
        .named("oldest_delayed_age_seconds"),
    Row::gauge("oldest-buried-age", "Time since the put of the oldest buried job.", |tube| tube.oldest_buried_age_s)
        .named("oldest_buried_age_seconds"),
    Row::plain("oldest-ready-id", Read::Gauge(|tube| tube.oldest_ready.map_or(0, |id| id.0))),
    // The metrics have histograms of these, from which any percentile can be computed.
    Row::plain("wait-time-count", Read::Gauge(|tube| tube.wait().count)),
    Row::plain("wait-time-mean", Read::Seconds(|tube| Duration::from_nanos(tube.wait().mean_ns))),
    Row::plain("wait-time-p50", Read::Seconds(|tube| Duration::from_nanos(tube.wait().p50_ns))),
    Row::plain("wait-time-p95", Read::Seconds(|tube| Duration::from_nanos(tube.wait().p95_ns))),
    Row::plain("wait-time-p99", Read::Seconds(|tube| Duration::from_nanos(tube.wait().p99_ns))),
    Row::plain("wait-time-max", Read::Seconds(|tube| Duration::from_nanos(tube.wait().max_ns))),
    Row::plain("run-time-count", Read::Gauge(|tube| tube.run().count)),
    Row::plain("run-time-mean", Read::Seconds(|tube| Duration::from_nanos(tube.run().mean_ns))),
    Row::plain("run-time-p50", Read::Seconds(|tube| Duration::from_nanos(tube.run().p50_ns))),
    Row::plain("run-time-p95", Read::Seconds(|tube| Duration::from_nanos(tube.run().p95_ns))),
    Row::plain("run-time-p99", Read::Seconds(|tube| Duration::from_nanos(tube.run().p99_ns))),
    Row::plain("run-time-max", Read::Seconds(|tube| Duration::from_nanos(tube.run().max_ns))),
    Row::plain("rule", Read::Text(|tube| tube.rule.as_ref().map_or("", |rule| &rule.pattern))),
    Row::counter("rejected-full", "Puts, moves and dead jobs for which the tube had no room.", |tube| tube.rejected),
    Row::counter("dead-jobs", "Jobs that were sent from the tube to its dead tube.", |tube| tube.dead),
    Row::gauge("throttled", "1 while a rule lets none of its jobs be reserved.", |tube| tube.is_throttled.into()),
];
