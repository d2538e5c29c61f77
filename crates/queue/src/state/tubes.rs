//! Tubes: named queues, each with its jobs by state, its waiting clients and its counters.
//!
//! Owns: the record of a tube. Moves no jobs: that is `Queue`'s work.

use std::num::NonZeroU32;
use std::ops::AddAssign;
use std::rc::Rc;

use beanstalkd_structures::OrderedQueue;

use crate::JobCounts;
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::state::gate::Gate;
use crate::state::jobs::{Job, Marks};
use crate::state::keys::{BuriedKey, DueKey, ReadyKey, TubeKey, WaitKey};
use crate::state::rotation::{self, Rotation};
use crate::state::times::TubeTimes;
use crate::state::tube_rule::{Rate, TubeRule};
use crate::tube_name::TubeName;

/// The tube "default": the first that is created, and never removed.
pub(crate) const DEFAULT: TubeKey = TubeKey(0);

/// The memory of a tube besides its name and its jobs, in bytes: the record, its counters, the entries in the registry
/// and among the deadlines, and the queues that its jobs may leave empty.
pub(crate) const BYTES_PER_TUBE: usize = 400;

/// The memory for the opening of a gate, among the deadlines, in bytes.
const BYTES_OF_A_DEADLINE: usize = 32;

/// The memory of the ages of jobs in a tube, in bytes, while it has few jobs or none.
const BYTES_OF_AGES: usize = 96;

/// How often each event has happened to the jobs of a tube, or of all tubes, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the other fields say everything")]
pub struct TubeCounters {
    pub puts: u64,
    /// Reservations, by any command.
    pub reserves: u64,
    pub timeouts: u64,
    /// Releases by clients.
    pub releases: u64,
    /// Burials by clients.
    pub buries: u64,
    pub kicks: u64,
    pub deletes: u64,
    /// Jobs buried by the limits on time-outs and releases, or by a rule.
    pub poisoned: u64,
    /// Jobs that expired because no client reserved them in time.
    pub expirations: u64,
}

impl AddAssign for TubeCounters {
    fn add_assign(&mut self, other: Self) {
        let Self { puts, reserves, timeouts, releases, buries, kicks, deletes, poisoned, expirations } =
            other;
        self.puts += puts;
        self.reserves += reserves;
        self.timeouts += timeouts;
        self.releases += releases;
        self.buries += buries;
        self.kicks += kicks;
        self.deletes += deletes;
        self.poisoned += poisoned;
        self.expirations += expirations;
    }
}

/// A pause: no job is reserved from the tube until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// When it ends, plus 2^32 ns: the first word is not 0, so that an absent pause needs no word of its own.
    until: (NonZeroU32, u32),
    /// The requested length, in whole seconds.
    pub length_s: u32,
}

impl Pause {
    pub(crate) fn new(until: Timestamp, length_s: u32) -> Self {
        let shifted = until.0.saturating_add(1 << 32);
        let high = NonZeroU32::new((shifted >> 32) as u32).expect("2^32 was added");
        Self { until: (high, shifted as u32), length_s }
    }

    pub(crate) fn until(self) -> Timestamp {
        let (high, low) = self.until;
        Timestamp((u64::from(high.get() - 1) << 32) + u64::from(low))
    }
}

/// A tube. Everything that each tube needs lies in one block of memory.
#[derive(Debug)]
pub(crate) struct Tube {
    pub name: TubeName,
    pub ready: OrderedQueue<ReadyKey>,
    pub delayed: OrderedQueue<DueKey>,
    pub buried: OrderedQueue<BuriedKey>,
    /// Clients that wait in a reserve and watch this tube, in order of arrival, except those that watch many tubes.
    /// While the tube is open, this or `ready` is empty.
    pub waiting: OrderedQueue<WaitKey>,
    pub pause: Option<Pause>,
    /// The state of its rule, if there is one for its name, or there was one that a reload has not forgotten yet.
    pub ruled: Option<Box<TubeRuleState>>,
    /// Ready jobs with an urgent priority.
    pub urgent: u32,
    pub reserved: u32,
    /// Clients that use the tube.
    pub using: u32,
    /// Clients that watch the tube.
    pub watching: u32,
    /// The index in the order of `list-tubes`.
    pub position: u32,
    /// The number of the last list that has this tube, or that must not have it.
    pub listed: u32,
    /// The version of the set of tubes when it was created, without the high bits.
    pub made: u32,
    pub puts: u64,
    /// Created when it is needed: among very many tubes, most do without it.
    pub rare: Option<Box<RareState>>,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Tube>() <= 112, "a tube is a block of 112 bytes");

/// What few of very many tubes have: the counts of events besides puts, and the state that tags need.
#[derive(Debug, Default)]
pub(crate) struct RareState {
    /// `pause-tube` commands.
    pub pauses: u64,
    /// The other counts; its `puts` are those of the tube.
    pub counters: TubeCounters,
    /// Created when a job is reserved, unless there are `MAX_TIMED_TUBES` already.
    pub times: Option<Box<TubeTimes>>,
    /// Created for the first job with tags that needs it.
    pub tag_state: Option<Box<TubeTagState>>,
}

/// The state of a tube with a rule.
#[derive(Debug, Default)]
pub(crate) struct TubeRuleState {
    /// `None` once a reload has removed the rule: then the jobs that it knows are forgotten, and finally this state.
    pub(crate) rule: Option<Rc<TubeRule>>,
    /// The total size of the bodies of the marked jobs.
    pub(crate) body_bytes: u64,
    /// Jobs that were refused because the tube was full.
    pub(crate) rejected: u64,
    /// Jobs that were sent from here to the dead tube.
    pub(crate) dead: u64,
    pub(crate) gate: Gate,
    /// Whether the tube is among the `kept` ones of its entry.
    pub(crate) is_kept: bool,
    /// The jobs that age, by the instant at which they came.
    pub(crate) ages: OrderedQueue<DueKey>,
    /// The rotation of keys, if the tube is fair.
    pub(crate) rotation: Option<Box<Rotation>>,
}

impl TubeRuleState {
    pub(crate) fn new(rule: &Rc<TubeRule>) -> Box<Self> {
        Box::new(Self {
            rule: Some(rule.clone()),
            rotation: rule.is_fair.then(Box::default),
            ..Self::default()
        })
    }

    /// Memory of the tube's rule, in bytes, without that of its jobs.
    pub(crate) fn bytes(&self) -> usize {
        let has = |is_set: fn(&TubeRule) -> bool| self.rule.as_deref().is_some_and(is_set);
        size_of::<Self>()
            + usize::from(has(|rule| rule.rate.is_some())) * BYTES_OF_A_DEADLINE
            + usize::from(has(|rule| rule.max_age_s.is_some())) * BYTES_OF_AGES
            + usize::from(self.rotation.is_some()) * rotation::BYTES_PER_TUBE
    }

    /// The rate of its reservations.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rule.as_ref().and_then(|rule| rule.rate)
    }

    /// Whether a reservation may close its gate.
    #[inline]
    pub(crate) fn has_gate(&self) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.rate.is_some() || rule.max_reserved.is_some())
    }
}

/// The state of tags in a tube: the jobs that may not be reserved, and the cooldowns of deleted jobs. Parked jobs of a
/// fair tube may have no tags.
#[derive(Debug, Default)]
pub(crate) struct TubeTagState {
    /// Ready jobs.
    pub(crate) parked: OrderedQueue<ReadyKey>,
    /// Delayed jobs, by the end of their delay.
    pub(crate) held: OrderedQueue<DueKey>,
    /// Deleted jobs whose idempotency keys still count.
    pub(crate) cooldowns: OrderedQueue<JobId>,
    /// The memory of these keys, in bytes.
    pub(crate) cooldown_bytes: usize,
}

impl TubeTagState {
    /// Whether nothing here keeps the tube.
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.held.is_empty() && self.cooldowns.is_empty()
    }
}

impl Tube {
    /// The counts of events of the tube's jobs.
    pub(crate) fn counters(&self) -> TubeCounters {
        let counters = self.rare.as_ref().map_or_else(TubeCounters::default, |rare| rare.counters);
        TubeCounters { puts: self.puts, ..counters }
    }

    /// The record in which events other than puts are counted.
    #[inline]
    pub(crate) fn counters_mut(&mut self) -> &mut TubeCounters {
        &mut self.rare.get_or_insert_default().counters
    }

    /// The state of rules for tags in this tube, if it had jobs with tags.
    pub(crate) fn tag_state(&self) -> Option<&TubeTagState> {
        self.rare.as_ref()?.tag_state.as_deref()
    }

    /// The state of rules for tags in this tube, created if it does not exist.
    pub(crate) fn tag_state_mut(&mut self) -> &mut TubeTagState {
        self.rare.get_or_insert_default().tag_state.get_or_insert_default()
    }

    /// Puts a ready job of the tube, which is in no collection, among the parked ones.
    pub(crate) fn insert_parked(&mut self, key: ReadyKey, job: &mut Job) {
        job.marks |= Marks::PARKED;
        self.tag_state_mut().parked.insert(key);
    }

    /// Takes a job out of the parked ones.
    pub(crate) fn remove_parked(&mut self, key: ReadyKey, job: &mut Job) {
        job.marks &= !Marks::PARKED;
        let found = self.tag_state_mut().parked.remove(key);
        assert!(found.is_some(), "a parked job is among the parked jobs of its tube");
    }

    /// Waiting and running times, if any were counted.
    #[inline]
    pub(crate) fn times(&self) -> Option<&TubeTimes> {
        self.rare.as_ref()?.times.as_deref()
    }

    /// How often the tube was paused.
    pub(crate) fn pauses(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.pauses)
    }

    /// Pauses the tube.
    pub(crate) fn set_pause(&mut self, pause: Pause) {
        self.pause = Some(pause);
        self.rare.get_or_insert_default().pauses += 1;
    }

    /// Whether jobs may be reserved here.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.pause.is_none() && !self.is_throttled()
    }

    /// The job that a reserve would take.
    pub(crate) fn open_head(&self) -> Option<ReadyKey> {
        self.ready.first().filter(|_| self.is_open())
    }

    /// The tube's jobs by state.
    pub(crate) fn job_counts(&self) -> JobCounts {
        let tagged = self.tag_state();
        JobCounts {
            urgent: u64::from(self.urgent),
            ready: (self.ready.len() + tagged.map_or(0, |tagged| tagged.parked.len())) as u64,
            reserved: u64::from(self.reserved),
            delayed: (self.delayed.len() + tagged.map_or(0, |tagged| tagged.held.len())) as u64,
            buried: self.buried.len() as u64,
        }
    }

    /// The next deadline of the tube: the end of the pause or of the first delay.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let delay = self.delayed.first().map(|key| key.0);
        let pause = self.pause.map(Pause::until);
        if self.ruled.is_none() {
            return [delay, pause].into_iter().flatten().min();
        }
        [delay, pause, self.gate_at(), self.deficit_ends_at(), self.age_ends_at()].into_iter().flatten().min()
    }

    /// Whether the tube can be removed: it has no job, and no client uses or watches it.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_unused() && self.ruled.as_ref().is_none_or(|ruled| !ruled.gate.has_deficit())
    }

    /// Whether the tube can be removed, unless the token bucket of its rule keeps it.
    pub(crate) fn is_unused(&self) -> bool {
        self.using == 0
            && self.watching == 0
            && self.reserved == 0
            && self.ready.is_empty()
            && self.delayed.is_empty()
            && self.buried.is_empty()
            && self.tag_state().is_none_or(TubeTagState::is_empty)
    }

    /// The tube's rule that is in force.
    #[inline]
    pub(crate) fn rule(&self) -> Option<&Rc<TubeRule>> {
        self.ruled.as_ref()?.rule.as_ref()
    }

    /// The tube's rule, and the bytes of the jobs that it counts.
    pub(crate) fn rule_and_bytes(&self) -> Option<(&TubeRule, u64)> {
        let ruled = self.ruled.as_ref()?;
        Some((ruled.rule.as_deref()?, ruled.body_bytes))
    }

    /// The rotation of its keys, if the tube is fair.
    #[inline]
    pub(crate) fn rotation(&self) -> Option<&Rotation> {
        self.ruled.as_ref()?.rotation.as_deref()
    }

    /// When its oldest job becomes too old.
    pub(crate) fn age_ends_at(&self) -> Option<Timestamp> {
        let (arrived, _) = self.ruled.as_ref()?.ages.first()?;
        Some(arrived.plus_seconds(self.rule()?.max_age_s?))
    }

    /// When its gate opens by itself.
    pub(crate) fn gate_at(&self) -> Option<Timestamp> {
        let ruled = self.ruled.as_ref()?;
        ruled.gate.opens_at(ruled.rule.as_deref(), self.reserved)
    }

    /// For a tube that only its bucket keeps, when the bucket is full.
    pub(crate) fn deficit_ends_at(&self) -> Option<Timestamp> {
        let ruled = self.ruled.as_ref().filter(|ruled| ruled.gate.has_deficit())?;
        self.is_unused().then(|| ruled.gate.full_at(ruled.rate()))
    }

    /// Whether a rule permits no reservation now.
    pub(crate) fn is_throttled(&self) -> bool {
        self.ruled.as_ref().is_some_and(|ruled| ruled.gate.is_closed)
    }

    /// Whether its rule has been removed and its gate is not open yet.
    pub(crate) fn opens_for_good(&self) -> bool {
        self.ruled.as_ref().is_some_and(|ruled| ruled.rule.is_none() && ruled.gate.is_closed)
    }

    /// Which of `max-reserved` and `rate` permit no reservation now.
    pub(crate) fn throttled_by(&self, now: Timestamp) -> [bool; 2] {
        let ruled = self.ruled.as_ref().filter(|ruled| ruled.gate.is_closed);
        let Some((rule, mut gate)) = ruled.and_then(|ruled| Some((ruled.rule.as_ref()?, ruled.gate))) else {
            return [false; 2];
        };
        let has_no_token = rule.rate.is_some_and(|rate| {
            gate.refill(rate, now);
            gate.lacks_token(rate)
        });
        [rule.max_reserved.is_some_and(|max| self.reserved >= max), has_no_token]
    }

    pub(crate) fn must_be_closed(&self) -> bool {
        let ruled = self.ruled.as_ref();
        ruled.is_some_and(|ruled| ruled.gate.must_close(ruled.rule.as_deref(), self.reserved))
    }

    /// Adds the tokens that have come until now to the bucket of its rule.
    pub(crate) fn refill(&mut self, now: Timestamp) {
        if let Some(ruled) = &mut self.ruled {
            match ruled.rate() {
                Some(rate) => ruled.gate.refill(rate, now),
                None => ruled.gate.fill(),
            }
        }
    }
}
