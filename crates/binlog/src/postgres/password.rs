//! The password for the database.
//!
//! Owns: its source. A file is read at each log-in, so that a password can be replaced without a restart.

use std::fmt;
use std::path::{Path, PathBuf};

use log::warn;

use super::StoreError;
use crate::os::secret_file;

/// The longest file with a password.
const MAX_BYTES: usize = 4096;

/// The source of the password for the database.
#[derive(Clone)]
pub struct Password {
    /// The file, if one is named.
    file: Option<PathBuf>,
    /// The password that was found at the start. The file may be readable only for root, and the server may no longer
    /// be root.
    first: Option<String>,
}

/// Without the password, which must not appear in a log.
impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Password").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Password {
    /// The first line of a file.
    ///
    /// # Errors
    /// If the file has no password that can be read.
    pub fn in_file(path: &Path) -> Result<Self, StoreError> {
        let wrong = |reason| StoreError::File(format!("--store-password-file {}: {reason}", path.display()));
        let (first, is_readable_by_all) = read(path).map_err(wrong)?;
        if is_readable_by_all {
            warn!(
                "--store-password-file {}: every user of this machine can read it (chmod o-r)",
                path.display()
            );
        }
        Ok(Self { file: Some(path.to_owned()), first: Some(first) })
    }

    /// This password, or none.
    #[must_use]
    pub fn given(password: Option<String>) -> Self {
        Self { file: None, first: password }
    }

    /// The current password, if there is one.
    pub(super) fn read(&self) -> Option<String> {
        let now = self.file.as_deref().and_then(|path| read(path).ok()).map(|(password, _)| password);
        now.or_else(|| self.first.clone())
    }
}

/// The first line of a file, and whether every user can read it.
fn read(path: &Path) -> Result<(String, bool), String> {
    let file = secret_file::read(path, MAX_BYTES).map_err(|error| error.to_string())?;
    let text = str::from_utf8(&file.bytes).map_err(|_| "expected text in UTF-8")?;
    match text.lines().next() {
        None | Some("") => Err("expected the password in its first line".to_owned()),
        Some(line) => Ok((line.to_owned(), file.is_readable_by_all)),
    }
}
