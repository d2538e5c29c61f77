//! Reads files of settings.
//!
//! Owns: the limit on their size. Driven by the reader of each file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::path_advice::advice;

/// The maximum size of a file, in bytes: far more than anybody writes, and small enough to be read at once.
const MAX_BYTES: u64 = 16 << 20;

/// The reason why a file has no text.
#[derive(Debug)]
pub enum TextError {
    /// The file cannot be read; the cause is added.
    Read(io::Error, String),
    /// The file is larger than [`MAX_BYTES`].
    TooLarge,
}

impl fmt::Display for TextError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error, cause) => write!(out, "{error}{cause}"),
            Self::TooLarge => write!(out, "the file has more than {MAX_BYTES} bytes"),
        }
    }
}

/// The text of a file.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> Result<String, TextError> {
    File::open(path).map_err(|error| unreadable(path, error)).and_then(|file| read_open(path, file))
}

/// The text of an open file.
///
/// # Errors
/// If it cannot be read.
pub fn read_open(path: &Path, file: File) -> Result<String, TextError> {
    let mut text = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| unreadable(path, error))?;
    if read as u64 > MAX_BYTES { Err(TextError::TooLarge) } else { Ok(text) }
}

/// The error for a file that cannot be read, with advice.
pub fn unreadable(path: &Path, error: io::Error) -> TextError {
    let cause = advice(path, &error);
    TextError::Read(error, cause)
}
