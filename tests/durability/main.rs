//! What the binlog promises, held against the program itself: killed, its disk failing or full, its
//! files taken over by C and back.
//!
//! The numbers are small enough for a shared machine; `make kill-loop` and `make interchange` make them
//! larger.

mod disk_errors;
mod full_disk;
mod growth;
mod interchange;
mod jobs;
mod kill_loop;
mod lost_answers;
mod pipelines;
mod script;
mod standby;
mod tools;
mod trace;
