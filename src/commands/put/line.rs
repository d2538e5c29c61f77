//! The line of a put, alone or of a `complete`.
//!
//! Owns: the checks before its body arrives, with their order, and the extras that are kept until then.

use std::rc::Rc;

use crate::clock::Timestamp;
use crate::exchange::PutExtras;
use crate::executor::Executor;
use crate::protocol::{PutHeader, parse_tags};
use crate::queue::ClientId;
use crate::refusal::CommandRefusal;
use crate::tags::{JobTags, Name, PutTags, TagSet};
use crate::tube_name::TubeNameRef;

/// The command to which the line belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LineOf {
    /// A `put`. The table of commands has judged its tube; its memory is checked once it has an id, as in C.
    Put,
    /// A `complete`. Memory is checked before the tags, for an exchange with `memory_bytes`.
    Complete { memory_bytes: usize },
}

impl Executor {
    /// Checks a line with `text` after its size. Returns the extras of the put.
    #[inline(always)]
    pub(in crate::commands) fn check_put_line<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        header: PutHeader,
        text: &[u8],
        of: LineOf,
        now: Timestamp,
    ) -> Result<Option<Box<PutExtras>>, CommandRefusal> {
        if GUARDED || !text.is_empty() {
            return self.check_tagged_line::<GUARDED>(client, header, text, of, now);
        }
        self.check_size(header, of)?;
        Ok(None)
    }

    #[inline(always)]
    fn check_size(&self, header: PutHeader, of: LineOf) -> Result<(), CommandRefusal> {
        if u64::from(header.size) > self.memory.max_job_bytes {
            return Err(CommandRefusal::JobTooBig);
        }
        match of {
            LineOf::Complete { memory_bytes }
                if self.lacks_memory_for(header.size as usize + memory_bytes) =>
            {
                Err(CommandRefusal::OutOfMemory)
            }
            LineOf::Complete { .. } | LineOf::Put => Ok(()),
        }
    }

    /// Checks a line that has tags, or whose job may have an owner.
    #[inline(never)]
    fn check_tagged_line<const GUARDED: bool>(
        &mut self,
        client: ClientId,
        header: PutHeader,
        text: &[u8],
        of: LineOf,
        now: Timestamp,
    ) -> Result<Option<Box<PutExtras>>, CommandRefusal> {
        let tags = if text.is_empty() { Ok(PutTags::default()) } else { parse_tags(text) };
        let mut owner = None;
        if GUARDED {
            // With a wrong tag, the used tube counts, as in the table of commands.
            let PutTags { kept, tube } = tags.unwrap_or_default();
            let tube = tube.map(TubeNameRef::as_str);
            let is_allowed = match of {
                LineOf::Put => self.may_name(client, &kept),
                LineOf::Complete { .. } => self.may_put(client, tube, &kept),
            };
            if !is_allowed {
                self.note_refused_put(client, now);
                return Err(CommandRefusal::Forbidden);
            }
            owner = self.owner_of_put(client, tube, header.size as usize, &kept, of);
        }
        self.check_size(header, of)?;
        if owner.as_ref().is_some_and(|(_, exceeds)| *exceeds) {
            return Err(CommandRefusal::OutOfMemory);
        }
        let tags = tags.map_err(|_| CommandRefusal::BadTag)?;
        match (text.is_empty(), owner) {
            (true, None) => Ok(None),
            (_, owner) => self.extras_of(tags, owner.as_ref().map(|(name, _)| &**name)).map(Some),
        }
    }

    /// The owner of a job with this body and these tags, if the bytes of the owner's jobs are limited; and whether the
    /// job exceeds the limit. The jobs of a `complete` are counted together with others once it is whole.
    pub(in crate::commands) fn owner_of_put(
        &self,
        client: ClientId,
        tube: Option<&str>,
        body_bytes: usize,
        tags: &TagSet<'_>,
        of: LineOf,
    ) -> Option<(Rc<str>, bool)> {
        let (name, limits) = self.guard.as_ref()?.limits(client)?;
        let max_bytes = limits.max_job_bytes?;
        let others = match of {
            LineOf::Put => self.queue.owned_bytes(&name),
            LineOf::Complete { .. } => 0,
        };
        let asked = self.queue.owned_bytes_of_put(client, tube, body_bytes, tags);
        Some((name, others.saturating_add(asked) > max_bytes))
    }

    /// The extras of a put with these tags, if its job has this owner.
    #[inline]
    fn extras_of(
        &mut self,
        PutTags { kept: mut asked, tube }: PutTags<'_>,
        owner: Option<&str>,
    ) -> Result<Box<PutExtras>, CommandRefusal> {
        if let Some(tag) = &mut asked.idempotency {
            tag.cooldown_s = self.queue.cooldown_s(*tag);
        }
        let tags = JobTags { owner: owner.map(|name| Name::again(name.as_bytes())), ..asked.into() };
        PutExtras::new(&tags, tube, self.spares.extras.take()).map_err(|_| CommandRefusal::OutOfMemory)
    }
}
