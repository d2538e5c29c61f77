//! The servers of the simulation of owners: their steps, and what they do with answers.

use super::*;

impl World {
    pub(super) fn die(&mut self, server: usize, why: &str) {
        self.say(|| format!("server {server} {why}"));
        self.lives += 1;
        let until = self.now + self.random.below(3000) * MS;
        self.servers[server] = Server {
            role: Role::Down { until },
            life: self.lives,
            is_waiting: None,
            frozen_until: Timestamp(0),
            clock: self.servers[server].clock,
        };
    }

    fn send(&mut self, server: usize, step: OwnerStep, request: Request) {
        let life = self.servers[server].life;
        self.servers[server].is_waiting = Some(step);
        self.flights.push(Flight { server: Some((server, life)), request, stage: Stage::Sent });
    }

    /// A server that waits for nothing takes its next step.
    pub(super) fn act(&mut self, at: usize) {
        let begins_work = self.random.once_in(2);
        let claims_first = self.mutation == Mutation::TakesOverBeforeReading;
        let Server { role, life, is_waiting, frozen_until, clock } = &mut self.servers[at];
        if is_waiting.is_some() || *frozen_until > self.now {
            return;
        }
        let (life, now) = (*life, clock.at(self.now));
        let (step, request) = match role {
            Role::Down { until } if *until > self.now => return,
            Role::Down { .. } => {
                let watch = Watch::new(TIMES);
                *role = Role::Watching { watch, is_connected: false, can_read: false, sent_at: now };
                return;
            }
            Role::Watching { is_connected: false, .. } => (OwnerStep::Connect, Request::Connect),
            Role::Watching { can_read: false, .. } if !claims_first => (WATCHING, Request::OpenReading),
            Role::Watching { .. } => (WATCHING, Request::See),
            Role::Reading { can_read: false, .. } => (WATCHING, Request::OpenReading),
            Role::Reading { epoch, .. } => (WATCHING, Request::Read { epoch: *epoch }),
            Role::Owning(owning) => {
                let Owning { owner, work, next_id, file, offset, .. } = &mut **owning;
                if owner.is_free() && begins_work {
                    *work = Some(((*file, *offset), *next_id));
                    (*next_id, *offset) = (*next_id + 1, *offset + 1);
                    owner.begin();
                }
                let step = owner.next(now);
                let add = *work;
                match step {
                    OwnerStep::Connect => (step, Request::Connect),
                    OwnerStep::Raise(epoch) => (step, Request::Raise { epoch, owner: life }),
                    OwnerStep::CheckCommit(epoch) => {
                        let (at, _) = add.expect("a transaction is under way");
                        (step, Request::CheckCommit { at, epoch })
                    }
                    OwnerStep::Commit { epoch, beats } => (step, Request::Prove { epoch, add, beats }),
                    OwnerStep::Beat(epoch) => (step, Request::Prove { epoch, add: None, beats: true }),
                    OwnerStep::Sleep(_) => return,
                    OwnerStep::End(end) => return self.die(at, &format!("ends: {end:?}")),
                }
            }
        };
        self.send(at, step, request);
    }

    /// Takes a step of the owner's turn.
    pub(super) fn serve(&mut self) {
        let at = self.random.below(SERVERS as u64) as usize;
        let Server { role: Role::Owning(owning), frozen_until, clock, .. } = &mut self.servers[at] else {
            return;
        };
        if *frozen_until > self.now {
            return;
        }
        let holds =
            owning.lease.is_valid_at(clock.at(self.now)) || self.mutation == Mutation::RepliesWithoutLease;
        let checks_first = self.mutation == Mutation::ChecksLeaseTooEarly;
        owning.turn = match owning.turn {
            Turn::Idle if checks_first && !holds => return,
            Turn::Idle if checks_first => Turn::MayBegin,
            Turn::MayBegin => Turn::MayAnswer(self.steps),
            Turn::Idle => Turn::Executed(self.steps),
            Turn::Executed(_) if !holds => {
                self.silences += 1;
                return;
            }
            Turn::Executed(step) => Turn::MayAnswer(step),
            Turn::MayAnswer(executed) => {
                let later = self.taken.range(owning.claimed + 1..).next();
                assert!(
                    later.is_none_or(|(_, &taken)| taken > executed),
                    "server {at} answers what it has executed after {later:?} has taken over"
                );
                self.replies += 1;
                Turn::Idle
            }
        };
    }

    /// The connection is gone through which a server waits for an answer.
    pub(super) fn lost(&mut self, server: usize, life: u64) {
        if self.servers[server].life != life {
            return;
        }
        if self.servers[server].is_waiting.take().is_none() {
            return;
        }
        let now = self.servers[server].clock.at(self.now);
        match &mut self.servers[server].role {
            Role::Watching { watch, is_connected, can_read, .. } => {
                (*is_connected, *can_read) = (false, false);
                watch.lost();
            }
            Role::Reading { can_read, .. } => *can_read = false,
            Role::Owning(owning) => {
                owning.owner.answered(StepAnswer::Lost, now);
                owning.lease = owning.owner.lease();
            }
            Role::Down { .. } => {}
        }
    }

    pub(super) fn receive(&mut self, server: usize, reply: Reply) {
        let Server { life, is_waiting, clock, .. } = &mut self.servers[server];
        let (now, life) = (clock.at(self.now), *life);
        let Some(step) = is_waiting.take() else { return };
        match &self.servers[server].role {
            Role::Down { .. } => {}
            Role::Watching { .. } => self.watch(server, step, reply, now, life),
            Role::Reading { epoch, sent_at, .. } => {
                let (epoch, sent_at) = (*epoch, *sent_at);
                match reply {
                    Reply::Read(log) => self.begin_to_own(server, epoch, sent_at, &log),
                    Reply::Connected => {
                        self.servers[server].role = Role::Reading { epoch, can_read: true, sent_at };
                    }
                    // The connection was lost, and there is no new one yet.
                    _ if self.cluster.visible.row.epoch == epoch => {
                        self.servers[server].role = Role::Reading { epoch, can_read: false, sent_at };
                    }
                    _ => self.die(server, "finds another epoch"),
                }
            }
            Role::Owning(_) => self.own(server, step, reply, now),
        }
    }

    /// An answer to a server that waits.
    fn watch(&mut self, server: usize, step: OwnerStep, reply: Reply, now: Timestamp, life: u64) {
        let is_mutant = self.mutation == Mutation::AgeByDatabaseClock;
        let Role::Watching { watch, is_connected, can_read, sent_at } = &mut self.servers[server].role else {
            return;
        };
        match reply {
            Reply::Connected if step == OwnerStep::Connect => *is_connected = true,
            Reply::Connected => *can_read = true,
            Reply::Seen(row, clock) => {
                let heartbeat = row.heartbeat.map(|at| i64::try_from(at).unwrap());
                let is_own = row.owner == life;
                let seen = SeenRow { epoch: row.epoch, heartbeat, is_own, takeover_after_ns: 0 };
                let age_ns = row.heartbeat.map(|at| clock.saturating_sub(at));
                let is_old = age_ns.is_none_or(|age_ns| age_ns > TIMES.takeover_after_ns);
                if if is_mutant { is_old } else { watch.observe(seen, now) } {
                    *sent_at = now;
                    self.send(server, WATCHING, Request::TakeOver { seen: row, owner: life });
                }
            }
            Reply::Epoch(Some(epoch)) => {
                let (can_read, sent_at) = (*can_read, *sent_at);
                assert!(can_read, "server {server} has taken over from a server, and cannot serve");
                self.servers[server].role = Role::Reading { epoch, can_read, sent_at };
                self.taken.insert(epoch, self.steps);
            }
            Reply::Epoch(None) => {}
            _ => {
                (*is_connected, *can_read) = (false, false);
                watch.lost();
            }
        }
    }

    /// An answer to an owner.
    fn own(&mut self, server: usize, step: OwnerStep, reply: Reply, now: Timestamp) {
        let Role::Owning(owning) = &mut self.servers[server].role else { return };
        let answer = match reply {
            Reply::Connected => StepAnswer::Connected,
            Reply::Proven if matches!(step, OwnerStep::Beat(_)) => StepAnswer::Beat,
            Reply::Proven | Reply::Found(true) => StepAnswer::Committed,
            Reply::Found(false) => StepAnswer::Absent,
            Reply::Epoch(Some(epoch)) => StepAnswer::Raised(epoch),
            Reply::TakenOver => StepAnswer::TakenOver,
            Reply::NotProven => StepAnswer::NotProven,
            Reply::Busy => StepAnswer::Busy,
            Reply::Seen(..) | Reply::Epoch(None) | Reply::Read(_) | Reply::Doubtful => StepAnswer::Lost,
        };
        let is_committed = owning.owner.answered(answer, now);
        let beats = matches!(step, OwnerStep::Beat(_) | OwnerStep::Commit { beats: true, .. });
        owning.lease = match (self.mutation, answer) {
            (Mutation::LeaseFromAnswer, StepAnswer::Beat | StepAnswer::Committed) if beats => {
                Lease::of(now, TIMES)
            }
            (Mutation::LeaseFromAnswer, StepAnswer::Connected | StepAnswer::Committed) => owning.lease,
            _ => owning.owner.lease(),
        };
        if is_committed {
            let ((_, id), claimed) =
                (owning.work.take().expect("a transaction is under way"), owning.claimed);
            self.acknowledge(id, claimed);
        }
    }

    fn begin_to_own(&mut self, server: usize, epoch: u64, sent_at: Timestamp, log: &BTreeMap<Position, u64>) {
        let ids: BTreeSet<u64> = log.values().copied().collect();
        let next_id = ids.last().map_or(1, |last| last + 1);
        let file = log.keys().last().map_or(1, |last| last.0 + 1);
        self.say(|| format!("server {server} owns the queue, epoch {epoch}, next id {next_id}"));
        self.read.insert(epoch, ids);
        let owner = Owner::new(TIMES, epoch, sent_at);
        self.servers[server].role = Role::Owning(Box::new(Owning {
            owner,
            lease: owner.lease(),
            work: None,
            next_id,
            file,
            offset: 0,
            claimed: epoch,
            turn: Turn::Idle,
        }));
    }

    /// The owner that began with epoch `claimed` acknowledges a job.
    fn acknowledge(&mut self, id: u64, claimed: u64) {
        self.say(|| format!("the owner that began with epoch {claimed} acknowledges job {id}"));
        assert!(self.acknowledged.insert(id), "id {id} is given twice");
        for (epoch, ids) in self.read.range(claimed + 1..) {
            assert!(
                ids.contains(&id),
                "job {id} is acknowledged, and the owner of epoch {epoch} has not read it"
            );
        }
    }
}
