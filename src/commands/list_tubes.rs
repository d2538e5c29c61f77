//! `list-tubes` and `list-tubes-watched`, for any number of tubes. A short list is written at once.

use super::watch::WatchRights;
use crate::exchange::Until;
use crate::executor::{Caller, Executor, Outcome, TUBES_PER_SLICE, answer, stall, watched_tubes_from};
use crate::protocol::{ListWriter, Reply, SHORT_LIST_BYTES, list_bytes, write_list};
use crate::tube_name::TubeName;

impl Executor {
    /// The command `list-tubes`.
    pub(super) fn list_tubes(&mut self, caller: &mut Caller<'_>) -> Outcome {
        if !self.sees_every_tube(caller.client) {
            return self.list_visible_tubes(caller);
        }
        if self.is_list_short() {
            let list = write_list(self.queue.tube_names().map(|name| name.as_str()));
            return self.answer_data(Some(list), caller.output);
        }
        self.share_list(caller.output)
    }

    /// Whether the list of all tubes is short enough to be written at once.
    pub(super) fn is_list_short(&self) -> bool {
        list_bytes(self.queue.figures().tubes, self.queue.tube_name_bytes()) < SHORT_LIST_BYTES
    }

    /// The command `list-tubes-watched`.
    pub(super) fn list_watched(&mut self, caller: &mut Caller<'_>) -> Outcome {
        if self.is_guarded() {
            match self.drop_unwatchable(caller.client) {
                WatchRights::Allowed => {}
                // A tube from which the client may not reserve is not in the list, even if it is the only tube that it
                // watches.
                WatchRights::Forbidden => {
                    return self.answer_data(Some(write_list(std::iter::empty())), caller.output);
                }
                WatchRights::Unfinished => {
                    return stall(Until::NextTurn, |executor, caller| executor.list_watched(caller));
                }
            }
        }
        if self.queue.watched_count(caller.client) <= SHORT_LIST_BYTES / list_bytes(1, TubeName::MAX_BYTES) {
            let list =
                write_list(watched_tubes_from(&self.queue, caller.client, 0).map(|name| name.as_str()));
            return self.answer_data(Some(list), caller.output);
        }
        let expected = list_bytes(self.queue.watched_count(caller.client), 0);
        let Some(writer) = self.list_writer(expected, caller.output) else {
            return answer(caller.output, &Reply::OutOfMemory);
        };
        self.continue_watched(caller, 0, writer)
    }

    /// Writes a slice of a list of watched tubes that already has the first `written` of them.
    fn continue_watched(
        &mut self,
        caller: &mut Caller<'_>,
        written: usize,
        mut writer: ListWriter,
    ) -> Outcome {
        let names = watched_tubes_from(&self.queue, caller.client, written);
        if names.take(TUBES_PER_SLICE).try_for_each(|name| writer.push(name.as_str())).is_err() {
            return answer(caller.output, &Reply::OutOfMemory);
        }
        let written = written + TUBES_PER_SLICE;
        if written < self.queue.watched_count(caller.client) {
            return self.next_slice(caller.output, writer.memory_bytes(), move |executor, caller| {
                executor.continue_watched(caller, written, writer)
            });
        }
        self.answer_list(writer, caller.output)
    }
}
