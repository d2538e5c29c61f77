//! Replaces the store in a database, in a program that was built without it.

use beanstalkd::options::StoreOptions;
use beanstalkd_binlog::DatabaseUrl;
use beanstalkd_binlog::{DirectoryStorage, Storage};

/// There are no settings.
#[derive(Clone, Debug)]
pub enum Settings {}

/// Always fails.
pub fn settings(_: &DatabaseUrl, _: &StoreOptions) -> Result<Settings, &'static str> {
    Err("this program was built without the store in PostgreSQL (cargo feature postgres)")
}

/// Never called.
pub fn claim(settings: &Settings, _: bool) -> Result<DirectoryStorage, &'static str> {
    match *settings {}
}

/// Never called.
pub fn read_only(settings: &Settings) -> Result<Box<dyn Storage>, &'static str> {
    match *settings {}
}

/// Never called.
pub fn copy(settings: &Settings) -> Result<Copy, &'static str> {
    match *settings {}
}

/// There are no copies.
#[derive(Debug)]
pub enum Copy {}

impl Copy {
    /// Never called.
    pub fn make(&mut self, _: u32, _: u64) -> Result<(), &'static str> {
        match *self {}
    }

    /// Never called.
    pub fn write(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), &'static str> {
        match *self {}
    }

    /// Never called.
    pub fn publish(self) -> Result<(), &'static str> {
        match self {}
    }
}
