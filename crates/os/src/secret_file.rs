//! Files with secrets, such as keys and tokens.
//!
//! Owns: the rule that no copy of the contents stays in memory after use. The caller warns if others can read the file.

use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::settings_file;

/// The bit of a file's permissions that lets all users read it.
const READABLE_BY_ALL: u32 = 0o004;

/// The contents of a file; the bytes are wiped from memory after use.
#[derive(Debug)]
pub struct SecretFile {
    /// Its contents.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Whether every user of this machine can read it.
    pub is_readable_by_all: bool,
}

/// Reads a file of at most `max_bytes`.
///
/// # Errors
/// If the system refuses to read the file, or if it is longer.
pub fn read(path: &Path, max_bytes: usize) -> io::Result<SecretFile> {
    let file = settings_file::open(path)?;
    let metadata = file.metadata()?;
    let is_readable_by_all = metadata.permissions().mode() & READABLE_BY_ALL != 0;
    // If the vector grew, it would leave copies of the secret behind.
    let room = metadata.len().min(max_bytes as u64) as usize + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {max_bytes} bytes")));
    }
    Ok(SecretFile { bytes, is_readable_by_all })
}
