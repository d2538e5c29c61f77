//! The order of jobs that wait for groups (`aft:`) and of the members of these groups (`grp:`).
//!
//! If the last member of a group is deleted, the jobs that wait for the group become ready, and a worker can reserve
//! them. So a command that deletes both begins with the jobs that wait.

use std::collections::HashMap;

use beanstalk_client::{JobInfo, Tag, TagKind};

/// The maximum number of groups that wait for each other, one after another, whose order is found. In a circle of
/// groups there is no order.
const MAX_STAGES: usize = 100;

/// The name in the tag of this kind.
pub fn tag_name(tags: &[Tag], kind: TagKind) -> Option<&str> {
    tags.iter().find(|tag| tag.kind() == kind).map(Tag::name)
}

/// A job that waits for a group.
struct HeldJob {
    id: u64,
    /// The group that it waits for.
    after: usize,
    /// The group of which it is a member.
    group: Option<usize>,
}

/// The jobs of a command that wait for groups.
#[derive(Default)]
pub struct GroupOrder {
    held: Vec<HeldJob>,
    /// The names of the groups, and their numbers.
    groups: HashMap<String, usize>,
}

impl GroupOrder {
    /// Adds the job if it waits for a group.
    pub fn add(&mut self, info: &JobInfo) {
        if !info.held {
            return;
        }
        let mut number = |kind| {
            let name = tag_name(&info.tags, kind)?;
            let new = self.groups.len();
            Some(*self.groups.entry(name.to_owned()).or_insert(new))
        };
        let (after, group) = (number(TagKind::After), number(TagKind::Group));
        self.held.extend(after.map(|after| HeldJob { id: info.id, after, group }));
    }

    /// The stages of the jobs that wait, at least 1: a job has a higher stage than each member of the group that it
    /// waits for. All other jobs have stage 0.
    pub fn stages(&self) -> HashMap<u64, usize> {
        // The highest stage of a member of each group.
        let mut highest = vec![0; self.groups.len()];
        for _ in 0..MAX_STAGES {
            let mut is_changed = false;
            for (after, group) in self.held.iter().filter_map(|job| Some((job.after, job.group?))) {
                is_changed |= highest[group] <= highest[after];
                highest[group] = highest[group].max(highest[after] + 1);
            }
            if !is_changed {
                break;
            }
        }
        self.held.iter().map(|job| (job.id, highest[job.after] + 1)).collect()
    }
}
