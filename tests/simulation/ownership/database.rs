//! The database of the simulation of owners: what it does with a statement, and what happens to it.

use super::*;

impl World {
    pub(super) fn set_waiting(&mut self, waits: bool) {
        self.cluster.waits_for_standby = waits;
        if !waits {
            self.release();
        }
    }

    /// The clock of the database jumps: it is now that of another machine, or it was set.
    pub(super) fn set_clock(&mut self) {
        self.cluster.clock_ahead = 1_000_000 * MS - self.random.below(60_000) * MS;
    }

    pub(super) fn replicate(&mut self) {
        if self.cluster.is_attached && !self.cluster.is_slow {
            self.cluster.replicated = self.cluster.changes.len();
            self.release();
        }
    }

    /// Answers the statement that holds the row, if it need no longer wait.
    fn release(&mut self) {
        let waits = self.cluster.waits_for_standby;
        let replicated = self.cluster.replicated;
        for flight in &mut self.flights {
            if let Stage::Held(number, reply) = &flight.stage
                && (!waits || *number < replicated)
            {
                self.cluster.visible.apply(&self.cluster.changes[*number]);
                // The query after the commit finds that the database no longer waits for its standby.
                let is_doubtful = !waits && self.mutation != Mutation::CommitsWithoutQuery;
                flight.stage = Stage::Answered(if is_doubtful { Reply::Doubtful } else { reply.clone() });
            }
        }
    }

    /// The primary is lost with all connections, and its standby takes its place. Later there is a new standby.
    pub(super) fn fail_over(&mut self) {
        self.say(|| "the primary is lost".to_owned());
        if self.cluster.is_attached && !self.cluster.is_slow && self.random.once_in(2) {
            self.cluster.replicated = self.cluster.changes.len();
        }
        self.cluster.changes.truncate(self.cluster.replicated);
        self.set_clock();
        self.cluster.is_attached = false;
        self.recover();
    }

    /// The primary starts again. A change that was waiting for the standby is committed now, although the standby may
    /// not have it.
    pub(super) fn restart_primary(&mut self) {
        self.say(|| "the primary starts again".to_owned());
        self.recover();
    }

    fn recover(&mut self) {
        self.cluster.visible = State::after(&self.cluster.changes);
        for flight in std::mem::take(&mut self.flights) {
            if let Some((server, life)) = flight.server {
                self.lost(server, life);
            }
        }
        // Servers without a statement under way lose their connections, too.
        for Server { role, .. } in &mut self.servers {
            if let Role::Watching { watch, is_connected, can_read, .. } = role {
                (*is_connected, *can_read) = (false, false);
                watch.lost();
            }
        }
        for id in &self.acknowledged {
            let is_there = self.cluster.visible.log.values().any(|found| found == id);
            assert!(is_there, "job {id} was acknowledged and is lost");
        }
    }

    /// A connection breaks. The statements that were sent through it may still be executed.
    pub(super) fn lose_connection(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.random.below(self.flights.len() as u64) as usize;
        if let Some((server, life)) = self.flights[at].server.take() {
            self.say(|| format!("server {server} loses its connection: {:?}", self.flights[at].request));
            self.lost(server, life);
        }
    }

    /// One statement progresses: it arrives, or its answer does.
    pub(super) fn progress(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let at = self.random.below(self.flights.len() as u64) as usize;
        if let Stage::Sent = self.flights[at].stage {
            let request = self.flights[at].request.clone();
            let is_held = self.flights.iter().any(|flight| matches!(flight.stage, Stage::Held(..)));
            let ignores_lock = self.mutation == Mutation::TakesOverWithoutLock
                && matches!(request, Request::TakeOver { .. });
            let writes =
                matches!(request, Request::TakeOver { .. } | Request::Raise { .. } | Request::Prove { .. });
            if writes && is_held && !ignores_lock {
                return;
            }
            self.flights[at].stage = self.execute(&request);
            self.release();
            return;
        }
        if let Some((server, life)) = self.flights[at].server
            && self.servers[server].life == life
            && self.servers[server].frozen_until > self.now
        {
            return;
        }
        if let Stage::Answered(_) = self.flights[at].stage {
            let flight = self.flights.swap_remove(at);
            if let (Some((server, life)), Stage::Answered(reply)) = (flight.server, flight.stage)
                && self.servers[server].life == life
            {
                self.receive(server, reply);
            }
        }
    }

    fn execute(&mut self, request: &Request) -> Stage {
        let clock = self.now.0 + self.cluster.clock_ahead;
        let Cluster { visible, is_attached, waits_for_standby, has_free_connections, .. } = &self.cluster;
        let row = visible.row.clone();
        let heartbeat = Some(row.heartbeat.map_or(clock, |before| clock.max(before + 1)));
        match request {
            Request::Connect | Request::OpenReading
                if *is_attached && *waits_for_standby && *has_free_connections =>
            {
                Stage::Answered(Reply::Connected)
            }
            Request::Connect | Request::OpenReading => Stage::Answered(Reply::Busy),
            Request::See => Stage::Answered(Reply::Seen(row, clock)),
            Request::Read { epoch } if row.epoch == *epoch => {
                let ids: BTreeSet<u64> = visible.log.values().copied().collect();
                let missing = self.acknowledged.difference(&ids).next();
                assert_eq!(
                    missing, None,
                    "a job was acknowledged, and the owner of epoch {epoch} does not read it"
                );
                Stage::Answered(Reply::Read(visible.log.clone()))
            }
            Request::Read { .. } => Stage::Answered(Reply::Busy),
            Request::CheckCommit { epoch, .. }
                if row.epoch != *epoch && self.mutation != Mutation::ChecksRowsWithoutEpoch =>
            {
                Stage::Answered(Reply::NotProven)
            }
            Request::CheckCommit { at, .. } => Stage::Answered(Reply::Found(visible.log.contains_key(at))),
            Request::TakeOver { seen, owner } => {
                if (row.epoch, row.heartbeat) != (seen.epoch, seen.heartbeat) || !*waits_for_standby {
                    return Stage::Answered(Reply::Epoch(None));
                }
                let epoch = row.epoch + 1;
                self.change(Row { epoch, owner: *owner, heartbeat }, None, Reply::Epoch(Some(epoch)))
            }
            Request::Raise { epoch, .. } if self.mutation == Mutation::ReconnectsWithoutRaise => {
                Stage::Answered(Reply::Epoch(Some(*epoch)))
            }
            Request::Raise { epoch, owner } => {
                if row.owner != *owner && row.epoch >= *epoch {
                    return Stage::Answered(Reply::TakenOver);
                }
                if row.epoch < *epoch || !*waits_for_standby {
                    return Stage::Answered(Reply::Busy);
                }
                let epoch = row.epoch + 1;
                self.change(Row { epoch, heartbeat, ..row }, None, Reply::Epoch(Some(epoch)))
            }
            Request::Prove { epoch, add, beats } => {
                let is_fenced = row.epoch != *epoch && self.mutation != Mutation::CommitsWithoutEpoch;
                if is_fenced || !*waits_for_standby {
                    return Stage::Answered(Reply::NotProven);
                }
                if add.is_some_and(|(at, _)| visible.log.contains_key(&at)) {
                    return Stage::Answered(Reply::Doubtful);
                }
                let heartbeat = if *beats { heartbeat } else { row.heartbeat };
                self.change(Row { heartbeat, ..row }, *add, Reply::Proven)
            }
        }
    }

    fn change(&mut self, row: Row, added: Option<(Position, u64)>, reply: Reply) -> Stage {
        self.cluster.changes.push(Change { row, added });
        Stage::Held(self.cluster.changes.len() - 1, reply)
    }
}
