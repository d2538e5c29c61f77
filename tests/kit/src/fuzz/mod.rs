//! The bodies of the fuzz targets. Each interprets the input, and checks a property that must hold for every input.
//!
//! A new target is a body here and its row in [`TARGETS`], and with the same name a program in `fuzz/targets/`, its
//! entry in `fuzz/Cargo.toml`, and a corpus. A test of `tests/fuzz_corpora.rs` fails if one of them is missing.

mod access_file;
mod byte_stream;
mod command_line;
mod description;
mod guarded_stream;
mod operation_sequence;
mod replies;
mod tls_handshake;
mod tube_rules;

pub use description::whole as described_server;

/// A fuzz target.
pub struct Target {
    pub name: &'static str,
    /// How many changed inputs `cargo test` checks: as many as take a few seconds. They are the same in each run,
    /// unless `SEED` is set.
    pub rounds: u64,
    pub check: fn(&[u8]),
}

pub const TARGETS: &[Target] = &[
    Target { name: "access_file", rounds: 25_000, check: access_file::check },
    Target { name: "byte_stream", rounds: 7_500, check: byte_stream::check },
    Target { name: "command_line", rounds: 500_000, check: command_line::check },
    Target { name: "description", rounds: 5_000, check: description::check },
    Target { name: "guarded_stream", rounds: 7_500, check: guarded_stream::check },
    Target { name: "operations", rounds: 5_000, check: operation_sequence::check },
    Target { name: "replies", rounds: 75_000, check: replies::check },
    Target { name: "tls_handshake", rounds: 2_500, check: tls_handshake::check },
    Target { name: "tube_rules", rounds: 25_000, check: tube_rules::check },
];

/// Checks an input of the target with this name.
///
/// # Panics
/// If the property does not hold, or if there is no such target.
pub fn check(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("TARGETS has no {name}")).check)(input);
}
