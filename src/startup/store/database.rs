//! The store in a database, in a program that was built with it.

use std::time::Duration;

use beanstalkd::options::StoreOptions;
use beanstalkd_binlog::DatabaseUrl;
use beanstalkd_binlog::{OwnershipTimes, Password, PostgresStorage, Storage, StoreError};

pub use beanstalkd_binlog::{PostgresCopy as Copy, Settings};

/// The environment variable with the password, if no file is named.
const PASSWORD: &str = "PGPASSWORD";

/// Reads the files that the store needs.
pub fn settings(url: &DatabaseUrl, options: &StoreOptions) -> Result<Settings, StoreError> {
    let password = match &options.password_file {
        Some(path) => Password::in_file(path)?,
        None => Password::given(std::env::var(PASSWORD).ok().filter(|password| !password.is_empty())),
    };
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let times = OwnershipTimes {
        takeover_after_ns: ns(options.takeover_after),
        store_timeout_ns: ns(options.timeout),
    };
    Settings::new(url.clone(), password, times, options.allow_async)
}

/// Becomes the owner of the queue.
pub fn claim(settings: &Settings, waits: bool) -> Result<PostgresStorage, StoreError> {
    PostgresStorage::claim(settings, waits)
}

/// The log, opened read-only.
pub fn read_only(settings: &Settings) -> Result<Box<dyn Storage>, StoreError> {
    Ok(Box::new(PostgresStorage::read_only(settings)?))
}

/// A queue without a log, for a copy.
pub fn copy(settings: &Settings) -> Result<Copy, StoreError> {
    Copy::begin(settings)
}
