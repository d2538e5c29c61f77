//! A body with the tags of its job after it.
//!
//! Owns: the bytes of both. After a short body, tags need neither their own allocation nor a word in the job's record.
//! A large body is shared with replies, which send all of it, so its tags are kept separately.

use std::collections::TryReserveError;

use crate::job::Body;
use crate::tags::JobTags;

/// A last byte that means that the two bytes before it are the length of the tags.
const LONG: u8 = u8::MAX;

/// A body with its tags, ready to become a job.
#[derive(Debug)]
pub(crate) struct StoredBody {
    pub body: Body,
    /// The tags, if they are not stored after the body.
    pub separate_tags: Option<Box<[u8]>>,
}

impl StoredBody {
    /// Stores `tags` after a short body. If `is_free`, they say that the job's awaited group has had no members.
    ///
    /// # Errors
    /// If the allocator has no memory.
    pub(crate) fn new(body: Body, tags: &[u8], is_free: bool) -> Result<Self, TryReserveError> {
        let short = u8::try_from(tags.len()).ok().filter(|&len| len < LONG);
        let behind = tags.len() + if short.is_some() { 1 } else { 3 };
        let (mut bytes, body) = match body.try_extend(behind)? {
            Ok(bytes) => (bytes, None),
            Err(body) => (Vec::new(), Some(body)),
        };
        bytes.try_reserve_exact(tags.len())?;
        let start = bytes.len();
        bytes.extend_from_slice(tags);
        if is_free {
            JobTags::set_free(&mut bytes[start..]);
        }
        if let Some(body) = body {
            return Ok(Self { body, separate_tags: Some(bytes.into_boxed_slice()) });
        }
        if short.is_none() {
            bytes.extend_from_slice(&(tags.len() as u16).to_le_bytes());
        }
        bytes.push(short.unwrap_or(LONG));
        Ok(Self { body: Body::from(bytes), separate_tags: None })
    }

    /// Sets in the tags that the job's awaited group has had no members.
    pub(crate) fn set_free(&mut self) {
        match &mut self.separate_tags {
            Some(tags) => JobTags::set_free(tags),
            None => {
                let (body, tags) = split(self.body.as_slice());
                let range = body.len()..body.len() + tags.len();
                let bytes = self.body.as_mut_slice().expect("a body with tags behind it is not shared");
                JobTags::set_free(&mut bytes[range]);
            }
        }
    }
}

/// The body and the tags in the bytes of a job whose tags are stored after its body.
#[inline]
pub(crate) fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (&last, rest) = bytes.split_last().expect("the length of the tags is at the end");
    let (len, rest) = match rest.split_last_chunk() {
        Some((rest, &len)) if last == LONG => (u16::from_le_bytes(len), rest),
        _ => (last.into(), rest),
    };
    rest.split_at(rest.len() - usize::from(len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::SHARED_FROM_BYTES;
    use crate::tags::{After, TagSet};

    /// Tags whose encoding has `len` bytes, 3 to 404.
    fn tags_of_len(len: usize, name: &str) -> JobTags<'_> {
        let named = |len: usize| (len > 2).then(|| name[..len - 2].try_into().unwrap());
        let first = len.min(202);
        let after = named(len - first).map(|group| After { group, is_free: false });
        TagSet { group: named(first), after, ..TagSet::NONE }.into()
    }

    #[test]
    fn tags_of_every_length_are_split_from_bodies_of_every_length() {
        let name = "n".repeat(200);
        for tags_len in [3, 4, 18, 202, 253, 254, 255, 256, 404] {
            for body_len in [0, 1, 255, 256, 7_000, SHARED_FROM_BYTES - 1, SHARED_FROM_BYTES, 100_000] {
                let (body, tags) = (vec![255; body_len], tags_of_len(tags_len, &name));
                let mut bytes = Vec::new();
                tags.encode(&mut bytes).unwrap();
                assert_eq!(bytes.len(), tags_len);
                let packed = StoredBody::new(Body::copy_of(&body).unwrap(), &bytes, false).unwrap();
                match packed.separate_tags {
                    Some(separate_tags) => {
                        assert!(
                            body_len + tags_len + 3 >= SHARED_FROM_BYTES,
                            "short tags of a short body are in the block of the body"
                        );
                        assert_eq!((packed.body.as_slice(), &*separate_tags), (&*body, &*bytes));
                    }
                    None => assert_eq!(split(packed.body.as_slice()), (&*body, &*bytes)),
                }
            }
        }
    }
}
