//! The list of clients, rendered in slices.
//!
//! Owns: its JSON, and the text of its cursors.

use super::jobs::number;
use super::problem::Problem;
use super::url::QueryParameters;
use super::write::figures;
use crate::http::{SLICE_BYTES, Site, Sources};
use crate::json;
use crate::protocol::{ClientCursor, MAX_LIMIT};
use crate::stats::CLIENT;

/// Clients on a page, unless the request has a limit.
const DEFAULT_LIMIT: usize = 100;
/// Indexes of clients examined in a slice: about 100 microseconds.
const INDEXES_PER_SLICE: usize = 1000;
/// Clients in a slice: each needs a system call for its address.
const CLIENTS_PER_SLICE: usize = 64;

/// A page of clients that is being rendered.
#[derive(Debug)]
pub(crate) struct ClientList {
    /// The next index to examine.
    index: usize,
    limit: usize,
    found: usize,
    has_begun: bool,
}

impl ClientList {
    /// The page for the query; nothing is rendered yet.
    pub(crate) fn new(mut parameters: QueryParameters) -> Result<Self, Problem> {
        let limit = number(&mut parameters, "limit")?.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT as usize).contains(&limit) {
            return Err(Problem::bad(format!("limit: expected 1 to {MAX_LIMIT}")));
        }
        let cursor = parameters.take("cursor").map(|text| ClientCursor::parse(text.as_bytes()));
        let index = match cursor {
            None => 0,
            Some(Some(cursor)) => cursor.index as usize + 1,
            Some(None) => return Err(Problem::bad("cursor: expected the one of another page")),
        };
        parameters.end()?;
        Ok(Self { index, limit, found: 0, has_begun: false })
    }

    /// Renders a slice; returns whether it is the last one.
    pub(crate) fn render(&mut self, sources: &Sources<'_>, out: &mut String) -> bool {
        let Site::Admin { clients, .. } = sources.site else { return true };
        if !self.has_begun {
            self.has_begun = true;
            out.push_str("{\"clients\":[");
        }
        let (queue, now) = (sources.server.queue, sources.server.now);
        let end = queue.client_index_end().min(self.index.saturating_add(INDEXES_PER_SLICE));
        let most = self.found + CLIENTS_PER_SLICE;
        let mut next = None;
        for id in queue.clients_at(self.index..end) {
            if self.found == self.limit {
                next = self.index.checked_sub(1).map(|last| ClientCursor { index: last as u32 }.to_string());
                break;
            }
            if self.found == most || out.len() >= SLICE_BYTES {
                return false;
            }
            self.index = id.index as usize + 1;
            let Some(client) = clients.0.client(id, now) else { continue };
            out.push_str(if self.found == 0 { "" } else { "," });
            self.found += 1;
            json::push(out, &figures(CLIENT, &client));
        }
        if next.is_none() {
            self.index = self.index.max(end);
            if self.index < queue.client_index_end() {
                return false;
            }
        }
        out.push_str("],\"next\":");
        json::push(out, &next);
        out.push_str("}\n");
        true
    }
}
