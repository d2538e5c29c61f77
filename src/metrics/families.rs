//! The names: which series there are, and what each of them means.
//!
//! Whatever `stats` and `stats-tube` tell has a series. Its name is made of the key unless this table names it
//! otherwise; a unit stands at the end of the name, and counters end in `_total`, as Prometheus wants it.

use crate::queue::TubeView;

/// A key of `stats`, the name of its series without prefix and `_total`, and its meaning.
pub struct ServerFamily {
    pub key: &'static str,
    pub name: &'static str,
    pub help: &'static str,
}

const fn server(key: &'static str, name: &'static str, help: &'static str) -> ServerFamily {
    ServerFamily { key, name, help }
}

/// The numbers of `stats`. The `cmd-` keys share one family, and the texts stand together in another.
pub const SERVER: [ServerFamily; 41] = [
    server("current-jobs-urgent", "current_jobs_urgent", "Ready jobs with a priority below 1024."),
    server("current-jobs-ready", "current_jobs_ready", "Jobs that can be reserved."),
    server("current-jobs-reserved", "current_jobs_reserved", "Jobs that clients hold."),
    server("current-jobs-delayed", "current_jobs_delayed", "Jobs whose delay is not over."),
    server("current-jobs-buried", "current_jobs_buried", "Jobs that wait for a kick."),
    server("job-timeouts", "job_timeouts", "Reservations that ran out."),
    server("total-jobs", "jobs", "Jobs put."),
    server("max-job-size", "max_job_size_bytes", "The largest body that put accepts."),
    server("current-tubes", "current_tubes", "Tubes."),
    server("current-connections", "current_connections", "Connected clients."),
    server("current-producers", "current_producers", "Connected clients that have put."),
    server("current-workers", "current_workers", "Connected clients that have reserved."),
    server("current-waiting", "current_waiting", "Clients that wait in a reserve."),
    server("total-connections", "connections", "Clients that have connected."),
    server("pid", "pid", "The process id."),
    server("rusage-utime", "cpu_user_seconds", "Processor time used in the program."),
    server("rusage-stime", "cpu_system_seconds", "Processor time used in the system."),
    server("uptime", "uptime_seconds", "Time since the start."),
    server("binlog-oldest-index", "binlog_oldest_index", "The number of the oldest binlog file."),
    server("binlog-current-index", "binlog_current_index", "The number of the binlog file that is written."),
    server("binlog-records-migrated", "binlog_records_migrated", "Records rewritten by compaction."),
    server("binlog-records-written", "binlog_records_written", "Records written."),
    server("binlog-max-size", "binlog_max_size_bytes", "The size of a binlog file."),
    server("draining", "draining", "1 while put is answered with DRAINING."),
    server("job-reserves", "job_reserves", "Reservations, by whatever command."),
    server("job-deletes", "job_deletes", "Jobs deleted."),
    server("job-releases", "job_releases", "Releases by clients."),
    server("job-buries", "job_buries", "Burials by clients."),
    server("job-kicks", "job_kicks", "Jobs kicked."),
    server("job-poisoned", "job_poisoned", "Jobs buried by --max-timeouts or --max-releases."),
    server("job-bytes", "job_bytes", "Memory that jobs take."),
    server("buffer-bytes", "buffer_bytes", "Memory for what is not a job yet, or not sent yet."),
    server("connections-refused", "refused_connections", "Connections closed because of --max-connections."),
    server("binlog-files", "binlog_files", "Binlog files, those made ahead included."),
    server("binlog-bytes", "binlog_bytes", "Their length."),
    server(
        "binlog-live-bytes",
        "binlog_live_bytes",
        "What the newest state of all jobs takes in the binlog.",
    ),
    server("binlog-syncs", "binlog_syncs", "Syncs of the binlog."),
    server(
        "binlog-sync-microseconds",
        "binlog_sync_time_seconds",
        "Time that syncs of the binlog have taken.",
    ),
    server("binlog-state", "binlog_state", "1 for the state that the binlog is in: ok, full, failed or off."),
    server("malformed-commands", "malformed_commands", "Lines answered with BAD_FORMAT or UNKNOWN_COMMAND."),
    server("rejected-puts", "rejected_puts", "Puts answered with DRAINING, JOB_TOO_BIG or OUT_OF_MEMORY."),
];

/// What is told of each tube.
#[derive(Clone, Copy)]
pub struct TubeFamily {
    /// The key of `stats-tube`.
    pub key: &'static str,
    /// The name of the series without prefix and `_total`.
    pub name: &'static str,
    pub help: &'static str,
    pub is_counter: bool,
    /// One of the states that a job is in; together they are all jobs of the tube.
    pub is_jobs_by_state: bool,
    pub read: fn(&TubeView<'_>) -> u64,
}

const fn jobs(
    key: &'static str,
    name: &'static str,
    help: &'static str,
    read: fn(&TubeView<'_>) -> u64,
) -> TubeFamily {
    TubeFamily { key, name, help, is_counter: false, is_jobs_by_state: true, read }
}

const fn gauge(
    key: &'static str,
    name: &'static str,
    help: &'static str,
    read: fn(&TubeView<'_>) -> u64,
) -> TubeFamily {
    TubeFamily { key, name, help, is_counter: false, is_jobs_by_state: false, read }
}

const fn counter(
    key: &'static str,
    name: &'static str,
    help: &'static str,
    read: fn(&TubeView<'_>) -> u64,
) -> TubeFamily {
    TubeFamily { key, name, help, is_counter: true, is_jobs_by_state: false, read }
}

/// The numbers of `stats-tube`, which are written from this table, in its order.
pub const TUBE: [TubeFamily; 19] = [
    gauge("current-jobs-urgent", "current_jobs_urgent", "Ready jobs with a priority below 1024.", |tube| {
        tube.jobs.urgent
    }),
    jobs("current-jobs-ready", "current_jobs_ready", "Jobs that can be reserved.", |tube| tube.jobs.ready),
    jobs("current-jobs-reserved", "current_jobs_reserved", "Jobs that clients hold.", |tube| {
        tube.jobs.reserved
    }),
    jobs("current-jobs-delayed", "current_jobs_delayed", "Jobs whose delay is not over.", |tube| {
        tube.jobs.delayed
    }),
    jobs("current-jobs-buried", "current_jobs_buried", "Jobs that wait for a kick.", |tube| tube.jobs.buried),
    counter("total-jobs", "jobs", "Jobs put.", |tube| tube.flow.puts),
    gauge("current-using", "current_using", "Clients that use the tube.", |tube| tube.using.into()),
    gauge("current-watching", "current_watching", "Clients that watch the tube.", |tube| {
        tube.watching.into()
    }),
    gauge("current-waiting", "current_waiting", "Clients that wait in a reserve.", |tube| {
        tube.waiting as u64
    }),
    counter("cmd-delete", "job_deletes", "Jobs deleted.", |tube| tube.flow.deletes),
    counter("cmd-pause-tube", "pauses", "Commands pause-tube.", |tube| tube.pauses),
    gauge("pause", "pause_seconds", "The length of the present pause.", |tube| tube.pause_s.into()),
    gauge("pause-time-left", "pause_time_left_seconds", "Time until the pause ends.", |tube| {
        tube.pause_left_s
    }),
    // C's keys end here.
    counter("job-reserves", "job_reserves", "Reservations, by whatever command.", |tube| tube.flow.reserves),
    counter("job-timeouts", "job_timeouts", "Reservations that ran out.", |tube| tube.flow.timeouts),
    counter("job-releases", "job_releases", "Releases by clients.", |tube| tube.flow.releases),
    counter("job-buries", "job_buries", "Burials by clients.", |tube| tube.flow.buries),
    counter("job-kicks", "job_kicks", "Jobs kicked.", |tube| tube.flow.kicks),
    counter("job-poisoned", "job_poisoned", "Jobs buried by --max-timeouts or --max-releases.", |tube| {
        tube.flow.poisoned
    }),
];
