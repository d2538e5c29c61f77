//! beanstalkd: a work-queue server.
pub mod clock;
pub mod job;
pub mod options;
pub mod os;
pub mod tube_name;
