//! A `put` whose line is accepted, until its body is complete.
//!
//! Owns: the numbers and the tags of its line, in few bytes, because every connection has room for one. The executor
//! has checked them.

use std::collections::TryReserveError;

use crate::job::{JobId, Priority};
use crate::protocol::PutHeader;
use crate::seconds::Seconds;
use crate::tags::{EncodedTags, JobTags};
use crate::tube_name::TubeNameRef;

/// A `put` whose line is accepted. Each connection has room for one, so rarely used parts are stored separately.
#[derive(Debug)]
pub struct Put {
    /// The id of its job.
    pub id: JobId,
    priority: Priority,
    whole_delay_s: u32,
    whole_ttr_s: u32,
    /// The length of its body in bytes, without its CRLF.
    pub size: u32,
    extras: Option<Box<PutExtras>>,
}

/// The parts of a `put` that a put without tags and in whole seconds does not have.
#[derive(Debug, Default)]
pub struct PutExtras {
    /// The encoded tags, from [`JobTags::encode`]; empty if there are none.
    tags: Vec<u8>,
    /// The tube into which the job goes, if it is not the used one.
    tube: Option<Box<str>>,
    delay_thousandths: u16,
    ttr_thousandths: u16,
}

impl PutExtras {
    /// The extras of a put with these tags, into this tube or the used one, in the memory of `spare` if there is one.
    ///
    /// # Errors
    /// If the allocator has no memory.
    #[inline]
    pub fn new(
        tags: &JobTags<'_>,
        target: Option<TubeNameRef<'_>>,
        spare: Option<Box<Self>>,
    ) -> Result<Box<Self>, TryReserveError> {
        let mut extras = spare.unwrap_or_default();
        let Self { tags: encoded, tube, delay_thousandths, ttr_thousandths } = &mut *extras;
        encoded.clear();
        tags.encode(encoded)?;
        *tube = target.map(|name| (&*name).into());
        (*delay_thousandths, *ttr_thousandths) = (0, 0);
        Ok(extras)
    }

    /// Encoded tags, and the tube that they name.
    #[must_use]
    pub fn of_tags(tags: Vec<u8>, tube: Option<Box<str>>) -> Box<Self> {
        Box::new(Self { tags, tube, ..Self::default() })
    }
}

impl Put {
    /// The put of this line, with its extras.
    #[inline]
    #[must_use]
    pub fn new(id: JobId, header: PutHeader, mut extras: Option<Box<PutExtras>>) -> Self {
        let PutHeader { priority, delay_s, ttr_s, size } = header;
        if delay_s.thousandths() | ttr_s.thousandths() != 0 {
            let extras = extras.get_or_insert_default();
            (extras.delay_thousandths, extras.ttr_thousandths) = (delay_s.thousandths(), ttr_s.thousandths());
        }
        Self { id, priority, whole_delay_s: delay_s.whole(), whole_ttr_s: ttr_s.whole(), size, extras }
    }

    /// The numbers of its line.
    #[inline]
    #[must_use]
    pub fn header(&self) -> PutHeader {
        let (delay, ttr) =
            self.extras.as_ref().map_or((0, 0), |extras| (extras.delay_thousandths, extras.ttr_thousandths));
        PutHeader {
            priority: self.priority,
            delay_s: Seconds::new(self.whole_delay_s, delay),
            ttr_s: Seconds::new(self.whole_ttr_s, ttr),
            size: self.size,
        }
    }

    /// Whether it has no tags, and only whole seconds.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.extras.is_none()
    }

    /// The tags of the job.
    ///
    /// # Panics
    /// If their bytes are not encoded tags.
    #[must_use]
    pub fn tags(&self) -> EncodedTags<'_> {
        if self.is_plain() {
            return EncodedTags::NONE;
        }
        EncodedTags::read(self.encoded_tags()).expect("the bytes of tags are tags")
    }

    /// The extras, if it has some.
    #[inline]
    #[must_use]
    pub fn into_extras(self) -> Option<Box<PutExtras>> {
        self.extras
    }

    /// Encoded tags of the job, without the tube.
    #[inline]
    #[must_use]
    pub fn encoded_tags(&self) -> &[u8] {
        self.extras.as_ref().map_or(&[], |extras| &extras.tags)
    }

    /// The tube into which the job goes, if it is not the used one.
    #[inline]
    #[must_use]
    pub fn tube(&self) -> Option<&str> {
        self.extras.as_ref()?.tube.as_deref()
    }

    /// The memory of the extras, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let name_bytes = self.tube().map_or(0, str::len);
        self.extras.as_ref().map_or(0, |extras| size_of::<PutExtras>() + extras.tags.capacity() + name_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::{Idempotency, Name, TagSet};
    use crate::tube_name::TubeName;

    #[test]
    fn extras_in_spare_memory_keep_nothing_of_the_last_put() {
        let header =
            |delay_s| PutHeader { priority: Priority(1), delay_s, ttr_s: Seconds::new(2, 345), size: 3 };
        let tags = TagSet {
            idempotency: Some(Idempotency {
                key: Name::try_from("a-long-key").unwrap(),
                cooldown_s: Seconds::ZERO,
            }),
            ..TagSet::NONE
        };
        let first = PutExtras::new(&tags.into(), TubeName::check(b"other"), None).unwrap();
        let put = Put::new(JobId(1), header(Seconds::new(1, 234)), Some(first));
        assert_eq!((*put.tags().set(), put.tube()), (tags.into(), Some("other")));
        assert_eq!(put.header(), header(Seconds::new(1, 234)));

        let group = TagSet { group: Name::check(b"g"), ..TagSet::NONE };
        let second = PutExtras::new(&group.into(), None, put.into_extras()).unwrap();
        let plain = PutHeader { ttr_s: Seconds::new(2, 0), ..header(Seconds::ZERO) };
        let put = Put::new(JobId(2), plain, Some(second));
        assert_eq!((*put.tags().set(), put.tube(), put.header()), (group.into(), None, plain));
    }
}
