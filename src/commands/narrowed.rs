//! `list-tubes` and `stats` for a client that may not see every tube.
//!
//! Owns: how far such a list or such a sum is. Each is made in slices. A list is taken from the list of all tubes, which
//! clients share; the sums go through the tubes in their order, so a tube that takes the place of one that is removed
//! meanwhile can be missed. Driven by `list_tubes` and `stats`.

use std::collections::TryReserveError;
use std::vec;

use super::list_tubes::{Found, let_go};
use super::{Executor, Outcome, answer, stall};
use crate::access::{Grants, Roles};
use crate::clock::Timestamp;
use crate::job::Body;
use crate::protocol::{List, ListWriter, Reply, write_list};
use crate::queue::ClientId;
use crate::session::{Output, Until};
use crate::stats::{CommandCounts, ServerView, StatsSource, TubeSums};
use crate::tube_name::TubeName;

/// What a slice may cost, in simple requests.
const WORK_PER_TURN: u64 = 64;
/// Tubes looked at between two looks at the time: a pattern can take long to match a name.
const TUBES_AT_ONCE: usize = 16;
/// Tubes that cost as much to look at as a simple request.
const TUBES_PER_WORK: u64 = 4;

/// What such a client waits for.
#[derive(Debug)]
enum Narrowed {
    /// The list of all tubes, for which it asked when their set was at this version.
    AllTubes(u64),
    /// Its own list.
    List(Filter),
    /// Sums over the tubes before a position.
    Sums(usize, TubeSums),
}

/// A list of tubes that is taken from the list of all.
#[derive(Debug)]
struct Filter {
    pieces: vec::IntoIter<Body>,
    piece: Option<Body>,
    /// How many bytes of the piece are done.
    done: usize,
    writer: ListWriter,
}

impl Filter {
    /// Nothing of `list` is looked at yet. `None` if there is no memory.
    fn new(list: &List) -> Option<Self> {
        let mut pieces = Vec::new();
        pieces.try_reserve_exact(list.pieces().len()).ok()?;
        for piece in list.pieces() {
            pieces.push(piece.share().or_else(|| Body::copy_of(piece.as_slice()).ok())?);
        }
        let writer = ListWriter::new(0).ok()?;
        Some(Self { pieces: pieces.into_iter(), piece: None, done: 0, writer })
    }

    /// Looks at some tubes of the list; returns whether it was the last, or that there is no memory.
    fn go_on(&mut self, grants: &Grants) -> Result<bool, TryReserveError> {
        let Some(piece) = self.piece.take().or_else(|| self.pieces.next()) else { return Ok(true) };
        let rest = &piece.as_slice()[self.done..];
        for line in rest.split_inclusive(|&byte| byte == b'\n').take(TUBES_AT_ONCE) {
            self.done += line.len();
            let name = line.strip_prefix(b"- ").and_then(|name| TubeName::check(name.trim_ascii_end()));
            if let Some(name) = name.filter(|name| grants.on(name).meets(Roles::ANY)) {
                self.writer.push(name)?;
            }
        }
        if self.done < piece.len() {
            self.piece = Some(piece);
        } else {
            self.done = 0;
        }
        Ok(false)
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
        self.narrowed(client, Narrowed::Sums(0, TubeSums::default()), output, now)
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
        let narrowed = Narrowed::AllTubes(self.ask_for_list());
        self.narrowed(client, narrowed, output, now)
    }

    /// A slice of it.
    fn narrowed(
        &mut self,
        client: ClientId,
        narrowed: Narrowed,
        output: &mut Output,
        now: Timestamp,
    ) -> Outcome {
        let end = self.spent() + WORK_PER_TURN;
        let (narrowed, until) = match narrowed {
            Narrowed::AllTubes(since) => match self.find_list(since, output.held_bytes()) {
                Found::NotYet => (narrowed, Until::TubeList),
                Found::NoMemory => return answer(output, &Reply::OutOfMemory),
                Found::List(list) => match Filter::new(list) {
                    Some(filter) => (Narrowed::List(filter), Until::NextTurn),
                    None => return answer(output, &Reply::OutOfMemory),
                },
            },
            Narrowed::List(mut filter) => {
                if self.lacks_memory_for(filter.writer.held_bytes() + output.held_bytes()) {
                    return answer(output, &Reply::OutOfMemory);
                }
                while self.spent() < end {
                    self.work += TUBES_AT_ONCE as u64 / TUBES_PER_WORK;
                    let grants = self.guard.as_ref().and_then(|guard| guard.grants(client));
                    match grants.map_or(Ok(true), |grants| filter.go_on(grants)) {
                        Ok(false) => {}
                        Ok(true) => return self.answer_list(filter, output),
                        Err(_) => return answer(output, &Reply::OutOfMemory),
                    }
                }
                (Narrowed::List(filter), Until::NextTurn)
            }
            Narrowed::Sums(mut position, mut sums) => {
                while self.spent() < end {
                    self.work += TUBES_AT_ONCE as u64 / TUBES_PER_WORK;
                    if self.add_sums(client, position, &mut sums) {
                        let stats = self.stats_for(client, &self.narrowed_view(sums, now));
                        return self.answer_data(Some(stats), output);
                    }
                    position += TUBES_AT_ONCE;
                }
                (Narrowed::Sums(position, sums), Until::NextTurn)
            }
        };
        stall(until, |server, client, output, now| server.narrowed(client, narrowed, output, now))
    }

    fn answer_list(&mut self, filter: Filter, output: &mut Output) -> Outcome {
        let Ok(list) = filter.writer.finish() else { return answer(output, &Reply::OutOfMemory) };
        let outcome = answer(output, &Reply::List(&list));
        let_go(list, &mut self.detached_bodies);
        outcome
    }

    /// Adds the next tubes to the sums; returns whether these were the last.
    fn add_sums(&self, client: ClientId, position: usize, sums: &mut TubeSums) -> bool {
        let Some(grants) = self.guard.as_ref().and_then(|guard| guard.grants(client)) else { return true };
        for (name, jobs, counters) in self.queue.sums_from(position).take(TUBES_AT_ONCE) {
            if grants.on(name.as_str()).meets(Roles::ANY) {
                sums.add(&jobs, &counters);
            }
        }
        position + TUBES_AT_ONCE >= self.queue.tube_count()
    }

    /// The server as a client sees it that may not see every tube: what its commands and jobs are as a whole is not told.
    fn narrowed_view(&self, sums: TubeSums, now: Timestamp) -> ServerView<'_> {
        static NO_COMMANDS: CommandCounts = CommandCounts::NONE;
        ServerView { sums, commands: &NO_COMMANDS, ..self.server_view(now) }
    }
}
