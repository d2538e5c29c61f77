//! The list of clients, rendered in slices.
//!
//! Owns: its JSON, and the text of its cursors.

use super::problem::Problem;
use super::url::QueryParameters;
use super::write::{close_page, figures};
use crate::http::rendering::SlicedText;
use crate::http::{SLICE_BYTES, Sources};
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
    /// The text before the first client, until it is rendered.
    opening: &'static str,
    /// The next index to examine.
    index: usize,
    limit: usize,
    found: usize,
}

impl ClientList {
    /// The page for the query; nothing is rendered yet.
    pub(crate) fn new(parameters: &mut QueryParameters) -> Result<Self, Problem> {
        let limit = parameters.limit(DEFAULT_LIMIT, MAX_LIMIT as usize)?;
        let cursor = parameters.cursor(|text| ClientCursor::parse(text.as_bytes()))?;
        let index = cursor.map_or(0, |cursor| (cursor.index as usize).saturating_add(1));
        Ok(Self { opening: "{\"clients\":[", index, limit, found: 0 })
    }
}

impl SlicedText for ClientList {
    fn render(&mut self, sources: &Sources<'_>, out: &mut String) -> bool {
        out.push_str(std::mem::take(&mut self.opening));
        let (queue, now) = (sources.server.queue, sources.server.now);
        let end = queue.client_index_end().min(self.index.saturating_add(INDEXES_PER_SLICE));
        let max = self.found + CLIENTS_PER_SLICE;
        let mut next = None;
        for id in queue.clients_at(self.index..end) {
            if self.found == self.limit {
                next = self.index.checked_sub(1).map(|last| ClientCursor { index: last as u32 }.to_string());
                break;
            }
            if self.found == max || out.len() >= SLICE_BYTES {
                return false;
            }
            self.index = id.index as usize + 1;
            let Some(client) = (sources.clients)(id, now) else { continue };
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
        close_page(&next, out);
        true
    }
}
