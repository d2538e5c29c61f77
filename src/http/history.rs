//! Samples of the last minutes, for the plots of the pages.
//!
//! Owns: the samples, and the time of the next one. A hand-over does not give them to the next program: they are for a
//! person who looks at a page, while a monitoring system reads the metrics.

use std::collections::VecDeque;

use serde_core::Serialize;

use crate::clock::{NS_PER_S, Timestamp};
use crate::json::Object;
use crate::stats::{SERVER, ServerView};

/// The time from one sample to the next.
const INTERVAL_NS: u64 = 5 * NS_PER_S;

/// The number of samples: ten minutes of them.
const SAMPLES: usize = 121;

/// The sampled figures, by their keys in `stats`. The pages show counters as rates.
const SERIES: [&str; 9] = [
    "total-jobs",
    "job-reserves",
    "job-deletes",
    "job-timeouts",
    "current-jobs-ready",
    "current-jobs-reserved",
    "current-jobs-delayed",
    "current-jobs-buried",
    "current-connections",
];

/// A sample: its instant, and the values of `SERIES`.
type Sample = (Timestamp, [u64; SERIES.len()]);

/// Samples at even intervals, the oldest first.
#[derive(Debug, Default)]
pub struct SampleHistory {
    samples: VecDeque<Sample>,
}

impl SampleHistory {
    /// When the next sample is due.
    #[must_use]
    pub fn next_at(&self) -> Timestamp {
        self.samples.back().map_or(Timestamp::AT_ONCE, |(at, _)| *at + INTERVAL_NS)
    }

    /// Takes a sample of the server.
    pub fn take_sample(&mut self, server: &ServerView<'_>) {
        let values = SERIES.map(|key| {
            let figure = SERVER.iter().find(|figure| figure.key == key);
            figure.map_or(0, |figure| figure.value(server).number())
        });
        self.push((server.now, values));
    }

    /// Adds a sample, and drops the oldest if there are too many.
    fn push(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The JSON: the age of each sample, then the values of each series, the oldest first.
    pub fn at(&self, now: Timestamp) -> impl Serialize {
        let ages: Vec<u64> = self.samples.iter().map(|(at, _)| now.since_ns(*at) / 1_000_000).collect();
        let values = |index: usize| self.samples.iter().map(|(_, values)| values[index]).collect();
        let series = SERIES.into_iter().enumerate().map(move |(index, key)| (key, values(index)));
        Object([("ages_ms", ages)].into_iter().chain(series))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Read;

    #[test]
    fn each_series_is_a_number_of_the_stats() {
        for key in SERIES {
            let figure = SERVER.iter().find(|figure| figure.key == key).expect(key);
            assert!(matches!(figure.read, Read::Counter(_) | Read::Gauge(_)), "{key}");
        }
    }

    #[test]
    fn the_last_ten_minutes_are_kept() {
        let mut history = SampleHistory::default();
        assert_eq!(history.next_at(), Timestamp::AT_ONCE);
        for number in 1..=500 {
            let at = Timestamp(number * INTERVAL_NS);
            history.push((at, [number; SERIES.len()]));
            assert_eq!(history.next_at(), at + INTERVAL_NS);
        }
        let kept: Vec<u64> = history.samples.iter().map(|(_, values)| values[0]).collect();
        assert_eq!(kept, (380..=500).collect::<Vec<_>>());
    }
}
