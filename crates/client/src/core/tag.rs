//! The tags of a put, an extension: words after the size. The tag `trc:` has a [`TraceParent`].

use std::fmt;
use std::str::FromStr;

use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{PutTags, TagKind};

/// A tag of a job: `idp:KEY[:SECONDS]`, `con:KEY[:LIMIT]`, `grp:NAME`, `aft:NAME`, `exp:SECONDS`, `trc:TRACEPARENT`; or
/// `tub:TUBE`, which names the tube of a put and is not kept with the job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tag {
    kind: TagKind,
    text: String,
}

/// The text is not a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagError(String);

impl fmt::Display for TagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a tag: expected idp:KEY[:SECONDS], con:KEY[:LIMIT], grp:NAME, aft:NAME, exp:SECONDS, \
             tub:TUBE or trc:TRACEPARENT",
            self.0
        )
    }
}

impl std::error::Error for TagError {}

impl Tag {
    /// The tag as it is sent.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its kind.
    pub fn kind(&self) -> TagKind {
        self.kind
    }

    /// The word before the colon, by which a server lists the tag among its extensions.
    pub fn word(&self) -> &str {
        self.kind.word()
    }

    /// How long an `idp` counts after the end of its job; `None` if it does not, or for another tag.
    pub(crate) fn cooldown(&self) -> Option<Seconds> {
        let seconds = self.text.split(':').nth(2).filter(|_| self.kind == TagKind::Idempotency)?;
        Seconds::parse(seconds.as_bytes()).filter(|seconds| !seconds.is_zero())
    }

    /// The text after the first colon, without a number after it: the key or the group; for `exp` the seconds.
    pub fn name(&self) -> &str {
        self.text.split(':').nth(1).unwrap_or_default()
    }
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        // The number parser skips spaces; a word may have none.
        let is_tag = !text.contains(' ') && PutTags::default().add(text.as_bytes()).is_ok();
        match TagKind::split(text.as_bytes()) {
            Some((kind, _)) if is_tag => Ok(Self { kind, text: text.to_owned() }),
            _ => Err(TagError(text.to_owned())),
        }
    }
}

/// The tag `trc:` of a job that is put in this span.
impl From<&TraceParent> for Tag {
    fn from(trace: &TraceParent) -> Self {
        let kind = TagKind::Trace;
        Self { kind, text: format!("{}:{trace}", kind.word()) }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The trace of a job's put: the `traceparent` of W3C's Trace Context, from the tag `trc:`.
///
/// ```
/// use beanstalk_client::TraceParent;
///
/// let trace: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse()?;
/// assert_eq!(trace.trace_id(), "0af7651916cd43dd8448eb211c80319c");
/// assert_eq!(trace.parent_id(), "b7ad6b7169203331");
/// assert!(trace.is_sampled());
/// # Ok::<(), beanstalk_client::TraceParentError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceParent(String);

/// The text is not a `traceparent` of version 00.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParentError(String);

impl fmt::Display for TraceParentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not a traceparent: expected 00-<32 hex>-<16 hex>-<2 hex>", self.0)
    }
}

impl std::error::Error for TraceParentError {}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let parts: Vec<&str> = text.split('-').collect();
        let is_one = parts.iter().map(|part| part.len()).eq([2, 32, 16, 2])
            && parts[0] == "00"
            && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_one { Ok(Self(text.to_owned())) } else { Err(TraceParentError(text.to_owned())) }
    }
}

impl TraceParent {
    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.0[3..35]
    }

    /// The id of the span in which the job was put: 16 hexadecimal digits.
    pub fn parent_id(&self) -> &str {
        &self.0[36..52]
    }

    /// Whether the producer has recorded the trace.
    pub fn is_sampled(&self) -> bool {
        u8::from_str_radix(&self.0[53..], 16).is_ok_and(|flags| flags & 1 == 1)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "trc:00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn tags_are_displayed_as_they_are_parsed() {
        for text in ["idp:a", "idp:a:60", "con:a", "con:a:3", "grp:b", "aft:c/d", "exp:5", "tub:t", TRACE] {
            assert_eq!(text.parse::<Tag>().map(|tag| tag.to_string()).as_deref(), Ok(text));
        }
        let tag: Tag = "con:a:3".parse().unwrap();
        assert_eq!((tag.word(), tag.name()), ("con", "a"));
        let trace: TraceParent = TRACE[4..].parse().unwrap();
        assert_eq!(Tag::from(&trace), TRACE.parse().unwrap());
        let cooldown = |text: &str| text.parse::<Tag>().unwrap().cooldown();
        assert_eq!(
            ["idp:a:60", "idp:a", "idp:a:0", "con:a:3"].map(cooldown),
            [Some(60.into()), None, None, None]
        );
    }

    #[test]
    fn invalid_tags_are_refused() {
        for text in [
            "", "idp", "idp:", "idp:a:", "idp:a:b", "idp:a: 1", "con:a:0", "exp:0", "exp:-1", "exp:+1",
            "grp:a:b", "x:a",
        ] {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_traceparent_has_four_parts_of_hexadecimal_digits() {
        let good = format!("00-{}-{}-0A", "a".repeat(32), "F".repeat(16));
        let trace: TraceParent = good.parse().unwrap();
        assert!(!trace.is_sampled());
        assert_eq!((trace.trace_id(), trace.parent_id()), (&*"a".repeat(32), &*"F".repeat(16)));
        for (flags, is_sampled) in [("00", false), ("01", true), ("02", false), ("03", true)] {
            let trace: TraceParent = good.replace("0A", flags).parse().unwrap();
            assert_eq!(trace.is_sampled(), is_sampled, "{flags}");
        }
        for bad in [
            "",
            "-",
            "00---",
            &good[1..],
            &good.replace("00", "01"),
            &good.replace('F', "g"),
            &format!("{good}-"),
        ] {
            assert!(bad.parse::<TraceParent>().is_err(), "{bad}");
        }
    }
}
