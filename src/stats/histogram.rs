//! Histograms of durations.

use crate::described;

/// The upper bounds of the buckets, in nanoseconds, and the same in seconds as Prometheus writes it. They begin with
/// the duration of a turn on an idle server, and end where most clients would have given up.
pub(crate) const BOUNDS: [(u64, &str); 19] = [
    (10_000, "0.00001"),
    (25_000, "0.000025"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

/// The number of durations in each bucket, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// One count for each bound; not cumulative.
    counts: [u64; BOUNDS.len()],
    /// Durations above the last bound.
    beyond: u64,
    sum_ns: u64,
}

described!(Histogram { counts, beyond, sum_ns });

impl Histogram {
    /// Counts a duration of `ns` nanoseconds, `times` times.
    pub fn observe(&mut self, ns: u64, times: u64) {
        let bucket = BOUNDS.partition_point(|&(bound_ns, _)| bound_ns < ns);
        *self.counts.get_mut(bucket).unwrap_or(&mut self.beyond) += times;
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(times));
    }

    /// Each bound in seconds, with the number of durations that do not exceed it.
    pub fn buckets(&self) -> impl Iterator<Item = (&'static str, u64)> {
        BOUNDS.iter().zip(self.counts).scan(0, |sum, ((_, bound), count)| {
            *sum += count;
            Some((*bound, *sum))
        })
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.beyond
    }

    /// The sum of all durations, in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_ascend_and_match_their_texts() {
        assert!(BOUNDS.is_sorted_by(|a, b| a.0 < b.0));
        for (ns, seconds) in BOUNDS {
            let read: f64 = seconds.parse().unwrap();
            assert!((read * 1e9 - ns as f64).abs() < 1e-3, "{seconds}");
        }
    }

    #[test]
    fn a_duration_counts_in_every_bucket_that_it_is_not_above() {
        let mut histogram = Histogram::default();
        histogram.observe(10_000, 1);
        histogram.observe(10_001, 2);
        histogram.observe(11_000_000_000, 4);
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets[..2], [("0.00001", 1), ("0.000025", 3)]);
        assert!(buckets[2..].iter().all(|&(_, count)| count == 3));
        assert_eq!((histogram.count(), histogram.sum_ns()), (7, 44_000_030_002));
    }
}
