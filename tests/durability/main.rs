//! Tests the durability of the binlog with the real program: kills, failing and full disks, and files that C's server
//! takes over and gives back.
//!
//! The numbers are small enough for a shared machine; `make kill-loop` and `make interchange` make them
//! larger.

mod complete;
mod disk_errors;
mod full_disk;
mod growth;
mod interchange;
mod jobs;
mod kill_loop;
mod lost_answers;
mod pipelines;
mod script;
mod sessions;
mod standby;
mod tools;
mod trace;
