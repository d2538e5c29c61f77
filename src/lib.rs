//! beanstalkd: a work-queue server.
pub mod binlog;
pub mod clock;
pub mod job;
pub mod tube_name;
