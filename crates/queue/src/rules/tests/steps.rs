//! The steps that tests count instead of time: work on the indexes of tags and on rules for tubes.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static PROBES: Cell<u64> = const { Cell::new(0) };
}

/// Counts a comparison of two keys in an index, or of a name with a pattern.
pub(in crate::rules) fn note() {
    STEPS.set(STEPS.get() + 1);
}

/// Counts a job that was examined because an index has it.
pub(in crate::rules) fn note_probe() {
    PROBES.set(PROBES.get() + 1);
}

/// All steps of this thread so far.
pub(in crate::rules) fn all() -> u64 {
    STEPS.get() + PROBES.get()
}

/// The examined jobs among them.
pub(in crate::rules) fn probes() -> u64 {
    PROBES.get()
}
