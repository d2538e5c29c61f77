//! New clients, and the tubes that they use and watch: `use`, `watch`, `ignore`.
//!
//! Owns: how many clients use and watch each tube. A tube that nothing else keeps ends with its last client.

use std::collections::TryReserveError;
use std::ops::Range;

use beanstalkd_structures::Timer;

use crate::state::clients::Client;
use crate::state::keys::TubeKey;
use crate::state::registry::make_room_in_slab;
use crate::state::reserve_settings::USUAL_WEIGHT;
use crate::state::tubes::DEFAULT;
use crate::{ClientId, Queue};

impl Queue {
    /// Makes sure that the registry has room for the next client.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn make_room_for_client(&mut self) -> Result<(), TryReserveError> {
        make_room_in_slab(&mut self.clients.records)?;
        self.deadlines.try_reserve(self.tubes.len() + 1, self.clients.records.len() + 1)
    }

    /// Makes sure that the registries have room for the client's next `use` or `watch`.
    ///
    /// # Errors
    /// If the allocator has no memory. Nothing has changed.
    pub fn make_room_for_tube(&mut self, id: ClientId) -> Result<(), TryReserveError> {
        let watching = &mut self.client_mut(id).watching;
        if watching.len() == watching.capacity() {
            // Its own growth reports another kind of error. Memory that is free now is free for the list.
            Vec::<TubeKey>::new().try_reserve_exact(2 * watching.len())?;
            watching.grow(2 * watching.len());
        }
        self.make_room_for_one_tube()
    }

    /// Adds a client, which uses and watches only the tube "default".
    pub fn connect(&mut self) -> ClientId {
        let tube = self.tubes.get_mut(DEFAULT);
        tube.using += 1;
        tube.watching += 1;
        self.clients.counts.watched += 1;
        let client = self.add_client(Client::new);
        debug_assert!(
            self.can_wait(client.key()) && self.is_watching(client, DEFAULT),
            "a new client watches the tube default and does not wait"
        );
        client
    }

    /// Adds a client for the server itself. It is in no count of clients: neither connections, nor clients that use or
    /// watch a tube, nor producers, nor workers. A tube that it uses can therefore end as if no client used it, so it
    /// uses "default" again before any other client gives a command.
    pub fn connect_internal(&mut self) -> ClientId {
        self.clients.counts.unconnected += 1;
        self.add_client(Client::internal)
    }

    pub(super) fn add_client(&mut self, new: impl FnOnce(u64) -> Client) -> ClientId {
        self.clients.last_number += 1;
        let client = new(self.clients.last_number);
        let generation = client.generation;
        let id = ClientId { index: self.clients.records.insert(Box::new(client)) as u32, generation };
        debug_assert!(
            self.deadlines.of(Timer::Client(id.key())).is_none(),
            "a client begins without a deadline"
        );
        debug_assert!(
            self.rules.awaited.wait_of(id.key()).is_none(),
            "the last client with this index has ended its wait"
        );
        id
    }

    /// Whether the client watches the tube, which counts it.
    #[inline]
    fn is_watching(&self, id: ClientId, tube: TubeKey) -> bool {
        self.tubes.get(tube).watching > 0 && self.client(id).position_of(tube).is_some()
    }

    /// The client's number, which no other client has had or will have, not even with the same index.
    #[must_use]
    pub fn client_number(&self, id: ClientId) -> u64 {
        self.clients.number_of(self.client(id))
    }

    /// The clients with connections at these indexes. A client keeps its index.
    pub fn clients_at(&self, indexes: Range<usize>) -> impl Iterator<Item = ClientId> {
        let records = indexes.filter_map(|index| Some((index, self.clients.records.get(index)?)));
        let connected = records.filter(|(_, client)| !client.is_leaving && client.has_connection());
        connected.map(|(index, client)| ClientId { index: index as u32, generation: client.generation })
    }

    /// The end of the indexes of clients.
    #[must_use]
    pub fn client_index_end(&self) -> usize {
        self.clients.records.capacity()
    }

    /// Whether the server keeps a list of fields for the client.
    #[inline]
    #[must_use]
    pub fn has_fields(&self, id: ClientId) -> bool {
        self.client(id).has_fields
    }

    /// Notes whether the server keeps such a list.
    pub fn note_fields(&mut self, id: ClientId, has_fields: bool) {
        self.client_mut(id).has_fields = has_fields;
    }

    /// Whether this client has disconnected, and not all of its jobs and tubes have been given back.
    #[must_use]
    pub fn is_leaving(&self, id: ClientId) -> bool {
        let client = self.clients.records.get(id.key().index());
        client.is_some_and(|client| client.generation == id.generation && client.is_leaving)
    }

    /// The command `use`. `name` is valid; its tube is created if it does not exist.
    pub fn use_tube(&mut self, id: ClientId, name: &str) {
        let tube = self.tubes.find_or_make(name);
        let client = self.client_mut(id);
        let before = std::mem::replace(&mut client.using, tube);
        let counted = u32::from(client.has_connection());
        self.tubes.get_mut(tube).using += counted;
        self.tubes.get_mut(before).using -= counted;
        self.remove_tube_if_idle(before);
    }

    /// The command `watch` without a weight; returns how many tubes the client watches now.
    pub fn watch(&mut self, id: ClientId, name: &str) -> usize {
        self.watch_with_weight(id, name, USUAL_WEIGHT)
    }

    /// The command `watch` with a weight, which is not 0; returns how many tubes the client watches now.
    pub fn watch_with_weight(&mut self, id: ClientId, name: &str, weight: u16) -> usize {
        let tube = self.tubes.find_or_make(name);
        let client = self.client_mut(id);
        let known = client.position_of(tube);
        let position = known.unwrap_or(client.watching.len());
        if known.is_none() {
            client.watching.push(tube);
            self.clients.counts.weighed += usize::from(client.settings.is_some());
            self.tubes.get_mut(tube).watching += 1;
            self.clients.counts.watched += 1;
            self.index_watched(id.key(), tube, position);
        }
        self.set_weight(id, position, weight);
        debug_assert!(self.is_watching(id, tube), "the client watches the tube");
        debug_assert_eq!(
            self.client(id).watching.get(position),
            Some(&tube),
            "the tube and its weight have the same position"
        );
        self.client(id).watching.len()
    }

    /// The command `ignore`; returns how many tubes the client watches now, or `None` if it would watch none.
    pub fn ignore(&mut self, id: ClientId, name: &str) -> Option<usize> {
        let tube = self.tubes.find(name);
        let client = self.client(id);
        if let Some(position) = tube.and_then(|tube| client.position_of(tube)) {
            if client.watching.len() == 1 {
                return None;
            }
            self.unwatch(id.key(), position);
        }
        debug_assert!(!self.client(id).watching.is_empty(), "a client watches at least one tube");
        debug_assert!(
            tube.is_none_or(|tube| self.client(id).position_of(tube).is_none()),
            "the client does not watch the tube any more"
        );
        Some(self.client(id).watching.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_client_goes_on_beyond_what_its_record_has() {
        for bits in [32, 40] {
            let mut queue = Queue::default();
            let before = queue.connect();
            queue.clients.last_number = (1 << bits) - 2;
            let clients: Vec<ClientId> = (0..4).map(|_| queue.connect()).collect();
            let numbers: Vec<u64> = clients.iter().map(|&client| queue.client_number(client)).collect();
            let first = (1 << bits) - 1;
            assert_eq!(numbers, [first, first + 1, first + 2, first + 3]);
            if bits == 32 {
                assert_eq!(queue.client_number(before), 1);
            }
        }
    }
}
