//! The steps of an import on the server: put jobs with an endless delay, find them again, and remove the delay.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use beanstalk_client::{
    Command, Error, Inserted, JobId, JobInfo, JobState, PutOptions, Refusal, Request, Tag, TagKind, TubeName,
};

use super::journal::{ImportBatch, Imported};
use super::record::Record;
use crate::cli::{JobFilter, glob};
use crate::commands::change::{bury, release};
use crate::failure::{Failure, Result};
use crate::group_order::tag_name;
use crate::listing;
use crate::output::{counted, say};
use crate::server::Server;

/// How long the key of a job that is put at once counts after its delete, in seconds.
const KEY_SECONDS: u32 = 7 * 86_400;

/// The changes that the arguments make to the jobs of a file.
pub struct Putting {
    /// The tube into which all jobs are put, if one is given.
    pub tube: Option<TubeName>,
    /// Whether to leave out tags that the server does not support.
    pub drop_tags: bool,
}

impl Putting {
    /// The job as it is put; [`Failure::Refused`] if the server does not support a tag.
    pub fn prepare(&self, server: &Server, mut record: Record) -> Result<Record> {
        // The server would put the job into this tube and drop the tag: the job would not be found again in the other.
        if let Some(tube) = tag_name(&record.tags, TagKind::Tube) {
            record.tube = tube.parse().map_err(|error| Failure::Local(format!("{error}")))?;
            record.tags.retain(|tag| tag.kind() != TagKind::Tube);
        }
        if let Some(tube) = &self.tube {
            record.tube = tube.clone();
        }
        if self.drop_tags {
            record.tags.retain(|tag| server.has(tag.word()));
        }
        // With the tag, a job that has waited for its group would wait again for new members. A buried one has, too.
        if !record.held || record.state == JobState::Buried {
            record.tags.retain(|tag| tag.kind() != TagKind::After);
        }
        // Servers treat a TTR of 0 as 1.
        record.ttr = record.ttr.max(1);
        match record.tags.iter().find(|tag| !server.has(tag.word())) {
            Some(tag) => Err(Failure::Refused(format!(
                "this server does not support the tag {tag} of job {}; --drop-tags puts the job without it",
                record.id
            ))),
            None => Ok(record),
        }
    }
}

/// The jobs that the server has refused.
#[derive(Default)]
pub struct RefusedJobs {
    count: u64,
    last: Option<Refusal>,
    /// The first refusal of a server that would also refuse further jobs.
    of_all: Option<Refusal>,
    /// The groups that lack a member, because it was not put. The jobs that wait for them are not put before it.
    incomplete: HashSet<String>,
    /// The number of these jobs.
    waiting: u64,
}

impl RefusedJobs {
    fn add(&mut self, record: &Record, refusal: Refusal) {
        self.count += 1;
        self.leave_out(record);
        self.last = Some(refusal);
        if matches!(refusal, Refusal::Draining | Refusal::OutOfMemory | Refusal::InternalError) {
            self.of_all = self.of_all.or(Some(refusal));
        }
    }

    /// Notes that the job is not put.
    pub fn leave_out(&mut self, record: &Record) {
        self.incomplete.extend(tag_name(&record.tags, TagKind::Group).map(str::to_owned));
    }

    /// Whether the job may be put: no member of the group that it waits for is missing.
    fn permit(&mut self, record: &Record) -> bool {
        let is_waiting =
            tag_name(&record.tags, TagKind::After).is_some_and(|group| self.incomplete.contains(group));
        if is_waiting {
            self.waiting += 1;
            self.leave_out(record);
        }
        !is_waiting
    }

    /// Whether the server would also refuse further jobs.
    pub fn takes_nothing_more(&self) -> bool {
        self.of_all.is_some()
    }

    /// The failure of the import; `Ok` if no job was refused.
    pub fn into_result(self) -> Result {
        match self.of_all.or(self.last) {
            None => Ok(()),
            Some(Refusal::Draining) => Err(Failure::Refused(
                "the server accepts no new jobs (DRAINING); run the same command again later".to_owned(),
            )),
            Some(refusal) => {
                let waiting = match self.waiting {
                    0 => String::new(),
                    waiting => format!("; left out {}, which must wait for them", counted(waiting, "job")),
                };
                Err(Failure::Refused(format!(
                    "could not put {} of these jobs: the server answered {refusal}{waiting}",
                    self.count
                )))
            }
        }
    }
}

/// Whether the job is put with its final delay. While the server holds a job until a group is empty, no client can end
/// its delay; and the delay of a job can be changed only by a reserve, after which the job no longer expires.
fn is_put_at_once(record: &Record) -> bool {
    let is_delayed = record.state == JobState::Delayed && record.delay > 0;
    has(record, TagKind::After) || (is_delayed && has(record, TagKind::Expiry))
}

fn has(record: &Record, kind: TagKind) -> bool {
    tag_name(&record.tags, kind).is_some()
}

/// Puts the records that do not exist yet, with an endless delay. `existing` has the records that an interrupted import
/// has put.
pub fn put(
    server: &mut Server,
    records: &[Record],
    existing: Option<Vec<Imported>>,
    batch: &ImportBatch,
    refused: &mut RefusedJobs,
) -> Result<Vec<Imported>> {
    let is_first = existing.is_none();
    let mut imported = existing.unwrap_or_else(|| vec![Imported::Refused; records.len()]);
    let options: Vec<PutOptions> =
        records.iter().enumerate().map(|(position, record)| options_of(record, batch, position)).collect();
    let missing: Vec<usize> =
        (0..records.len()).filter(|position| imported[*position] == Imported::Refused).collect();
    let (mut duplicates, mut failed) = (Vec::new(), None);
    for run in missing.chunk_by(of_one_pipeline(records)) {
        let run: Vec<usize> =
            run.iter().copied().filter(|position| refused.permit(&records[*position])).collect();
        let Some(first) = run.first() else { continue };
        // Without its reply, the jobs could go into the tube that was used before.
        match server.client.use_tube(&records[*first].tube) {
            Err(Error::Refused(refusal)) => {
                run.iter().for_each(|position| refused.add(&records[*position], refusal));
                continue;
            }
            used => used?,
        };
        let puts = run.iter().map(|position| Request::Put(&options[*position], &records[*position].body));
        server.client.pipeline(puts, |number, reply| {
            let (position, record) = (run[number], &records[run[number]]);
            let inserted = match Inserted::of_reply(&reply) {
                Ok(inserted) => inserted,
                Err(Error::Refused(refusal)) => return refused.add(record, refusal),
                Err(error) => {
                    failed = Some(error);
                    return;
                }
            };
            let put = Imported::Put(inserted.id);
            // With a key of the journal, or in a second attempt, it may be the job that an earlier put has stored for
            // this line.
            let by_own_key = inserted.is_duplicate && has(record, TagKind::Idempotency);
            let is_other = by_own_key && (is_first || inserted.id <= batch.above || imported.contains(&put));
            duplicates.extend((by_own_key && !is_other && !is_put_at_once(record)).then_some(position));
            imported[position] = if is_other { Imported::Duplicate } else { put };
        })?;
    }
    failed.map_or(Ok(()), |error| Err(Failure::from(error)))?;
    find_duplicates(server, &duplicates, batch, &mut imported)?;
    Ok(imported)
}

/// Finds the jobs of other clients among the duplicates of a second attempt whose ids are above the id of the batch: a
/// server that was restarted can have older jobs with such ids. A job of this import still has its endless delay.
fn find_duplicates(
    server: &mut Server,
    duplicates: &[usize],
    batch: &ImportBatch,
    imported: &mut [Imported],
) -> Result {
    let infos = server.job_infos(duplicates.iter().filter_map(|position| imported[*position].id()))?;
    for (position, info) in duplicates.iter().zip(infos) {
        if info.is_some_and(|info| info.delay != u64::from(batch.endless_delay())) {
            imported[*position] = Imported::Duplicate;
        }
    }
    Ok(())
}

/// Whether the next of two records is put together with the one before it: into the same tube, and not after a member
/// of the group that it waits for, because the server can refuse the member.
fn of_one_pipeline(records: &[Record]) -> impl FnMut(&usize, &usize) -> bool {
    let mut groups = HashSet::new();
    move |one, next| {
        let (one, next) = (&records[*one], &records[*next]);
        groups.extend(tag_name(&one.tags, TagKind::Group));
        let waits_here = tag_name(&next.tags, TagKind::After).is_some_and(|group| groups.contains(group));
        let is_together = one.tube == next.tube && !waits_here;
        if !is_together {
            groups.clear();
        }
        is_together
    }
}

/// How a record is put. A job that is put at once gets a key if it has none, so that a second put does not store it.
fn options_of(record: &Record, batch: &ImportBatch, position: usize) -> PutOptions {
    let mut tags = record.tags.clone();
    let at_once = is_put_at_once(record);
    if at_once && !has(record, TagKind::Idempotency) {
        let tag = format!("idp:{}:{KEY_SECONDS}", batch.idp_key(position));
        tags.extend(tag.parse::<Tag>());
    }
    let delay = if at_once { record.delay } else { batch.endless_delay() };
    PutOptions { pri: record.pri, delay: delay.into(), ttr: record.ttr.into(), tags }
}

/// Finds the jobs that an interrupted import has put without recording their ids, and whose delay it has not removed.
/// All of them have ids greater than `above` of the batch.
pub fn find_again(server: &mut Server, records: &[Record], batch: &ImportBatch) -> Result<Vec<Imported>> {
    let tubes: BTreeSet<&str> = records.iter().map(|record| record.tube.as_str()).collect();
    // Tube names have no characters that are special in a pattern.
    let tubes = tubes.into_iter().map(glob).collect::<Result<_, _>>().map_err(Failure::Local)?;
    let filter = JobFilter { tubes, states: vec![JobState::Delayed], ..JobFilter::default() };
    // A job that changes its state meanwhile can come twice. Of the others, the bodies are not needed.
    let mut endless: BTreeMap<u64, JobInfo> = BTreeMap::new();
    listing::jobs(server, &filter, false, &mut |found| {
        let infos = found.into_iter().map(|found| found.info);
        let is_put = |info: &JobInfo| info.id > batch.above && info.delay == u64::from(batch.endless_delay());
        endless.extend(infos.filter(is_put).map(|info| (info.id, info)));
        Ok(true)
    })?;
    let bodies = server.bodies(endless.keys().copied())?;
    let mut endless: Vec<(JobInfo, Option<Vec<u8>>)> = endless.into_values().zip(bodies).collect();
    let mut find = |record: &Record| {
        // The key of such a job prevents a second copy.
        if is_put_at_once(record) {
            return None;
        }
        let at = endless.iter().position(|(info, body)| {
            info.tube == record.tube.as_str()
                && info.pri == record.pri
                && info.ttr == u64::from(record.ttr)
                && as_shown(&info.tags) == as_shown(&record.tags)
                && body.as_ref() == Some(&record.body)
        })?;
        Some(endless.remove(at).0.id)
    };
    Ok(records.iter().map(|record| find(record).map_or(Imported::Refused, Imported::Put)).collect())
}

/// The tags, sorted, in the form in which a server shows the tags of a job: it shows the time that is left of an
/// expiry, it can shorten the time of a key, and it shows no limit of 1.
fn as_shown(tags: &[Tag]) -> Vec<&str> {
    let mut shown: Vec<&str> = tags.iter().filter_map(tag_as_shown).collect();
    shown.sort_unstable();
    shown
}

fn tag_as_shown(tag: &Tag) -> Option<&str> {
    let text = tag.as_str();
    match tag.kind() {
        TagKind::Expiry => Some(tag.word()),
        TagKind::Idempotency => text.get(..tag.word().len() + 1 + tag.name().len()),
        TagKind::Concurrency => Some(text.strip_suffix(":1").unwrap_or(text)),
        TagKind::Group | TagKind::After => Some(text),
        // These are not kept with the job, or the server can change them.
        TagKind::Tube | TagKind::Trace => None,
    }
}

/// Removes the endless delay of these jobs, and restores their states. A job whose delay was already removed is not
/// changed: a worker may have it. A job that cannot be reserved, because its key or a rule allows no more reserved
/// jobs, is made ready, and a message says so. [`Failure::Refused`] if a job may keep the delay, because the server has
/// refused a command.
pub fn remove_delays(server: &mut Server, records: &[Record], batch: &ImportBatch) -> Result {
    let ids = batch.imported.iter().flatten().map(|imported| imported.id());
    let mut endless = with_endless_delay(server, batch, records.iter().zip(ids))?;
    let counting = server.uncounted();
    let commands = endless.iter().flat_map(|(record, id)| {
        let (id, pri, delay) = (*id, record.pri, record.delay);
        match record.state {
            JobState::Buried => vec![Command::ReserveJob(JobId(id)), bury(id, pri)],
            JobState::Delayed if delay > 0 => {
                vec![Command::ReserveJob(JobId(id)), release(id, pri, delay, counting)]
            }
            JobState::Ready | JobState::Reserved | JobState::Delayed => vec![Command::KickJob(JobId(id))],
        }
    });
    change_all(server, commands)?;
    // The others were kicked: no limit refuses a kick.
    endless.retain(|(record, _)| matches!(record.state, JobState::Buried | JobState::Delayed));
    let left = with_endless_delay(server, batch, endless.into_iter().map(|(record, id)| (record, Some(id))))?;
    change_all(server, left.iter().map(|(_, id)| Command::KickJob(JobId(*id))))?;
    if !left.is_empty() {
        say(&format!(
            "made {} ready instead of buried or delayed: a key or a rule allows no more reserved jobs at present",
            counted(left.len() as u64, "job")
        ));
    }
    Ok(())
}

/// Executes the commands, and reports the first refusal. A job that is not found was deleted, or a worker has it, or
/// its key has no free slot.
fn change_all<'a>(server: &mut Server, commands: impl Iterator<Item = Command<'a>>) -> Result {
    let mut refusal = None;
    server.client.pipeline(commands, |_, reply| {
        let refused = reply.refusal().filter(|refused| *refused != Refusal::NotFound);
        refusal = refusal.take().or(refused);
    })?;
    refusal.map_or(Ok(()), |refusal| {
        Err(Failure::Refused(format!(
            "the server answered {refusal}: jobs that were put may still have a delay that never ends; run the same \
             command again"
        )))
    })
}

/// Whether the job still has the endless delay, and no client has delayed it since. It is ready if an import was
/// interrupted between the reserve and the command after it.
fn has_endless_delay(record: &Record, info: &JobInfo, endless: u32) -> bool {
    let broke_off = info.state == JobState::Ready
        && matches!(record.state, JobState::Buried | JobState::Delayed)
        && info.kicks + info.releases + info.timeouts + info.buries == 0;
    let is_delayed = info.state == JobState::Delayed && info.reserves == 0;
    info.delay == u64::from(endless) && (is_delayed || broke_off)
}

/// The jobs that still have the endless delay.
fn with_endless_delay<'a>(
    server: &mut Server,
    batch: &ImportBatch,
    jobs: impl Iterator<Item = (&'a Record, Option<u64>)>,
) -> Result<Vec<(&'a Record, u64)>> {
    let jobs: Vec<_> = jobs
        .filter(|(record, _)| !is_put_at_once(record))
        .filter_map(|(record, id)| Some((record, id?)))
        .collect();
    let infos = server.job_infos(jobs.iter().map(|(_, id)| *id))?;
    let pairs = jobs.into_iter().zip(infos);
    let delay = batch.endless_delay();
    let endless = pairs.filter(|((record, _), info)| {
        info.as_ref().is_some_and(|info| has_endless_delay(record, info, delay))
    });
    Ok(endless.map(|(job, _)| job).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use beanstalk_client::parse_dictionary;

    const NEVER: u32 = u32::MAX - 5;

    #[test]
    fn a_job_whose_endless_delay_a_client_has_ended_is_left_alone() {
        let line = |state: &str, counters: &str| {
            let data = format!(
                "---\nid: 1\ntube: t\nstate: {state}\npri: 0\nage: 0\ndelay: {NEVER}\nttr: 1\n{counters}"
            );
            JobInfo::from_stats(&parse_dictionary(data.as_bytes()).unwrap()).unwrap()
        };
        let record = Record::parse(br#"{"tube":"t","state":"buried","ttr":1,"body":"x"}"#).unwrap();
        let is_endless =
            |state: &str, counters: &str| has_endless_delay(&record, &line(state, counters), NEVER);
        assert!(is_endless("delayed", "") && is_endless("ready", "reserves: 1\n"));
        assert!(!is_endless("delayed", "reserves: 1\n") && !is_endless("buried", "buries: 1\n"));
        for counter in ["kicks", "releases", "timeouts", "buries"] {
            assert!(!is_endless("ready", &format!("{counter}: 1\n")), "{counter}");
        }
    }

    #[test]
    fn tags_are_compared_as_a_server_shows_them() {
        let tags = |words: &[&str]| words.iter().map(|word| word.parse().unwrap()).collect::<Vec<Tag>>();
        let put = tags(&["tub:t", "idp:k:60", "exp:9", "con:c:1", "grp:g", "aft:h"]);
        assert_eq!(as_shown(&put), ["aft:h", "con:c", "exp", "grp:g", "idp:k"]);
        assert_eq!(as_shown(&put), as_shown(&tags(&["idp:k:5", "con:c", "grp:g", "aft:h", "exp:1"])));
        for other in ["con:c:2", "grp:h", "idp:l"] {
            assert_ne!(as_shown(&tags(&[other])), as_shown(&tags(&["con:c", "grp:g", "idp:k"])), "{other}");
        }
    }
}
