//! Random steps of one client in a separate tube, and their expected results.
//!
//! Owns: the choice of steps, and the facts about jobs that only the server can know: their ids, and the changes that
//! it has logged. The model of all suites knows the rest: only one client uses the tube, so every reply and every state
//! follows from the commands alone.

use std::collections::BTreeMap;

use beanstalkd_queue::{NewJob, PoisonLimits, Release, Reserve};
use beanstalkd_types::clock::Timestamp;
use beanstalkd_types::job::{Counting, JobId, JobState, Priority};
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::{Idempotency, TagSet};

use crate::jobs::{SeenJob, SeenTags, body, put_with};
use beanstalkd_model::{CompletedPut, DEFAULT, Job, Model, State};
use beanstalkd_testkit::client::{id_of, inserted_id};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::tags::TagChoice;

/// Longer than any test, in seconds, so that no deadline of a job passes.
const LONG: u32 = 100_000;
/// The difference of two delays, in seconds: longer than any test, so that delays alone define the order.
const DELAY_STEP: u32 = 1000;
/// With this many jobs or more, the client deletes more than it puts.
const ENOUGH: usize = 60;
/// The client, in the model of its tube.
const CLIENT: u32 = 0;
/// No time passes for the model, since no deadline does.
const NOW: Timestamp = Timestamp(1_000_000_000);

/// One command. Jobs are named by their keys, which have the same order as their ids.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a script has few steps")]
pub enum Step {
    Put {
        key: u64,
        priority: u32,
        delay: u32,
        ttr: u32,
        tags: TagSet<'static>,
        body: Vec<u8>,
    },
    Reserve,
    ReserveJob(u64),
    Release {
        key: u64,
        priority: u32,
        delay: u32,
    },
    Bury {
        key: u64,
        priority: u32,
    },
    Delete(u64),
    /// The puts are separate steps elsewhere.
    Complete {
        key: u64,
        puts: Vec<Step>,
    },
    Kick(u64),
    KickJob(u64),
}

/// The reply that a step must get.
#[derive(Debug)]
pub enum Expected {
    Line(String),
    /// INSERTED, with a new id for the job of this key.
    Inserted(u64),
    /// RESERVED, with the job of this key and its body.
    Reserved(u64),
    /// COMPLETED, with the ids of the jobs of these keys, some of which are new.
    Completed(Vec<u64>),
}

/// The steps that a client may choose. C does not log releases without a delay and reservations, and it does not keep
/// the order of burials, which a kick of several jobs would show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repertoire {
    /// All steps, with bodies that may be larger than a file.
    All,
    /// All steps, and tags.
    Tagged,
    /// The steps that C logs. A reserved job is released with a delay, or buried, at once.
    KeptByC,
}

/// A tube and its jobs. The model has the keys for ids.
#[derive(Clone, Debug)]
pub struct Tube {
    pub name: String,
    /// Keys and groups that no other tube has.
    names: [&'static str; 2],
    ttrs: u64,
    model: Model,
    /// By key: the ids of jobs whose puts were answered, including deleted jobs.
    ids: BTreeMap<u64, u64>,
    /// By key: the states of reserved jobs before that. If the binlog has no room for the reservation at the moment,
    /// the server replies before it logs the reservation.
    before: BTreeMap<u64, State>,
    /// By key: the number of starts of C while the job was buried. C counts each as a burial.
    phantom_burials: BTreeMap<u64, u64>,
    next_key: u64,
    delays: u32,
}

impl Tube {
    /// A tube whose jobs have `ttrs` different times to run.
    pub fn new(name: &str, ttrs: u64) -> Self {
        let names = ["a", "b"].map(|end| &*format!("{}-{end}", &name[..name.len().min(40)]).leak());
        let mut model = Model::new(PoisonLimits::default());
        model.connect(CLIENT);
        let (ids, before, phantom_burials) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let name = name.to_owned();
        Self { name, names, ttrs, model, ids, before, phantom_burials, next_key: 0, delays: 0 }
    }

    /// Whether the job exists.
    pub fn has(&self, key: u64) -> bool {
        self.model.job(key).is_some()
    }

    /// The existing jobs, and their ids, which are known once their puts are answered.
    pub fn jobs(&self) -> impl Iterator<Item = (u64, Option<u64>)> {
        self.model.jobs.iter().map(|job| (job.id, self.ids.get(&job.id).copied()))
    }

    /// The id of a job whose put was answered.
    pub fn id(&self, key: u64) -> u64 {
        self.ids[&key]
    }

    fn state(&self, key: u64) -> State {
        self.model.job(key).expect("the job is there").state
    }

    /// Random steps that can be sent in one write: each names only jobs whose ids are known.
    pub fn invent(&self, random: &mut Random, count: u64, repertoire: Repertoire) -> Vec<Step> {
        let mut tube = self.clone();
        let mut steps = Vec::new();
        while (steps.len() as u64) < count {
            let step = tube.invent_one(random, repertoire);
            tube.apply(&step);
            if let (Repertoire::KeptByC, Step::ReserveJob(key)) = (repertoire, &step) {
                let (key, priority) = (*key, tube.priority(random));
                steps.push(step);
                let next = if random.once_in(2) {
                    Step::Release { key, priority, delay: tube.new_delay() }
                } else {
                    Step::Bury { key, priority }
                };
                tube.apply(&next);
                steps.push(next);
            } else {
                steps.push(step);
            }
        }
        steps
    }

    fn invent_one(&mut self, random: &mut Random, repertoire: Repertoire) -> Step {
        let count = self.model.jobs.len();
        let put_share = if count < ENOUGH { 5 } else { 2 };
        if random.below(10) < put_share {
            return self.invent_put(random, repertoire);
        }
        if repertoire != Repertoire::KeptByC && random.once_in(12) {
            return Step::Kick(random.below(6));
        }
        if repertoire != Repertoire::KeptByC && random.once_in(4) {
            return Step::Reserve;
        }
        let known: Vec<u64> = self.jobs().filter(|(_, id)| id.is_some()).map(|(key, _)| key).collect();
        if known.is_empty() {
            return self.invent_put(random, repertoire);
        }
        let (key, priority) = (random.pick(&known), self.priority(random));
        let delete_share = if count < ENOUGH { 6 } else { 2 };
        match self.state(key) {
            _ if random.below(delete_share) == 0 => Step::Delete(key),
            State::Ready => Step::ReserveJob(key),
            State::Reserved { .. } if repertoire == Repertoire::Tagged && random.once_in(3) => {
                self.invent_complete(key, random, repertoire)
            }
            State::Reserved { .. } => match random.below(3) {
                0 => Step::Bury { key, priority },
                1 => Step::Release { key, priority, delay: 0 },
                _ => Step::Release { key, priority, delay: self.new_delay() },
            },
            State::Buried { .. } | State::Delayed { .. } => Step::KickJob(key),
        }
    }

    fn invent_put(&mut self, random: &mut Random, repertoire: Repertoire) -> Step {
        let key = self.next_key;
        let length = match (repertoire, random.below(60)) {
            (Repertoire::All | Repertoire::Tagged, 0) => 20_000 + random.below(40_000),
            (_, 1..10) => random.below(3000),
            _ => random.below(200),
        };
        let mut body = format!("{}:{key}:", self.name).into_bytes();
        body.extend((0..length).map(|_| random.next() as u8));
        let delay = if random.once_in(4) { self.new_delay() } else { 0 };
        let ttr = LONG + random.below(self.ttrs) as u32;
        let tags = if repertoire == Repertoire::Tagged { self.tags(random) } else { TagSet::default() };
        Step::Put { key, priority: self.priority(random), delay, ttr, tags, body }
    }

    fn invent_complete(&mut self, key: u64, random: &mut Random, repertoire: Repertoire) -> Step {
        let mut puts = Vec::new();
        for _ in 0..random.below(4) {
            let mut put = self.invent_put(random, repertoire);
            if let Step::Put { body, .. } = &mut put {
                // All of them fit into one file.
                body.truncate(3000);
            }
            puts.push(put);
            self.next_key += 1;
        }
        Step::Complete { key, puts }
    }

    fn tags(&self, random: &mut Random) -> TagSet<'static> {
        let names = &self.names;
        let choice = TagChoice {
            keys: (4, names),
            cooldowns_s: &[Seconds::new(LONG, 0), Seconds::ZERO],
            limited: (4, names),
            limits: &[1, 2],
            groups: (4, names),
            awaited: (6, names),
            expiries_s: (4, &[Seconds::new(LONG, 0)]),
            trace: 4,
            ..TagChoice::NEVER
        };
        let tags = choice.tags(random);
        // The answer to a duplicate has the id of the first.
        let is_answered = |tag: &Idempotency<'_>| {
            self.model.with_key(DEFAULT, tag.key).is_none_or(|job| self.ids.contains_key(&job.id))
        };
        TagSet { idempotency: tags.idempotency.filter(is_answered), ..tags }
    }

    fn priority(&self, random: &mut Random) -> u32 {
        random.below(5) as u32 * 700
    }

    fn new_delay(&mut self) -> u32 {
        self.delays += 1;
        LONG + self.delays * DELAY_STEP
    }

    /// The command as it is sent. The client uses and watches this tube alone.
    pub fn command(&self, step: &Step) -> Vec<u8> {
        let id = |key: &u64| self.id(*key);
        let text = match step {
            Step::Put { priority, delay, ttr, tags, body, .. } => {
                return put_with(*priority, *delay, *ttr, tags, body);
            }
            Step::Reserve => "reserve-with-timeout 0\r\n".to_owned(),
            Step::ReserveJob(key) => format!("reserve-job {}\r\n", id(key)),
            Step::Release { key, priority, delay } => format!("release {} {priority} {delay}\r\n", id(key)),
            Step::Bury { key, priority } => format!("bury {} {priority}\r\n", id(key)),
            Step::Delete(key) => format!("delete {}\r\n", id(key)),
            Step::Complete { key, puts } => {
                let line = format!("complete {} {}\r\n", id(key), puts.len());
                return line
                    .into_bytes()
                    .into_iter()
                    .chain(puts.iter().flat_map(|put| self.command(put)))
                    .collect();
            }
            Step::Kick(bound) => format!("kick {bound}\r\n"),
            Step::KickJob(key) => format!("kick-job {}\r\n", id(key)),
        };
        text.into_bytes()
    }

    /// Applies the step, and returns the expected reply.
    pub fn apply(&mut self, step: &Step) -> Expected {
        let found =
            |is_there: bool, line: &str| Expected::Line(if is_there { line } else { "NOT_FOUND" }.to_owned());
        let expected = match *step {
            Step::Put { key, priority, delay, ttr, tags, ref body } => {
                self.next_key = key + 1;
                self.note_delay(delay);
                if let Some(duplicate) = self.model.duplicate(CLIENT, &tags, priority, NOW) {
                    return Expected::Line(duplicate.reply(self.ids[&duplicate.first]));
                }
                let new = NewJob {
                    id: JobId(key),
                    priority: Priority(priority),
                    delay_s: delay.into(),
                    ttr_s: ttr.into(),
                };
                self.model.put_tagged(CLIENT, new, body.as_slice().into(), tags, NOW);
                Expected::Inserted(key)
            }
            Step::Reserve => match self.model.reserve(CLIENT, Some(0.into()), None, NOW) {
                Reserve::Job(JobId(key)) => {
                    self.before.insert(key, State::Ready);
                    Expected::Reserved(key)
                }
                _ => Expected::Line("TIMED_OUT".to_owned()),
            },
            Step::ReserveJob(key) => {
                let before = self.state(key);
                if !self.model.reserve_job(CLIENT, key, NOW) {
                    return found(false, "");
                }
                self.before.insert(key, before);
                Expected::Reserved(key)
            }
            Step::Release { key, priority, delay } => {
                self.before.remove(&key);
                self.note_delay(delay);
                let counting = Counting::Counted;
                let release = Release { priority: Priority(priority), delay_s: delay.into(), counting };
                found(self.model.release(CLIENT, key, release, NOW).is_some(), "RELEASED")
            }
            Step::Bury { key, priority } => {
                self.before.remove(&key);
                found(self.model.bury(CLIENT, key, priority, NOW), "BURIED")
            }
            Step::Delete(key) => {
                self.before.remove(&key);
                found(self.model.delete(CLIENT, key, NOW), "DELETED")
            }
            Step::Complete { key, ref puts } => {
                self.before.remove(&key);
                let puts: Vec<CompletedPut> = puts.iter().map(|put| self.completed_put(put)).collect();
                if self.model.has_reserved(CLIENT, key) {
                    Expected::Completed(
                        self.model.complete(CLIENT, key, &puts, NOW).expect("no tube has a rule"),
                    )
                } else {
                    found(false, "")
                }
            }
            Step::Kick(bound) => Expected::Line(format!("KICKED {}", self.model.kick(CLIENT, bound, NOW))),
            Step::KickJob(key) => found(self.model.kick_job(key, NOW), "KICKED"),
        };
        self.model.forget_the_past();
        expected
    }

    /// A put of a `complete`, for the model.
    fn completed_put(&mut self, put: &Step) -> CompletedPut {
        let &Step::Put { key, priority, delay, ttr, tags, ref body } = put else {
            unreachable!("only puts are in a complete")
        };
        self.next_key = key + 1;
        self.note_delay(delay);
        let (priority, delay_s, ttr_s) = (Priority(priority), delay.into(), ttr.into());
        let new = NewJob { id: JobId(key), priority, delay_s, ttr_s };
        CompletedPut { new, tags: tags.into(), tube: None, body: body.as_slice().into() }
    }

    fn note_delay(&mut self, delay: u32) {
        self.delays = self.delays.max(delay.saturating_sub(LONG) / DELAY_STEP);
    }

    /// The buried jobs in the order of burials.
    pub fn buried(&self) -> Vec<u64> {
        self.model.in_order(DEFAULT, JobState::Buried).into_iter().map(|(_, key)| key).collect()
    }

    /// Applies the step, and checks its reply.
    pub fn acknowledge(&mut self, step: &Step, reply: &[u8]) -> Result<(), String> {
        let expected = self.apply(step);
        let good = match &expected {
            Expected::Line(line) => reply.strip_suffix(b"\r\n") == Some(line.as_bytes()),
            Expected::Inserted(key) => {
                let id = inserted_id(reply);
                self.ids.extend(id.map(|id| (*key, id)));
                id.is_some()
            }
            Expected::Completed(keys) => {
                let text = String::from_utf8_lossy(reply);
                let words = text.trim_end().strip_prefix("COMPLETED");
                let found: Option<Vec<u64>> = words
                    .and_then(|words| words.split_ascii_whitespace().map(|id| id.parse().ok()).collect());
                found.is_some_and(|found| {
                    found.len() == keys.len()
                        && keys.iter().zip(found).all(|(key, id)| *self.ids.entry(*key).or_insert(id) == id)
                })
            }
            Expected::Reserved(key) => {
                let id = id_of(reply, "RESERVED");
                id.is_some() && id == self.ids.get(key).copied() && self.holds_body(*key, body(reply))
            }
        };
        let said = || String::from_utf8_lossy(&reply[..reply.len().min(80)]).into_owned();
        if good { Ok(()) } else { Err(format!("{expected:?} expected, found {:?}", said())) }
    }

    /// Applies a restart.
    pub fn restart(&mut self) {
        self.model.restart_with_log(NOW);
        self.model.connect(CLIENT);
    }

    /// Applies a start of C: it counts the burial of each buried job once more, and may or may not log that.
    pub fn restart_in_c(&mut self) {
        for key in self.buried() {
            *self.phantom_burials.entry(key).or_default() += 1;
        }
    }

    /// The key that a body of this tube names.
    fn key_of(&self, body: &[u8]) -> Option<u64> {
        let rest = body.strip_prefix(format!("{}:", self.name).as_bytes())?;
        let digits = rest.split(|&byte| byte == b':').next()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Whether the job of this key has this body.
    pub fn holds_body(&self, key: u64, body: &[u8]) -> bool {
        self.model.job(key).is_some_and(|job| job.body[..] == *body)
    }

    /// Takes over facts from the seen jobs that the model cannot know: the ids of unanswered puts, and whether
    /// reservations were logged. If the server `logs_burials`, also the numbers of burials.
    pub fn adopt(&mut self, seen: &BTreeMap<u64, SeenJob>, logs_burials: bool) {
        for (&id, found) in seen.iter().filter(|(_, job)| job.tube == self.name) {
            let key = self.key_of(&found.body);
            let Some(job) = self.model.jobs.iter_mut().find(|job| Some(job.id) == key) else { continue };
            self.ids.entry(job.id).or_insert(id);
            job.counters.reserves = u32::try_from(found.reserves).unwrap();
            if logs_burials {
                job.counters.buries = u32::try_from(found.buries).unwrap();
                self.phantom_burials.remove(&job.id);
            }
            if let Some(before) = self.before.remove(&job.id).filter(|_| found.state != job.state.as_str()) {
                job.state = before;
            }
        }
    }

    /// The first difference between the seen jobs and the model.
    pub fn difference(&self, seen: &BTreeMap<u64, SeenJob>) -> Option<String> {
        let mut missing: BTreeMap<u64, &Job> = self.model.jobs.iter().map(|job| (job.id, job)).collect();
        for (&id, found) in seen.iter().filter(|(_, job)| job.tube == self.name) {
            let Some(job) = self.key_of(&found.body).and_then(|key| missing.remove(&key)) else {
                return Some(format!("job {id} ({}) is back or damaged", found.state));
            };
            if !self.is_same(job, id, found) {
                let found = SeenJob { body: Vec::new(), ..found.clone() };
                let job = Job { body: Vec::new().into(), ..job.clone() };
                return Some(format!("{job:?} is now {id}: {found:?} (bodies not shown)"));
            }
        }
        let lost = missing.into_keys().next();
        lost.map(|key| format!("{key} (id {:?}) is lost", self.ids.get(&key)))
    }

    fn is_same(&self, job: &Job, id: u64, found: &SeenJob) -> bool {
        let before = self.before.get(&job.id);
        let phantoms = self.phantom_burials.get(&job.id).copied().unwrap_or_default();
        let counters = job.counters;
        let buries = u64::from(counters.buries);
        self.ids.get(&job.id).is_none_or(|known| *known == id)
            && found.body[..] == job.body[..]
            && (found.state == job.state.as_str() || before.is_some_and(|it| found.state == it.as_str()))
            && (found.priority, found.delay, found.ttr)
                == (job.priority.into(), job.delay_s.whole().into(), job.ttr_s.whole().into())
            && (found.timeouts, found.releases, found.kicks)
                == (0, counters.releases.into(), counters.kicks.into())
            && found.reserves <= counters.reserves.into()
            && found.tags == SeenTags::of(&job.tags, job.held, counters.reserves > 0)
            && (buries..=buries + phantoms).contains(&found.buries)
    }
}
