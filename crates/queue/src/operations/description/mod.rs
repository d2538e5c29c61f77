//! The description of a queue: a snapshot of everything that the new program needs to continue with it.
//!
//! Owns: which parts of the state are described, and that the queue that is read from it is the same: the order of
//! jobs, of waiting clients and of tubes, deadlines, counters and numbers. Indexes, sums and schedules are not
//! described; they follow from the rest, which is restored with the same moves as from a log. Every struct is taken
//! apart field by field, so that a new field does not compile until somebody has decided here how to describe it.
//! Reading never panics: bytes that are not a description are [`Malformed`]. Driven by the server, between two turns,
//! when nothing is in progress ([`Queue::is_quiet`]).
//!
//! Tubes and clients have numbers in the description: their indexes in it. Reserved jobs come before the others, so
//! that the slots of their keys are taken when the others are restored.

mod job;
mod reading;

use std::collections::HashMap;

use crate::clock::Timestamp;
use crate::description::{Described, Writer};
use crate::job::{JobId, JobState};
use crate::rules::Rules;
use crate::state::clients::{Client, ClientCounts, ClientId, Clients, Wait};
use crate::state::gate::Gate;
use crate::state::jobs::{Collection, History, Job, Marks};
use crate::state::keys::{ClientKey, Reservation, TubeKey};
use crate::state::registry::Tubes;
use crate::state::reserve_settings::ReserveSettings;
use crate::state::sessions::{Session, SessionKey, SessionState, Sessions};
use crate::state::tubes::{DEFAULT, RareState, Tube, TubeCounters, TubeRuleState, TubeTagState};
use crate::state::{Numbers, Sums};
use crate::{Queue, ReserveMode, described};

use self::job::DescribedJob;

described!(TubeCounters {
    puts,
    reserves,
    timeouts,
    releases,
    buries,
    kicks,
    deletes,
    poisoned,
    expirations
});
described!(Numbers { next_id, next_burial, last_delay });

/// The state of a client, except its tubes.
#[derive(Debug)]
struct DescribedClient {
    /// The index of the client, which it keeps unless that would take much memory: after a burst of clients, few may be
    /// left.
    index: u32,
    number: u64,
    using: u32,
    watching: Vec<u32>,
    wait: Option<DescribedWait>,
    settings: Option<DescribedReserveSettings>,
    has_put: bool,
    has_reserved: bool,
    /// The session, if it is the client of a session.
    session: Option<DescribedSession>,
}

impl DescribedClient {
    fn key(&self) -> ClientKey {
        ClientKey(self.index)
    }
}

/// A wait of a client, with its number and its end.
#[derive(Debug)]
enum DescribedWait {
    /// For a job.
    Job(u64, Timestamp),
    /// For the end of this job.
    EndOf(JobId, u64, Timestamp),
}

/// A session. Its state has the number of the client that is attached to it.
#[derive(Debug)]
struct DescribedSession {
    identity: String,
    name: String,
    grace_ms: u32,
    state: SessionState<u32>,
}

described!(enum DescribedWait, "the wait of a client" { 0 => Job(number, until), 1 => EndOf(id, number, until) });
described!(enum SessionState<C>, "the state of a session" { 0 => Attached(client), 1 => Unbegun, 2 => EndsAt(at) });
described!(DescribedSession { identity, name, grace_ms, state });
described!(DescribedClient {
    index,
    number,
    using,
    watching,
    wait,
    settings,
    has_put,
    has_reserved,
    session
});

/// The reserve mode of a client.
#[derive(Debug)]
struct DescribedReserveSettings {
    mode: ReserveMode,
    weights: Vec<u32>,
    typical_run_ns: u64,
}

described!(enum ReserveMode, "a reserve mode" { 0 => Fifo, 1 => Weighted, 2 => WeightedFair });
described!(DescribedReserveSettings { mode, weights, typical_run_ns });

impl Queue {
    /// Whether nothing is in progress that would continue in a later call: clients that are leaving, jobs that are
    /// being freed or offered, a flush, answers that have not been taken. The server itself may be a client.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.clients.leaving.is_empty()
            && !self.has_more_to_do()
            && !self.is_reloading_rules()
            && !self.rules.awaited.has_ended()
            && self.flushes.is_empty()
            && self.outbox.deliveries.is_empty()
            && self.outbox.changes.is_empty()
    }

    /// The clients with connections, in the order of the description.
    pub fn described_clients(&self) -> impl Iterator<Item = ClientId> {
        let clients =
            self.clients.records.iter().filter(|(_, client)| client.has_connection() && !client.is_leaving);
        clients.map(|(index, client)| ClientId { index: index as u32, generation: client.generation })
    }

    /// Writes the whole queue. If it is not quiet, operations in progress are missing.
    pub fn describe(&self, out: &mut Writer<'_>) {
        let Self {
            jobs: _,
            tubes,
            clients,
            sessions,
            rules,
            sums: Sums { jobs: _, events, dead },
            numbers,
            // These follow from the rest, are empty between two turns, or come from the command line.
            deadlines: _,
            flushes: _,
            outbox: _,
            limits: _,
            slices: _,
            cost: _,
        } = self;
        numbers.describe(out);
        events.describe(out);
        dead.describe(out);
        let positions = |key: TubeKey| tubes.get(key).position;
        describe_tubes(tubes, out);
        describe_clients((clients, sessions, rules), positions, out);
        self.describe_jobs(positions, out);
        rules.describe(positions, out);
    }

    fn describe_jobs(&self, number_of: impl Fn(TubeKey) -> u32, out: &mut Writer<'_>) {
        // A slab is at least as large as its largest index.
        let mut numbers = vec![u32::MAX; self.clients.records.capacity()];
        for (number, (key, _)) in (0..).zip(described_records(&self.clients)) {
            numbers[key.index()] = number;
        }
        out.count(self.jobs.len());
        let mut room = Vec::new();
        let mut describe = |id, job: &Job| {
            self.describe_job(id, job, &numbers, number_of(job.tube), out);
            out.bytes(if job.has(Marks::TAGGED) { self.tags_for_log(id, &mut room) } else { &[] });
            out.bytes(job.body().as_slice());
        };
        let clients = self.clients.records.iter();
        let reservations = clients.flat_map(|(_, client)| client.reserved.iter());
        let mut reserved: Vec<JobId> = reservations.map(|reservation| reservation.id).collect();
        reserved.sort_unstable();
        for id in reserved {
            if let Some(job) = self.jobs.get(id) {
                describe(id, job);
            }
        }
        for (id, job) in self.jobs.iter() {
            if !matches!(job.collection(), Collection::Reserved(_)) {
                describe(id, job);
            }
        }
    }

    fn describe_job(&self, id: JobId, job: &Job, clients: &[u32], tube: u32, out: &mut Writer<'_>) {
        let History { counters, holder } = self.jobs.history(job);
        let state = job.state();
        let number = job.collection().number().into();
        let holder = holder.map(|holder| {
            let key = Reservation::key(Timestamp(number), id);
            let found = self.clients[holder].reserved.iter().find(|reserved| *reserved == key);
            (clients[holder.index()], found.map_or(Timestamp(0), |reserved| reserved.since))
        });
        let described = DescribedJob {
            id,
            created_at: job.created_at,
            priority: job.priority,
            delay_s: job.delay_s,
            ttr: job.ttr(),
            tube,
            state,
            number,
            // For a job in another state, the next reservation clears it.
            is_upgraded: job.has(Marks::UPGRADED) && state == JobState::Reserved,
            counters,
            holder,
        };
        described.describe(out);
    }
}

fn describe_tubes(tubes: &Tubes, out: &mut Writer<'_>) {
    tubes.describe(out);
    out.count(tubes.len());
    debug_assert!(tubes.iter().next().is_some_and(|tube| std::ptr::eq(tube, tubes.get(DEFAULT))));
    tubes.iter().for_each(|tube| describe_tube(tube, out));
}

fn describe_tube(tube: &Tube, out: &mut Writer<'_>) {
    let Tube {
        name,
        pause,
        puts,
        rare,
        ruled,
        // The descriptions of jobs and clients contain these.
        ready: _,
        delayed: _,
        buried: _,
        waiting: _,
        urgent: _,
        reserved: _,
        using: _,
        watching: _,
        position: _,
        listed: _,
        made: _,
    } = tube;
    out.bytes(name.as_bytes());
    pause.map(|pause| (pause.until(), pause.length_s)).describe(out);
    puts.describe(out);
    // The rule itself is read again, and the jobs determine the counts.
    let counts = ruled.as_deref().map(
        |TubeRuleState { rejected, dead, gate, rule: _, body_bytes: _, is_kept: _, ages: _, rotation: _ }| {
            let gate: Gate = *gate;
            ([*rejected, *dead], gate)
        },
    );
    counts.unwrap_or_default().describe(out);
    // The next program may read another one.
    ruled.as_deref().and_then(TubeRuleState::rate).describe(out);
    match rare.as_deref() {
        None => {
            0u64.describe(out);
            TubeCounters::default().describe(out);
            false.describe(out);
        }
        Some(RareState { pauses, counters, times, tag_state }) => {
            debug_assert!(tag_state.as_deref().is_none_or(TubeTagState::follows_from_the_rest));
            pauses.describe(out);
            counters.describe(out);
            times.describe(out);
        }
    }
}

/// The records of the clients to describe, with their keys: the clients of connections and of sessions.
fn described_records(clients: &Clients) -> impl Iterator<Item = (ClientKey, &Client)> {
    let records = clients.records.iter().map(|(index, client)| (ClientKey(index as u32), &**client));
    records.filter(|(_, client)| !client.is_leaving && (client.has_connection() || client.is_session()))
}

fn describe_session(session: &Session, numbers: &HashMap<ClientKey, u32>) -> DescribedSession {
    let Session { key: SessionKey { identity, name }, grace_ms, lacks_grace: _, state } = session;
    let state = match state {
        // A client that is leaving has no number.
        SessionState::Attached(client) => {
            SessionState::Attached(numbers.get(client).copied().unwrap_or(u32::MAX))
        }
        SessionState::Unbegun => SessionState::Unbegun,
        SessionState::EndsAt(at) => SessionState::EndsAt(*at),
    };
    DescribedSession { identity: identity.to_string(), name: name.to_string(), grace_ms: *grace_ms, state }
}

fn describe_clients(
    (clients, sessions, rules): (&Clients, &Sessions, &Rules),
    number_of: impl Fn(TubeKey) -> u32,
    out: &mut Writer<'_>,
) {
    // The maps by the keys of sessions and of clients follow from the sessions.
    let Sessions { records: _, by_key: _, of_client: _ } = sessions;
    let Clients {
        last_number,
        waits,
        counts,
        records: _,
        // Derived from the records, or empty between two turns; the random numbers start again.
        leaving: _,
        subscribers: _,
        many_waiting: _,
        random: _,
    } = clients;
    let ClientCounts { unconnected: _, waiting: _, producers: _, workers: _, watched: _, weighed: _ } =
        counts;
    last_number.describe(out);
    waits.describe(out);
    out.count(described_records(clients).count());
    let numbers: HashMap<ClientKey, u32> =
        (0..).zip(described_records(clients)).map(|(number, (key, _))| (key, number)).collect();
    for (key, client) in described_records(clients) {
        let Client {
            using,
            watching,
            settings,
            has_put,
            has_reserved,
            // Described as its wait.
            wait_number: _,
            wait_until: _,
            // Parts of its number. The jobs name their holders; the rest is derived.
            generation: _,
            era: _,
            reserved: _,
            many: _,
            is_plain: _,
            is_leaving: _,
            kind: _,
            // The server describes the lists.
            has_fields: _,
        } = client;
        let described = DescribedClient {
            index: key.0,
            number: clients.number_of(client),
            using: number_of(*using),
            watching: watching.iter().map(|&tube| number_of(tube)).collect(),
            wait: described_wait(client.wait(), rules.awaited.wait_of(key)),
            settings: settings.as_deref().map(describe_reserve_settings),
            has_put: *has_put,
            has_reserved: *has_reserved,
            session: sessions.records.get(&key).map(|session| describe_session(session, &numbers)),
        };
        described.describe(out);
    }
}

/// The wait of a client for a job, or for the end of one.
fn described_wait(job: Option<Wait>, end: Option<(JobId, Wait)>) -> Option<DescribedWait> {
    let job = job.map(|Wait { number, until }| DescribedWait::Job(number.get(), until));
    let end = end.map(|(id, Wait { number, until })| DescribedWait::EndOf(id, number.get(), until));
    job.or(end)
}

fn describe_reserve_settings(settings: &ReserveSettings) -> DescribedReserveSettings {
    // The chances follow from the tubes whose jobs the client knows, which it probes again.
    let ReserveSettings { mode, weights, typical_run_ns, chances: _, next_refreshed: _ } = settings;
    DescribedReserveSettings {
        mode: *mode,
        weights: weights.iter().map(|&weight| weight.into()).collect(),
        typical_run_ns: *typical_run_ns,
    }
}
