//! Files that are filled, a disk without room for another file, and what the log may lack because of that.
//!
//! Owns: which commands may be refused, which answered changes a crash may lose, and the mixtures of two states in
//! which a job may come back. Changes that no client could be refused are logged when the disk has room again.

use super::*;

/// The answer to a command for which the log has no room.
pub(super) const REFUSAL: &[u8] = b"OUT_OF_MEMORY\r\n";
/// Within this time after the disk has room, the log makes a file, and logs what waited for it.
const RETRY_NS: u64 = 2_000_000_000;

/// Whether a job may come back as `found` while the disk is full, because the log has a part of the change from
/// `before` to `after`: only the reservation by a session, or a death without the dead tube.
pub(super) fn lacks_part(before: &Option<Facts>, after: &Option<Facts>, found: &Option<Facts>) -> bool {
    let (Some(before), Some(after), Some(found)) = (before, after, found) else { return false };
    let in_old_tube =
        Facts { tube: before.tube.clone(), dead_from: before.dead_from.clone(), ..after.clone() };
    after.session.is_some() && before.reserved_as(after) == *found || in_old_tube == *found
}

impl Steps {
    /// Fills files of the log, so that the older ones are compacted.
    pub(super) fn churn(&mut self, client: usize) {
        for _ in 0..1 + self.random.below(4) {
            let id = self.oracle.model.next_id;
            let body = vec![b'c'; 1500];
            self.ask(client, "put 9 0 60 1500", Some(&body));
            self.ask(client, &format!("delete {id}"), None);
        }
    }

    /// The disk has no room for another file, and the client fills the files that there are, or the disk has room
    /// again.
    pub(super) fn change_room(&mut self, client: usize) {
        if !self.is_disk_full {
            self.say(|| "the disk is full".to_owned());
            self.disk.set_room(Some(self.disk.used()));
            self.is_disk_full = true;
            for length in [1500, 300, 0] {
                let (body, refused) = (vec![b'f'; length], self.outcome.refused);
                while self.outcome.refused == refused && !self.disk.has_crashed() {
                    self.ask(client, &format!("put 9 0 60 {length}"), Some(&body));
                }
            }
            return;
        }
        if self.random.once_in(2) {
            self.hand_over();
        }
        self.say(|| "the disk has room".to_owned());
        self.disk.set_room(None);
        self.now = self.now + RETRY_NS;
        self.advance_model();
        self.settle();
        while let Some(task) = self.slow.take() {
            self.help(task);
            self.settle();
        }
        if !self.disk.has_crashed() {
            // The log now has all states that it lacked.
            self.is_disk_full = false;
            self.settled();
        }
    }

    /// Whether the log has the change of the job by this command when the client has its reply, although the disk is
    /// full.
    pub(super) fn is_logged_on_full_disk(line: &str, before: Option<&Facts>, after: Option<&Facts>) -> bool {
        let mut words = line.split(' ');
        let dies =
            matches!((before, after), (Some(before), Some(after)) if before.dead_from != after.dead_from);
        match words.next() {
            Some("release") => words.nth(2) != Some("0") && !dies,
            Some("bury") => !dies,
            Some("put" | "kick-job" | "delete" | "move") => true,
            _ => after.is_some_and(|after| line.starts_with("reserve") && after.session.is_some()),
        }
    }

    /// Takes the refusal of a command by the full disk: it must have changed nothing.
    pub(super) fn take_refusal(&mut self) {
        let Some(asked) = self.doubt.asked.take() else { return };
        self.outcome.refused += 1;
        self.doubt.stages.truncate(asked.stage);
        self.oracle.model = asked.before;
        self.oracle.model.next_id = self.server.executor().queue().next_id().0;
        self.oracle.model.advance(self.now);
        self.note_stage();
    }
}
