//! The place of the binlog, and the settings for a database.
//!
//! Owns: their defaults, and how a place is written in messages.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{DEFAULT_FSYNC_INTERVAL, Fsync};
use crate::binlog::DatabaseUrl;

/// The default of `--takeover-after`: a standby takes over if the owner's heartbeat has not changed for this long.
pub const DEFAULT_TAKEOVER_AFTER: Duration = Duration::from_secs(1);
/// The default of `--store-timeout`, the time for which commands wait for the database: a promotion takes about ten
/// seconds.
pub const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// The place of a binlog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BinlogPlace {
    /// In a directory.
    Directory(PathBuf),
    /// In a database.
    Database(Box<DatabaseUrl>, StoreOptions),
}

impl BinlogPlace {
    /// The place with these settings, if it is in a database.
    pub(super) fn with(self, store: &StoreOptions) -> Self {
        match self {
            Self::Directory(_) => self,
            Self::Database(url, _) => Self::Database(url, store.clone()),
        }
    }

    /// When a binlog at this place is synced by default.
    pub(super) fn default_fsync(&self) -> Fsync {
        match self {
            Self::Directory(_) => Fsync::Within(DEFAULT_FSYNC_INTERVAL),
            Self::Database(..) => Fsync::Within(Duration::ZERO),
        }
    }
}

impl fmt::Display for BinlogPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(out, "{}", path.display()),
            Self::Database(url, _) => url.fmt(out),
        }
    }
}

/// The settings for a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// A standby takes over if the owner's heartbeat has not changed for this long.
    pub takeover_after: Duration,
    /// How long the server continues while the database confirms nothing.
    pub timeout: Duration,
    /// Whether the database may commit without a standby.
    pub allow_async: bool,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            takeover_after: DEFAULT_TAKEOVER_AFTER,
            timeout: DEFAULT_STORE_TIMEOUT,
            allow_async: false,
            password_file: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Action, BinlogOptions, Options, UsageError};

    const URL: &str = "postgresql://db/jobs?queue=mail";

    /// The binlog of this command line.
    fn binlog(words: &[&str]) -> BinlogOptions {
        match Options::parse(words.iter().copied()) {
            Ok(Action::Serve(options)) => options.binlog.unwrap(),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn database(options: StoreOptions) -> BinlogPlace {
        BinlogPlace::Database(Box::new(DatabaseUrl::parse(URL).unwrap()), options)
    }

    #[test]
    fn a_database_is_synced_before_each_reply_unless_the_line_says_otherwise() {
        let BinlogOptions { place, fsync, .. } = binlog(&["-b", URL]);
        assert_eq!((place, fsync), (database(StoreOptions::default()), Fsync::Within(Duration::ZERO)));
        assert_eq!(binlog(&["-f", "7", "-b", URL]).fsync, Fsync::Within(Duration::from_millis(7)));
        assert_eq!(binlog(&["-b", URL, "-F"]).fsync, Fsync::Never);
        assert_eq!(binlog(&["-b", "d"]).fsync, Fsync::Within(Duration::from_millis(50)));
    }

    #[test]
    fn options_of_a_database_are_refused_without_one() {
        let BinlogOptions { place, .. } = binlog(&[
            "--takeover-after",
            "3",
            "--store-timeout=9",
            "--allow-async",
            "--store-password-file",
            "p",
            "-b",
            URL,
        ]);
        let expected = StoreOptions {
            takeover_after: Duration::from_secs(3),
            timeout: Duration::from_secs(9),
            allow_async: true,
            password_file: Some("p".into()),
        };
        assert_eq!(place, database(expected));
        for words in [
            &["--allow-async"][..],
            &["--takeover-after", "3", "-b", "d"],
            &["--takeover-after", "0", "-b", URL],
            &["--store-timeout", "x", "-b", URL],
            &["-b", "postgresql://db"],
            &["-b", "postgresql://u:hidden@db/jobs?queue=mail"],
        ] {
            let error = Options::parse(words.iter().copied()).unwrap_err().to_string();
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn a_copy_has_two_places() {
        let copy = |words: &[&str]| Options::parse(words.iter().copied());
        let directory = || BinlogPlace::Directory("d".into());
        let store = StoreOptions { allow_async: true, ..StoreOptions::default() };
        assert_eq!(
            copy(&["--copy", "d", URL, "--allow-async"]),
            Ok(Action::Copy(directory(), database(store)))
        );
        let database = database(StoreOptions::default());
        assert_eq!(copy(&["--copy", URL, "d"]), Ok(Action::Copy(database, directory())));
        assert_eq!(copy(&["--copy", "d"]), Err(UsageError::MissingArgument("--copy".to_owned())));
        assert!(copy(&["--copy", "d", "--allow-async", URL]).is_err());
    }
}
