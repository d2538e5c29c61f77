//! The figures of the binlog's database, if there is one.

use super::{DatabaseStats, Figure, Read};

type Row = Figure<DatabaseStats>;

/// The figures of the database, for a server that keeps its binlog there.
#[rustfmt::skip]
pub const DATABASE: &[Figure<DatabaseStats>] = &[
    Row::gauge("store-epoch", "The epoch in which this server owns the queue.", |store| store.epoch),
    Row::counter("store-commits", "Transactions that the database has confirmed, heartbeats included.",
        |store| store.commits),
    Row::counter("store-reconnects", "Connections to the database after the first.", |store| store.reconnects),
    Row::gauge("store-silence", "Time since the database has confirmed a transaction.", |store| store.silence_s)
        .named("store_silence_seconds"),
    Row::new(
        "store-lease",
        "1 if the server has lately proven that it owns the queue; if it has not, it sends no reply.",
        Read::Flag(|store| store.has_lease),
    ),
    Row::new("store-replicated", "1 if the server makes sure that each commit is replicated, 0 with --allow-async.",
        Read::Flag(|store| store.is_replicated)),
    Row::gauge(
        "store-table-bytes",
        "Size of the table of the log, of all queues, before its last vacuum; 0 before the first.",
        |store| store.table_bytes,
    ),
];
