//! The trace of a job, as its producer has given it.
//!
//! Owns: the form of a `traceparent`. The server does not interpret it.

use crate::name::Name;

/// A `traceparent` of the W3C trace context: `00-<32 hex>-<16 hex>-<2 hex>`, in either case. Its bytes follow the rules
/// of tube names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace<'a>(Name<'a>);

impl<'a> Trace<'a> {
    /// Its length in bytes.
    pub const BYTES: usize = 55;

    /// The traceparent in `bytes`, or `None` if they are not one. An id of zeros is accepted.
    #[must_use]
    pub fn check(bytes: &'a [u8]) -> Option<Self> {
        let is_right = |(at, byte): (usize, &u8)| match at {
            0 | 1 => *byte == b'0',
            2 | 35 | 52 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        (bytes.len() == Self::BYTES && bytes.iter().enumerate().all(is_right))
            .then(|| Self(Name::again(bytes)))
    }

    /// The traceparent in a name that a description holds; it was checked before.
    pub(crate) fn again(name: Name<'a>) -> Self {
        Self(name)
    }

    /// The traceparent as text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0.as_str()
    }

    /// The traceparent as a name.
    #[must_use]
    pub fn name(self) -> Name<'a> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::{JobTags, TagSet};

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902B7-01";

    #[test]
    fn a_traceparent_has_its_form_in_either_case() {
        assert_eq!(Trace::check(TRACE.as_bytes()).unwrap().as_str(), TRACE);
        assert!(Trace::check(TRACE.to_uppercase().as_bytes()).is_some());
        assert!(Trace::check(TRACE.replace(|byte: char| byte != '-', "0").as_bytes()).is_some(), "zeros");
        for at in 0..TRACE.len() {
            let mut wrong = TRACE.as_bytes().to_vec();
            wrong[at] = if wrong[at] == b'-' { b'0' } else { b'g' };
            assert!(Trace::check(&wrong).is_none(), "byte {at}");
        }
        assert!(Trace::check(&TRACE.as_bytes()[1..]).is_none() && Trace::check(&[b'0'; 56]).is_none());
        let mut bytes = Vec::new();
        let tags = JobTags::from(TagSet { trace: Trace::check(TRACE.as_bytes()), ..TagSet::NONE });
        tags.encode(&mut bytes).unwrap();
        assert!(JobTags::decode_checked(&bytes).is_some());
        *bytes.last_mut().unwrap() = b'g';
        assert_eq!(JobTags::decode_checked(&bytes), None);
    }
}
