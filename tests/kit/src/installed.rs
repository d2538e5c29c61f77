//! This repository's server and Debian's, for tests of clients, which must work with both.
//!
//! Owns: the choice of the servers that are installed. [`crate::panicking`] starts them, each on its own unix socket.

use std::path::Path;

use crate::panicking::Server;
use crate::{debian_server, find_built_server, skip};

/// A running server of one of the two programs.
pub struct Installed {
    /// Whether it is this repository's.
    pub is_ours: bool,
    server: Server,
}

impl Installed {
    fn start(is_ours: bool, program: &Path, flags: &[&str]) -> Self {
        Self { is_ours, server: Server::start_program(program, flags) }
    }

    /// The address of its socket, in the form of `--server`.
    pub fn address(&self) -> String {
        format!("unix:{}", self.server.socket_path().display())
    }
}

/// Starts each of the two that is installed, with these flags. Prints which are missing.
pub fn servers(flags: &[&str]) -> Vec<Installed> {
    [ours(flags), debians(flags)].into_iter().flatten().collect()
}

/// Starts this repository's server, if Cargo has built it: tests of another package alone do not build it.
pub fn ours(flags: &[&str]) -> Option<Installed> {
    let program = find_built_server();
    if program.is_none() {
        skip("this repository's server was not built");
    }
    program.map(|program| Installed::start(true, &program, flags))
}

/// Starts Debian's server, if it is installed.
pub fn debians(flags: &[&str]) -> Option<Installed> {
    debian_server().map(|program| Installed::start(false, &program, flags))
}
