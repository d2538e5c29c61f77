//! Two servers for one queue: one takes over from the other, and nothing that was acknowledged is lost.
//!
//! Tests with a database need PostgreSQL from Debian, those with a balancer HAProxy, those with network namespaces
//! root, and the one with a virtual address keepalived.
//! `make failover` runs many rounds.

mod clients;
mod faults;
mod fence;
mod fencing;
mod haproxy;
mod namespaces;
mod pauses;
mod probes;
mod programs;
mod proxy;
mod rounds;
mod world;
