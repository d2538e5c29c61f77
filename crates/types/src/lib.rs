//! The types that the server, its crates and the client library share.
//!
//! Pure; it uses no other crate of the workspace.
//!
//! | for | modules |
//! |---|---|
//! | jobs: their ids, priorities, states and bodies | [`job`]; what a `put` may ask for beside C's protocol: [`tags`], [`trace`] |
//! | names | of tubes: [`tube_name`], and patterns of them: [`pattern`]; of keys and groups: [`name`] |
//! | numbers and times | [`clock`]; as C reads them: [`number`], [`seconds`]; from a seed: [`random`] |
//! | text | `json` (with the feature `json`), [`percent`] |
//! | a server that hands its state to another program | [`description`] |
//! | the code itself | [`assertions`], [`rate_limited_log`] |
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
#[cfg(feature = "json")]
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
