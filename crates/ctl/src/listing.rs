//! Finds jobs: with `list-jobs` if the server has it, otherwise by asking for every possible id.
//!
//! Owns: the choice between the two, and the filters. A body is requested only if the filter concerns bodies and
//! everything else about the job matches.

use std::collections::HashSet;

use beanstalk_client::{JobInfo, JobState, PutOptions, TubeName};

use crate::cli::JobFilter;
use crate::failure::{Failure, Result};
use crate::group_order::GroupOrder;
use crate::interrupt;
use crate::progress::ShownProgress;
use crate::server::{Server, Tube};

/// Jobs on a page of `list-jobs`, and ids in a step of the walk over all ids.
const PAGE: u32 = 500;

/// The jobs are counted at most this often before a walk, if other clients put jobs all the time.
const MAX_COUNTS: u32 = 10;

/// The tube of the job that [`newest_id`] puts and deletes at once. No client watches it.
const PROBE_TUBE: &str = "beanstalkctl-probe";

impl JobFilter {
    fn states(&self) -> Vec<JobState> {
        JobState::ALL
            .into_iter()
            .filter(|state| self.states.is_empty() || self.states.contains(state))
            .collect()
    }

    /// Whether the job's state, age and tags match.
    pub fn fits(&self, info: &JobInfo) -> bool {
        (self.states.is_empty() || self.states.contains(&info.state))
            && self.older_than.is_none_or(|seconds| info.age >= seconds.into())
            && self.younger_than.is_none_or(|seconds| info.age < seconds.into())
            && self.tag.as_ref().is_none_or(|filter| {
                info.tags.iter().any(|tag| filter.matches_tag(tag.kind(), tag.name().as_bytes()))
            })
    }
}

/// A job that matches, with its body if the filter needed it or the caller wants it.
pub struct FoundJob {
    /// Its counters.
    pub info: JobInfo,
    /// Its body.
    pub body: Option<Vec<u8>>,
}

/// Passes the jobs that match to `each`, a few at a time, until it returns `false`. With `list-jobs` they come by tube
/// and state, in the order in which they would be served; without it, the newest come first. A job that changes its
/// state meanwhile can come twice, or not at all.
pub fn jobs(
    server: &mut Server,
    filter: &JobFilter,
    with_bodies: bool,
    each: &mut dyn FnMut(Vec<FoundJob>) -> Result<bool>,
) -> Result {
    let tubes = server.tubes(&filter.tubes)?;
    find(server, filter, &tubes, with_bodies, &mut |_| true, each)
}

/// Like [`jobs`], but each job comes once, also if it changes its state meanwhile, and jobs that wait for a group come
/// after its members.
pub fn jobs_once(
    server: &mut Server,
    filter: &JobFilter,
    with_bodies: bool,
    each: &mut dyn FnMut(Vec<FoundJob>) -> Result,
) -> Result {
    let tubes = server.tubes(&filter.tubes)?;
    let mut seen = HashSet::new();
    if !server.has("list-jobs") {
        let mut each = |found| each(found).map(|()| true);
        return find(server, filter, &tubes, with_bodies, &mut |info| seen.insert(info.id), &mut each);
    }
    let mut is_wanted = |info: &JobInfo| !info.held && seen.insert(info.id);
    find(server, filter, &tubes, with_bodies, &mut is_wanted, &mut |found| each(found).map(|()| true))?;
    // The second search finds the jobs that wait for a group, and the jobs that had moved to a state whose jobs were
    // already listed. Ids do not change.
    let (mut infos, mut groups) = (Vec::new(), GroupOrder::default());
    find(server, filter, &tubes, false, &mut |info| seen.insert(info.id), &mut |found| {
        found.iter().for_each(|job| groups.add(&job.info));
        infos.extend(found.into_iter().map(|job| job.info));
        Ok(true)
    })?;
    let stages = groups.stages();
    infos.sort_by_key(|info| stages.get(&info.id));
    let mut infos = infos.into_iter();
    while infos.len() > 0 {
        interrupt::check("stopped while listing jobs")?;
        let page = infos.by_ref().take(PAGE as usize).collect();
        each(filter_bodies(server, filter, with_bodies, page)?)?;
    }
    Ok(())
}

fn find(
    server: &mut Server,
    filter: &JobFilter,
    tubes: &[Tube],
    with_bodies: bool,
    is_wanted: &mut dyn FnMut(&JobInfo) -> bool,
    each: &mut dyn FnMut(Vec<FoundJob>) -> Result<bool>,
) -> Result {
    let mut each_page = |server: &mut Server, mut infos: Vec<JobInfo>| {
        interrupt::check("stopped while listing jobs")?;
        infos.retain(|info| filter.fits(info) && is_wanted(info));
        let found = filter_bodies(server, filter, with_bodies, infos)?;
        if found.is_empty() { Ok(true) } else { each(found) }
    };
    if server.has("list-jobs") {
        return by_pages(server, filter, tubes, &mut each_page);
    }
    by_walking(server, tubes, &mut each_page)
}

/// The receiver of each page of jobs, which returns whether it needs more.
type EachPage<'a> = dyn FnMut(&mut Server, Vec<JobInfo>) -> Result<bool> + 'a;

fn filter_bodies(
    server: &mut Server,
    filter: &JobFilter,
    with_bodies: bool,
    infos: Vec<JobInfo>,
) -> Result<Vec<FoundJob>> {
    if !with_bodies && filter.body.is_none() {
        return Ok(infos.into_iter().map(|info| FoundJob { info, body: None }).collect());
    }
    let bodies = server.bodies(infos.iter().map(|info| info.id))?;
    // A job without a body was deleted after it was listed.
    let with_body = infos.into_iter().zip(bodies).filter_map(|(mut info, body)| {
        let body = body?;
        info.bytes = Some(body.len() as u64);
        Some(FoundJob { info, body: Some(body) })
    });
    let fits = |found: &FoundJob| match (&filter.body, &found.body) {
        (Some(pattern), Some(body)) => pattern.is_match(body),
        (None, _) | (_, None) => true,
    };
    Ok(with_body.filter(fits).collect())
}

fn by_pages(server: &mut Server, filter: &JobFilter, tubes: &[Tube], each: &mut EachPage<'_>) -> Result {
    for tube in tubes {
        for state in filter.states() {
            let mut cursor = None;
            loop {
                let page = server.client.list_jobs(&tube.name, state, PAGE, cursor.as_ref());
                let page = match page {
                    Err(error) if error.is_not_found() => break, // the tube was removed in the meantime
                    other => other?,
                };
                if !each(server, page.jobs)? {
                    return Ok(());
                }
                match page.next {
                    Some(next) => cursor = Some(next),
                    None => break,
                }
            }
        }
    }
    Ok(())
}

/// Asks for the jobs from the newest id down, until it has seen as many jobs as the tubes have.
fn by_walking(server: &mut Server, tubes: &[Tube], each: &mut EachPage<'_>) -> Result {
    if number_of_jobs(tubes) == 0 {
        return Ok(());
    }
    // With a binlog, ids continue from an earlier run of the server, which no counter shows.
    let has_binlog = server.stats.number_or_zero("binlog-current-index") > 0;
    let (top, tubes) = newest_id_and_counts(server, has_binlog, tubes)?;
    let names = tubes.iter().map(|tube| tube.name.as_str()).collect();
    let mut walk = IdWalk { names, expected: number_of_jobs(&tubes), seen: 0 };
    if !walk.down(server, top, 1, each)? || walk.seen >= walk.expected || has_binlog {
        return Ok(());
    }
    // If jobs are missing, they were deleted in the meantime, or they have higher ids, because refused puts use up ids.
    if walk.seen < number_of_jobs(&count_again(server, &tubes)?) {
        // Jobs that were seen may be deleted by now, so their number does not end this walk.
        walk.expected = u64::MAX;
        let newest = newest_id(server)?;
        walk.down(server, newest, top + 1, each)?;
    }
    Ok(())
}

/// The newest id, and then the numbers of jobs of the tubes. If a job is put in between, it is counted, and a walk down
/// from this id cannot see it: such a walk goes on to the oldest id, so this tries again.
fn newest_id_and_counts(server: &mut Server, has_binlog: bool, tubes: &[Tube]) -> Result<(u64, Vec<Tube>)> {
    let mut attempts = 1..MAX_COUNTS;
    loop {
        let total = server.client.stats()?.number_or_zero("total-jobs");
        let (newest, expected) = if has_binlog { (newest_id(server)?, total + 1) } else { (total, total) };
        let tubes = count_again(server, tubes)?;
        let is_unchanged = server.client.stats()?.number_or_zero("total-jobs") == expected;
        if is_unchanged || attempts.next().is_none() {
            return Ok((newest, tubes));
        }
    }
}

fn count_again(server: &mut Server, tubes: &[Tube]) -> Result<Vec<Tube>> {
    server.tubes_named(tubes.iter().map(|tube| tube.name.clone()).collect())
}

fn number_of_jobs(tubes: &[Tube]) -> u64 {
    tubes.iter().map(Tube::jobs).sum()
}

struct IdWalk<'a> {
    names: HashSet<&'a str>,
    /// The number of jobs of the tubes, in all states: jobs may change their state in the meantime, but not their tube.
    expected: u64,
    seen: u64,
}

impl IdWalk<'_> {
    /// Walks from id `top` down to `bottom`. Returns `false` if the caller wants no more jobs.
    fn down(&mut self, server: &mut Server, top: u64, bottom: u64, each: &mut EachPage<'_>) -> Result<bool> {
        let progress = ShownProgress::new("searching by id", (top + 1).saturating_sub(bottom));
        let mut next = top;
        while next >= bottom && self.seen < self.expected {
            let last = bottom.max((next + 1).saturating_sub(u64::from(PAGE)));
            let infos = server.job_infos((last..=next).rev())?;
            let of_tubes: Vec<JobInfo> =
                infos.into_iter().flatten().filter(|info| self.names.contains(info.tube.as_str())).collect();
            self.seen += of_tubes.len() as u64;
            progress.add(next + 1 - last);
            if !each(server, of_tubes)? {
                return Ok(false);
            }
            next = last - 1;
        }
        Ok(true)
    }
}

/// The newest id that the server has assigned. There is no command for it: this puts a delayed job into a tube that no
/// client watches, and deletes it at once.
fn newest_id(server: &mut Server) -> Result<u64> {
    let tube: TubeName = PROBE_TUBE.parse().map_err(|error| Failure::Local(format!("{error}")))?;
    let before: TubeName =
        server.client.list_tube_used()?.parse().unwrap_or_else(|_| TubeName::default_tube());
    server.client.use_tube(&tube)?;
    // If the program is killed between the put and the delete, the job stays until the next time.
    for state in [JobState::Delayed, JobState::Ready] {
        while let Ok(left) = server.client.peek_next(state) {
            delete_probe(server, left.id)?;
        }
    }
    let put = server
        .client
        .put(b"", &PutOptions { pri: u32::MAX, delay: 3600.into(), ttr: 1.into(), tags: Vec::new() });
    let id = match put {
        Ok(inserted) => {
            delete_probe(server, inserted.id)?;
            Ok(inserted.id)
        }
        Err(error) => Err(Failure::from(error).while_doing("putting a job to learn the newest id")),
    };
    server.client.use_tube(&before)?;
    id
}

/// Deletes the job. Another program that looks for the newest id may have done so.
fn delete_probe(server: &mut Server, id: u64) -> Result {
    match server.client.delete(id) {
        Err(error) if !error.is_not_found() => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}
