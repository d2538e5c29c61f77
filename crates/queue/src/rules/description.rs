//! The rules' part of the description of a queue ([`crate::state`]): the facts that do not follow from the tags of the
//! jobs.

use super::Rules;
use super::groups::{EndedGroups, Groups};
use super::unique::{RunningCooldown, UniqueKeys};
use crate::Queue;
use crate::clock::Timestamp;
use crate::description::{Described, Malformed, Reader, Writer};
use crate::job::JobId;
use crate::state::keys::TubeKey;
use crate::state::tubes::TubeTagState;
use crate::tags::Name;

impl Rules {
    /// Writes the cooldowns and the groups that have ended. `number_of` is the number of a tube in the description.
    pub(crate) fn describe(&self, number_of: impl Fn(TubeKey) -> u32, out: &mut Writer<'_>) {
        // All others follow from the jobs and their tags, or are buffers that are empty between two calls.
        let Self {
            unique,
            groups,
            tags: _,
            slots: _,
            offered: _,
            expiry: _,
            owners: _,
            // The descriptions of the clients have the waits.
            awaited: _,
            hasher: _,
            jobs: _,
            index_bytes: _,
            scratch: _,
            tubes: _,
            head_checks: _,
        } = self;
        let UniqueKeys {
            cooldowns,
            has_duplicates: _,
            index: _,
            due: _,
            bytes: _,
            reserved_bytes: _,
            max_s: _,
        } = unique;
        out.count(cooldowns.len());
        for (id, RunningCooldown { tube, key, until, owner }) in cooldowns {
            id.describe(out);
            number_of(*tube).describe(out);
            key.describe(out);
            until.describe(out);
            owner.describe(out);
        }
        let Groups {
            ended: EndedGroups { order, numbers: _, name_bytes: _ },
            by_name: _,
            name_bytes: _,
            freeing: _,
        } = groups;
        out.count(order.len());
        order.values().for_each(|name| name.describe(out));
    }
}

impl TubeTagState {
    /// Whether all of it follows from the jobs and the cooldowns; a field that does not must be described.
    pub(crate) fn follows_from_the_rest(&self) -> bool {
        let Self { parked: _, held: _, cooldowns: _, cooldown_bytes: _ } = self;
        true
    }
}

impl Queue {
    /// Reads the output of [`Rules::describe`]; `tubes` are the tubes by their numbers.
    pub(crate) fn read_rules(&mut self, tubes: &[TubeKey], from: &mut Reader<'_>) -> Result<(), Malformed> {
        for _ in 0..from.count()? {
            let id: JobId = from.value()?;
            let tube =
                *tubes.get(from.value::<u32>()? as usize).ok_or(Malformed("a cooldown has no tube"))?;
            let (key, until, owner) =
                (name_in(from)?, from.value::<Timestamp>()?, from.value::<Option<Box<str>>>()?);
            if self.jobs.get(id).is_some() || self.rules.unique.cooldowns.contains_key(&id) {
                return Err(Malformed("a cooldown has the id of a job"));
            }
            self.claim_key(id, tube, key);
            self.begin_cooldown(id, tube, key.as_str(), until, owner.as_deref());
        }
        for _ in 0..from.count()? {
            let name = name_in(from)?;
            self.rules.groups.ended.note(name.as_str());
        }
        Ok(())
    }
}

/// A key, or the name of a group.
fn name_in<'a>(from: &mut Reader<'a>) -> Result<Name<'a>, Malformed> {
    Name::check(from.bytes()?).ok_or(Malformed("a name"))
}
