//! Tests the log in PostgreSQL with the real program and real clusters. They are skipped if PostgreSQL is missing.

mod clocks;
mod complete;
mod connections;
mod copies;
mod figures;
mod log_in;
mod ownership;
mod replication;
mod room;
mod servers;
mod tables;
