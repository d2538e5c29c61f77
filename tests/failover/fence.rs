//! Whether a server had the right to send a reply.
//!
//! Owns: what is known of each process that has answered. Pure: clients report their commands and the replies, and a
//! test reports the pauses of a process.
//!
//! A reply is true at one instant between the sending of its command and its arrival. At this instant its server must
//! have been the owner. A successor owns the queue at the latest when its first reply arrives, so an earlier owner may
//! not reply to a command that was sent after that. Three facts make this exact. Epochs give the order of owners. A
//! paused process executes nothing, so a command that it gets during a pause counts from the end of the pause. The
//! reply to a wait that has timed out is about the end of the wait.

use std::collections::BTreeMap;

use beanstalkd_testkit::history::Tick;

/// A process, as the clients of a connection know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Each process has another one.
    pub id: String,
    /// The epoch when the connection was made; 0 if there are no epochs.
    pub epoch: u64,
}

/// A process that has answered.
#[derive(Debug)]
struct KnownProcess {
    epoch: u64,
    first_answer: Tick,
    /// The begin and the end of its pauses.
    standstills: Vec<(Tick, Tick)>,
}

/// All processes that have answered.
#[derive(Debug, Default)]
pub struct Fence {
    processes: BTreeMap<String, KnownProcess>,
    checked: u64,
    last_answer: Tick,
    silences: Vec<Tick>,
}

impl Fence {
    /// `process` has sent a reply that cannot have been true before `asked_at`. Returns the fault, if there is one.
    pub fn answered(
        &mut self,
        process: &Process,
        asked_at: Tick,
        now: Tick,
        what: &str,
    ) -> Result<(), String> {
        self.checked += 1;
        if !self.processes.is_empty() && !self.knows(&process.id) {
            self.silences.push(now - self.last_answer);
        }
        self.last_answer = now;
        let new = KnownProcess { epoch: process.epoch, first_answer: now, standstills: Vec::new() };
        let known = self.processes.entry(process.id.clone()).or_insert(new);
        let stood = known.standstills.iter().find(|&&(from, to)| from <= asked_at && asked_at < to);
        let (epoch, earliest) = (known.epoch, stood.map_or(asked_at, |&(_, to)| to));
        let successors = self.processes.iter().filter(|(_, other)| other.epoch > epoch);
        match successors.min_by_key(|(_, other)| other.first_answer) {
            Some((id, successor)) if successor.first_answer < earliest => {
                let late_ms = (earliest - successor.first_answer) / 1_000_000;
                Err(format!(
                    "{} (epoch {epoch}) has answered {late_ms} ms after its successor {id} (epoch {}): {what}",
                    process.id, successor.epoch
                ))
            }
            _ => Ok(()),
        }
    }

    /// The process `id` is paused from now on.
    pub fn stands_still(&mut self, id: &str, now: Tick) {
        if let Some(known) = self.processes.get_mut(id) {
            known.standstills.push((now, Tick::MAX));
        }
    }

    /// The pause of the process `id` is about to end.
    pub fn goes_on(&mut self, id: &str, now: Tick) {
        if let Some((_, to)) = self.processes.get_mut(id).and_then(|known| known.standstills.last_mut()) {
            *to = now;
        }
    }

    /// Whether `id` has answered.
    pub fn knows(&self, id: &str) -> bool {
        self.processes.contains_key(id)
    }

    /// For each process that answered for the first time since the last call: the time without replies before that.
    pub fn silences(&mut self) -> Vec<Tick> {
        std::mem::take(&mut self.silences)
    }

    /// How many processes have answered, and how many answers were checked.
    pub fn counts(&self) -> (usize, u64) {
        (self.processes.len(), self.checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: &str, epoch: u64) -> Process {
        Process { id: id.to_owned(), epoch }
    }

    /// The first one has answered at 1, and the second one at 10.
    fn with_successor() -> (Fence, Process) {
        let mut fence = Fence::default();
        fence.answered(&process("one", 1), 0, 1, "").unwrap();
        fence.answered(&process("two", 3), 5, 10, "").unwrap();
        (fence, process("one", 1))
    }

    #[test]
    fn a_reply_may_be_late_and_a_command_may_not() {
        let (mut fence, one) = with_successor();
        fence.answered(&one, 9, 100, "sent before the successor has said anything").unwrap();
        let problem = fence.answered(&one, 11, 12, "FOUND").unwrap_err();
        assert!(problem.contains("FOUND") && problem.contains("successor two (epoch 3)"), "{problem}");
        fence.answered(&process("two", 3), 11, 12, "").unwrap();
        // Its own epoch may have grown before another client has come.
        assert!(fence.answered(&process("one", 2), 11, 12, "").is_err());
        assert_eq!(fence.silences(), [9]);
    }

    #[test]
    fn a_process_executes_later_the_commands_that_came_while_it_stood_still() {
        let (mut fence, one) = with_successor();
        fence.stands_still("one", 3);
        fence.goes_on("one", 20);
        fence.answered(&one, 2, 30, "executed before it stood still").unwrap();
        fence.answered(&one, 4, 30, "").unwrap_err();
        fence.stands_still("unknown", 3);
        assert!(fence.knows("one") && !fence.knows("unknown"));

        let mut early = Fence::default();
        early.answered(&process("one", 1), 0, 1, "").unwrap();
        early.stands_still("one", 3);
        early.goes_on("one", 5);
        early.answered(&process("two", 3), 6, 10, "").unwrap();
        early.answered(&one, 4, 30, "it went on before the successor came").unwrap();
    }
}
