//! What C beanstalkd does wrong, as its users have reported it, with the real program. What one client can do to the
//! others is in `tests/survive/`.
//!
//! `BEANSTALKD_UNDER_TEST=/path/to/beanstalkd cargo test --test faults` tests another server. With C's server, these
//! tests fail.

mod accepting;
mod connections;
mod life;
mod time;
