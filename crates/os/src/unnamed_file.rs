//! Files that have no name until they are complete: a process that is killed leaves no partial file.

use std::fs::File;
use std::io;
use std::path::Path;

use super::platform;

/// Opens a new file without a name in `directory`. The file disappears when it is closed, unless it gets a name.
///
/// # Errors
/// If the system or the file system does not support such files.
pub fn open(directory: &Path) -> io::Result<File> {
    platform::open_unnamed(directory)
}

/// Gives the file a name in the same file system.
///
/// # Errors
/// If the system refuses it.
pub fn give_name(file: &File, path: &Path) -> io::Result<()> {
    platform::name_file(file, path)
}
