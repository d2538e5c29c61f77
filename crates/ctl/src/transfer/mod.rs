//! `export` and `import`: transfer jobs between servers of any kind, as lines of JSON.
//!
//! - [`record`]: a job as a line.
//! - [`export`]: writes jobs to a file; with `--drain`, also deletes them. [`destination`] decides which files it may
//!   replace, and [`taken_jobs`] which jobs an interrupted drain had begun to take.
//! - [`import`]: puts each job once; [`journal`] records its progress.

mod destination;
mod drain_file;
pub mod export;
pub mod import;
mod journal;
mod lines;
mod put;
mod record;
mod taken_jobs;
