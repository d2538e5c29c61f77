//! What tests count instead of a time: the steps of work on the indexes of tags and on rules for tubes.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static PROBES: Cell<u64> = const { Cell::new(0) };
}

/// Two keys of an index were compared, or a name was held against a pattern.
pub(super) fn note() {
    STEPS.set(STEPS.get() + 1);
}

/// A job was looked at, because an index has it.
pub(super) fn note_probe() {
    PROBES.set(PROBES.get() + 1);
}

/// All steps of this thread so far.
pub(super) fn all() -> u64 {
    STEPS.get() + PROBES.get()
}

/// The jobs among them that were looked at.
pub(super) fn probes() -> u64 {
    PROBES.get()
}
