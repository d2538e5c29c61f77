//! Keeps a value from before a change for the assertions after it.

/// Computes a value before a change, for the assertions after the change. A release build has no such assertions and
/// computes nothing: it gets the default value.
#[inline(always)]
pub fn in_debug<T: Default>(value: impl FnOnce() -> T) -> T {
    if cfg!(debug_assertions) { value() } else { T::default() }
}
