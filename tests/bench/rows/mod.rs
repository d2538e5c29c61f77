//! The rows of the table.
//!
//! Owns: the list of sections, in the order in which they are measured and printed.

mod backlog;
mod batches;
mod binlog;
mod connections;
mod cycles;
mod hand_over;
mod handing_on;
mod hostile;
mod hostile_anonymous;
mod hostile_cost;
mod hostile_http;
mod hostile_memory;
mod instructions;
mod rules;
mod scale;
mod spin;
mod start;
mod store;
mod tls;
mod tubes;

use crate::load::Load;
use crate::runner::Bench;
use crate::table::{Row, Target};

/// The rows that one measurement yields.
pub struct Section {
    /// The name, which `--rows` selects by its words.
    pub name: &'static str,
    /// Measures all its rows.
    pub measure: fn(&Bench) -> Vec<Row>,
}

const LARGE_BODY_BYTES: usize = 16 * 1024;
/// After this many connections the generator waits until the server has accepted them, so that the listener's backlog
/// never overflows.
const CONNECTIONS_AT_ONCE: usize = 100;

pub const SECTIONS: &[Section] = &[
    Section {
        name: "32x1",
        measure: |bench| cycles::cost(bench, "32 x 1", Load::new(32, 1), Target::TimesFloor(1.08)),
    },
    Section { name: "8x1 system calls", measure: cycles::system_calls },
    Section {
        name: "1000x1",
        measure: |bench| cycles::cost(bench, "1000 x 1", Load::new(1000, 1), Target::TimesFloor(1.12)),
    },
    Section {
        name: "32x32",
        measure: |bench| cycles::cost(bench, "32 x 32", Load::new(32, 32), Target::TimesFloor(2.0)),
    },
    Section {
        name: "1x256",
        measure: |bench| cycles::cost(bench, "1 x 256", Load::new(1, 256), Target::TimesFloor(2.2)),
    },
    Section {
        name: "16 KiB bodies",
        measure: |bench| {
            let load = Load { body_bytes: LARGE_BODY_BYTES, ..Load::new(8, 16) };
            cycles::cost(bench, "16 KiB bodies, 8 x 16", load, Target::TimesFloor(1.3))
        },
    },
    Section { name: "32x32 tags", measure: cycles::tagged },
    Section { name: "rules", measure: rules::cost },
    Section { name: "rules crowd", measure: rules::crowd },
    Section { name: "redis", measure: cycles::beside_redis },
    Section { name: "batches", measure: batches::cost },
    Section { name: "complete", measure: handing_on::by_complete },
    Section { name: "instructions", measure: instructions::of_a_job },
    Section { name: "backlog", measure: backlog::ready },
    Section { name: "backlog random", measure: backlog::random_priorities },
    Section { name: "backlog delayed", measure: backlog::delayed },
    Section { name: "backlog 10M", measure: backlog::ten_million },
    Section { name: "waiting", measure: connections::waiting },
    Section { name: "delivery", measure: connections::delivery },
    Section { name: "tubes", measure: tubes::many },
    Section { name: "binlog 32x32", measure: binlog::cost },
    Section { name: "binlog sessions", measure: binlog::sessions },
    Section { name: "binlog 32x1 p99.9", measure: binlog::tail_latency },
    Section {
        name: "binlog -f0 64x1",
        measure: |bench| binlog::synced_rate(bench, "64 x 1", Load::new(64, 1), 13.0),
    },
    Section {
        name: "binlog -f0 32x32",
        measure: |bench| binlog::synced_rate(bench, "32 x 32", Load::new(32, 32), 60.0),
    },
    Section { name: "binlog start", measure: start::on_binlog },
    Section { name: "store 1x1", measure: |bench| store::rates(bench, "1 x 1", Load::new(1, 1)) },
    Section { name: "store 64x1", measure: |bench| store::rates(bench, "64 x 1", Load::new(64, 1)) },
    Section { name: "store 32x32", measure: |bench| store::rates(bench, "32 x 32", Load::new(32, 32)) },
    Section { name: "store takeover", measure: store::takeover },
    Section { name: "store start", measure: store::start },
    Section { name: "store tables", measure: store::tables },
    Section { name: "empty start", measure: start::empty },
    Section { name: "handover", measure: hand_over::pauses },
    Section { name: "scale: jobs", measure: scale::jobs },
    Section { name: "scale: tubes", measure: scale::tubes },
    Section { name: "scale: connections", measure: scale::connections },
    Section { name: "scale: watched", measure: scale::watched },
    Section { name: "spin", measure: spin::round_trips },
    Section { name: "tls 32x1", measure: |bench| tls::cost(bench, "32 x 1", Load::new(32, 1)) },
    Section { name: "tls 32x32", measure: |bench| tls::cost(bench, "32 x 32", Load::new(32, 32)) },
    Section { name: "tls handshakes", measure: tls::handshakes },
    Section { name: "tls idle", measure: tls::idle },
    Section { name: "hostile", measure: hostile::neighbours },
    Section { name: "hostile: long commands", measure: hostile::long_commands },
    Section { name: "hostile: cost", measure: hostile_cost::beside },
    Section { name: "hostile: http requests", measure: hostile_http::requests },
    Section { name: "hostile: anonymous", measure: hostile_anonymous::anonymous },
    Section { name: "hostile memory", measure: hostile_memory::growth },
];
