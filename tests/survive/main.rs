//! What one client can do to the others, by greed, with exhausted memory or descriptors, or by failing jobs: no client
//! may harm another. Options against that, such as the rules for tubes, are here, too. What C does wrong is in
//! `tests/faults/`.
//!
//! The numbers are small enough for a shared machine; `SURVIVE_CLOSINGS`, `SURVIVE_SENDERS` make them larger.

mod closing;
mod dead_tubes;
mod descriptors;
mod fairness;
mod hoarding;
mod idle_timeout;
mod memory;
mod poison;
mod rules;
mod shares;
