//! The access file: read at the start, and by `--check-access`; and `--hash-token`.
//!
//! Owns: how the file is read, and the messages about it. Driven by `startup` and `main`.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use beanstalkd::access::{AccessRules, TokenHash};
use beanstalkd::server::event_loop::ReadRules;
use beanstalkd::token::MAX_AUTH_BYTES;
use beanstalkd_os::privileges::id_of_user;
use beanstalkd_os::settings_file;
use zeroize::Zeroizing;

use super::text_file;

/// The bit of a file's permissions that lets all users write to it.
const WRITABLE_BY_ALL: u32 = 0o002;

/// The reason why a file is doubtful although it is valid. At the start this is a warning, because an operator is there
/// to see it; SIGHUP refuses the file, because better rules are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The file has no identities; it may have been read while it was being written.
    NoIdentities,
    /// Every user of the machine can write to it.
    WritableByAll,
}

impl fmt::Display for Doubt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoIdentities => "the file has no identities, expected at least one table [identities.NAME]",
            Self::WritableByAll => "everybody on this machine can write to it (chmod o-w)",
        })
    }
}

/// The contents of an access file.
#[derive(Debug)]
pub struct AccessFile {
    /// The rules.
    pub rules: AccessRules,
    /// The reason why they are doubtful, if there is one.
    pub doubt: Option<Doubt>,
}

impl Error for Doubt {}

/// The rules in a file.
///
/// # Errors
/// If the file cannot be read, or is wrong in any part.
pub fn read(path: &Path) -> Result<AccessFile, Box<dyn Error>> {
    let unreadable = |error: io::Error| text_file::unreadable(path, &error);
    let file = settings_file::open(path).map_err(unreadable)?;
    let is_writable_by_all = file.metadata().map_err(unreadable)?.mode() & WRITABLE_BY_ALL != 0;
    let text = text_file::read_open(path, file)?;
    let rules = AccessRules::parse(&text, &id_of_user)?;
    let doubt = if is_writable_by_all {
        Some(Doubt::WritableByAll)
    } else {
        rules.named().next().is_none().then_some(Doubt::NoIdentities)
    };
    Ok(AccessFile { rules, doubt })
}

/// A function that reads the rules in a file again; its error names the file.
pub fn reader(path: PathBuf) -> Box<ReadRules> {
    let read_again = |path: &Path| match read(path)? {
        AccessFile { doubt: Some(doubt), .. } => Err(Box::<dyn Error>::from(doubt)),
        AccessFile { rules, doubt: None } => Ok(rules),
    };
    Box::new(move || read_again(&path).map_err(|error| format!("--access {}: {error}", path.display())))
}

/// The hash of the token on the standard input.
///
/// # Errors
/// If the input cannot be read, or is not a token.
pub fn hash_of_input() -> io::Result<TokenHash> {
    // A token, the end of its line, and one more byte, which shows that the token is too long.
    let max_bytes = MAX_AUTH_BYTES as u64 + 3;
    let mut text = Zeroizing::new(Vec::with_capacity(max_bytes as usize));
    io::stdin().take(max_bytes).read_to_end(&mut text)?;
    TokenHash::of_text(&text, MAX_AUTH_BYTES)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
