//! The commands `list-clients` and `kill-client`: the connected clients.
//!
//! Owns: how much of the pages is written in a turn. The server has the connections: it passes them in, and closes a
//! killed client before any other command, so that no more of its commands are executed. Never waits for a client,
//! whatever that client does.

use std::rc::Rc;

use crate::clock::Timestamp;
use crate::exchange::Until;
use crate::executor::{Caller, ClientPage, Executor, Outcome, answer, stall, stall_with_memory};
use crate::protocol::{ClientCursor, ListWriter, Reply};
use crate::queue::ClientId;
use crate::refusal::ChangeRefusal;
use crate::stats::{ClientView, Connections, write_client};

/// Indexes of clients examined in a turn: about 100 microseconds.
const INDEXES_PER_TURN: usize = 1000;
/// How many of them can be examined for the cost of a simple request.
const INDEXES_PER_COST: u64 = 4;
/// Clients written in a turn, for all pages together. Each needs a system call for its address.
const CLIENTS_PER_TURN: usize = 64;
/// The cost of a written client, in simple requests.
const COST_PER_CLIENT: u64 = 8;
/// The usual length of a client's line, in bytes.
const LINE_BYTES: usize = 256;

/// The clients of a page, as far as they have been found.
struct FoundClients {
    /// The next index to examine.
    index: usize,
    limit: usize,
    ids: Vec<ClientId>,
}

impl Executor {
    /// The clients after the index of the cursor, in the order of their indexes.
    pub(super) fn list_clients(
        &mut self,
        caller: &mut Caller<'_>,
        limit: u32,
        after: Option<ClientCursor>,
    ) -> Outcome {
        let index = after.map_or(0, |cursor| (cursor.index as usize).saturating_add(1));
        self.find_clients(caller, FoundClients { index, limit: limit as usize, ids: Vec::new() })
    }

    /// Searches for a turn's share of the clients of a page, and for the first one after the page.
    fn find_clients(&mut self, caller: &mut Caller<'_>, mut found: FoundClients) -> Outcome {
        let indexes =
            found.index..self.queue.client_index_end().min(found.index.saturating_add(INDEXES_PER_TURN));
        let is_last = indexes.end == self.queue.client_index_end() || indexes.is_empty();
        self.count_cost(1 + indexes.len() as u64 / INDEXES_PER_COST);
        found.index = indexes.end;
        let wanted = found.limit + 1 - found.ids.len();
        found.ids.extend(self.queue.clients_at(indexes).take(wanted));
        if found.ids.len() <= found.limit && !is_last {
            let memory_bytes = found.ids.capacity() * size_of::<ClientId>();
            return self.next_slice(caller.output, memory_bytes, move |executor, caller| {
                executor.find_clients(caller, found)
            });
        }
        let has_more = found.ids.len() > found.limit;
        found.ids.truncate(found.limit);
        let next = found.ids.last().filter(|_| has_more).map(|last| ClientCursor { index: last.index });
        let expected = LINE_BYTES * (found.ids.len() + 1);
        let writer = self.page_writer("clients", next, expected, caller.output);
        self.client_pages.push(ClientPage { asker: caller.client, left: found.ids.into_iter(), writer });
        self.await_page(caller)
    }

    /// Answers with the client's page once it is written.
    fn await_page(&mut self, caller: &mut Caller<'_>) -> Outcome {
        let Some(at) = self.client_pages.iter().position(|page| page.asker == caller.client) else {
            return answer(caller.output, &Reply::InternalError);
        };
        let page = &self.client_pages[at];
        if !page.is_over() {
            let memory_bytes = page.writer.as_ref().map_or(0, ListWriter::memory_bytes);
            return stall_with_memory(memory_bytes, Until::NextTurn, |executor, caller| {
                executor.await_page(caller)
            });
        }
        match self.client_pages.remove(at).writer {
            Some(writer) => self.answer_list(writer, caller.output),
            None => answer(caller.output, &Reply::OutOfMemory),
        }
    }

    /// Writes a turn's share of the pages, the oldest first. A client that has disconnected in the meantime is left
    /// out.
    pub(crate) fn write_client_pages(&mut self, connections: &dyn Connections, now: Timestamp) {
        let mut share = CLIENTS_PER_TURN;
        let mut pages = std::mem::take(&mut self.client_pages);
        // The newest page is given up, so that the older ones are completed.
        if self.is_short_of_memory()
            && let Some(page) = pages.iter_mut().rfind(|page| !page.is_over())
        {
            page.writer = None;
        }
        let mut line = String::new();
        for page in &mut pages {
            while !page.is_over() && share > 0 {
                share -= 1;
                self.count_cost(COST_PER_CLIENT);
                let id = page.left.next();
                let Some(view) = id.and_then(|id| self.client_view(id, connections, now)) else { continue };
                line.clear();
                write_client(&view, &mut line);
                page.writer.take_if(|writer| writer.push_lines(&line).is_err());
            }
        }
        self.client_pages = pages;
    }

    /// A client, if it is still connected.
    pub(crate) fn client_view(
        &self,
        id: ClientId,
        connections: &dyn Connections,
        now: Timestamp,
    ) -> Option<ClientView<'_>> {
        let connection = connections.connection(id, now)?;
        let name = self.guard.as_ref().and_then(|guard| guard.identity_name(id));
        Some(ClientView {
            number: self.queue.client_number(id),
            identity: name.map_or_else(|| Rc::from(""), Rc::clone),
            session: self.queue.session_of(id).map_or("", |key| &key.name),
            using: self.queue.used_tube(id).as_str(),
            watching: self.queue.watched_count(id) as u64,
            reserved: self.queue.reservation_count(id) as u64,
            connection,
        })
    }

    /// The command `kill-client`.
    pub(super) fn kill_client(&mut self, caller: &mut Caller<'_>, number: u64) -> Outcome {
        self.find_client(caller, number, 0)
    }

    /// Searches for the client with this number, in a turn's share of the indexes from `index` on.
    fn find_client(&mut self, caller: &mut Caller<'_>, number: u64, index: usize) -> Outcome {
        let end = self.queue.client_index_end().min(index + INDEXES_PER_TURN);
        self.count_cost(1 + (end - index.min(end)) as u64 / INDEXES_PER_COST);
        let found = self.queue.clients_at(index..end).find(|&id| self.queue.client_number(id) == number);
        if found.is_some() && caller.output.write(&Reply::Killed).is_err() {
            return Outcome::Abort;
        }
        match found {
            Some(killed) if killed == caller.client => Outcome::Close,
            Some(killed) => {
                self.to_close.push(killed);
                caller.count_done(1);
                stall(Until::NextTurn, move |executor, _| executor.await_end_of(killed))
            }
            None if end < self.queue.client_index_end() => {
                stall(Until::NextTurn, move |executor, caller| executor.find_client(caller, number, end))
            }
            None => caller.refuse(ChangeRefusal::NoClient),
        }
    }

    /// Ends when the closed client has given back its jobs, so that the next command finds them.
    fn await_end_of(&self, killed: ClientId) -> Outcome {
        if self.queue.is_leaving(killed) {
            stall(Until::NextTurn, move |executor, _| executor.await_end_of(killed))
        } else {
            Outcome::Done
        }
    }
}
