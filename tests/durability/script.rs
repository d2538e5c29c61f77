//! Random steps of one client in a tube of its own, and their expected results.
//!
//! Owns: the model of the tube, and the choice of steps. Only one client uses the tube, so its state follows from the
//! commands alone, and the model knows every reply and every state between two commands.

use std::collections::BTreeMap;

use beanstalkd::tags::{After, Concurrency, Idempotency, Name, TagSet};

use crate::jobs::{SeenJob, SeenTags, body, id_of, put_with};
use beanstalkd_testkit::random::Random;

/// Longer than any test, in seconds, so that no deadline of a job passes.
const LONG: u32 = 100_000;
/// The difference of two delays, in seconds: longer than any test, so that delays alone define the order.
const DELAY_STEP: u32 = 1000;
/// With this many jobs or more, the client deletes more than it puts.
const ENOUGH: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    Reserved,
    Delayed,
    /// With its position in the order of burials.
    Buried(u64),
}

#[derive(Clone, Debug)]
pub struct Job {
    /// `None` until the reply to its put has arrived.
    pub id: Option<u64>,
    pub state: State,
    /// Its state before it was reserved. If the binlog has no room for the reservation at the moment, the server
    /// replies before it logs the reservation.
    before: Option<State>,
    priority: u32,
    delay: u32,
    ttr: u32,
    reserves: u64,
    releases: u64,
    buries: u64,
    /// The number of starts of C while it was buried. C counts each as a burial.
    phantom_burials: u64,
    kicks: u64,
    body: Vec<u8>,
    tags: TagSet<'static>,
    /// Whether it waits for its group; the state is delayed.
    is_held: bool,
    /// Whether a duplicate has made it more urgent since it was reserved.
    is_upgraded: bool,
}

/// One command. Jobs are named by their keys, which have the same order as their ids.
#[derive(Clone, Debug)]
pub enum Step {
    Put { key: u64, priority: u32, delay: u32, ttr: u32, tags: TagSet<'static>, body: Vec<u8> },
    Reserve,
    ReserveJob(u64),
    Release { key: u64, priority: u32, delay: u32 },
    Bury { key: u64, priority: u32 },
    Delete(u64),
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
}

/// The steps that a client may choose. C does not log releases without a delay and reservations, and it does not keep
/// the order of burials, which a kick of several jobs would show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repertoire {
    /// All steps, with bodies that may be larger than a file.
    All,
    /// The same, with tags.
    Tagged,
    /// The steps that C logs. A reserved job is released with a delay, or buried, at once.
    KeptByC,
}

/// A tube and its jobs, by key.
#[derive(Clone, Debug)]
pub struct Tube {
    pub name: String,
    /// Keys and groups that no other tube has.
    names: [Name<'static>; 2],
    ttrs: u64,
    pub jobs: BTreeMap<u64, Job>,
    /// The ids of deleted jobs, by their keys that still count.
    cooling: BTreeMap<Name<'static>, u64>,
    next_key: u64,
    burials: u64,
    delays: u32,
}

impl Tube {
    /// A tube whose jobs have `ttrs` different times to run.
    pub fn new(name: &str, ttrs: u64) -> Self {
        let names =
            ["a", "b"].map(|end| Name::from(&*format!("{}-{end}", &name[..name.len().min(40)]).leak()));
        let (name, jobs, cooling) = (name.to_owned(), BTreeMap::new(), BTreeMap::new());
        Self { name, names, ttrs, jobs, cooling, next_key: 0, burials: 0, delays: 0 }
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
                let next = match random.once_in(2) {
                    true => Step::Release { key, priority, delay: tube.new_delay() },
                    false => Step::Bury { key, priority },
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
        let put_share = if self.jobs.len() < ENOUGH { 5 } else { 2 };
        if random.below(10) < put_share {
            return self.invent_put(random, repertoire);
        }
        if repertoire != Repertoire::KeptByC && random.once_in(12) {
            return Step::Kick(random.below(6));
        }
        if repertoire != Repertoire::KeptByC && random.once_in(4) {
            return Step::Reserve;
        }
        let known: Vec<u64> =
            self.jobs.iter().filter(|(_, job)| job.id.is_some()).map(|(&key, _)| key).collect();
        if known.is_empty() {
            return self.invent_put(random, repertoire);
        }
        let (key, priority) = (random.pick(&known), self.priority(random));
        let delete_share = if self.jobs.len() < ENOUGH { 6 } else { 2 };
        match self.jobs[&key].state {
            _ if random.below(delete_share) == 0 => Step::Delete(key),
            State::Ready => Step::ReserveJob(key),
            State::Reserved => match random.below(3) {
                0 => Step::Bury { key, priority },
                1 => Step::Release { key, priority, delay: 0 },
                _ => Step::Release { key, priority, delay: self.new_delay() },
            },
            State::Buried(_) | State::Delayed => Step::KickJob(key),
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

    fn tags(&self, random: &mut Random) -> TagSet<'static> {
        let mut name = |one_in| random.once_in(one_in).then(|| random.pick(&self.names));
        let (key, limited, group, after) = (name(4), name(4), name(4), name(6));
        let idempotency =
            key.map(|key| Idempotency { key, cooldown_s: if random.once_in(2) { LONG } else { 0 } });
        TagSet {
            // The answer to a duplicate has the id of the first.
            idempotency: idempotency
                .filter(|tag| self.with_key(tag.key).is_none_or(|(_, job)| job.id.is_some())),
            concurrency: limited.map(|key| Concurrency { key, limit: 1 + random.below(2) as u32 }),
            group,
            after: after.map(|group| After { group, is_free: false }),
            expires_after_s: random.once_in(4).then_some(LONG),
            ..TagSet::default()
        }
    }

    fn with_key(&self, key: Name<'_>) -> Option<(u64, &Job)> {
        let has_key = |job: &Job| job.tags.idempotency.is_some_and(|tag| tag.key == key);
        self.jobs.iter().find(|(_, job)| has_key(job)).map(|(&key, job)| (key, job))
    }

    fn has_members(&self, group: Name<'_>) -> bool {
        self.jobs.values().any(|job| job.tags.group == Some(group))
    }

    fn may_be_reserved(&self, job: &Job) -> bool {
        let taken = |key| {
            let has_key = |job: &&Job| job.tags.concurrency.is_some_and(|tag| tag.key == key);
            self.jobs.values().filter(has_key).filter(|job| job.state == State::Reserved).count()
        };
        !job.is_held && job.tags.concurrency.is_none_or(|tag| taken(tag.key) < tag.limit as usize)
    }

    /// What a put is answered whose key is in use, and what it does then.
    fn put_again(&mut self, tags: &TagSet<'_>, priority: u32) -> Option<String> {
        let key = tags.idempotency?.key;
        let Some((first, job)) = self.with_key(key) else {
            return self.cooling.get(&key).map(|id| format!("INSERTED {id} DELETED"));
        };
        let (id, is_more_urgent) = (job.id.unwrap_or_default(), priority < job.priority);
        let line = format!("INSERTED {id} {}", job.state.text().to_uppercase());
        if !is_more_urgent {
            return Some(line);
        }
        let job = self.jobs.get_mut(&first).unwrap();
        job.priority = priority;
        job.is_upgraded |= job.state == State::Reserved;
        Some(format!("{line} {priority}"))
    }

    /// The priority that a reserved job gets when it is given back.
    fn given_priority(job: &Job, priority: u32) -> u32 {
        if job.is_upgraded { priority.min(job.priority) } else { priority }
    }

    fn delete(&mut self, key: u64) {
        let Job { id, tags, .. } = self.jobs.remove(&key).unwrap();
        if let Some(tag) = tags.idempotency.filter(|tag| tag.cooldown_s > 0) {
            self.cooling.extend(id.map(|id| (tag.key, id)));
        }
        let Some(group) = tags.group.filter(|&group| !self.has_members(group)) else { return };
        for job in self.jobs.values_mut().filter(|job| job.is_held) {
            if job.tags.after.is_some_and(|after| after.group == group) {
                job.is_held = false;
                job.state = if job.delay > 0 { State::Delayed } else { State::Ready };
            }
        }
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
        let id = |key: &u64| self.jobs[key].id.unwrap();
        let text = match step {
            Step::Put { priority, delay, ttr, tags, body, .. } => {
                return put_with(*priority, *delay, *ttr, tags, body);
            }
            Step::Reserve => "reserve-with-timeout 0\r\n".to_owned(),
            Step::ReserveJob(key) => format!("reserve-job {}\r\n", id(key)),
            Step::Release { key, priority, delay } => format!("release {} {priority} {delay}\r\n", id(key)),
            Step::Bury { key, priority } => format!("bury {} {priority}\r\n", id(key)),
            Step::Delete(key) => format!("delete {}\r\n", id(key)),
            Step::Kick(bound) => format!("kick {bound}\r\n"),
            Step::KickJob(key) => format!("kick-job {}\r\n", id(key)),
        };
        text.into_bytes()
    }

    /// Applies the step, and returns the expected reply.
    pub fn apply(&mut self, step: &Step) -> Expected {
        let line = |text: &str| Expected::Line(text.to_owned());
        match step {
            Step::Put { key, priority, delay, ttr, tags, body } => {
                if let Some(answer) = self.put_again(tags, *priority) {
                    self.next_key = key + 1;
                    return Expected::Line(answer);
                }
                let is_held = tags
                    .after
                    .is_some_and(|after| self.has_members(after.group) || tags.group == Some(after.group));
                let state = if *delay > 0 || is_held { State::Delayed } else { State::Ready };
                let (priority, delay, ttr, body) = (*priority, *delay, *ttr, body.clone());
                let (reserves, releases, buries, phantom_burials, kicks) = (0, 0, 0, 0, 0);
                let (id, before) = (None, None);
                let job = Job {
                    id,
                    state,
                    before,
                    priority,
                    delay,
                    ttr,
                    reserves,
                    releases,
                    buries,
                    phantom_burials,
                    kicks,
                    body,
                    tags: *tags,
                    is_held,
                    is_upgraded: false,
                };
                self.jobs.insert(*key, job);
                self.next_key = key + 1;
                self.delays = self.delays.max(delay.saturating_sub(LONG) / DELAY_STEP);
                Expected::Inserted(*key)
            }
            Step::Reserve => {
                let is_free = |job: &Job| job.state == State::Ready && self.may_be_reserved(job);
                let ready = self.jobs.iter().filter(|(_, job)| is_free(job));
                match ready.map(|(&key, job)| (job.priority, key)).min() {
                    Some((_, key)) => self.reserve(key),
                    None => line("TIMED_OUT"),
                }
            }
            Step::ReserveJob(key) if !self.may_be_reserved(&self.jobs[key]) => line("NOT_FOUND"),
            Step::ReserveJob(key) => self.reserve(*key),
            Step::Release { key, priority, delay } => {
                let job = self.jobs.get_mut(key).unwrap();
                let state = if *delay > 0 { State::Delayed } else { State::Ready };
                (job.state, job.before) = (state, None);
                (job.priority, job.delay) = (Self::given_priority(job, *priority), *delay);
                job.releases += 1;
                self.delays = self.delays.max(delay.saturating_sub(LONG) / DELAY_STEP);
                line("RELEASED")
            }
            Step::Bury { key, priority } => {
                self.burials += 1;
                let job = self.jobs.get_mut(key).unwrap();
                job.priority = Self::given_priority(job, *priority);
                (job.state, job.before) = (State::Buried(self.burials), None);
                job.buries += 1;
                line("BURIED")
            }
            Step::Delete(key) => {
                self.delete(*key);
                line("DELETED")
            }
            Step::Kick(bound) => {
                let mut order = self.buried();
                if order.is_empty() {
                    order = self.delayed();
                }
                order.truncate(*bound as usize);
                order.iter().for_each(|&key| self.kick(key));
                Expected::Line(format!("KICKED {}", order.len()))
            }
            Step::KickJob(key) if self.jobs[key].is_held => line("NOT_FOUND"),
            Step::KickJob(key) => {
                self.kick(*key);
                line("KICKED")
            }
        }
    }

    fn reserve(&mut self, key: u64) -> Expected {
        let job = self.jobs.get_mut(&key).unwrap();
        job.before = Some(job.state);
        job.is_upgraded = false;
        job.state = State::Reserved;
        job.reserves += 1;
        Expected::Reserved(key)
    }

    fn kick(&mut self, key: u64) {
        let job = self.jobs.get_mut(&key).unwrap();
        job.state = State::Ready;
        job.kicks += 1;
    }

    /// The buried jobs in the order of burials.
    pub fn buried(&self) -> Vec<u64> {
        let place = |job: &Job| if let State::Buried(place) = job.state { Some(place) } else { None };
        let mut order: Vec<(u64, u64)> =
            self.jobs.iter().filter_map(|(&key, job)| Some((place(job)?, key))).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, key)| key).collect()
    }

    fn delayed(&self) -> Vec<u64> {
        let delayed = self.jobs.iter().filter(|(_, job)| job.state == State::Delayed && !job.is_held);
        let mut order: Vec<(u32, u64)> = delayed.map(|(&key, job)| (job.delay, key)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, key)| key).collect()
    }

    /// Applies the step, and checks its reply.
    pub fn acknowledge(&mut self, step: &Step, reply: &[u8]) -> Result<(), String> {
        let expected = self.apply(step);
        let good = match &expected {
            Expected::Line(line) => reply.strip_suffix(b"\r\n") == Some(line.as_bytes()),
            Expected::Inserted(key) => {
                let job = self.jobs.get_mut(key).unwrap();
                job.id = id_of(reply);
                job.id.is_some() && reply.starts_with(b"INSERTED ")
            }
            Expected::Reserved(key) => {
                let job = &self.jobs[key];
                reply.starts_with(b"RESERVED ") && id_of(reply) == job.id && body(reply) == job.body
            }
        };
        let said = || String::from_utf8_lossy(&reply[..reply.len().min(80)]).into_owned();
        if good { Ok(()) } else { Err(format!("{expected:?} expected, found {:?}", said())) }
    }

    /// Applies a restart: reserved jobs become ready.
    pub fn restart(&mut self) {
        for job in self.jobs.values_mut().filter(|job| job.state == State::Reserved) {
            (job.state, job.is_upgraded) = (State::Ready, false);
        }
    }

    /// Applies a start of C: it counts the burial of each buried job once more, and may or may not log that.
    pub fn restart_in_c(&mut self) {
        for job in self.jobs.values_mut().filter(|job| matches!(job.state, State::Buried(_))) {
            job.phantom_burials += 1;
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
        self.jobs[&key].body == body
    }

    /// Takes over facts from the seen jobs that the model cannot know: the ids of unanswered puts, and whether
    /// reservations were logged. If the server `logs_burials`, also the numbers of burials.
    pub fn adopt(&mut self, seen: &BTreeMap<u64, SeenJob>, logs_burials: bool) {
        for (&id, found) in seen.iter().filter(|(_, job)| job.tube == self.name) {
            let Some(job) = self.key_of(&found.body).and_then(|key| self.jobs.get_mut(&key)) else {
                continue;
            };
            job.id.get_or_insert(id);
            job.reserves = found.reserves;
            if logs_burials {
                (job.buries, job.phantom_burials) = (found.buries, 0);
            }
            if let Some(before) = job.before.take().filter(|_| found.state != job.state.text()) {
                job.state = before;
            }
        }
    }

    /// The first difference between the seen jobs and the model.
    pub fn difference(&self, seen: &BTreeMap<u64, SeenJob>) -> Option<String> {
        let mut missing: BTreeMap<u64, &Job> = self.jobs.iter().map(|(&key, job)| (key, job)).collect();
        for (&id, found) in seen.iter().filter(|(_, job)| job.tube == self.name) {
            let Some((key, job)) =
                self.key_of(&found.body).and_then(|key| Some((key, missing.remove(&key)?)))
            else {
                return Some(format!("job {id} ({}) is back or damaged", found.state));
            };
            let burials = job.buries..=job.buries + job.phantom_burials;
            let is_same = job.id.is_none_or(|known| known == id)
                && found.body == job.body
                && (found.state == job.state.text() || job.before.is_some_and(|it| found.state == it.text()))
                && (found.priority, found.delay, found.ttr)
                    == (job.priority.into(), job.delay.into(), job.ttr.into())
                && (found.timeouts, found.releases, found.kicks) == (0, job.releases, job.kicks)
                && found.reserves <= job.reserves
                && found.tags == SeenTags::of(&job.tags, job.is_held, job.reserves > 0)
                && burials.contains(&found.buries);
            if !is_same {
                let (job, found) =
                    (Job { body: Vec::new(), ..job.clone() }, SeenJob { body: Vec::new(), ..found.clone() });
                return Some(format!("{key}: {job:?} is now {found:?} (bodies not shown)"));
            }
        }
        missing.first_key_value().map(|(key, job)| format!("{key} (id {:?}) is lost", job.id))
    }
}

impl State {
    fn text(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Reserved => "reserved",
            Self::Delayed => "delayed",
            Self::Buried(_) => "buried",
        }
    }
}
