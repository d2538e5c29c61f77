//! The types that the parts of the server share.
//!
//! Owns: ids, priorities, states and bodies of jobs, tube names, tags, instants, and numbers as C reads them. Pure; it
//! uses nothing of the rest.
//!
//! ```
//! use beanstalkd_types::tube_name::TubeName;
//!
//! assert!(TubeName::is_valid(b"mail-in"));
//! assert!(!TubeName::is_valid(b"-mail"));
//! ```

pub mod clock;
pub mod description;
pub mod job;
pub mod json;
pub mod name;
pub mod number;
pub mod percent;
pub mod random;
pub mod rate_limited_log;
pub mod seconds;
pub mod tags;
pub mod trace;
pub mod tube_name;
