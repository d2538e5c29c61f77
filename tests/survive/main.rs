//! Hostile clients, exhausted memory and idle connections: no client may harm another.
//!
//! The numbers are small enough for a shared machine; `SURVIVE_CLOSINGS`, `SURVIVE_SENDERS` make them larger.

mod closing;
mod dead_tubes;
mod fairness;
mod hoarding;
mod idle_timeout;
mod memory;
mod poison;
mod rules;
mod shares;
