//! What black-box tests share: a server process of their own, and a client of raw bytes.
//!
//! Owns: starting, stopping and identifying a server binary, and every deadline of a test's reads.
//! Never knows what a reply should say. Driven by the conformance suite and the differential runner.
#![allow(dead_code)] // each test binary uses its part of this

pub mod client;
pub mod server;

use std::path::PathBuf;

/// Debian's C beanstalkd, the reference that anyone can install.
pub const DEBIAN_SERVER: &str = "/usr/bin/beanstalkd";

/// Debian's server, or `None` after saying why the tests that need it are skipped.
///
/// # Panics
///
/// Where `CI` is set, since a skipped comparison there would look like a passed one.
pub fn debian_server() -> Option<PathBuf> {
    let path = PathBuf::from(DEBIAN_SERVER);
    if path.exists() {
        return Some(path);
    }
    let complaint = format!("{DEBIAN_SERVER} is not installed (apt-get install beanstalkd)");
    assert!(std::env::var_os("CI").is_none(), "{complaint}, and CI needs it");
    eprintln!("skipped: {complaint}");
    None
}

/// Bytes as one printable line, for messages.
pub fn printable(bytes: &[u8]) -> String {
    const SHOWN: usize = 2000;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let rest = bytes.len() - shown.len();
    let tail = if rest > 0 { format!(" … and {rest} bytes more") } else { String::new() };
    format!("\"{}\"{tail}", shown.escape_ascii())
}
