//! The tags `grp` and `aft`: groups over all tubes, and the jobs that are held until a group has no member left.
//!
//! Owns: the groups, and the jobs that wait for each. When a group loses its last member, the jobs that wait for it
//! become free at that instant, whatever happens later; they leave their tubes' held jobs some at a time.

use std::collections::{BTreeMap, LinkedList};

use beanstalkd_structures::OrderedQueue;

use super::{JobEnd, MarkedJob, Rule};
use crate::Queue;
use crate::assertions::in_debug;
use crate::clock::Timestamp;
use crate::job::{JobId, JobState};
use crate::state::jobs::{Collection, Marks};
use crate::tags::{After, JobTags, Name};

/// The memory of a group besides its name and its jobs, in bytes.
pub(crate) const GROUP_BYTES: usize = 152;

/// The memory of an ended group besides its name, in bytes.
const ENDED_BYTES: usize = 80;

#[derive(Debug, Default)]
pub(super) struct Group {
    /// Jobs that are members, in any state.
    members: u64,
    buried: u64,
    /// The held jobs.
    waiting: OrderedQueue<JobId>,
}

/// The maximum number of ended groups that are remembered.
const MAX_ENDED_GROUPS: usize = 1024;

/// The groups that ended last.
#[derive(Debug, Default)]
pub(super) struct EndedGroups {
    /// The number of each one's last end.
    pub(super) numbers: BTreeMap<Box<str>, u64>,
    /// In the order of their last ends.
    pub(super) order: BTreeMap<u64, Box<str>>,
    pub(super) name_bytes: usize,
}

impl EndedGroups {
    pub(super) fn note(&mut self, name: &str) {
        let next = self.order.last_key_value().map_or(0, |(last, _)| last + 1);
        if let Some(number) = self.numbers.get_mut(name)
            && let Some(name) = self.order.remove(number)
        {
            *number = next;
            self.order.insert(next, name);
            return;
        }
        if self.order.len() == MAX_ENDED_GROUPS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.name_bytes -= oldest.len();
            self.numbers.remove(&oldest);
        }
        self.name_bytes += name.len();
        self.order.insert(next, name.into());
        self.numbers.insert(name.into(), next);
    }

    pub(super) fn bytes(&self) -> usize {
        self.order.len() * ENDED_BYTES + 2 * self.name_bytes
    }
}

/// All groups that have members, or jobs that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(super) by_name: BTreeMap<Box<str>, Group>,
    pub(super) ended: EndedGroups,
    pub(super) name_bytes: usize,
    /// Jobs of groups that have lost their last member. Some may have been deleted. A flush can end a million groups
    /// before the first of these jobs continues, and clients must not decide the size of an allocation, so the list
    /// grows by one entry at a time.
    pub(crate) freeing: LinkedList<OrderedQueue<JobId>>,
}

/// A group as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct GroupView {
    /// The group's members, including buried ones.
    pub pending: u64,
    pub buried: u64,
    /// The jobs that it holds.
    pub waiting: u64,
}

impl Groups {
    pub(crate) fn bytes(&self) -> usize {
        self.by_name.len() * GROUP_BYTES + self.name_bytes
    }

    fn has_freed(&self) -> bool {
        !self.freeing.is_empty()
    }

    pub(crate) fn has_members(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|group| group.members > 0)
    }

    /// Whether the group holds this job.
    pub(crate) fn holds(&self, name: &str, id: JobId) -> bool {
        self.by_name.get(name).is_some_and(|group| group.waiting.contains(id))
    }

    fn get_or_make(&mut self, name: &str) -> &mut Group {
        if !self.by_name.contains_key(name) {
            self.name_bytes += name.len();
            self.by_name.insert(name.into(), Group::default());
        }
        self.by_name.get_mut(name).expect("the group was found or has been inserted")
    }

    /// Changes an existing group; it ends if it has neither members nor waiting jobs left.
    fn change<T>(&mut self, name: &str, change: impl FnOnce(&mut Group) -> T) -> T {
        let group = self.by_name.get_mut(name).expect("a group with members or held jobs exists");
        let result = change(group);
        debug_assert!(group.buried <= group.members, "the buried jobs of a group are members");
        if group.members == 0 && group.waiting.is_empty() {
            self.name_bytes -= name.len();
            self.by_name.remove(name);
            self.ended.note(name);
        }
        result
    }

    /// Keeps the group, which has a member, until [`Groups::unpin`].
    pub(crate) fn pin(&mut self, name: &str) {
        self.get_or_make(name).members += 1;
    }

    /// Ends the pin: another member has joined the group in the meantime.
    pub(crate) fn unpin(&mut self, name: &str) {
        debug_assert!(
            self.by_name.get(name).is_some_and(|group| group.members > 1),
            "there is another member"
        );
        self.change(name, |group| group.members -= 1);
    }

    /// Removes a member. If it was the last, the held jobs become free; returns whether there are any.
    pub(crate) fn leave(&mut self, name: &str) -> bool {
        let freed = self.change(name, |group| {
            group.members -= 1;
            (group.members == 0).then(|| std::mem::take(&mut group.waiting))
        });
        let freed = freed.filter(|waiting| !waiting.is_empty());
        let any = freed.is_some();
        self.freeing.extend(freed);
        debug_assert!(!any || !self.by_name.contains_key(name), "a group that frees its jobs has ended");
        any
    }
}

impl Rule for Groups {
    const ADDED: Marks = Marks::TAGGED;
    fn added(queue: &mut Queue, job: &MarkedJob<'_>) {
        if let Some(group) = job.tags.group {
            queue.rules.groups.get_or_make(group.as_str()).members += 1;
        }
    }

    const MAY_BE_RESERVED: Marks = Marks::HELD;
    /// A held job may not be reserved.
    fn may_be_reserved(_queue: &Queue, _job: &MarkedJob<'_>) -> bool {
        false
    }

    const LEFT_BURIED: Marks = Marks::TAGGED;
    fn left_buried(queue: &mut Queue, job: &MarkedJob<'_>) {
        if let Some(group) = job.tags.group {
            queue.rules.groups.change(group.as_str(), |group| group.buried -= 1);
        }
    }

    const BURIED: Marks = Marks::TAGGED;
    fn buried(queue: &mut Queue, job: &MarkedJob<'_>) {
        if let Some(group) = job.tags.group {
            queue.rules.groups.change(group.as_str(), |group| group.buried += 1);
        }
    }

    const ENDED: Marks = Marks::TAGGED;
    fn ended(queue: &mut Queue, job: &MarkedJob<'_>, end: &mut JobEnd) {
        end.frees_group = job.tags.group.is_some_and(|group| queue.rules.groups.leave(group.as_str()));
    }

    #[inline]
    fn check(queue: &Queue) {
        let groups = &queue.rules.groups;
        let (mut members, mut buried, mut held) = (BTreeMap::new(), BTreeMap::new(), 0);
        for id in queue.jobs.ids() {
            let Some(tags) = queue.tags(id) else { continue };
            let job = queue.jobs.expect(id);
            if let Some(group) = tags.group {
                *members.entry(group).or_insert(0) += 1;
                *buried.entry(group).or_insert(0) +=
                    u64::from(matches!(job.collection(), Collection::Buried(_)));
            }
            let is_held = queue.is_held(id);
            assert!(
                !is_held
                    || tags
                        .after
                        .is_some_and(|after| !after.is_free && groups.has_members(after.group.as_str()))
            );
            assert!(
                job.has(Marks::HELD) || tags.after.is_none_or(|after| after.is_free),
                "a job without the mark HELD does not wait for a group"
            );
            assert!(
                is_held || !job.has(Marks::HELD) || groups.has_freed(),
                "a job that has the mark HELD and no longer waits is about to be freed"
            );
            held += usize::from(is_held);
        }
        for (name, group) in &groups.by_name {
            assert!(group.members > 0, "without members nothing is held");
            assert_eq!(members.get(&Name::again(name.as_bytes())), Some(&group.members));
            assert_eq!(buried.get(&Name::again(name.as_bytes())), Some(&group.buried));
        }
        assert_eq!(members.len(), groups.by_name.len());
        assert_eq!(groups.by_name.values().map(|group| group.waiting.len()).sum::<usize>(), held);
        assert_eq!(groups.by_name.keys().map(|name| name.len()).sum::<usize>(), groups.name_bytes);
        let ended = &groups.ended;
        assert!(ended.order.len() <= MAX_ENDED_GROUPS && ended.order.len() == ended.numbers.len());
        assert!(ended.order.iter().all(|(number, name)| ended.numbers.get(name) == Some(number)));
        assert_eq!(ended.order.values().map(|name| name.len()).sum::<usize>(), ended.name_bytes);
    }
}

impl Queue {
    /// Whether free jobs may leave the held ones now. They wait for a flush, which may have to delete them.
    #[inline]
    pub(crate) fn frees_jobs(&self) -> bool {
        self.rules.groups.has_freed() && !self.flushes.has_reached_held()
    }

    /// The group with this name. An ended group is remembered for a while.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<GroupView> {
        let groups = &self.rules.groups;
        let Some(group) = groups.by_name.get(name) else {
            return groups.ended.numbers.contains_key(name).then(GroupView::default);
        };
        Some(GroupView { pending: group.members, buried: group.buried, waiting: group.waiting.len() as u64 })
    }

    /// Whether the job is held by its group.
    #[must_use]
    pub fn is_held(&self, id: JobId) -> bool {
        let after =
            self.jobs.get(id).filter(|job| job.has(Marks::HELD)).and_then(|_| self.expect_tags(id).after);
        after.is_some_and(|after| self.rules.groups.holds(after.group.as_str(), id))
    }

    /// Whether a job that is put now must wait for its group. Its own membership counts.
    pub(crate) fn must_wait(&self, after: &After<'_>) -> bool {
        self.rules.groups.has_members(after.group.as_str())
    }

    /// Holds the job for the group; once free, it is delayed until `until`.
    pub(crate) fn hold(&mut self, id: JobId, name: &str, until: Timestamp) {
        debug_assert!(!self.is_linked(id), "a job that becomes held is in no other collection");
        let before = in_debug(|| self.counted_with(id));
        self.rules.groups.get_or_make(name).waiting.insert(id);
        let job = self.jobs.expect_mut(id);
        debug_assert!(!job.has(Marks::HELD), "a job waits for one group, once");
        job.set_collection(Collection::Delayed(until.0.into()));
        job.marks |= Marks::HELD;
        let (tube, priority) = (job.tube, job.priority);
        self.flushes.note_moved(id, tube);
        self.tubes.get_mut(tube).tag_state_mut().held.insert((until, id));
        self.sums.jobs.delayed += 1;
        debug_assert!(
            self.is_linked_as(id, JobState::Delayed) && self.is_held(id),
            "its group holds the job"
        );
        debug_assert_eq!(self.counted(tube), before.more(JobState::Delayed, priority), "one more is counted");
    }

    /// Takes a job out of its tube's held jobs; returns whether its group still holds it.
    pub(crate) fn take_out_of_held(&mut self, id: JobId, until: Timestamp) -> bool {
        debug_assert!(self.is_linked_as(id, JobState::Delayed), "a held job counts as delayed");
        let job = self.jobs.expect_mut(id);
        debug_assert!(job.has(Marks::HELD), "the job is among the held ones");
        job.marks &= !Marks::HELD;
        let found = self.tubes.get_mut(job.tube).tag_state_mut().held.remove((until, id));
        assert!(found.is_some(), "a held job is among the held jobs of its tube");
        self.sums.jobs.delayed -= 1;
        let is_held = self.with_tags(id, |queue, job| {
            let group = job.tags.after.expect("a held job waits for a group").group.as_str();
            let groups = &mut queue.rules.groups;
            let is_held = groups.holds(group, id);
            if is_held {
                groups.change(group, |group| group.waiting.remove(id));
            }
            is_held
        });
        debug_assert!(!self.is_linked(id), "a job that was taken out is in no collection");
        is_held
    }

    /// Notes in the tags of the job that it need not wait for a group.
    pub(crate) fn note_free(&mut self, id: JobId) {
        JobTags::set_free(self.rules.tags.get_mut(id, self.jobs.expect_mut(id)));
    }

    /// Whether the tags of the job say that it need not wait for a group.
    #[inline]
    pub(crate) fn waits_for_no_group(&self, id: JobId) -> bool {
        self.tags(id).and_then(|tags| tags.after).is_none_or(|after| after.is_free) && !self.is_held(id)
    }

    /// Ends a restore, once all jobs are restored, in a run that started at `started_at`. All ids, including those of
    /// deleted jobs, are below `next_id`. The jobs that wait for groups without members become free; `advance` moves
    /// them.
    pub fn finish_restore(&mut self, next_id: u64, started_at: Timestamp) {
        self.numbers.skip_ids_below(next_id);
        self.numbers.skip_earlier_burials(started_at);
        let groups = &mut self.rules.groups;
        let empty = |group: &Group| group.members == 0;
        for (name, group) in groups.by_name.iter_mut().filter(|(_, group)| empty(group)) {
            groups.freeing.push_back(std::mem::take(&mut group.waiting));
            groups.ended.note(name);
        }
        groups.by_name.retain(|_, group| !empty(group));
        groups.name_bytes = groups.by_name.keys().map(|name| name.len()).sum();
    }
}
