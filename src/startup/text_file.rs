//! Reads files of settings.
//!
//! Owns: the limit on their size. Driven by the reader of each file.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use beanstalkd_os::settings_file;

use super::path_advice::advice;

/// The maximum size of a file, in bytes: far more than anybody writes, and small enough to be read at once.
const MAX_BYTES: u64 = 16 << 20;

/// The text of a file.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> Result<String, Box<dyn Error>> {
    read_open(path, settings_file::open(path).map_err(|error| unreadable(path, &error))?)
}

/// The text of an open file.
///
/// # Errors
/// If it cannot be read.
pub fn read_open(path: &Path, file: File) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    let read =
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    if read as u64 > MAX_BYTES {
        return Err(format!("the file has more than {MAX_BYTES} bytes").into());
    }
    Ok(text)
}

/// The error for a file that cannot be read, with advice.
pub fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("{error}{}", advice(path, error))
}
