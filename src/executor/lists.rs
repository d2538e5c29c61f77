//! The list of all tubes that clients share, and the lists and pages of single clients.
//!
//! Owns: the list of all tubes that is being made, and the last complete list as long as it can be used. It is made in
//! slices, one in each turn, and all clients that ask for it in the meantime share it: sixty clients cost one list, in
//! time and in memory.

use std::fmt::Display;
use std::vec;

use super::Executor;
use super::memory::DetachedBodies;
use super::outcome::{Caller, Outcome, answer, stall, stall_with_memory};
use crate::exchange::{Output, Until};
use crate::protocol::{List, ListWriter, Reply, list_bytes};
use crate::queue::ClientId;

/// Tubes listed in a slice, which takes about 30 microseconds.
pub(crate) const TUBES_PER_SLICE: usize = 256;

/// For how many turns a list that no reply holds is kept, so that the clients that waited for it can be served.
const TURNS_KEPT: u8 = 3;

/// The lists of all tubes.
#[derive(Debug, Default)]
pub(crate) struct TubeLists {
    under_way: Option<UnderWay>,
    finished: Option<Finished>,
    /// The version of the last list for which there was no memory.
    failed: Option<u64>,
    /// Whether a list was completed or abandoned since the server last asked.
    has_changed: bool,
}

#[derive(Debug)]
struct UnderWay {
    /// The version of the set of tubes when the list was begun.
    version: u64,
    writer: ListWriter,
}

#[derive(Debug)]
struct Finished {
    version: u64,
    list: List,
    /// Turns since it was last used.
    turns_idle: u8,
}

impl TubeLists {
    /// Memory of the lists, in bytes, whether or not a reply holds a part of them.
    pub(crate) fn bytes(&self) -> usize {
        let under_way = self.under_way.as_ref().map_or(0, |list| list.writer.memory_bytes());
        under_way + self.finished.as_ref().map_or(0, |finished| finished.list.byte_len())
    }

    /// Whether there is a list, in progress or complete, that each turn must manage.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.under_way.is_some() || self.finished.is_some()
    }

    /// Asserts that a list that nobody needs is dropped.
    pub(super) fn check_invariants(&self) {
        let idle = self.finished.as_ref().map_or(0, |finished| finished.turns_idle);
        assert!(idle < TURNS_KEPT, "an idle list is dropped");
    }

    /// Whether there is a list, or none because memory is low, for a client that asked at the version `since`. A newer
    /// list also has each tube that existed then and still exists.
    fn is_over(&self, since: u64) -> bool {
        let version = self.finished.as_ref().map(|finished| finished.version);
        version.max(self.failed).is_some_and(|version| version >= since)
    }
}

/// A page of `list-clients` that is being written.
#[derive(Debug)]
pub(crate) struct ClientPage {
    /// The client that has asked for it.
    pub(crate) asker: ClientId,
    /// The clients that have not been written yet.
    pub(crate) left: vec::IntoIter<ClientId>,
    /// `None` if there was no memory for the page or for a line.
    pub(crate) writer: Option<ListWriter>,
}

impl ClientPage {
    pub(crate) fn is_over(&self) -> bool {
        self.writer.is_none() || self.left.len() == 0
    }
}

impl Executor {
    /// Answers a client that asks for all tubes now, once there is a list for it.
    pub(crate) fn share_list(&mut self, output: &mut Output) -> Outcome {
        // An earlier lack of memory for a list does not mean that memory is lacking now.
        self.tube_lists.failed = None;
        self.await_list(self.queue.tubes_version(), output)
    }

    /// Answers a client that asked for all tubes at the version `since`, once there is a list for it. Begins a list if
    /// one is needed.
    fn await_list(&mut self, since: u64, output: &mut Output) -> Outcome {
        if !self.tube_lists.is_over(since) && self.tube_lists.under_way.is_none() {
            let bytes = list_bytes(self.queue.figures().tubes, self.queue.tube_name_bytes());
            let Some(writer) = self.list_writer(bytes, output) else {
                return answer(output, &Reply::OutOfMemory);
            };
            let version = self.queue.tubes_version();
            self.tube_lists.under_way = Some(UnderWay { version, writer });
            self.queue.begin_listing();
            self.write_slice();
        }
        if !self.tube_lists.is_over(since) {
            return stall(Until::TubeList, move |executor, caller| executor.await_list(since, caller.output));
        }
        let Some(finished) = self.tube_lists.finished.as_mut().filter(|list| list.version >= since) else {
            return answer(output, &Reply::OutOfMemory);
        };
        finished.turns_idle = 0;
        answer(output, &Reply::List(&finished.list))
    }

    /// Writes a slice of the list in progress, if there is one.
    fn write_slice(&mut self) {
        let Some(mut list) = self.tube_lists.under_way.take() else { return };
        if self.memory.is_exhausted() {
            self.queue.give_up_listing();
            (self.tube_lists.failed, self.tube_lists.has_changed) = (Some(list.version), true);
            return;
        }
        let end = match self.queue.list_next(TUBES_PER_SLICE, |name| list.writer.push(name.as_str())) {
            Ok(false) => {
                self.tube_lists.under_way = Some(list);
                return;
            }
            Ok(true) => list.writer.finish(),
            Err(error) => Err(error),
        };
        self.tube_lists.has_changed = true;
        self.drop_finished();
        match end {
            Ok(end) => {
                self.tube_lists.finished = Some(Finished { version: list.version, list: end, turns_idle: 0 });
            }
            Err(_) => self.tube_lists.failed = Some(list.version),
        }
    }

    /// Does a turn's share of the work on the list of all tubes.
    pub(super) fn manage_lists(&mut self) {
        self.write_slice();
        if self.has_idle_list()
            && let Some(finished) = &mut self.tube_lists.finished
        {
            finished.turns_idle += 1;
            if finished.turns_idle == TURNS_KEPT {
                self.drop_finished();
            }
        }
    }

    fn drop_finished(&mut self) {
        if let Some(finished) = self.tube_lists.finished.take() {
            drop_list(finished.list, &mut self.memory.detached_bodies);
        }
    }

    /// Whether there is a list that no reply holds, or that is out of date.
    fn has_idle_list(&self) -> bool {
        let finished = self.tube_lists.finished.as_ref();
        finished.is_some_and(|finished| {
            !finished.list.is_held() || finished.version != self.queue.tubes_version()
        })
    }

    /// Whether the lists need another turn even if no event comes.
    #[inline]
    pub(crate) fn has_work_on_lists(&self) -> bool {
        self.tube_lists.under_way.is_some() || self.has_idle_list()
    }

    /// Whether the clients that wait for the list of all tubes must be served again.
    pub(crate) fn take_list_change(&mut self) -> bool {
        std::mem::take(&mut self.tube_lists.has_changed)
    }

    /// The writer of a list of about `bytes`; `None` if memory is low.
    pub(crate) fn list_writer(&self, bytes: usize, output: &Output) -> Option<ListWriter> {
        if self.lacks_memory_for(bytes + output.memory_bytes()) {
            return None;
        }
        ListWriter::new(bytes).ok()
    }

    /// The writer of a page of about `bytes`, which begins with the cursor of the `next` page and the key of its list.
    pub(crate) fn page_writer(
        &self,
        key: &str,
        next: Option<impl Display>,
        bytes: usize,
        output: &Output,
    ) -> Option<ListWriter> {
        let next = next.map(|next| next.to_string()).unwrap_or_default();
        let mut writer = self.list_writer(bytes, output)?;
        writer.push_lines(&format!("next: \"{next}\"\n{key}:\n")).ok()?;
        Some(writer)
    }

    /// Stalls a command until the next turn. Until then it keeps `memory_bytes` of what it has found or written; if
    /// there is no memory for them, it is refused.
    pub(crate) fn next_slice(
        &self,
        output: &mut Output,
        memory_bytes: usize,
        continuation: impl FnOnce(&mut Self, &mut Caller<'_>) -> Outcome + 'static,
    ) -> Outcome {
        if memory_bytes > 0 && self.lacks_memory_for(memory_bytes + output.memory_bytes()) {
            return answer(output, &Reply::OutOfMemory);
        }
        stall_with_memory(memory_bytes, Until::NextTurn, continuation)
    }

    /// Answers with a complete list. It may be longer than expected, so its memory is checked again.
    pub(crate) fn answer_list(&mut self, writer: ListWriter, output: &mut Output) -> Outcome {
        if self.lacks_memory_for(writer.memory_bytes() + output.memory_bytes()) {
            return answer(output, &Reply::OutOfMemory);
        }
        let Ok(list) = writer.finish() else { return answer(output, &Reply::OutOfMemory) };
        let outcome = answer(output, &Reply::List(&list));
        drop_list(list, &mut self.memory.detached_bodies);
        outcome
    }
}

/// Drops a list; replies may still hold pieces of it.
fn drop_list(list: List, detached: &mut DetachedBodies) {
    let pieces: Vec<_> = list.watch().collect();
    drop(list);
    pieces.into_iter().for_each(|(piece, bytes)| detached.watch(piece, bytes));
}
