//! How long the jobs of a tube have waited to be reserved, and how long clients have worked on them.
//!
//! Owns: the histograms of a tube, and the two windows that make up "the last minutes". A window is two minutes of the
//! clock; the figures come from the current window and the one before it. Older durations count only in the totals.
//! Never knows jobs. Driven by the queue, which creates a tube's record when the tube's first job is reserved.

use crate::clock::{NS_PER_S, Timestamp};
use crate::described;

/// The length of a window.
pub(crate) const WINDOW_NS: u64 = 120 * NS_PER_S;

/// Nanoseconds become ticks of 2^-30 seconds, so that the bounds of the buckets are powers of two of a second. The
/// factor is this divided by 2^20, 1.0737..., rounded down so that a whole second does not exceed the bound of a
/// second.
const TICKS_PER_NS: u64 = 1_125_899;
/// Bits of the ticks in the first bound, 2^-12 seconds. Shorter durations are in the first bucket.
const FIRST_BIT: u32 = 18;
/// Doublings from the first bound to the last, 2^12 seconds (68 minutes). Longer durations are in the last bucket.
const DOUBLINGS: usize = 24;
/// Buckets of a doubling, so that a percentile is at most a quarter too high.
const PARTS: usize = 4;
const BUCKETS: usize = DOUBLINGS * PARTS + 2;
/// How many buckets form one bucket of the totals: the buckets of two doublings.
const PARTS_OF_TOTAL: usize = 2 * PARTS;

/// The upper bounds of the buckets of the totals, in seconds.
pub const TOTAL_BOUNDS: [&str; DOUBLINGS / 2 + 1] = [
    "0.000244140625",
    "0.0009765625",
    "0.00390625",
    "0.015625",
    "0.0625",
    "0.25",
    "1",
    "4",
    "16",
    "64",
    "256",
    "1024",
    "4096",
];

/// Durations by size, in the order of [`TOTAL_BOUNDS`], not cumulative; the last number counts the durations above all
/// bounds.
pub type Totals = [u64; TOTAL_BOUNDS.len() + 1];

/// The maximum number of tubes that have a record at a time: 8 MiB.
pub(crate) const MAX_TIMED_TUBES: usize = 4096;

/// A window of one kind of duration.
#[derive(Clone, Debug)]
struct Window {
    counts: [u32; BUCKETS],
    sum_ns: u64,
    max_ns: u64,
}

/// One kind of duration.
#[derive(Clone, Debug, Default)]
struct DurationHistory {
    present: Window,
    before: Window,
    /// The durations older than both windows.
    past: Totals,
    past_sum_ns: u64,
}

/// The record of a tube.
#[derive(Clone, Debug)]
pub(crate) struct TubeTimes {
    /// When the current window ends.
    ends_at: Timestamp,
    wait: DurationHistory,
    run: DurationHistory,
}

const _: () =
    assert!(size_of::<TubeTimes>() <= 2048, "a tube whose jobs are reserved has two kilobytes more");

described!(Window { counts, sum_ns, max_ns });
described!(DurationHistory { present, before, past, past_sum_ns });
described!(TubeTimes { ends_at, wait, run });

/// The figures of one kind of duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// The number of durations in the last two to four minutes.
    pub count: u64,
    /// Mean of these durations, in nanoseconds; this and the following are 0 if there are none.
    pub mean_ns: u64,
    /// The duration that half of them do not exceed. This and the next two are at most a quarter too high. Below 2^-12
    /// seconds they are that bound or the longest duration, and above 2^12 seconds the longest duration.
    pub p50_ns: u64,
    /// The duration that 95 of 100 do not exceed.
    pub p95_ns: u64,
    /// The duration that 99 of 100 do not exceed.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// All since the tube was created.
    pub totals: Totals,
    /// The sum of all since the tube was created.
    pub total_sum_ns: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum_ns: 0, max_ns: 0 }
    }
}

impl TubeTimes {
    /// A record without durations. Separate, so that the usual path is short.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(now: Timestamp) -> Box<Self> {
        Box::new(Self {
            ends_at: end_of_window(now),
            wait: DurationHistory::default(),
            run: DurationHistory::default(),
        })
    }

    /// Counts the waiting time of a job that was reserved.
    pub(crate) fn observe_wait(&mut self, ns: u64, now: Timestamp) {
        self.at(now).wait.present.add(ns);
    }

    /// Counts the running time of a job that was deleted by its client.
    #[inline]
    pub(crate) fn observe_run(&mut self, ns: u64, now: Timestamp) {
        self.at(now).run.present.add(ns);
    }

    /// The record whose current window has the instant `now`.
    #[inline]
    fn at(&mut self, now: Timestamp) -> &mut Self {
        if now >= self.ends_at {
            self.rotate(now);
        }
        self
    }

    #[cold]
    fn rotate(&mut self, now: Timestamp) {
        let is_next = now < self.ends_at + WINDOW_NS;
        for kind in [&mut self.wait, &mut self.run] {
            kind.age();
            if !is_next {
                kind.age();
            }
        }
        self.ends_at = end_of_window(now);
    }

    /// Waiting and running times.
    pub(crate) fn durations(&self, now: Timestamp) -> (Durations, Durations) {
        let (present, before) = self.counting(now);
        (self.wait.durations(present, before), self.run.durations(present, before))
    }

    /// The mean running time, as in `durations`, in nanoseconds; `None` without any.
    pub(crate) fn mean_run_ns(&self, now: Timestamp) -> Option<u64> {
        let (present, before) = self.counting(now);
        let windows = [(&self.run.present, present), (&self.run.before, before)];
        let (mut sum_ns, mut count) = (0u64, 0);
        for (window, _) in windows.into_iter().filter(|(_, counts)| *counts) {
            sum_ns = sum_ns.saturating_add(window.sum_ns);
            count += window.counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        }
        sum_ns.checked_div(count)
    }

    /// Which of the windows count: the record may not have been updated for a while.
    fn counting(&self, now: Timestamp) -> (bool, bool) {
        if now < self.ends_at { (true, true) } else { (now < self.ends_at + WINDOW_NS, false) }
    }
}

fn end_of_window(now: Timestamp) -> Timestamp {
    Timestamp((now.0 / WINDOW_NS + 1).saturating_mul(WINDOW_NS))
}

impl DurationHistory {
    /// Ends the current window: it becomes the previous one, and that one becomes a part of the totals.
    fn age(&mut self) {
        let past = std::mem::replace(&mut self.before, std::mem::take(&mut self.present));
        add_to(&mut self.past, &past.counts);
        self.past_sum_ns = self.past_sum_ns.saturating_add(past.sum_ns);
    }

    fn durations(&self, present: bool, before: bool) -> Durations {
        let mut counted = Window::default();
        for (window, _) in
            [(&self.present, present), (&self.before, before)].iter().filter(|(_, counts)| *counts)
        {
            counted.counts.iter_mut().zip(window.counts).for_each(|(sum, count)| *sum += count);
            counted.sum_ns = counted.sum_ns.saturating_add(window.sum_ns);
            counted.max_ns = counted.max_ns.max(window.max_ns);
        }
        let mut totals = self.past;
        add_to(&mut totals, &self.before.counts);
        add_to(&mut totals, &self.present.counts);
        let count = counted.counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        Durations {
            count,
            mean_ns: counted.sum_ns.checked_div(count).unwrap_or(0),
            p50_ns: counted.percentile(count, 50),
            p95_ns: counted.percentile(count, 95),
            p99_ns: counted.percentile(count, 99),
            max_ns: counted.max_ns,
            totals,
            total_sum_ns: [self.before.sum_ns, self.present.sum_ns]
                .into_iter()
                .fold(self.past_sum_ns, u64::saturating_add),
        }
    }
}

impl Window {
    #[inline]
    fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// A percentile of the `count` durations: the value that this many percent of them do not exceed.
    fn percentile(&self, count: u64, of_100: u64) -> u64 {
        let rank = (count * of_100).div_ceil(100);
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= rank
        });
        found.map_or(0, upper_bound_ns).min(self.max_ns)
    }
}

fn add_to(totals: &mut Totals, counts: &[u32; BUCKETS]) {
    let (first, rest) = counts.split_at(1);
    let groups = std::iter::once(first).chain(rest.chunks(PARTS_OF_TOTAL));
    for (total, group) in totals.iter_mut().zip(groups) {
        *total += group.iter().map(|&count| u64::from(count)).sum::<u64>();
    }
}

/// The bucket of a duration.
#[inline]
fn bucket(ns: u64) -> usize {
    // 2^43 does not overflow, and is above the last bound.
    let ticks = (ns.min(1 << 43) * TICKS_PER_NS) >> 20;
    let Some(doublings) = ticks.checked_ilog2().and_then(|bit| bit.checked_sub(FIRST_BIT)) else { return 0 };
    let part = (ticks >> (FIRST_BIT + doublings - PARTS.ilog2())) as usize % PARTS;
    (1 + doublings as usize * PARTS + part).min(BUCKETS - 1)
}

/// The upper bound of the durations in the bucket, in nanoseconds; the last bucket has none.
fn upper_bound_ns(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (doublings, part) = (bucket.saturating_sub(1) / PARTS, bucket.saturating_sub(1) % PARTS);
    let parts = if bucket == 0 { PARTS } else { PARTS + part + 1 };
    let ticks = (parts as u64) << (FIRST_BIT - PARTS.ilog2() + doublings as u32);
    ((u128::from(ticks) * u128::from(NS_PER_S)) >> 30) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(WINDOW_NS * 1_000_000);

    #[test]
    fn every_duration_is_in_the_bucket_between_whose_bounds_it_is() {
        assert!((0..BUCKETS - 1).all(|bucket| upper_bound_ns(bucket) < upper_bound_ns(bucket + 1)));
        for at in 0..BUCKETS - 1 {
            let bound = upper_bound_ns(at);
            assert_eq!(bucket(bound), at, "{bound}");
            // The ticks are exact to a millionth.
            assert_eq!(bucket(bound + bound / 500_000 + 2), at + 1, "{bound}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!(upper_bound_ns(bucket(NS_PER_S)), NS_PER_S);
    }

    #[test]
    fn the_bounds_of_the_totals_are_bounds_of_buckets() {
        for (index, text) in TOTAL_BOUNDS.iter().enumerate() {
            let bound = upper_bound_ns(index * PARTS_OF_TOTAL);
            assert_eq!(text.parse::<f64>().unwrap(), 2f64.powi(2 * index as i32 - 12));
            assert!((text.parse::<f64>().unwrap() * 1e9 - bound as f64).abs() <= 1.0, "{text}");
            let mut counts = [0; BUCKETS];
            counts[bucket(bound)] = 1;
            let mut totals = Totals::default();
            add_to(&mut totals, &counts);
            assert_eq!(totals[index], 1, "{text}");
        }
        let mut totals = Totals::default();
        add_to(&mut totals, &[1; BUCKETS]);
        assert_eq!(totals.iter().sum::<u64>(), BUCKETS as u64, "none is left out");
        assert_eq!(totals[TOTAL_BOUNDS.len()], 1);
    }

    #[test]
    fn the_mean_running_time_is_that_of_the_last_two_windows() {
        let mut times = TubeTimes::new(NOW);
        assert_eq!(times.mean_run_ns(NOW), None);
        times.observe_run(100, NOW);
        times.observe_run(200, NOW);
        times.observe_wait(5000, NOW);
        let next = NOW + WINDOW_NS;
        times.observe_run(900, next);
        for (later, mean_ns) in [(1, Some(400)), (2, Some(900)), (3, None)] {
            let now = NOW + later * WINDOW_NS;
            assert_eq!(times.mean_run_ns(now), mean_ns, "{later} windows later");
            assert_eq!(times.durations(now).1.mean_ns, mean_ns.unwrap_or(0));
        }
        times.observe_run(50, NOW + 3 * WINDOW_NS);
        assert_eq!(times.mean_run_ns(NOW + 3 * WINDOW_NS), Some(50), "nothing ran in the window before");
    }

    #[test]
    fn the_figures_are_of_the_last_two_windows_and_the_totals_of_all() {
        let mut times = TubeTimes::new(NOW);
        (1..=100).for_each(|number| times.observe_wait(number * NS_PER_S / 100, NOW));
        times.observe_run(7, NOW);
        let (wait, run) = times.durations(NOW);
        assert_eq!((wait.count, wait.mean_ns, wait.max_ns), (100, 505_000_000, NS_PER_S));
        assert_eq!((wait.p50_ns, wait.p95_ns, wait.p99_ns), (500_000_000, NS_PER_S, NS_PER_S));
        assert_eq!((run.count, run.p50_ns, run.max_ns), (1, 7, 7), "no more than the longest");
        let next = NOW + WINDOW_NS;
        times.observe_wait(3 * NS_PER_S, next);
        assert_eq!((times.durations(next).0.count, times.durations(next).0.max_ns), (101, 3 * NS_PER_S));
        for (later, count) in [(2, 1), (3, 0), (100, 0)] {
            let (wait, run) = times.durations(NOW + later * WINDOW_NS);
            assert_eq!(times.mean_run_ns(NOW + later * WINDOW_NS).unwrap_or(0), run.mean_ns);
            assert_eq!((wait.count, run.count), (count, 0), "{later} windows later");
            assert_eq!((wait.totals.iter().sum::<u64>(), wait.total_sum_ns), (101, 53_500_000_000));
        }
        times.observe_wait(0, NOW + 5 * WINDOW_NS);
        let (wait, _) = times.durations(NOW + 5 * WINDOW_NS);
        assert_eq!((wait.count, wait.max_ns, wait.p99_ns), (1, 0, 0));
        assert_eq!((wait.totals.iter().sum::<u64>(), wait.total_sum_ns), (102, 53_500_000_000));
    }
}
