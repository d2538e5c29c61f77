//! Jobs with tags in tubes that all workers share, and what no reply about them may say.
//!
//! Owns: the tube and the tags of each put. The history knows which jobs must exist, and which jobs a worker must still
//! have reserved, because it has read their RESERVED and has not begun to give them back. The tags forbid more:
//! a second job with a key of `idp`, a reservation too many, and a job whose group has not ended. Times to run are
//! longer than any run, so no reservation ends by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use beanstalkd_model::words_of;
use beanstalkd_testkit::client::{Client, Failure, body_of, id_of, pairs_of};
use beanstalkd_testkit::history::{History, Tick, body, key_of};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::tags::TagChoice;
use beanstalkd_types::seconds::Seconds;
use beanstalkd_types::tags::TagSet;

use crate::rules::{DEAD, MAX_ATTEMPTS, MAX_JOBS, MAX_RESERVED, RETRIED, RULED};

/// The tubes of the workers. No other client uses or watches them.
pub const TUBES: [&str; 5] = ["tagged-a", "tagged-b", RULED, RETRIED, DEAD];
/// The number of workers.
pub const WORKERS: usize = 4;
/// Longer than any run, in seconds.
pub const LONG_S: u32 = 100_000;
/// The keys of `con`. Each has one limit, its position.
const LIMITED: [&str; 3] = ["one", "two", "three"];
pub const GROUPS: [&str; 8] = ["g-a", "g-b", "g-c", "g-d", "g-e", "g-f", "g-g", "g-h"];
const COOLDOWN: Seconds = Seconds::new(5, 0);
/// A cooldown is judged only in this time after its delete was sent: the server may execute the delete later.
const JUDGED_COOLDOWN: Duration = Duration::from_secs(2);
/// The tags of puts. A dead job loses `idp` and `con`: see `Tagged::choose`.
const CHOICE: TagChoice<'_> = TagChoice {
    none: 4,
    keys: (2, &["a", "b", "c", "d"]),
    cooldowns_s: &[COOLDOWN, Seconds::ZERO],
    limited: (2, &LIMITED),
    groups: (3, &GROUPS),
    awaited: (3, &GROUPS),
    expiries_s: (6, &[Seconds::new(1, 0)]),
    trace: 4,
    ..TagChoice::NEVER
};

/// A put and what its job has gone through.
struct Put {
    /// Its tube; `None` if the reply to a move was lost.
    tube: Option<&'static str>,
    tags: TagSet<'static>,
    /// How many counted releases were answered.
    released: u32,
    /// How many were sent.
    releasing: u32,
    /// If it waits for a group: members that were put before it, or in place of such a member. While one of them
    /// exists, the job is held.
    awaited: Vec<u64>,
}

/// The cooldown of a deleted job.
struct Cooldown {
    until: Instant,
    /// When the reply to the delete was read.
    since: Tick,
}

/// The jobs of the workers.
#[derive(Default)]
pub struct Tagged {
    /// By key.
    puts: HashMap<u64, Put>,
    /// The keys of the jobs that may exist.
    keys: BTreeMap<u64, u64>,
    /// The jobs that expire unless a worker reserves them. For the history, an unanswered delete is under way.
    expiring: BTreeSet<u64>,
    /// By tube and key.
    cooldowns: HashMap<(&'static str, String), Cooldown>,
}

/// The key of `idp`.
fn unique_key(tags: &TagSet<'_>) -> Option<String> {
    tags.idempotency.map(|tag| tag.key.as_str().to_owned())
}

impl Tagged {
    /// Begins a random put into one of the tubes. Returns its key and its command. A put that completes a job has no
    /// `idp` and no `exp`, so that its job exists exactly if the `complete` was executed. It often joins the group of
    /// the completed job.
    pub fn choose(
        &mut self,
        history: &mut History,
        random: &mut Random,
        completed: Option<u64>,
    ) -> (u64, Vec<u8>) {
        let tube = random.pick(&TUBES[..4]);
        let mut tags = CHOICE.tags(random);
        if tube == RETRIED {
            (tags.idempotency, tags.concurrency) = (None, None);
        }
        if let Some(id) = completed {
            (tags.idempotency, tags.expires_after_s) = (None, None);
            if random.once_in(2) {
                tags.group = self.put(id).and_then(|put| put.tags.group);
            }
        }
        // The history does not know when an expired job has freed its key.
        tags.expires_after_s = tags.expires_after_s.filter(|_| tags.idempotency.is_none());
        if let Some(tag) = &mut tags.concurrency {
            tag.limit = 1 + LIMITED.iter().position(|&key| tag.key == key).unwrap_or_default() as u32;
        }
        let members = self.keys.iter().filter(|&(&id, key)| {
            tags.after.is_some_and(|after| self.puts[key].tags.group == Some(after.group))
                && history.is_safe(id)
        });
        let awaited = members.map(|(&id, _)| id).collect();
        let key = history.putting_apart();
        let body = body(key, random.index(200));
        let priority = random.below(4);
        let line = format!("put {priority} 0 {LONG_S} {}{}\r\n", body.len(), words_of(&tags, Some(tube)));
        self.puts.insert(key, Put { tube: Some(tube), tags, released: 0, releasing: 0, awaited });
        (key, [line.as_bytes(), &body, b"\r\n"].concat())
    }

    /// Judges the reply to a put that was sent at `asked_at`.
    pub fn put_answered(&mut self, history: &mut History, key: u64, reply: &[u8], asked_at: Tick) {
        let text = String::from_utf8_lossy(reply);
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match (&words[..], id_of(reply, "INSERTED")) {
            (["INSERTED", _], Some(id)) => self.inserted(history, key, id, asked_at),
            (["INSERTED", _, state, ..], Some(id)) => {
                history.refused(key);
                let has_key = self.puts[&key].tags.idempotency.is_some();
                if !has_key || *state == "DELETED" && history.is_safe(id) {
                    history.report(format!("put {key} is no duplicate of job {id}: {text}"));
                } else if *state != "DELETED" {
                    history.named(id, asked_at);
                }
            }
            (["DRAINING"], _) => history.refused(key),
            (["TUBE_FULL"], _) if self.puts[&key].tube == Some(RULED) => history.refused(key),
            _ => history.report(format!("put {key} with tags: {text}")),
        }
    }

    /// The put has made a job.
    pub fn inserted(&mut self, history: &mut History, key: u64, id: u64, asked_at: Tick) {
        history.inserted(key, id);
        self.keys.insert(id, key);
        let put = &self.puts[&key];
        if put.tags.expires_after_s.is_some() && self.expiring.insert(id) {
            history.deleting(id);
        }
        let (Some(tube), true) = (put.tube, history.is_safe(id)) else { return };
        let same_tube: Vec<(u64, &Put)> = self
            .keys
            .iter()
            .map(|(&other, key)| (other, &self.puts[key]))
            .filter(|&(other, put)| put.tube == Some(tube) && history.is_safe(other))
            .collect();
        if tube == RULED && same_tube.len() > MAX_JOBS {
            history.report(format!("job {id} is one of {} in a tube with max-jobs", same_tube.len()));
        }
        let Some(unique) = unique_key(&put.tags) else { return };
        let other = same_tube
            .iter()
            .find(|&&(other, put)| other != id && unique_key(&put.tags).as_ref() == Some(&unique));
        if let Some((other, _)) = other {
            history.report(format!("jobs {other} and {id} have the key {unique} in {tube}"));
        }
        let cooldown = self.cooldowns.remove(&(tube, unique));
        if cooldown.is_some_and(|cooldown| cooldown.since < asked_at && Instant::now() < cooldown.until) {
            history.report(format!("job {id} was stored in the cooldown of its key"));
        }
    }

    /// Judges a reply RESERVED to this worker, which has `reserve-fields tube releases`.
    pub fn reserved(&mut self, history: &mut History, worker: usize, reply: &[u8], asked_at: Tick) {
        let Some(id) = id_of(reply, "RESERVED") else {
            return history.report(format!("{:?} in place of RESERVED", reply.escape_ascii().to_string()));
        };
        if !history.reserved(worker, "", id, body_of(reply), asked_at) {
            return;
        }
        let Some((key, put)) = key_of(body_of(reply)).and_then(|key| Some((key, self.puts.get_mut(&key)?)))
        else {
            return history.report(format!("job {id} is in no tube of the workers"));
        };
        self.keys.insert(id, key);
        // A job that was reserved once does not expire.
        put.tags.expires_after_s = None;
        if self.expiring.remove(&id) {
            history.not_deleted(id);
        }
        if let Some(member) = put.awaited.iter().find(|&&member| history.is_safe(member)) {
            history.report(format!("job {id} waits for a group with job {member}, and was reserved"));
        }
        let line = String::from_utf8_lossy(reply);
        let fields: Vec<&str> = line.lines().next().unwrap_or_default().split(' ').skip(3).collect();
        let releases: Option<u32> = fields.get(1).and_then(|count| count.parse().ok());
        let is_possible = releases.is_some_and(|count| {
            let is_dead = put.tube == Some(RETRIED) && count >= MAX_ATTEMPTS;
            let tube = if is_dead { Some(DEAD) } else { put.tube };
            (put.released..=put.releasing).contains(&count) && tube.is_none_or(|tube| tube == fields[0])
        });
        if !is_possible {
            let (tube, range) = (put.tube, put.released..=put.releasing);
            history.report(format!("job {id} of {tube:?}, released {range:?} times, has {fields:?}"));
        }
        self.judge_limits(history, id, key);
    }

    /// Counts the jobs that are certainly reserved, and not about to be deleted, and share a limit with this one.
    fn judge_limits(&self, history: &mut History, id: u64, key: u64) {
        let puts = |shares: &dyn Fn(&Put) -> bool| {
            let ids = (0..WORKERS).flat_map(|worker| history.reservations(worker));
            let ids = ids.filter(|&id| history.is_safe(id));
            ids.filter_map(|id| self.keys.get(&id)).filter(|&key| shares(&self.puts[key])).count()
        };
        let Put { tube, tags, .. } = &self.puts[&key];
        let mut counts = Vec::new();
        if let Some(tag) = tags.concurrency {
            let same = |put: &Put| put.tags.concurrency.is_some_and(|other| other.key == tag.key);
            counts.push((puts(&same), tag.limit as usize, tag.key.as_str()));
        }
        if *tube == Some(RULED) {
            counts.push((puts(&|put| put.tube == Some(RULED)), MAX_RESERVED, RULED));
        }
        for (count, limit, name) in counts {
            if count > limit {
                history
                    .report(format!("job {id} is one of {count} reserved at once, {name} permits {limit}"));
            }
        }
    }

    /// A worker is about to release the job, which counts.
    pub fn releasing(&mut self, id: u64) {
        if let Some(put) = self.put(id) {
            put.releasing += 1;
        }
    }

    /// The release was answered.
    pub fn released(&mut self, id: u64) {
        if let Some(put) = self.put(id) {
            put.released += 1;
        }
    }

    /// A worker is about to move a job that it has reserved to this tube, or, if `tube` is `None`, has lost the reply.
    pub fn moved(&mut self, id: u64, tube: Option<&'static str>) {
        if let Some(put) = self.put(id) {
            put.tube = tube;
        }
    }

    fn put(&mut self, id: u64) -> Option<&mut Put> {
        self.puts.get_mut(self.keys.get(&id)?)
    }

    /// Whether a worker may move the job to another tube: no limit and no key of the tube counts it.
    pub fn is_movable(&self, id: u64) -> bool {
        let put = self.keys.get(&id).map(|key| &self.puts[key]);
        put.is_some_and(|put| {
            put.tags.idempotency.is_none() && put.tube.is_some_and(|tube| TUBES[..2].contains(&tube))
        })
    }

    /// A delete that was sent at `sent` was answered DELETED.
    pub fn deleted(&mut self, history: &mut History, id: u64, sent: Instant) {
        history.deleted(id);
        self.expiring.remove(&id);
        let Some(put) = self.keys.remove(&id).map(|key| &self.puts[&key]) else { return };
        let cooldown_s = put.tags.idempotency.map_or(Seconds::ZERO, |tag| tag.cooldown_s);
        if let (Some(tube), Some(key), COOLDOWN) = (put.tube, unique_key(&put.tags), cooldown_s) {
            let cooldown = Cooldown { until: sent + JUDGED_COOLDOWN, since: history.tick() };
            self.cooldowns.insert((tube, key), cooldown);
        }
    }

    /// The job was completed by the puts of these keys. A put that joins its group keeps the group from ending.
    pub fn completed(&mut self, id: u64, keys: &[(u64, u64)]) {
        let Some(group) = self.keys.get(&id).and_then(|key| self.puts[key].tags.group) else { return };
        let members = keys.iter().filter(|(key, _)| self.puts[key].tags.group == Some(group));
        let members: Vec<u64> = members.map(|&(_, id)| id).collect();
        for key in self.keys.values() {
            let awaited = &mut self.puts.get_mut(key).expect("each job has a put").awaited;
            if awaited.contains(&id) {
                awaited.extend(&members);
            }
        }
    }

    /// A random job that may exist.
    pub fn pick(&self, random: &mut Random) -> Option<u64> {
        let nth = random.index(self.keys.len().max(1));
        self.keys.keys().nth(nth).copied()
    }

    /// How many jobs may exist.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// The jobs that may expire at any time.
    pub fn expiring(&self) -> &BTreeSet<u64> {
        &self.expiring
    }

    /// The members that a group must have.
    pub fn members(&self, history: &History, group: &str) -> Vec<u64> {
        let is_member = |key: &u64| self.puts[key].tags.group.is_some_and(|name| name == group);
        self.keys
            .iter()
            .filter(|&(&id, key)| is_member(key) && history.is_safe(id))
            .map(|(&id, _)| id)
            .collect()
    }

    /// The sessions of workers have these jobs after a restart, so each of them was reserved.
    pub fn came_back(&mut self, history: &History, found: &BTreeSet<u64>) {
        for key in found.iter().filter_map(|&id| history.key(id)) {
            if let Some(put) = self.puts.get_mut(&key) {
                put.tags.expires_after_s = None;
            }
        }
    }

    /// Forgets what has gone, after all jobs were compared with the history. Then each job that waits for a group must
    /// be held exactly as long as the group has members.
    pub fn settle(&mut self, history: &mut History, client: &mut Client) -> Result<(), Failure> {
        self.keys.retain(|&id, _| history.is_safe(id));
        self.puts.retain(|&key, _| history.is_kept(key));
        self.keys.extend(history.ids().into_iter().filter_map(|id| {
            let key = history.key(id).filter(|key| self.puts.contains_key(key))?;
            Some((id, key))
        }));
        self.expiring = self
            .keys
            .iter()
            .filter(|(_, key)| self.puts[key].tags.expires_after_s.is_some())
            .map(|(&id, _)| id)
            .collect();
        for (&id, key) in &self.keys {
            let Put { tags, awaited, .. } = &self.puts[key];
            let Some(after) = tags.after else { continue };
            let stats = pairs_of(&client.ask(format!("stats-job {id}\r\n").as_bytes())?);
            let Some((_, held)) = stats.iter().find(|(key, _)| key == "held") else { continue };
            let has_members = self.puts.values().any(|put| put.tags.group == Some(after.group));
            let must_wait =
                awaited.iter().any(|&member| history.is_safe(member) && !self.expiring.contains(&member));
            if must_wait && held == "false" || !has_members && held == "true" {
                history.report(format!("job {id} waits for {:?}: held is {held}", after.group));
            }
        }
        self.expiring.iter().for_each(|&id| history.deleting(id));
        Ok(())
    }
}
