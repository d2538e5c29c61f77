//! Reads a queue from its description.
//!
//! Owns: the checks of a description, and the order in which a queue is restored from it.

use std::collections::HashSet;
use std::num::NonZeroU64;

use beanstalkd_structures::Timer;
use smallvec::SmallVec;

use crate::Queue;
use crate::clock::Timestamp;
use crate::description::{Malformed, Reader};
use crate::job::{Body, JobState};
use crate::seconds::Seconds;
use crate::state::Numbers;
use crate::state::clients::{Client, Wait};
use crate::state::gate::Gate;
use crate::state::jobs::{Collection, Job, Marks};
use crate::state::keys::{ClientKey, TubeKey};
use crate::state::reserve_settings::ReserveSettings;
use crate::state::sessions::{Session, SessionKey, SessionState};
use crate::state::stored_body::StoredBody;
use crate::state::times::TubeTimes;
use crate::state::tube_rule::Rate;
use crate::state::tubes::{Pause, RareState, TubeCounters, TubeRuleState};
use crate::tags::{After, EncodedTags, JobTags};
use crate::tube_name::TubeName;

use super::job::DescribedJob;
use super::{DescribedClient, DescribedReserveSettings, DescribedSession, DescribedWait};

/// No server has ids and numbers above this: sums with them must not overflow.
const MAX_NUMBER: u64 = u64::MAX / 2;

/// Clients keep their indexes unless the largest is above `SPARSE` times their number plus `FEW_INDEXES`.
const SPARSE: usize = 8;
const FEW_INDEXES: usize = 4096;

impl Queue {
    /// Reads a whole queue into this one, which must be new. `now` is the instant of the description.
    ///
    /// # Errors
    /// If the bytes are not a description. The queue must not be used then.
    pub fn read_description(&mut self, from: &mut Reader<'_>, now: Timestamp) -> Result<(), Malformed> {
        let numbers: Numbers = from.value()?;
        let (events, dead) = (from.value()?, from.value()?);
        if !(1..=MAX_NUMBER).contains(&numbers.next_id) || numbers.next_burial > MAX_NUMBER {
            return Err(Malformed("a number is too large, or the next id is 0"));
        }
        let tubes = self.read_tubes(from, now)?;
        let clients = self.read_clients(&tubes, from)?;
        let keys: Vec<_> = clients.iter().map(DescribedClient::key).collect();
        self.read_jobs(&tubes, &keys, &numbers, from, now)?;
        self.read_rules(&tubes, from)?;
        (self.sums.events, self.sums.dead) = (events, dead);
        let next_id = numbers.next_id;
        self.numbers = numbers;
        self.finish_restore(next_id, Timestamp::default());
        self.read_sessions(&clients)?;
        // The opening of a gate depends on the reservations. Its deadline opens it, before what is due later.
        for tube in tubes {
            self.close_gate(tube);
            self.schedule(Timer::Tube(tube));
            // A tube that only its bucket has kept is idle if it has no rate any more.
            self.remove_tube_if_idle(tube);
        }
        self.read_waits(clients)
    }

    /// Attaches the clients to their sessions, whose reservations have been read.
    fn read_sessions(&mut self, clients: &[DescribedClient]) -> Result<(), Malformed> {
        for described in clients {
            let Some(DescribedSession { identity, name, grace_ms, state }) = &described.session else {
                continue;
            };
            let index = described.key();
            let key = SessionKey { identity: identity.as_str().into(), name: name.as_str().into() };
            let state = match *state {
                SessionState::Attached(number) => {
                    let client = clients.get(number as usize).filter(|client| client.session.is_none());
                    SessionState::Attached(client.ok_or(Malformed("the client of a session"))?.key())
                }
                SessionState::Unbegun => SessionState::Unbegun,
                SessionState::EndsAt(Timestamp::NEVER) => return Err(Malformed("the end of a session")),
                SessionState::EndsAt(at) => SessionState::EndsAt(at),
            };
            let session = Session { key: key.clone(), grace_ms: *grace_ms, lacks_grace: true, state };
            self.sessions.records.insert(index, session);
            if self.sessions.by_key.insert(key, index).is_some() {
                return Err(Malformed("a session occurs twice"));
            }
            if let Some(client) = state.attached() {
                if self.clients[client].has_session() {
                    return Err(Malformed("a client has two sessions"));
                }
                self.attach_to_session(client, index);
            } else if self.clients[index].reserved.is_empty() {
                return Err(Malformed("a session without a client holds nothing"));
            }
            self.schedule(Timer::Client(index));
        }
        Ok(())
    }

    /// Creates the tubes; returns them by their numbers.
    fn read_tubes(&mut self, from: &mut Reader<'_>, now: Timestamp) -> Result<Vec<TubeKey>, Malformed> {
        let version: u64 = from.value()?;
        let mut tubes = Vec::new();
        for number in 0..from.count()? {
            let name = TubeName::check(from.bytes()?).ok_or(Malformed("the name of a tube"))?;
            if (number == 0) != (&*name == TubeName::DEFAULT) {
                return Err(Malformed("the tube default is not the first"));
            }
            if number > 0 && self.tubes.find(&name).is_some() {
                return Err(Malformed("a tube occurs twice"));
            }
            self.tubes.try_reserve().map_err(|_| Malformed("out of memory for a tube"))?;
            let key = self.tubes.find_or_make(&name);
            tubes.push(key);
            self.read_tube(key, from, now)?;
        }
        if version > MAX_NUMBER {
            return Err(Malformed("a number is too large"));
        }
        self.tubes.restore(version);
        if tubes.is_empty() { Err(Malformed("there is no tube")) } else { Ok(tubes) }
    }

    fn read_tube(&mut self, key: TubeKey, from: &mut Reader<'_>, now: Timestamp) -> Result<(), Malformed> {
        let pause: Option<(Timestamp, u32)> = from.value()?;
        let (puts, ([rejected, dead], gate)): (u64, ([u64; 2], Gate)) = (from.value()?, from.value()?);
        let rate = self.tubes.get(key).ruled.as_deref().and_then(TubeRuleState::rate);
        let rate_before: Option<Rate> = from.value()?;
        if rate_before.is_some_and(|rate| rate.tokens == 0 || rate.period_ns == 0 || rate.burst == 0) {
            return Err(Malformed("a rate is 0"));
        }
        let (pauses, counters) = (from.value()?, from.value()?);
        let times: Option<Box<TubeTimes>> = from.value()?;
        if gate.is_closed && self.tubes.get(key).ruled.is_none() {
            // Its rule is gone, and clients may wait for its jobs. They get them as at the end of a reload.
            self.tubes.change_ruled(key, |ruled| *ruled = Some(Box::default()));
            self.rules.tubes.remove_ended_rules();
        }
        let tube = self.tubes.get_mut(key);
        tube.pause = pause.map(|(until, length_s)| Pause::new(until, length_s));
        tube.puts = puts;
        if let Some(ruled) = &mut tube.ruled {
            (ruled.rejected, ruled.dead, ruled.gate) = (rejected, dead, gate);
            ruled.gate.change(rate_before, rate, now);
        }
        let is_usual = counters == TubeCounters::default() && pauses == 0 && times.is_none();
        if !is_usual {
            tube.rare = Some(Box::new(RareState { pauses, counters, times, tag_state: None }));
        }
        self.schedule(Timer::Tube(key));
        Ok(())
    }

    /// Creates the clients, which do not wait yet, and which the tubes do not know yet.
    fn read_clients(
        &mut self,
        tubes: &[TubeKey],
        from: &mut Reader<'_>,
    ) -> Result<Vec<DescribedClient>, Malformed> {
        if !self.clients.records.is_empty() {
            return Err(Malformed("the queue already has clients"));
        }
        let (last_number, waits) = (from.value()?, from.value()?);
        if waits > MAX_NUMBER || last_number > MAX_NUMBER {
            return Err(Malformed("a number is too large"));
        }
        let mut clients: Vec<DescribedClient> = from.value()?;
        let keeps_indexes = clients.is_sorted_by(|one, next| one.index < next.index)
            && clients.last().is_none_or(|last| last.index as usize <= SPARSE * clients.len() + FEW_INDEXES);
        let numbers: HashSet<u64> = clients.iter().map(|client| client.number).collect();
        if numbers.len() < clients.len() || numbers.iter().any(|&number| number > last_number) {
            return Err(Malformed("the number of a client"));
        }
        let mut records = Vec::new();
        for (number, client) in clients.iter_mut().enumerate() {
            if !keeps_indexes {
                client.index = number as u32;
            }
            let tube = |number: &u32| tubes.get(*number as usize).copied();
            let (Some(using), Some(watching)) =
                (tube(&client.using), client.watching.iter().map(tube).collect::<Option<Vec<_>>>())
            else {
                return Err(Malformed("a client has a tube that does not exist"));
            };
            if watching.iter().collect::<HashSet<_>>().len() < watching.len() {
                return Err(Malformed("a client watches a tube twice"));
            }
            if watching.is_empty() != client.session.is_some() {
                return Err(Malformed("a client watches no tube"));
            }
            let record = self.read_client(client, using, &watching)?;
            records.push((client.index as usize, Box::new(record)));
        }
        self.clients.records = records.into_iter().collect();
        let indexes = clients.last().map_or(0, |last| last.index as usize + 1);
        let room = self.deadlines.try_reserve(self.tubes.len() + 1, indexes);
        room.map_err(|_| Malformed("out of memory for a client"))?;
        self.clients.last_number = last_number;
        self.clients.waits = waits;
        Ok(clients)
    }

    fn read_client(
        &mut self,
        described: &DescribedClient,
        using: TubeKey,
        watching: &[TubeKey],
    ) -> Result<Client, Malformed> {
        let &DescribedClient { number, has_put, has_reserved, .. } = described;
        if described.session.is_some() {
            self.clients.counts.unconnected += 1;
            return Ok(Client::session(number));
        }
        let mut client = Client::new(number);
        (client.using, client.has_put, client.has_reserved) = (using, has_put, has_reserved);
        client.watching = SmallVec::from_slice(watching);
        if let Some(settings) = &described.settings {
            client.settings = Some(Box::new(read_reserve_settings(settings, watching.len())?));
            self.clients.counts.weighed += watching.len();
        }
        client.update_is_plain();
        self.tubes.get_mut(using).using += 1;
        watching.iter().for_each(|&tube| self.tubes.get_mut(tube).watching += 1);
        let counts = &mut self.clients.counts;
        counts.watched += watching.len();
        counts.producers += u64::from(has_put);
        counts.workers += u64::from(has_reserved);
        Ok(client)
    }

    fn read_jobs(
        &mut self,
        tubes: &[TubeKey],
        clients: &[ClientKey],
        numbers: &Numbers,
        from: &mut Reader<'_>,
        now: Timestamp,
    ) -> Result<(), Malformed> {
        let mut newest = None;
        for _ in 0..from.count()? {
            let mut job: DescribedJob = from.value()?;
            let (tags, body) = (from.bytes()?, from.bytes()?);
            let tube = *tubes.get(job.tube as usize).ok_or(Malformed("a job has no tube"))?;
            let id = Some(job.id);
            if !(1..numbers.next_id).contains(&job.id.0) || id <= newest && self.jobs.get(job.id).is_some() {
                return Err(Malformed("the id of a job was never issued, or occurs twice"));
            }
            newest = newest.max(id);
            if let Some((client, _)) = &mut job.holder {
                *client = clients.get(*client as usize).ok_or(Malformed("a reserved job has no client"))?.0;
            }
            if job.holder.is_some() != (job.state == JobState::Reserved) {
                return Err(Malformed("a reserved job has no client"));
            }
            if job.state == JobState::Buried && job.number >= numbers.next_burial {
                return Err(Malformed("the burial of a job"));
            }
            self.make_room_for_put().map_err(|_| Malformed("out of memory for a job"))?;
            let body = Body::copy_of(body).map_err(|_| Malformed("out of memory for a body"))?;
            from.note_copy(body.as_slice());
            self.read_job(&job, tube, body, tags, now)?;
        }
        Ok(())
    }

    fn read_job(
        &mut self,
        described: &DescribedJob,
        tube: TubeKey,
        body: Body,
        tags: &[u8],
        now: Timestamp,
    ) -> Result<(), Malformed> {
        let &DescribedJob { id, created_at, priority, delay_s, ttr, number, counters, .. } = described;
        let job = |body| {
            let mut job = Job::new(created_at, priority, Seconds::new(delay_s, 0), ttr, tube, body);
            job.set_collection(Collection::Ready(number.into()));
            job
        };
        if tags.is_empty() {
            self.jobs.insert(id, job(body));
            self.jobs.set_counters(id, counters);
            self.added_plain(id, tube);
            self.read_collection(described, None, now);
            return Ok(());
        }
        let set = JobTags::decode_checked(tags).ok_or(Malformed("the tags of a job"))?;
        let waits_for = set.after.filter(|after| !after.is_free && described.state == JobState::Delayed);
        let stored = StoredBody::new(body, tags, set.after.is_some() && waits_for.is_none())
            .map_err(|_| Malformed("out of memory for a body"))?;
        if let Some(tag) = set.idempotency {
            let name = self.tubes.get(tube).name.clone();
            self.note_duplicate(name.as_str(), tag.key, now);
        }
        let tags = EncodedTags::of(tags, set);
        self.insert_tagged(id, job(stored.body), counters, stored.separate_tags, tags.set());
        self.read_collection(described, waits_for, now);
        Ok(())
    }

    /// Puts a job that is in no collection yet into its collection.
    fn read_collection(&mut self, job: &DescribedJob, waits_for: Option<After<'_>>, now: Timestamp) {
        let id = job.id;
        match (job.state, job.holder, waits_for) {
            (JobState::Reserved, Some((client, since)), _) => {
                self.read_reservation(job, ClientKey(client), since)
            }
            (JobState::Buried, ..) => self.link_buried(id, job.number),
            (JobState::Delayed, _, Some(after)) => self.hold(id, after.group.as_str(), Timestamp(job.number)),
            (JobState::Delayed, ..) => self.delay(id, Timestamp(job.number)),
            (JobState::Ready | JobState::Reserved, ..) => self.enter_ready(id, now),
        }
    }

    fn read_reservation(&mut self, described: &DescribedJob, client: ClientKey, since: Timestamp) {
        self.link_reserved(described.id, client, since, Some(Timestamp(described.number)));
        let job = self.jobs.expect_mut(described.id);
        if described.is_upgraded && !job.marks.is_empty() {
            job.marks |= Marks::UPGRADED;
        }
    }

    /// Lets the clients watch their tubes, and begins the waits of the clients that waited.
    fn read_waits(&mut self, clients: Vec<DescribedClient>) -> Result<(), Malformed> {
        for described in &clients {
            let index = described.key();
            if described.watching.len() > self.slices.few_tubes {
                let position = described.watching.len() - 1;
                self.index_watched(index, self.clients[index].watching[position], position);
            }
        }
        for described in clients {
            let (index, Some(wait)) = (described.key(), described.wait) else { continue };
            let client = &self.clients[index];
            if client.is_session() {
                return Err(Malformed("a session waits"));
            }
            match wait {
                DescribedWait::Job(number, until) => {
                    if client.watching.iter().any(|&tube| self.tubes.get(tube).open_head().is_some()) {
                        return Err(Malformed("a client waits for a job that it could have"));
                    }
                    self.begin_wait_as(index, self.checked_wait(number, until)?);
                }
                DescribedWait::EndOf(id, number, until) => {
                    if self.jobs.get(id).is_none_or(|job| job.state() == JobState::Buried) {
                        return Err(Malformed("a wait for a job"));
                    }
                    self.begin_job_wait_as(index, id, self.checked_wait(number, until)?);
                }
            }
        }
        Ok(())
    }

    fn checked_wait(&self, number: u64, until: Timestamp) -> Result<Wait, Malformed> {
        let number = NonZeroU64::new(number).filter(|number| number.get() <= self.clients.waits);
        number.map(|number| Wait { number, until }).ok_or(Malformed("the number of a wait"))
    }
}

fn read_reserve_settings(
    described: &DescribedReserveSettings,
    watched: usize,
) -> Result<ReserveSettings, Malformed> {
    let weights: Option<Vec<u16>> = described
        .weights
        .iter()
        .map(|&weight| u16::try_from(weight).ok().filter(|&weight| weight > 0))
        .collect();
    let weights =
        weights.filter(|weights| weights.len() <= watched).ok_or(Malformed("the weight of a tube"))?;
    Ok(ReserveSettings {
        mode: described.mode,
        weights,
        typical_run_ns: described.typical_run_ns,
        ..ReserveSettings::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Writer;
    use crate::job::JobId;
    use crate::testing::{NOW, TestJob};

    #[test]
    fn ids_begin_with_1() {
        let mut queue = Queue::default();
        let client = queue.connect();
        queue.numbers.skip_ids_below(0x1122_3344_5566_7788);
        let JobId(id) = TestJob::default().put(&mut queue, client, NOW);
        let mut bytes = Vec::new();
        queue.describe(&mut Writer::new(&mut |part| bytes.extend(part)));
        let read = |bytes: &[u8]| Queue::default().read_description(&mut Reader::new(bytes), NOW);
        assert_eq!(read(&bytes), Ok(()));
        for number in [id, queue.next_id().0] {
            let mut changed = bytes.clone();
            let at = bytes.windows(8).position(|bytes| bytes == number.to_le_bytes()).unwrap();
            changed[at..at + 8].fill(0);
            assert!(read(&changed).is_err());
        }
    }
}
