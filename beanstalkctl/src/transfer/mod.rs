//! `export` and `import`: jobs as lines of JSON, from one server to another of any kind.
//!
//! - [`record`]: a job as a line.
//! - [`export`]: reads jobs, or takes them out (`--drain`).
//! - [`import`]: puts them, each once; [`journal`] remembers how far it came.

mod drain_file;
pub mod export;
pub mod import;
mod journal;
mod put;
mod record;
