//! `list-tubes` and `stats` for a client that may not see every tube.
//!
//! Owns: how far such a list or such a sum is. Each is made in slices, by a walk through the tubes. Driven by
//! `list_tubes` and `stats`.

use std::collections::BTreeSet;

use super::{Executor, Outcome, answer, stall_holding};
use crate::access::Roles;
use crate::clock::Timestamp;
use crate::protocol::{ListWriter, Reply, write_list};
use crate::queue::{ClientId, JobCounts, TubeCounters};
use crate::session::{Output, Until};
use crate::stats::{CommandCounts, ServerView, StatsSource, TubeSums};
use crate::tube_name::TubeName;

/// What a slice may cost, in simple requests.
const WORK_PER_TURN: u64 = 64;
/// Tubes looked at between two looks at the time: a pattern can take long to match a name.
const TUBES_AT_ONCE: usize = 16;
/// Tubes that cost as much to look at as a simple request.
const TUBES_PER_WORK: u64 = 4;
/// Names written in a turn: some 30 microseconds.
const NAMES_PER_TURN: usize = 256;

/// A walk through the tubes that a client may see, from the last to the first. When a tube is removed, the last one
/// takes its place: the walk has seen it. So it sees each tube that is there all the time, and `seen` tells those that
/// come again.
struct Walk {
    /// How many tubes it has not looked at.
    left: usize,
    seen: BTreeSet<TubeName>,
}

/// What the walk is for.
enum Purpose {
    /// The list, here the other way round.
    List(Vec<TubeName>),
    /// The sums over the tubes.
    Sums(TubeSums),
}

impl Walk {
    fn held_bytes(&self) -> usize {
        self.seen.len() * size_of::<TubeName>()
    }
}

impl Executor {
    /// The stats of the tubes that the client may see.
    pub(super) fn stats_of_visible_tubes(
        &mut self,
        client: ClientId,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        self.walk(client, self.begin_walk(), Purpose::Sums(TubeSums::default()), output, now)
    }

    /// The list of the tubes that the client may see.
    pub(super) fn list_visible_tubes(
        &mut self,
        client: ClientId,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        if self.is_list_short() {
            let grants = self.guard.as_ref().and_then(|guard| guard.grants(client));
            let may_see = |name: &&str| grants.is_some_and(|grants| grants.on(name).meets(Roles::ANY));
            let list = write_list(self.queue.tube_names().map(TubeName::as_str).filter(may_see));
            return self.answer_data(Some(list), output);
        }
        self.walk(client, self.begin_walk(), Purpose::List(Vec::new()), output, now)
    }

    fn begin_walk(&self) -> Walk {
        Walk { left: self.queue.figures().tubes, seen: BTreeSet::new() }
    }

    /// A slice of the walk.
    fn walk(
        &mut self,
        client: ClientId,
        mut walk: Walk,
        mut purpose: Purpose,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        // A list has each name twice for the time of the walk.
        if self.lacks_memory_for(2 * walk.held_bytes() + output.held_bytes()) {
            return answer(output, &Reply::OutOfMemory);
        }
        let end = self.spent() + WORK_PER_TURN;
        while self.spent() < end {
            self.work += TUBES_AT_ONCE as u64 / TUBES_PER_WORK;
            let visible = self.next_visible(client, &mut walk);
            match &mut purpose {
                Purpose::List(names) => names.extend(visible.iter().rev().map(|&(name, ..)| name.clone())),
                Purpose::Sums(sums) => {
                    visible.iter().for_each(|(_, jobs, counters)| sums.add(jobs, counters))
                }
            }
            if walk.left > 0 {
                continue;
            }
            return match purpose {
                Purpose::List(names) => match ListWriter::new(0) {
                    Ok(writer) => self.write_names(names, writer, output),
                    Err(_) => answer(output, &Reply::OutOfMemory),
                },
                Purpose::Sums(sums) => {
                    let stats = self.stats_for(client, &self.narrowed_view(sums, now));
                    self.answer_data(Some(stats), output)
                }
            };
        }
        stall_holding(2 * walk.held_bytes(), Until::NextTurn, |server, client, output, now| {
            server.walk(client, walk, purpose, output, now)
        })
    }

    /// The next tubes of the walk.
    fn next_visible(&self, client: ClientId, walk: &mut Walk) -> Vec<(&TubeName, JobCounts, TubeCounters)> {
        let grants = self.guard.as_ref().and_then(|guard| guard.grants(client));
        let end = walk.left.min(self.queue.figures().tubes);
        walk.left = end.saturating_sub(TUBES_AT_ONCE);
        let tubes = self.queue.sums_from(walk.left).take(end - walk.left);
        let may_see =
            |name: &TubeName| grants.is_some_and(|grants| grants.on(name.as_str()).meets(Roles::ANY));
        tubes.filter(|&(name, ..)| may_see(name) && walk.seen.insert(name.clone())).collect()
    }

    /// Writes a slice of a list of these names, of which the last is the next.
    fn write_names(
        &mut self,
        mut names: Vec<TubeName>,
        mut writer: ListWriter,
        output: &mut Output,
    ) -> Outcome {
        let held_bytes = names.len() * size_of::<TubeName>() + writer.held_bytes();
        if self.lacks_memory_for(held_bytes + output.held_bytes()) {
            return answer(output, &Reply::OutOfMemory);
        }
        let next = names.split_off(names.len().saturating_sub(NAMES_PER_TURN));
        if next.iter().rev().try_for_each(|name| writer.push(name.as_str())).is_err() {
            return answer(output, &Reply::OutOfMemory);
        }
        if names.is_empty() {
            return self.answer_list(writer, output);
        }
        stall_holding(held_bytes, Until::NextTurn, |server, _, output, _| {
            server.write_names(names, writer, output)
        })
    }

    /// The server as a client sees it that may not see every tube: what its commands and jobs are as a whole is not
    /// told.
    fn narrowed_view(&self, sums: TubeSums, now: Timestamp) -> ServerView<'_> {
        static NO_COMMANDS: CommandCounts = CommandCounts::NONE;
        ServerView { sums, commands: &NO_COMMANDS, ..self.server_view(now) }
    }
}
