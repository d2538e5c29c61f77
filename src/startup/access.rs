//! The access file: read at the start, and by `--check-access`; and `--hash-token`.
//!
//! Owns: how the file is read, and what a message about it says. Driven by `startup` and `main`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use beanstalkd::access::{FileError, Rules, TokenHash};
use beanstalkd::os::privileges::id_of_user;
use beanstalkd::server::event_loop::ReadRules;

/// The largest access file, in bytes: far more than anybody writes, and little enough to be read at once.
const MOST_BYTES: u64 = 16 << 20;

/// Why there are no rules.
#[derive(Debug)]
pub enum AccessError {
    /// The file cannot be read.
    Read(io::Error),
    /// It is larger than [`MOST_BYTES`].
    TooLarge,
    /// It is wrong.
    Wrong(FileError),
}

impl fmt::Display for AccessError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(out),
            Self::TooLarge => write!(out, "the file has more than {MOST_BYTES} bytes"),
            Self::Wrong(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for AccessError {}

/// The rules in a file.
///
/// # Errors
/// If the file cannot be read, or has anything wrong.
pub fn read(path: &Path) -> Result<Rules, AccessError> {
    let mut text = String::new();
    let mut file = File::open(path).map_err(AccessError::Read)?.take(MOST_BYTES + 1);
    if file.read_to_string(&mut text).map_err(AccessError::Read)? as u64 > MOST_BYTES {
        return Err(AccessError::TooLarge);
    }
    Rules::parse(&text, &id_of_user).map_err(AccessError::Wrong)
}

/// What reads the rules in a file again; its error names the file.
pub fn reader(path: PathBuf) -> Box<ReadRules> {
    Box::new(move || read(&path).map_err(|error| format!("--access {}: {error}", path.display())))
}

/// The hash of the token on the standard input.
///
/// # Errors
/// If the input cannot be read, or is no token.
pub fn hash_of_input() -> io::Result<TokenHash> {
    // A token, the end of its line, and one byte that tells a longer one.
    let most = TokenHash::MAX_TOKEN_BYTES as u64 + 3;
    let mut text = Vec::new();
    io::stdin().take(most).read_to_end(&mut text)?;
    TokenHash::of_text(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
