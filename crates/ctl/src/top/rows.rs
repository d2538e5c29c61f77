//! The rows of the tubes: their rates from one refresh to the next, and their order.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Instant;

use beanstalk_client::{Dictionary, JobState, TubeName};

use crate::server::Tube;

/// A tube on the screen.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownTube {
    /// The index in the list of servers.
    pub server: usize,
    /// The tube.
    pub name: TubeName,
    /// The numbers of ready, reserved, delayed and buried jobs.
    pub counts: [u64; 4],
    /// The number of waiting workers.
    pub waiting: u64,
    /// Puts per second; `None` after the first refresh.
    pub put_rate: Option<f64>,
    /// Deletes per second; `None` after the first refresh.
    pub delete_rate: Option<f64>,
    /// The age of the oldest ready job in seconds, if the server reports it.
    pub oldest: Option<u64>,
    /// The 95th percentiles of waiting and running time, if the server reports them.
    pub p95: [Option<String>; 2],
    /// Seconds until the pause ends; 0 if the tube is not paused.
    pub pause: u64,
}

/// The column by which rows are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SortKey {
    #[default]
    Buried,
    Ready,
    Reserved,
    Delayed,
    PutRate,
    Oldest,
    Name,
}

impl SortKey {
    /// All keys in the order of their numbers, with their words for the title.
    const ALL: [(Self, &'static str); 7] = [
        (Self::Buried, "buried"),
        (Self::Ready, "ready"),
        (Self::Reserved, "reserved"),
        (Self::Delayed, "delayed"),
        (Self::PutRate, "puts/s"),
        (Self::Oldest, "oldest"),
        (Self::Name, "name"),
    ];

    /// The next key, or the first one after the last.
    pub fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()].0
    }

    /// The word for the title.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn of(self, row: &ShownTube) -> u64 {
        match self {
            Self::Buried => row.counts[3],
            Self::Ready => row.counts[0],
            Self::Reserved => row.counts[1],
            Self::Delayed => row.counts[2],
            // In thousandths, because floating-point numbers have no total order.
            Self::PutRate => (row.put_rate.unwrap_or(0.0) * 1000.0) as u64,
            Self::Oldest => row.oldest.unwrap_or(0),
            Self::Name => 0,
        }
    }
}

/// Puts rows in order: the largest first, and among equals by name.
pub fn sort(rows: &mut [ShownTube], key: SortKey, reversed: bool) {
    rows.sort_by(|one, other| (&one.name, one.server).cmp(&(&other.name, other.server)));
    rows.sort_by_key(|row| Reverse(key.of(row)));
    if reversed {
        rows.reverse();
    }
}

/// The counters of the last sample of a server, for rates.
#[derive(Default)]
pub struct Rates {
    last: HashMap<TubeName, (Instant, u64, u64)>,
}

impl Rates {
    /// The rows of a sample of the server with this index at `now`.
    pub fn rows(&mut self, server: usize, tubes: &[Tube], now: Instant) -> Vec<ShownTube> {
        let mut next = HashMap::new();
        let mut rows = Vec::new();
        for tube in tubes {
            let puts = tube.stats.number_or_zero("total-jobs");
            let deletes = tube.stats.number_or_zero("cmd-delete");
            let before = self.last.get(&tube.name).copied();
            rows.push(row(server, tube, before.map(|before| rates(before, (now, puts, deletes)))));
            next.insert(tube.name.clone(), (now, puts, deletes));
        }
        self.last = next;
        rows
    }
}

fn rates(before: (Instant, u64, u64), now: (Instant, u64, u64)) -> (f64, f64) {
    let seconds = now.0.duration_since(before.0).as_secs_f64().max(0.001);
    // A tube that vanished and came back counts from zero.
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    (rate(before.1, now.1), rate(before.2, now.2))
}

fn row(server: usize, tube: &Tube, rates: Option<(f64, f64)>) -> ShownTube {
    ShownTube {
        server,
        name: tube.name.clone(),
        counts: JobState::ALL.map(|state| tube.count(state)),
        waiting: tube.stats.number_or_zero("current-waiting"),
        put_rate: rates.map(|(puts, _)| puts),
        delete_rate: rates.map(|(_, deletes)| deletes),
        oldest: tube.stats.number("oldest-ready-age"),
        p95: ["wait", "run"].map(|what| p95(&tube.stats, what)),
        pause: tube.stats.number_or_zero("pause-time-left"),
    }
}

/// The value of the key with this 95th percentile. Servers name it differently: `wait-time-p95`, `wait-p95`.
fn p95(stats: &Dictionary, what: &str) -> Option<String> {
    let found = stats.iter().find(|(key, _)| key.starts_with(what) && key.ends_with("p95"))?;
    Some(found.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use beanstalk_client::parse_dictionary;
    use std::time::Duration;

    fn tube(name: &str, ready: u64, buried: u64, puts: u64) -> Tube {
        let data = format!(
            "---\ncurrent-jobs-ready: {ready}\ncurrent-jobs-buried: {buried}\ntotal-jobs: {puts}\ncmd-delete: 0\n\
             run-time-p95: 0.5\n"
        );
        Tube { name: name.parse().unwrap(), stats: parse_dictionary(data.as_bytes()).unwrap() }
    }

    #[test]
    fn buried_tubes_come_first_and_equals_by_name() {
        let tubes = [tube("b", 9, 0, 0), tube("a", 5, 0, 0), tube("c", 0, 1, 0)];
        let mut rows = Rates::default().rows(0, &tubes, Instant::now());
        let names = |rows: &[ShownTube]| rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>();
        sort(&mut rows, SortKey::Buried, false);
        assert_eq!(names(&rows), ["c", "a", "b"]);
        sort(&mut rows, SortKey::Ready, false);
        assert_eq!(names(&rows), ["b", "a", "c"]);
        sort(&mut rows, SortKey::Name, true);
        assert_eq!(names(&rows), ["c", "b", "a"]);
    }

    #[test]
    fn rates_need_two_refreshes() {
        let start = Instant::now();
        let mut rates = Rates::default();
        assert_eq!(rates.rows(0, &[tube("a", 0, 0, 10)], start)[0].put_rate, None);
        let later = rates.rows(0, &[tube("a", 0, 0, 30)], start + Duration::from_secs(2));
        assert_eq!((later[0].put_rate, later[0].p95[1].as_deref()), (Some(10.0), Some("0.5")));
    }
}
