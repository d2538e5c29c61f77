//! The log's side of a `complete`: its puts and the end of its job are one change.

use super::{AskedRoom, Persistence, append_end, whole};
use crate::binlog::{CompleteRoom, NoRoom, WholeJob};
use crate::clock::Timestamp;
use crate::job::JobId;
use crate::queue::{Change, ClientId, CompletedPut, Planned, Queue};

impl Persistence {
    /// Whether all records of a `complete` with these puts fit, with the later deletes of its jobs. As for a put, the
    /// queue stays unchanged in either case.
    pub(crate) fn room_for_complete<'a>(
        &mut self,
        queue: &'a Queue,
        client: ClientId,
        puts: impl Iterator<Item = (CompletedPut<'a>, Planned)> + Clone,
    ) -> Result<Option<CompleteRoom>, NoRoom> {
        let Some(_) = puts.clone().next() else { return Ok(None) };
        self.note_asked(AskedRoom::Job);
        let Some(binlog) = self.log.binlog_mut() else { return Ok(None) };
        let is_upgrade = |planned| matches!(planned, Planned::Duplicate { more_urgent: true, .. });
        let updates = puts.clone().filter(|&(_, planned)| is_upgrade(planned)).count() as u64;
        let news = puts.filter(|(_, planned)| *planned == Planned::New).map(|(put, _)| put);
        for put in news.clone() {
            binlog.reserve_id(put.new.id)?;
        }
        let puts = news.map(|put| (queue.target_tube_name(client, put.tube).len(), put.body_bytes, put.tags));
        binlog.reserve_complete(puts, updates).map(Some)
    }

    /// Logs the changes of a `complete` of this job: its puts and the delete as one change, for which there is `room`
    /// if there are puts. All earlier changes have been logged.
    pub(crate) fn log_complete(
        &mut self,
        queue: &mut Queue,
        id: JobId,
        room: Option<CompleteRoom>,
        now: Timestamp,
    ) {
        let (Some(binlog), Some(room)) = (self.log.binlog_mut(), room) else {
            return self.log_changes(queue, now);
        };
        queue.swap_changes(&mut self.changes);
        let puts = self.changes.iter().filter(|change| matches!(change, Change::Put(_))).count();
        let is_end = |change: &Change| change.deleted().is_some_and(|(of, _)| of == id);
        let end = self.changes.iter().position(is_end);
        if let Some(end) = end.filter(|_| puts > 0 && binlog.file_of(id) != 0) {
            binlog.begin_complete(room);
            for change in &self.changes {
                if let Change::Put(id) = *change
                    && let Some(job) = queue.job(id)
                {
                    let job = whole(queue, &job, &mut self.tags);
                    binlog.append_put(&WholeJob { is_part_of_complete: true, ..job }, now);
                }
            }
            append_end(binlog, queue, &self.changes.remove(end), u8::try_from(puts).ok());
            self.changes.retain(|change| !matches!(change, Change::Put(_)));
        }
        self.append_listed(queue, now);
    }
}
