//! Random tags of puts.

use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{After, Concurrency, Idempotency, JobTags, Name, TagSet, Trace};

use crate::TRACE;
use crate::random::Random;

/// The tag is in one of this many puts, or in none if the number is zero. The second part has its values.
pub type Often<'a, T> = (u64, &'a [T]);

/// How often puts have which tags. Few different names let jobs share them.
#[derive(Clone, Copy, Debug)]
pub struct TagChoice<'a> {
    /// One of this many puts has no tag. If the number is zero, each put may have some.
    pub none: u64,
    /// The keys of `idp`.
    pub keys: Often<'a, &'static str>,
    pub cooldowns_s: &'a [Seconds],
    /// The keys of `con`.
    pub limited: Often<'a, &'static str>,
    pub limits: &'a [u32],
    pub groups: Often<'a, &'static str>,
    /// The groups of `aft`.
    pub awaited: Often<'a, &'static str>,
    pub expiries_s: Often<'a, Seconds>,
    /// One of this many puts has a trace.
    pub trace: u64,
}

impl TagChoice<'_> {
    pub const NEVER: Self = TagChoice {
        none: 0,
        keys: (0, &[]),
        cooldowns_s: &[Seconds::ZERO],
        limited: (0, &[]),
        limits: &[1],
        groups: (0, &[]),
        awaited: (0, &[]),
        expiries_s: (0, &[]),
        trace: 0,
    };

    /// The tags of a put.
    pub fn tags(&self, random: &mut Random) -> TagSet<'static> {
        if self.none > 0 && random.once_in(self.none) {
            return TagSet::default();
        }
        let idempotency = some(random, self.keys)
            .map(|key| Idempotency { key: name(key), cooldown_s: random.pick(self.cooldowns_s) });
        let concurrency = some(random, self.limited)
            .map(|key| Concurrency { key: name(key), limit: random.pick(self.limits) });
        TagSet {
            idempotency,
            concurrency,
            group: some(random, self.groups).map(name),
            after: some(random, self.awaited).map(|group| After { group: name(group), is_free: false }),
            expires_after_s: some(random, self.expiries_s),
            trace: some(random, (self.trace, &[TRACE])).and_then(Trace::check),
        }
    }
}

/// The key, the group or the owner in a text, which must be one.
pub fn name(text: &str) -> Name<'_> {
    text.try_into().expect("a name")
}

/// The encoded tags; empty if there are none.
pub fn encoded<'a>(tags: impl Into<JobTags<'a>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    tags.into().encode(&mut bytes).expect("there is memory");
    bytes
}

/// The tags of the job after its group has lost its last member.
pub fn as_free(mut tags: JobTags<'_>) -> JobTags<'_> {
    tags.asked.after = tags.after.map(|after| After { is_free: true, ..after });
    tags
}

pub fn some<T: Copy>(random: &mut Random, (one_in, values): Often<'_, T>) -> Option<T> {
    (one_in > 0 && random.once_in(one_in)).then(|| random.pick(values))
}
