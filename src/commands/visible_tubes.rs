//! `list-tubes` and `stats` for a client that may not see every tube.
//!
//! Owns: the progress of such a list or sum. Each is made in slices, by a walk through the registry of tubes, where a
//! tube keeps its index. A long list therefore has the order of the registry, and no tube that was made after the
//! request. Driven by `list_tubes` and `stats`.

use std::collections::TryReserveError;

use crate::access::Roles;
use crate::clock::Timestamp;
use crate::executor::{Caller, Executor, Outcome, answer};
use crate::protocol::{ListWriter, Reply, write_list};
use crate::queue::ClientId;
use crate::stats::{CommandCounts, ServerView, TubeSums};
use crate::tube_name::TubeName;

/// The maximum cost of a slice, in simple requests.
const COST_PER_TURN: u64 = 64;
/// How many tubes are examined between two checks of the time: matching a pattern against a name can take long.
const TUBES_AT_ONCE: usize = 16;
/// How many tubes can be examined for the cost of a simple request.
const TUBES_PER_COST: u64 = 4;

/// A walk through the tubes that have existed since their set had a given version.
#[derive(Clone, Copy)]
struct TubeWalk {
    since: u64,
    /// The index of the next tube.
    index: usize,
}

/// The purpose of the walk.
enum WalkPurpose {
    List(ListWriter),
    /// The sums over the tubes.
    Sums(TubeSums),
}

impl WalkPurpose {
    /// The memory of the answer so far. For `stats` it does not depend on the number of tubes.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::List(writer) => writer.memory_bytes(),
            Self::Sums(_) => 0,
        }
    }
}

impl Executor {
    /// The stats of the tubes that the client may see.
    pub(super) fn stats_of_visible_tubes(&mut self, caller: &mut Caller<'_>) -> Outcome {
        self.walk(caller, self.begin_walk(), WalkPurpose::Sums(TubeSums::default()))
    }

    /// The list of the tubes that the client may see.
    pub(super) fn list_visible_tubes(&mut self, caller: &mut Caller<'_>) -> Outcome {
        if self.is_list_short() {
            let grants = self.grants(caller.client);
            let may_see = |name: &&str| grants.is_some_and(|grants| grants.on(name).meets(Roles::ANY));
            let list = write_list(self.queue.tube_names().map(TubeName::as_str).filter(may_see));
            return self.answer_data(Some(list), caller.output);
        }
        match ListWriter::new(0) {
            Ok(writer) => self.walk(caller, self.begin_walk(), WalkPurpose::List(writer)),
            Err(_) => answer(caller.output, &Reply::OutOfMemory),
        }
    }

    fn begin_walk(&self) -> TubeWalk {
        TubeWalk { since: self.queue.tubes_version(), index: 0 }
    }

    /// A slice of the walk.
    fn walk(&mut self, caller: &mut Caller<'_>, mut walk: TubeWalk, mut purpose: WalkPurpose) -> Outcome {
        let end = self.measured_cost() + COST_PER_TURN;
        while self.measured_cost() < end {
            self.count_cost(TUBES_AT_ONCE as u64 / TUBES_PER_COST);
            match self.visit(caller.client, &mut walk, &mut purpose) {
                Ok(true) => {}
                Ok(false) => {
                    return match purpose {
                        WalkPurpose::List(writer) => self.answer_list(writer, caller.output),
                        WalkPurpose::Sums(sums) => {
                            let stats = self.stats_for(caller.client, &self.visible_view(sums, caller.now));
                            self.answer_data(Some(stats), caller.output)
                        }
                    };
                }
                Err(_) => return answer(caller.output, &Reply::OutOfMemory),
            }
        }
        self.next_slice(caller.output, purpose.memory_bytes(), move |executor, caller| {
            executor.walk(caller, walk, purpose)
        })
    }

    /// Visits the tubes at the next indexes; returns whether there are more.
    fn visit(
        &self,
        client: ClientId,
        walk: &mut TubeWalk,
        purpose: &mut WalkPurpose,
    ) -> Result<bool, TryReserveError> {
        let grants = self.grants(client);
        let indexes = walk.index..walk.index + TUBES_AT_ONCE;
        walk.index = indexes.end;
        let Some((grants, tubes)) = grants.zip(self.queue.tubes_since(walk.since, indexes)) else {
            return Ok(false);
        };
        for (name, jobs, counters, dead) in
            tubes.filter(|(name, ..)| grants.on(name.as_str()).meets(Roles::ANY))
        {
            match purpose {
                WalkPurpose::List(writer) => writer.push(name.as_str())?,
                WalkPurpose::Sums(sums) => sums.add(jobs, counters, dead),
            }
        }
        Ok(true)
    }

    /// The server as a client sees it that may not see every tube: the totals of its commands and jobs are hidden.
    fn visible_view(&self, sums: TubeSums, now: Timestamp) -> ServerView<'_> {
        static NO_COMMANDS: CommandCounts = CommandCounts::NONE;
        ServerView { sums, commands: &NO_COMMANDS, ..self.server_view(now) }
    }
}
