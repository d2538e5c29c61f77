//! The tags of the jobs: after their bodies, or here.

use std::collections::BTreeMap;

use crate::job::JobId;
use crate::state::jobs::{Job, Marks};
use crate::state::stored_body;

/// The memory of an entry of `separate_tags` besides its bytes.
const SEPARATE_TAGS_BYTES: usize = 48;

/// The tags that are not stored after a body.
#[derive(Debug, Default)]
pub(crate) struct TagStorage {
    separate_tags: BTreeMap<JobId, Box<[u8]>>,
    bytes: usize,
}

impl TagStorage {
    /// The encoded tags of a job, empty if it has none.
    pub(crate) fn get<'a>(&'a self, id: JobId, job: &'a Job) -> &'a [u8] {
        if job.has(Marks::TAGGED) && !job.has(Marks::BEHIND_BODY) {
            self.separate_tags.get(&id).expect("tags are behind the body or beside the jobs")
        } else {
            Self::behind_body(job)
        }
    }

    /// The encoded tags that are stored after the body of the job, empty if there are none.
    pub(crate) fn behind_body(job: &Job) -> &[u8] {
        if job.has(Marks::BEHIND_BODY) { stored_body::split(job.body.as_slice()).1 } else { &[] }
    }

    /// The encoded tags of the job, for changes.
    pub(crate) fn get_mut<'a>(&'a mut self, id: JobId, job: &'a mut Job) -> &'a mut [u8] {
        if job.has(Marks::BEHIND_BODY) {
            let (body, tags) = stored_body::split(job.body.as_slice());
            let range = body.len()..body.len() + tags.len();
            &mut job.body.as_mut_slice().expect("a body with tags behind it is not shared")[range]
        } else {
            self.separate_tags.get_mut(&id).expect("tags are behind the body or beside the jobs")
        }
    }

    pub(crate) fn insert(&mut self, id: JobId, tags: Box<[u8]>) {
        self.bytes += SEPARATE_TAGS_BYTES + tags.len();
        let before = self.separate_tags.insert(id, tags);
        debug_assert!(before.is_none(), "the tags of a job are stored once");
    }

    /// Removes a deleted job. Returns its tags if they were not stored after its body.
    pub(crate) fn remove(&mut self, id: JobId) -> Option<Box<[u8]>> {
        let tags = self.separate_tags.remove(&id)?;
        self.bytes -= SEPARATE_TAGS_BYTES + tags.len();
        debug_assert_eq!(self.bytes == 0, self.separate_tags.is_empty(), "the sum is that of the tags");
        Some(tags)
    }

    /// Its memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.separate_tags.len()
    }
}
