//! Memory of finished commands, which the next ones use instead of the allocator.

use crate::exchange::{Complete, Output, PutExtras};
use crate::job::JobId;
use crate::queue::{EncodedBody, Planned};

/// The memory, by its use. Most completes have one put, and should cost less than a put and a delete.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// The extras of the last put that had some.
    pub(crate) extras: Option<Box<PutExtras>>,
    /// An empty output, for the replies of a batch.
    pub(crate) replies: Output,
    /// This and the next three belong to a `complete`.
    pub(crate) complete: Option<Box<Complete>>,
    pub(crate) plan: Vec<Planned>,
    pub(crate) bodies: Vec<EncodedBody>,
    pub(crate) ids: Vec<JobId>,
}
