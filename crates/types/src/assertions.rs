//! What assertions about a change need: a value of before it.

/// A value for assertions behind a change, as it is before the change. A release build has none of these assertions,
/// and computes nothing for them: it gets the default value.
#[inline(always)]
pub fn in_debug<T: Default>(value: impl FnOnce() -> T) -> T {
    if cfg!(debug_assertions) { value() } else { T::default() }
}
