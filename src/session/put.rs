//! A `put` whose line is accepted, until its body is complete.

use crate::job::JobId;
use crate::protocol::PutHeader;
use crate::tags::EncodedTags;

/// A `put` whose line is accepted.
#[derive(Debug)]
pub struct Put {
    /// The id of its job.
    pub id: JobId,
    /// The numbers of its line.
    pub header: PutHeader,
    /// Its tags, if it has any.
    pub tags: Option<Box<PutTags>>,
}

/// The tags of a `put`, in the bytes that [`TagSet::encode`](crate::tags::TagSet::encode) has made of them.
#[derive(Debug)]
pub struct PutTags(pub Vec<u8>);

impl Put {
    /// Its tags.
    ///
    /// # Panics
    /// If their bytes are not those of tags.
    #[must_use]
    pub fn tags(&self) -> EncodedTags<'_> {
        let Some(PutTags(bytes)) = self.tags.as_deref() else { return EncodedTags::NONE };
        EncodedTags::read(bytes).expect("the bytes of tags are tags")
    }

    /// What its tags take, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.tags.as_ref().map_or(0, |tags| size_of::<PutTags>() + tags.0.capacity())
    }
}
