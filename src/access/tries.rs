//! Counts of wrong tokens by origin, for the log.
//!
//! Owns: the number of wrong tokens from each address in the last minute. Its memory is bounded: if wrong tokens come
//! from very many addresses, all further addresses share one count. The counts never reject a right token; otherwise
//! somebody with many addresses could lock all others out.

use std::collections::HashMap;

use crate::clock::{NS_PER_S, Timestamp};
use crate::peer::{ClientSource, Peer};

/// After this many wrong tokens from one address in a minute, further ones are not logged.
const MAX_WRONG: u32 = 10;
/// How long wrong tokens count.
const WINDOW_NS: u64 = 60 * NS_PER_S;
/// Addresses with a count of their own.
const MAX_SOURCES: usize = 4096;

/// Wrong tokens by source.
#[derive(Debug, Default)]
pub struct Tries {
    by_source: HashMap<ClientSource, TryCount>,
    others: TryCount,
}

#[derive(Clone, Copy, Debug, Default)]
struct TryCount {
    wrong: u32,
    since: Timestamp,
}

impl TryCount {
    fn is_over(&self, now: Timestamp) -> bool {
        self.since + WINDOW_NS <= now
    }

    fn is_too_many(&self, now: Timestamp) -> bool {
        self.wrong >= MAX_WRONG && !self.is_over(now)
    }

    fn add(&mut self, now: Timestamp) {
        if self.is_over(now) {
            *self = Self { wrong: 0, since: now };
        }
        self.wrong += 1;
    }
}

impl Tries {
    /// Notes a wrong token from `peer`; returns whether there were too many of them for another line.
    pub fn note_wrong(&mut self, peer: Peer, now: Timestamp) -> bool {
        let source = ClientSource::of(peer);
        if self.is_full() && !self.by_source.contains_key(&source) {
            self.by_source.retain(|_, count| !count.is_over(now));
        }
        let count = if self.is_full() && !self.by_source.contains_key(&source) {
            &mut self.others
        } else {
            self.by_source.entry(source).or_default()
        };
        let is_too_many = count.is_too_many(now);
        count.add(now);
        debug_assert!(self.by_source.len() <= MAX_SOURCES, "the memory of the counts is bounded");
        is_too_many
    }

    fn is_full(&self) -> bool {
        self.by_source.len() >= MAX_SOURCES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_700_000_000 * NS_PER_S);

    fn v4(number: u32) -> Peer {
        Peer::Tcp((number.to_be_bytes(), 1).into())
    }

    #[test]
    fn the_log_has_at_most_ten_wrong_tokens_of_an_address_in_a_minute() {
        let mut tries = Tries::default();
        for _ in 0..MAX_WRONG {
            assert!(!tries.note_wrong(v4(1), START));
        }
        assert!(tries.note_wrong(v4(1), START + (WINDOW_NS - 1)));
        assert!(!tries.note_wrong(v4(2), START), "another address");
        assert!(!tries.note_wrong(Peer::Unix(Some(1)), START), "a user");
        assert!(!tries.note_wrong(v4(1), START + WINDOW_NS), "the count begins again");
    }

    #[test]
    fn a_network_of_ipv6_is_one_source_and_a_mapped_address_is_ipv4() {
        let mut tries = Tries::default();
        let tcp = |text: &str| Peer::Tcp(text.parse().unwrap());
        for host in 0..MAX_WRONG {
            tries.note_wrong(tcp(&format!("[2001:db8:1:2::{host:x}]:{host}")), START);
            tries.note_wrong(tcp("[::ffff:192.0.2.1]:1"), START);
        }
        assert!(tries.note_wrong(tcp("[2001:db8:1:2:3::1]:1"), START));
        assert!(!tries.note_wrong(tcp("[2001:db8:1:3::1]:1"), START));
        assert!(tries.note_wrong(tcp("192.0.2.1:9"), START));
    }

    #[test]
    fn many_addresses_take_bounded_memory_and_share_a_count_then() {
        let mut tries = Tries::default();
        for number in 0..MAX_SOURCES as u32 + MAX_WRONG {
            tries.note_wrong(v4(number), START);
        }
        assert_eq!(tries.by_source.len(), MAX_SOURCES);
        assert!(!tries.note_wrong(v4(0), START), "one wrong token from there");
        assert!(tries.note_wrong(v4(u32::MAX), START), "an address without a count of its own");
        assert!(!tries.note_wrong(v4(u32::MAX), START + WINDOW_NS));
        assert_eq!(tries.by_source.len(), 1, "counts that are over make room");
    }
}
