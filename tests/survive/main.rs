//! What nobody's client may do to anybody else's: hostile clients, exhausted memory, time on end.
//!
//! The numbers are small enough for a shared machine; `SURVIVE_CLOSINGS`, `SURVIVE_SENDERS` make them larger.

mod closing;
mod fairness;
mod hoarding;
mod memory;
mod poison;
mod silence;
