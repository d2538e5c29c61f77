//! The code that the tests share.
//!
//! Owns: the choice of the program under test, how long an event may take, and when a test is skipped. Driven by the
//! suites in `tests/`, the benchmark and the fuzz targets. The server does not depend on it.
//!
//! | for | modules |
//! |---|---|
//! | a server process | [`server`]; [`panicking`], in which every step must succeed; [`launched`], which may not answer yet; [`tls_server`]; [`installed`] and [`DEBIAN_SERVER`], to compare with C's |
//! | clients of a server process | [`client`], of raw bytes; [`tls`], with certificates; [`http`], of metrics and the API; [`chains`], workers with `complete` |
//! | what the clients have seen | [`history`]; [`sent`], commands that it follows |
//! | what a server process meets | [`postgres`], clusters that break; [`stepping_clock`], a clock that is set; [`pace`], a machine that stalls; [`system`], facts about processes |
//! | tests of clients | [`fake`], the model behind a socket |
//! | the server without a process | [`simulated`], its start, its clients' connections and a hand-over; [`sockets`]; [`disk`] and [`tasks`], the store; [`observer`], the order in which it serves |
//! | the queue and its model | [`operations`], random ones on both; [`cells`], which tags they have covered |
//! | fuzz targets | [`fuzz`], their bodies; [`corpus`], their packed inputs |
//! | the protocol | [`commands`], a line of each |
//! | documents | [`written`], tables that the code knows |
//! | random numbers that a seed repeats | [`random`]; [`tags`], those of puts; [`rules`], those for tubes |

pub mod cells;
pub mod chains;
pub mod client;
pub mod commands;
pub mod corpus;
pub mod disk;
pub mod fake;
pub mod fuzz;
pub mod history;
pub mod http;
pub mod installed;
pub mod launched;
pub mod observer;
pub mod operations;
pub mod pace;
pub mod panicking;
pub mod postgres;
pub mod random;
pub mod rules;
pub mod sent;
pub mod server;
pub mod simulated;
pub mod sockets;
pub mod stepping_clock;
pub mod system;
pub mod tags;
pub mod tasks;
pub mod tls;
pub mod tls_server;
pub mod written;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How long an awaited event may take: far more than a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A span for the tag `trc:` of a put.
pub const TRACE: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A token of an access file.
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The hash of [`TOKEN`], as it stands in an access file.
pub const TOKEN_HASH: &str = "3eb1bd439947eb762998e566ccc2e099c791118b2f40579cc4f7da2b5061b7f9";

/// Debian's C beanstalkd, with which tests compare if it is installed.
pub const DEBIAN_SERVER: &str = "/usr/bin/beanstalkd";

/// The server that Cargo has built beside the test that runs, if there is one.
pub fn find_built_server() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("the path of the test program is known");
    let name = format!("beanstalkd{}", std::env::consts::EXE_SUFFIX);
    test.ancestors().skip(1).map(|directory| directory.join(&name)).find(|path| path.is_file())
}

/// The server that Cargo has built beside the test that runs.
///
/// # Panics
///
/// If there is no such program. Cargo builds the server before it runs the tests in `tests/`.
pub fn built_server() -> PathBuf {
    find_built_server().expect("Cargo has built a server beside the test program")
}

/// Copies that server, without its line tables: with them, the copies of a suite have gigabytes, and all tests wait for
/// the disk. Another process writes the copy: a program cannot run while it is open for writing in this process,
/// or in a child that another thread of it is about to start.
///
/// # Errors
///
/// If the file cannot be written.
pub fn copy_built_server(to: &Path) -> std::io::Result<()> {
    static STRIPPED: OnceLock<PathBuf> = OnceLock::new();
    let stripped = STRIPPED.get_or_init(|| {
        let server = built_server();
        let part = server.with_extension(format!("stripped-{}", std::process::id()));
        let stripped = server.with_extension("stripped");
        let status = Command::new("strip").arg("-o").arg(&part).arg(&server).status();
        let is_stripped = status.is_ok_and(|status| status.success());
        if is_stripped && std::fs::rename(&part, &stripped).is_ok() { stripped } else { server }
    });
    let status = Command::new("cp").arg(stripped).arg(to).status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(format!("cp: {status}"))) }
}

/// The program under test: the one in `BEANSTALKD_UNDER_TEST`, or the one that Cargo has built.
pub fn server_under_test() -> PathBuf {
    std::env::var_os("BEANSTALKD_UNDER_TEST").map_or_else(built_server, PathBuf::from)
}

/// Debian's server, or `None` after saying why the tests that need it are skipped.
///
/// # Panics
///
/// If `CI` is set, because a skipped comparison would look like a passed one there.
pub fn debian_server() -> Option<PathBuf> {
    let path = PathBuf::from(DEBIAN_SERVER);
    if path.exists() {
        return Some(path);
    }
    skip(&format!("{DEBIAN_SERVER} is not installed (apt-get install beanstalkd)"));
    None
}

/// Says why a test is skipped.
///
/// # Panics
///
/// If `CI` is set and not empty, because a skipped test would look like a passed one there.
pub fn skip(complaint: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "{complaint}, but CI requires it");
    eprintln!("skipped: {complaint}");
}

/// Whether `tool` can be run by its name.
pub fn is_installed(tool: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(tool).is_file()))
}

/// Whether `tool` can be run by its name. If not, prints that the test is skipped.
///
/// # Panics
///
/// If the tool is missing and `CI` is set.
pub fn has_tool(tool: &str) -> bool {
    let found = is_installed(tool);
    if !found {
        skip(&format!("{tool} is not installed"));
    }
    found
}

/// The bytes as one printable line, for messages.
pub fn printable(bytes: &[u8]) -> String {
    const SHOWN: usize = 2000;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let rest = bytes.len() - shown.len();
    let tail = if rest > 0 { format!(" … and {rest} bytes more") } else { String::new() };
    format!("\"{}\"{tail}", shown.escape_ascii())
}
