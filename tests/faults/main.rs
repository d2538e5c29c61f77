//! Faults of C beanstalkd that real users hit: each has a test here, against the real program.
//!
//! `BEANSTALKD_UNDER_TEST=/path/to/beanstalkd cargo test --test faults` runs the same against another
//! server, which is how the tests were seen to fail.

mod accepting;
mod connections;
mod life;
mod time;
