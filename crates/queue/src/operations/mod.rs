//! The effects of commands and time on jobs, a file for each command or family.
//!
//! Each public method is a command that has passed its checks; otherwise it returns that its checks fail, and changes
//! nothing. `views.rs`, `waits_for.rs`, `pages.rs` and `listing.rs` have the commands that only read. A method for
//! other operations is `pub(super)`, so that no other part of the crate can call it.

pub(crate) mod advance;
pub(crate) mod complete;
mod delete;
mod description;
pub(crate) mod flush;
mod kick;
mod leave;
mod listing;
mod many_tubes;
mod modes;
#[cfg(test)]
mod modes_tests;
pub(crate) mod pages;
mod pause;
pub(crate) mod put;
pub(crate) mod release;
mod relocate;
pub(crate) mod reserve;
pub(crate) mod session;
mod touch;
pub(crate) mod views;
mod waits_for;
pub(crate) mod watch;
