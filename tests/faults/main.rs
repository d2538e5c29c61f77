//! Tests for faults of C beanstalkd that its users have reported, with the real program.
//!
//! `BEANSTALKD_UNDER_TEST=/path/to/beanstalkd cargo test --test faults` tests another server. With C's server, these
//! tests fail.

mod accepting;
mod connections;
mod life;
mod time;
