//! Random rules for tubes.

use beanstalkd_queue::{Rate, TubeRule};
use beanstalkd_types::clock::NS_PER_S;

use crate::random::Random;

/// A rule with one of these patterns, which says something in any of its fields, or nothing. Its limit of bytes is one
/// for short bodies or one for long ones.
pub fn tube_rule(random: &mut Random, patterns: &[&str], dead_tubes: &[&str]) -> TubeRule {
    // Without `..`: a new field does not compile until it has random values, too.
    TubeRule {
        pattern: random.pick(patterns).into(),
        max_jobs: random.once_in(2).then(|| 1 + random.below(5)),
        max_bytes: random.once_in(3).then(|| random.pick(&[1, 5, 10, 20, 200, 2000])),
        max_attempts: random.once_in(2).then(|| 1 + random.below(3) as u32),
        backoff_s: random.once_in(3).then(|| random.pick(&[1, 2, 5, 3_000_000_000])),
        max_backoff_s: random.once_in(2).then(|| random.pick(&[1, 3, 7, 100])),
        dead_tube: random.once_in(2).then(|| random.pick(dead_tubes).into()),
        max_age_s: random.once_in(4).then(|| random.pick(&[1, 2, 5, 60])),
        max_reserved: random.once_in(4).then(|| 1 + random.below(3) as u32),
        is_fair: random.once_in(2),
        rate: random.once_in(4).then(|| Rate {
            tokens: random.pick(&[1, 2, 3]),
            period_ns: random.pick(&[NS_PER_S, 7 * NS_PER_S, 3600 * NS_PER_S]),
            burst: random.pick(&[1, 2, 5]),
        }),
    }
}
