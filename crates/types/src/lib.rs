//! The types that the server, its crates and the client library share.
//!
//! Owns: ids, priorities, states and bodies of jobs; the names of tubes, keys and sessions, and patterns of them; tags,
//! trace contexts, instants, and numbers and seconds as C reads them. It also has what several crates need: JSON,
//! percent-encoding, random numbers, the rate limit of warnings, and the description with which one server hands its
//! state to another. Pure; it uses no other crate of the workspace.
//!
//! ```
//! use beanstalkd_types::tube_name::TubeName;
//!
//! assert!(TubeName::is_valid(b"mail-in"));
//! assert!(!TubeName::is_valid(b"-mail"));
//! ```

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]

pub mod assertions;
pub mod clock;
pub mod description;
pub mod job;
pub mod json;
pub mod name;
pub mod number;
pub mod pattern;
pub mod percent;
pub mod random;
pub mod rate_limited_log;
pub mod seconds;
pub mod tags;
pub mod trace;
pub mod tube_name;
