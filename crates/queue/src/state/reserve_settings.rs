//! The reserve mode of a client and the weights of its tubes.
//!
//! Owns: the weight of a tube, and the chance that it gives. The chances of a client that watches many tubes are in a
//! tree, so that a change and a draw cost a few steps. A tube has its weight in the tree if the client knows a job in
//! it. Clients in the default mode whose tubes all have the default weight have none of this.

use std::collections::TryReserveError;

use crate::Queue;
use crate::clock::{NS_PER_S, Timestamp};
use crate::state::clients::Client;
use crate::state::tubes::Tube;

/// The weight of a watched tube without a weight of its own.
pub(crate) const USUAL_WEIGHT: u16 = 1;

/// The bounds of a mean run time in nanoseconds: a microsecond and 19 hours.
const MIN_RUN_NS: u64 = 1 << 10;
const MAX_RUN_NS: u64 = 1 << 46;
/// The factor of a weight before it is divided by a run time. The product of the largest, 9999, fits.
const RUN_SCALE: u32 = 50;
/// The typical run time is a moving average: each run time that is looked up has a weight of one in this number.
const TYPICAL_PARTS: u64 = 16;

/// How a client's reserves choose among its tubes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReserveMode {
    /// The most urgent job of all of them, as in C.
    #[default]
    Fifo,
    /// A random tube, in proportion to the weights, then its most urgent job.
    Weighted,
    /// Like `Weighted`, but each weight is divided by the tube's mean run time.
    WeightedFair,
}

/// The mode and the weights of a client that has chosen another mode than the default, or has given a tube a weight.
#[derive(Debug, Default)]
pub(crate) struct ReserveSettings {
    pub mode: ReserveMode,
    /// By the index in the watch list. Tubes after the end have the default weight.
    pub weights: Vec<u16>,
    /// In a weighted mode, the chances of the first tubes of a long watch list: 0 if the client knows no job. The
    /// chances of the other tubes are added when the client reserves.
    pub chances: Chances,
    /// The index of the tube whose run time is looked up next.
    pub next_refreshed: usize,
    /// Roughly the mean of the run times that were looked up, in nanoseconds; 0 before the first. It is used for tubes
    /// that have none.
    pub typical_run_ns: u64,
}

impl ReserveSettings {
    fn weight(&self, position: usize) -> u16 {
        self.weights.get(position).copied().unwrap_or(USUAL_WEIGHT)
    }

    /// The chance of the tube at `position`, which has a job.
    pub(crate) fn chance(&mut self, position: usize, tube: &Tube, now: Timestamp) -> u64 {
        let weight = self.weight(position).into();
        if self.mode != ReserveMode::WeightedFair {
            return weight;
        }
        let run_ns = match tube.times().and_then(|times| times.mean_run_ns(now)) {
            Some(run_ns) => {
                self.learn(run_ns);
                run_ns
            }
            None if self.typical_run_ns > 0 => self.typical_run_ns,
            None => NS_PER_S,
        };
        (weight << RUN_SCALE) / run_ns.clamp(MIN_RUN_NS, MAX_RUN_NS)
    }

    /// Notes that a tube has this mean run time.
    fn learn(&mut self, run_ns: u64) {
        let typical = self.typical_run_ns;
        self.typical_run_ns = match typical {
            0 => run_ns,
            _ => typical - typical / TYPICAL_PARTS + run_ns / TYPICAL_PARTS,
        };
    }

    pub(crate) fn set_weight(&mut self, position: usize, weight: u16) {
        let before = u128::from(self.weight(position));
        if self.weights.len() <= position && weight != USUAL_WEIGHT {
            self.weights.resize(position + 1, USUAL_WEIGHT);
        }
        if let Some(known) = self.weights.get_mut(position) {
            *known = weight;
        }
        if position < self.chances.len() {
            let chance = self.chances.get(position);
            self.chances.set(position, chance * u128::from(weight) / before);
        }
    }

    /// The tube at `position` leaves a watch list of `watched` tubes, and the last tube takes its position.
    pub(crate) fn remove(&mut self, position: usize, watched: usize) {
        if self.weights.len() == watched {
            self.weights.swap_remove(position);
        } else if let Some(weight) = self.weights.get_mut(position) {
            *weight = USUAL_WEIGHT;
        }
        if self.chances.len() == watched {
            let last = self.chances.pop();
            if position < self.chances.len() {
                self.chances.set(position, last);
            }
        } else if position < self.chances.len() {
            // The last tube has no chance yet, and moves to an index that has one: it is probed like a tube whose first
            // job has changed.
            self.chances.truncate(position);
        }
    }

    /// Chooses in this mode from now on, among `watched` tubes. The chances belong to the old mode.
    pub(crate) fn set_mode(&mut self, mode: ReserveMode, watched: usize) {
        (self.mode, self.chances) = (mode, Chances::default());
        if mode != ReserveMode::Fifo {
            self.chances.0.reserve_exact(watched);
        }
    }

    /// Makes room for everything that a watch list of `watched` tubes needs.
    pub(crate) fn try_reserve(&mut self, watched: usize) -> Result<(), TryReserveError> {
        self.weights.try_reserve(watched.saturating_sub(self.weights.len()))?;
        if self.mode == ReserveMode::Fifo {
            return Ok(());
        }
        self.chances.0.try_reserve(watched.saturating_sub(self.chances.len()))
    }
}

/// A Fenwick tree of chances. Entry `i`, counted from 1, holds the sum of the last `i & -i` chances up to number `i`.
/// 2^63 numbers of 64 bits do not overflow.
#[derive(Debug, Default)]
pub(crate) struct Chances(Vec<u128>);

impl Chances {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The sum of the first `count` numbers.
    pub(crate) fn sum(&self, mut count: usize) -> u128 {
        let mut sum = 0;
        while count > 0 {
            sum += self.0[count - 1];
            count &= count - 1;
        }
        sum
    }

    /// The sum of the numbers before `number` (counted from 1) in the same node of the tree.
    fn beside(&self, number: usize) -> u128 {
        let (mut sum, mut at) = (0, number - 1);
        while at > number & (number - 1) {
            sum += self.0[at - 1];
            at &= at - 1;
        }
        sum
    }

    pub(crate) fn get(&self, position: usize) -> u128 {
        self.0[position] - self.beside(position + 1)
    }

    pub(crate) fn set(&mut self, position: usize, chance: u128) {
        let before = self.get(position);
        let mut number = position + 1;
        while number <= self.0.len() {
            let node = &mut self.0[number - 1];
            *node = *node - before + chance;
            number += number & number.wrapping_neg();
        }
        debug_assert_eq!(self.get(position), chance, "the position has the chance");
    }

    pub(crate) fn push(&mut self, chance: u128) {
        let sum = self.beside(self.0.len() + 1) + chance;
        self.0.push(sum);
    }

    /// Removes the last number, which must exist, and returns it.
    fn pop(&mut self) -> u128 {
        let last = self.get(self.0.len() - 1);
        self.0.pop();
        last
    }

    /// Keeps the first `count` numbers.
    fn truncate(&mut self, count: usize) {
        self.0.truncate(count);
    }

    /// The index that contains `point`, if each index is as wide as its number. An index with 0 is never found.
    pub(crate) fn find(&self, mut point: u128) -> usize {
        let mut position = 0;
        let mut step = self.0.len().checked_ilog2().map_or(0, |bits| 1 << bits);
        while step > 0 {
            if let Some(&sum) = self.0.get(position + step - 1)
                && sum <= point
            {
                point -= sum;
                position += step;
            }
            step /= 2;
        }
        position
    }
}

impl Client {
    /// The mode in which its reserves choose.
    pub(crate) fn mode(&self) -> ReserveMode {
        self.settings.as_ref().map_or(ReserveMode::Fifo, |settings| settings.mode)
    }

    /// Recomputes `is_plain`. Call it after every change of the mode, and when the client begins to watch many tubes.
    pub(crate) fn update_is_plain(&mut self) {
        self.is_plain = self.many.is_none() && self.mode() == ReserveMode::Fifo;
    }
}

impl Queue {
    /// Asserts the invariants of the fields.
    #[inline]
    pub(crate) fn check_reserve_settings(&self) {
        let mut weighed = 0;
        for (_, client) in &self.clients.records {
            assert_eq!(client.is_plain, client.many.is_none() && client.mode() == ReserveMode::Fifo);
            let Some(settings) = &client.settings else { continue };
            weighed += client.watching.len();
            assert!(settings.mode != ReserveMode::Fifo || settings.chances.len() == 0);
            assert!(settings.weights.len() <= client.watching.len() && !settings.weights.contains(&0));
            assert!(settings.chances.len() <= client.watching.len());
            let Some(many) = &client.many else {
                assert_eq!(settings.chances.len(), 0, "a client that watches few tubes probes each");
                continue;
            };
            for (position, &tube) in client.watching.iter().enumerate().take(settings.chances.len()) {
                // A tube that must be probed has no chance before that.
                let has_chance = settings.chances.get(position) > 0;
                assert_eq!(
                    has_chance,
                    many.has_head(tube),
                    "a chance stands for a job that the client knows"
                );
            }
        }
        assert_eq!(weighed, self.clients.counts.weighed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    #[test]
    fn the_tree_of_chances_has_the_sums_of_a_list() {
        let (mut chances, mut list) = (Chances::default(), Vec::<u128>::new());
        let mut random = Generator::new(4);
        for _ in 0..20_000 {
            let chance = random.below(5);
            match random.below(6) {
                0..=2 => {
                    chances.push(chance);
                    list.push(chance);
                }
                3 if !list.is_empty() => assert_eq!(Some(chances.pop()), list.pop()),
                _ if !list.is_empty() => {
                    let position = random.below(list.len() as u128) as usize;
                    chances.set(position, chance);
                    list[position] = chance;
                }
                _ => {}
            }
            if random.below(2_000) == 0 {
                let kept = random.below(list.len() as u128 + 1) as usize;
                chances.truncate(kept);
                list.truncate(kept);
            }
            let sum = list.iter().sum();
            assert_eq!((chances.len(), chances.sum(chances.len())), (list.len(), sum));
            if sum > 0 {
                let (point, mut passed) = (random.below(sum), 0);
                let position = list.iter().position(|&chance| {
                    passed += chance;
                    passed > point
                });
                assert_eq!(Some(chances.find(point)), position);
                assert_eq!(chances.get(chances.find(point)), list[chances.find(point)]);
            }
        }
        assert!(list.len() > 100);
    }

    #[test]
    fn the_typical_run_time_follows_those_that_are_looked_up() {
        let mut settings = ReserveSettings::default();
        let mut typical_after = |run_ns, times| {
            (0..times).for_each(|_| settings.learn(run_ns));
            settings.typical_run_ns
        };
        assert_eq!(typical_after(64_000, 1), 64_000, "the first one is all that is known");
        assert_eq!(typical_after(64_000, 100), 64_000);
        let one_more = typical_after(128_000, 1);
        assert!((64_001..96_000).contains(&one_more), "one of many moves it a little: {one_more}");
        assert!((127_000..=128_000).contains(&typical_after(128_000, 1000)));
    }

    #[test]
    fn every_number_below_a_bound_is_drawn_about_as_often() {
        let mut random = Generator::new(1);
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[random.below(7) as usize] += 1);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        let bound = 3 << 80;
        let high = (0..3_000).filter(|_| random.below(bound) >= 1 << 80).count();
        assert!((1_900..2_100).contains(&high) && (0..100).all(|_| random.below(bound) < bound), "{high}");
    }
}
