//! The steps of an import on the server: put jobs with an endless delay, find them again, and remove the delay.

use super::record::Record;
use crate::cli::glob;
use crate::commands::relocate::NEVER;
use crate::failure::Failure;
use crate::listing::{self, Filter, Found};
use crate::session::{Session, unexpected};
use beanstalk_client::{Command, JobInfo, Name, Refusal, Reply, State, Tag};
use std::collections::BTreeSet;

/// How long the key of a job that is put at once counts after its delete, in seconds.
const KEY_SECONDS: u32 = 7 * 86_400;

/// The changes that the arguments make to the jobs of a file.
pub struct Putting {
    /// The tube into which all jobs are put, if one is given.
    pub tube: Option<Name>,
    /// Whether to leave out tags that the server does not support.
    pub drop_tags: bool,
}

impl Putting {
    /// The job as it is put; [`Failure::Refused`] if the server does not support a tag.
    pub fn prepare(&self, session: &Session, mut record: Record) -> Result<Record, Failure> {
        if let Some(tube) = &self.tube {
            record.tube = tube.clone();
        }
        if self.drop_tags {
            record.tags.retain(|tag| session.has(tag.word()));
        }
        // A buried job has waited for its group. With the tag it could not be buried while the group has members.
        if record.state == State::Buried {
            record.tags.retain(|tag| !matches!(tag, Tag::After(_)));
        }
        // Servers treat a TTR of 0 as 1.
        record.ttr = record.ttr.max(1);
        match record.tags.iter().find(|tag| !session.has(tag.word())) {
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
pub struct Refused {
    count: u64,
    last: Option<Reply>,
}

impl Refused {
    fn add(&mut self, reply: Reply) {
        self.count += 1;
        self.last = Some(reply);
    }

    /// Whether the server would also refuse further jobs.
    pub fn takes_nothing_more(&self) -> bool {
        matches!(
            self.last,
            Some(Reply::Draining | Reply::Refused(Refusal::OutOfMemory | Refusal::InternalError))
        )
    }

    /// The failure of the import; `Ok` if no job was refused.
    pub fn into_result(self) -> Result<(), Failure> {
        match &self.last {
            None => Ok(()),
            Some(Reply::Draining) => Err(Failure::Refused(
                "the server accepts no new jobs (DRAINING); run the same command again later".to_owned(),
            )),
            Some(reply) => {
                Err(unexpected("put", reply)
                    .while_doing(&format!("{} of these jobs were not put", self.count)))
            }
        }
    }
}

/// Whether the job is put with the delay that it is to have. While the server holds a job until a group is empty, no client can
/// end its delay; and the delay of a job can be changed only by a reserve, after which the job does not expire any more.
fn is_put_at_once(record: &Record) -> bool {
    let is_delayed = record.state == State::Delayed && record.delay > 0;
    record.tags.iter().any(|tag| match tag {
        Tag::After(_) => true,
        Tag::Expires(_) => is_delayed,
        _ => false,
    })
}

/// Puts the records that do not exist yet, with an endless delay. `existing` has the ids of those that exist. Returns the
/// ids of all; `None` for a job that was refused.
pub fn put(
    session: &mut Session,
    records: &[Record],
    existing: Vec<Option<u64>>,
    hash: u64,
    refused: &mut Refused,
) -> Result<Vec<Option<u64>>, Failure> {
    let mut ids = existing;
    let tags: Vec<Vec<Tag>> =
        records.iter().enumerate().map(|(position, record)| tags_of(record, hash, position)).collect();
    let mut commands = Vec::new();
    let mut positions = Vec::new();
    let mut used = None;
    for (position, record) in records.iter().enumerate().filter(|(position, _)| ids[*position].is_none()) {
        if used != Some(&record.tube) {
            commands.push(Command::Use(&record.tube));
            positions.push(None);
            used = Some(&record.tube);
        }
        let delay = if is_put_at_once(record) { record.delay } else { NEVER };
        let (pri, ttr, body, tags) = (record.pri, record.ttr, &record.body, &tags[position]);
        commands.push(Command::Put { pri, delay, ttr, body, tags });
        positions.push(Some(position));
    }
    session.client.pipeline(commands, |index, reply| match (positions[index], reply) {
        (Some(position), Reply::Inserted(inserted)) => ids[position] = Some(inserted.id),
        (Some(_), reply) => refused.add(reply),
        (None, _) => {}
    })?;
    Ok(ids)
}

/// The tags of a record. A job that is put at once gets a key if it has none, so that a second put does not store it.
fn tags_of(record: &Record, hash: u64, position: usize) -> Vec<Tag> {
    let mut tags = record.tags.clone();
    let has_key = tags.iter().any(|tag| matches!(tag, Tag::Idempotency { .. }));
    if is_put_at_once(record) && !has_key {
        let key = format!("idp:import-{hash:016x}-{position}:{KEY_SECONDS}");
        tags.extend(key.parse::<Tag>());
    }
    tags
}

/// Finds the jobs that an interrupted import has put without recording their ids, and whose delay it has not removed. All of
/// them have ids greater than `above`.
pub fn find_again(
    session: &mut Session,
    records: &[Record],
    above: u64,
) -> Result<Vec<Option<u64>>, Failure> {
    let tubes: BTreeSet<&str> = records.iter().map(|record| record.tube.as_str()).collect();
    // Tube names have no characters that are special in a pattern.
    let tubes = tubes.into_iter().map(glob).collect::<Result<_, _>>().map_err(Failure::Local)?;
    let filter = Filter { tubes, states: vec![State::Delayed], ..Filter::default() };
    let mut held: Vec<Found> = Vec::new();
    listing::jobs(session, &filter, true, &mut |found| {
        held.extend(
            found.into_iter().filter(|found| found.info.id > above && found.info.delay == u64::from(NEVER)),
        );
        Ok(true)
    })?;
    let mut find = |record: &Record| {
        let position = held.iter().position(|found| {
            found.info.tube == *record.tube
                && found.info.pri == record.pri
                && found.info.ttr == u64::from(record.ttr)
                && found.body.as_ref() == Some(&record.body)
        })?;
        Some(held.swap_remove(position).info.id)
    };
    Ok(records.iter().map(&mut find).collect())
}

/// Removes the endless delay of these jobs, and gives them the state that they had. A job whose delay was removed before is
/// left alone: a worker may have it.
pub fn remove_delays(session: &mut Session, records: &[Record], ids: &[Option<u64>]) -> Result<(), Failure> {
    let mut held = still_held(session, records.iter().zip(ids.iter().copied()))?;
    let commands = held.iter().flat_map(|(record, id)| {
        let (id, pri, delay) = (*id, record.pri, record.delay);
        match record.state {
            State::Buried => vec![Command::ReserveJob(id), Command::Bury { id, pri }],
            State::Delayed if delay > 0 => vec![Command::ReserveJob(id), Command::Release { id, pri, delay }],
            _ => vec![Command::KickJob(id)],
        }
    });
    session.client.pipeline(commands, |_, _| {})?;
    // A job at the limit of its concurrency key cannot be reserved, so it cannot be buried or delayed: it is made ready.
    held.retain(|(record, _)| record.tags.iter().any(|tag| matches!(tag, Tag::Concurrency { .. })));
    let left = still_held(session, held.into_iter().map(|(record, id)| (record, Some(id))))?;
    Ok(session.client.pipeline(left.iter().map(|(_, id)| Command::KickJob(*id)), |_, _| {})?)
}

/// Whether the job still has the endless delay. It is ready if an import was interrupted between the reserve and the
/// command after it.
fn is_held(record: &Record, info: &JobInfo) -> bool {
    let broke_off = info.state == State::Ready
        && matches!(record.state, State::Buried | State::Delayed)
        && info.kicks + info.releases + info.timeouts + info.buries == 0;
    info.delay == u64::from(NEVER) && (info.state == State::Delayed || broke_off)
}

fn still_held<'a>(
    session: &mut Session,
    jobs: impl Iterator<Item = (&'a Record, Option<u64>)>,
) -> Result<Vec<(&'a Record, u64)>, Failure> {
    let jobs: Vec<_> = jobs
        .filter(|(record, _)| !is_put_at_once(record))
        .filter_map(|(record, id)| Some((record, id?)))
        .collect();
    let infos = session.job_infos(jobs.iter().map(|(_, id)| *id))?;
    let held =
        jobs.iter().zip(infos).map(|((record, _), info)| info.is_some_and(|info| is_held(record, &info)));
    let is_held: Vec<bool> = held.collect();
    Ok(jobs.into_iter().zip(is_held).filter(|(_, held)| *held).map(|(job, _)| job).collect())
}
