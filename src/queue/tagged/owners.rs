//! Who has put how much: the bytes of the jobs of owners whose bytes are limited.
//!
//! Owns: a sum for each owner that has jobs. The server decides what the limit is.

use std::collections::BTreeMap;

use crate::queue::Queue;

/// What a job counts beside its body, in bytes: about what the queue keeps of it, so that empty jobs count, too.
pub const OWNED_JOB_BYTES: u64 = 128;
/// What an owner takes beside its name, in bytes.
const OWNER_BYTES: usize = 64;

/// The sums.
#[derive(Debug, Default)]
pub struct Owners {
    bytes_by_name: BTreeMap<Box<str>, u64>,
    name_bytes: usize,
}

impl Owners {
    /// What the sums take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes_by_name.len() * OWNER_BYTES + self.name_bytes
    }

    /// A job with such a body is there.
    pub fn add(&mut self, owner: &str, body_bytes: usize) {
        let added = body_bytes as u64 + OWNED_JOB_BYTES;
        match self.bytes_by_name.get_mut(owner) {
            Some(bytes) => *bytes += added,
            None => {
                self.name_bytes += owner.len();
                self.bytes_by_name.insert(owner.into(), added);
            }
        }
    }

    /// A job with such a body is gone.
    pub fn subtract(&mut self, owner: &str, body_bytes: usize) {
        let bytes = self.bytes_by_name.get_mut(owner).expect("who has a job has a sum");
        *bytes -= body_bytes as u64 + OWNED_JOB_BYTES;
        if *bytes == 0 {
            self.bytes_by_name.remove(owner);
            self.name_bytes -= owner.len();
        }
    }
}

impl Queue {
    /// Asserts the invariants of the fields.
    #[inline]
    pub(in crate::queue) fn check_owners(&self) {
        let mut owners = Owners::default();
        for id in self.jobs.ids() {
            if let Some(owner) = self.tags_of_any(id).and_then(|tags| tags.owner) {
                owners.add(owner.as_str(), self.body(id).map_or(0, |body| body.len()));
            }
        }
        assert_eq!(owners.bytes_by_name, self.tagged.owners.bytes_by_name, "the sums are those of the jobs");
        assert_eq!(owners.name_bytes, self.tagged.owners.name_bytes);
    }

    /// The bytes of the jobs of an owner: their bodies, and [`OWNED_JOB_BYTES`] for each.
    #[must_use]
    pub fn owned_bytes(&self, owner: &str) -> u64 {
        self.tagged.owners.bytes_by_name.get(owner).copied().unwrap_or(0)
    }
}
