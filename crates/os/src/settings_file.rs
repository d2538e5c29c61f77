//! Files that this server may not have made: settings, which the event loop reads again while it serves, and files of a
//! log.
//!
//! Owns: the rule that opening one never waits.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file. A named pipe is refused, because its writer could let the server wait for ever.
///
/// # Errors
/// If the system refuses to open the file, or if it is a pipe.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is a pipe, not a file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
