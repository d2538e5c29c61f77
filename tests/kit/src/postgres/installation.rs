//! PostgreSQL as Debian installs it: its programs, and the user that runs them.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

/// Where Debian's packages have the programs, by version.
const DEBIAN_VERSIONS: &str = "/usr/lib/postgresql";

/// The oldest version that the server supports.
const OLDEST_VERSION: u32 = 15;

/// The programs of PostgreSQL, and the user that may run them.
#[derive(Clone, Debug)]
pub struct Installation {
    programs: PathBuf,
    /// User and group for a test that runs as root, which PostgreSQL refuses.
    user: Option<(u32, u32)>,
    /// Whether each cluster has a separate disk in memory, if the system lets root mount one: it can be filled, and
    /// heartbeats do not wait for a disk that other tests use.
    pub(super) has_small_disks: bool,
}

/// PostgreSQL, or `None` after saying why the tests that need it are skipped.
///
/// # Panics
///
/// If `CI` is set, because a skipped test would look like a passed one there.
pub fn installation() -> Option<Installation> {
    match Installation::find() {
        Ok(found) => Some(found),
        Err(complaint) => {
            crate::skip(&complaint);
            None
        }
    }
}

impl Installation {
    /// The newest version that Debian has installed.
    fn find() -> Result<Self, String> {
        let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
        let versions =
            fs::read_dir(DEBIAN_VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
        let found = versions.filter(|path| path.join("bin/postgres").is_file());
        let newest =
            found.max_by_key(|path| version(path)).filter(|path| version(path) >= Some(OLDEST_VERSION));
        let Some(newest) = newest else {
            return Err(format!(
                "PostgreSQL {OLDEST_VERSION} or later is not installed in {DEBIAN_VERSIONS} \
                 (apt-get install postgresql)"
            ));
        };
        let user = if geteuid().is_root() {
            let user = ["postgres", "nobody"].into_iter().find_map(user_of_system);
            Some(user.ok_or("PostgreSQL does not run as root, and there is no user postgres or nobody")?)
        } else {
            None
        };
        Ok(Self { programs: newest.join("bin"), user, has_small_disks: geteuid().is_root() })
    }

    /// This installation, with all clusters in the directory for temporary files, to measure what a disk costs.
    #[must_use]
    pub fn on_disk(self) -> Self {
        Self { has_small_disks: false, ..self }
    }

    /// The path of one of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// A command that runs one of its programs as its user.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.program(name));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("PG") {
                command.env_remove(variable);
            }
        }
        command.current_dir("/").env("HOME", "/nonexistent").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    }

    /// Gives `path` to the user that runs PostgreSQL.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        match self.user {
            Some((user, group)) => chown(path, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    /// Writes a file that this user alone may read.
    pub(super) fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        fs::write(path, text)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        self.give(path)
    }
}

/// Its numbers of user and group.
fn user_of_system(name: &str) -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
    Some((user.get(2)?.parse().ok()?, user.get(3)?.parse().ok()?))
}
