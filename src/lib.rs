//! beanstalkd: a work-queue server.
pub mod binlog;
pub mod clock;
pub mod id_map;
pub mod job;
pub mod queue;
pub mod tube_name;
