//! Files that have no name until they are whole: what a process leaves behind that is killed is nothing.

use std::fs::File;
use std::io;
use std::path::Path;

use super::platform;

/// Opens a new file in `directory` that has no name, and that is gone when it is closed, unless it gets one.
///
/// # Errors
/// If the system or the file system has no such files.
pub fn open(directory: &Path) -> io::Result<File> {
    platform::open_unnamed(directory)
}

/// Gives it a name in the same file system.
///
/// # Errors
/// If the system refuses it.
pub fn give_name(file: &File, path: &Path) -> io::Result<()> {
    platform::name_file(file, path)
}
