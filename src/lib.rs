//! beanstalkd: a work-queue server.
pub mod binlog;
pub mod clock;
pub mod connection;
pub mod id_map;
pub mod job;
pub mod json;
pub mod log_setup;
pub mod metrics;
pub mod options;
pub mod os;
pub mod protocol;
pub mod queue;
pub mod server;
pub mod tube_name;
