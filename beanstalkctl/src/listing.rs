//! Which jobs there are: by `list-jobs` where the server has it, else by asking for every id there may be.
//!
//! Owns: the choice between the two, and the filters. What a filter cannot tell by a job's counters (its body) is asked
//! for last and only where all else fits.

use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Progress;
use crate::session::{Session, Tube};
use beanstalk_client::{Command, JobInfo, Name, PutOptions, State};
use globset::GlobMatcher;
use regex::bytes::Regex;
use std::collections::HashSet;

/// Jobs of a page, and ids of a step of the walk.
const PAGE: u32 = 500;

/// The tube of a job that lives for a moment, to learn which ids there may be. Nobody watches it.
const PROBE_TUBE: &str = "beanstalkctl-probe";

/// Which jobs are meant.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// All tubes where there is none.
    pub tubes: Vec<GlobMatcher>,
    /// All states where there is none.
    pub states: Vec<State>,
    /// At least so many seconds old.
    pub older_than: Option<u64>,
    /// A pattern that the body has.
    pub body: Option<Regex>,
}

impl Filter {
    fn states(&self) -> Vec<State> {
        State::ALL.into_iter().filter(|state| self.states.is_empty() || self.states.contains(state)).collect()
    }

    /// Whether a job's counters fit.
    fn fits(&self, info: &JobInfo) -> bool {
        (self.states.is_empty() || self.states.contains(&info.state))
            && self.older_than.is_none_or(|seconds| info.age >= seconds)
    }
}

/// A job that fits, with its body where the filter looked at it or the caller wants it.
pub struct Found {
    /// What the server tells of it.
    pub info: JobInfo,
    /// Its body.
    pub body: Option<Vec<u8>>,
}

/// Gives the jobs that fit to `each`, some at a time, until it says that it wants no more (`false`).
/// By `list-jobs` they come tube by tube, state by state, as they would be served; without it the newest come first.
pub fn jobs(
    session: &mut Session,
    filter: &Filter,
    with_bodies: bool,
    each: &mut dyn FnMut(Vec<Found>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let tubes = session.tubes(&filter.tubes)?;
    let mut give = |session: &mut Session, infos: Vec<JobInfo>| {
        if interrupt::requested() {
            return Err(Failure::Interrupted("stopped while listing jobs".to_owned()));
        }
        let found = look_at_bodies(session, filter, with_bodies, infos)?;
        if found.is_empty() { Ok(true) } else { each(found) }
    };
    if session.has("list-jobs") {
        return by_pages(session, filter, &tubes, &mut give);
    }
    by_walking(session, filter, &tubes, &mut give)
}

type Give<'a> = dyn FnMut(&mut Session, Vec<JobInfo>) -> Result<bool, Failure> + 'a;

fn look_at_bodies(
    session: &mut Session,
    filter: &Filter,
    with_bodies: bool,
    mut infos: Vec<JobInfo>,
) -> Result<Vec<Found>, Failure> {
    infos.retain(|info| filter.fits(info));
    if !with_bodies && filter.body.is_none() {
        return Ok(infos.into_iter().map(|info| Found { info, body: None }).collect());
    }
    let bodies = session.bodies(infos.iter().map(|info| info.id))?;
    // A job without a body was deleted since it was listed.
    let with_body = infos.into_iter().zip(bodies).filter_map(|(mut info, body)| {
        let body = body?;
        info.bytes = Some(body.len() as u64);
        Some(Found { info, body: Some(body) })
    });
    let fits = |found: &Found| match (&filter.body, &found.body) {
        (Some(pattern), Some(body)) => pattern.is_match(body),
        _ => true,
    };
    Ok(with_body.filter(fits).collect())
}

fn by_pages(
    session: &mut Session,
    filter: &Filter,
    tubes: &[Tube],
    give: &mut Give<'_>,
) -> Result<(), Failure> {
    for tube in tubes {
        for state in filter.states() {
            let mut cursor = None;
            loop {
                let page = session.client.list_jobs(&tube.name, state, PAGE, cursor.as_deref());
                let page = match page {
                    Err(error) if error.is_not_found() => break, // the tube has vanished
                    other => other?,
                };
                if !give(session, page.jobs)? {
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

/// Asks for the jobs from the newest id down, until as many of the tubes were seen as there are.
fn by_walking(
    session: &mut Session,
    filter: &Filter,
    tubes: &[Tube],
    give: &mut Give<'_>,
) -> Result<(), Failure> {
    let names: HashSet<&str> = tubes.iter().map(|tube| tube.name.as_str()).collect();
    let mut walk = Walk { names, expected: tubes.iter().map(Tube::jobs).sum(), seen: 0 };
    if walk.expected == 0 {
        return Ok(());
    }
    // With a binlog, ids go on where an earlier run of the server ended, which no counter tells.
    let has_binlog = session.stats.number_or_zero("binlog-current-index") > 0;
    let top =
        if has_binlog { newest_id(session)? } else { session.client.stats()?.number_or_zero("total-jobs") };
    if !walk.down(session, top, 1, give)? || walk.seen >= walk.expected {
        return Ok(());
    }
    // Puts that failed have used up ids, so some may be above; or jobs were deleted meanwhile.
    walk.expected = session.tubes(&filter.tubes)?.iter().map(Tube::jobs).sum();
    if !has_binlog && walk.seen < walk.expected {
        let newest = newest_id(session)?;
        walk.down(session, newest, top + 1, give)?;
    }
    Ok(())
}

struct Walk<'a> {
    names: HashSet<&'a str>,
    /// Jobs of the tubes, in whatever state: jobs change their state meanwhile, but not their tube.
    expected: u64,
    seen: u64,
}

impl Walk<'_> {
    /// From `top` down to `bottom`. `false`: the caller wants no more.
    fn down(
        &mut self,
        session: &mut Session,
        top: u64,
        bottom: u64,
        give: &mut Give<'_>,
    ) -> Result<bool, Failure> {
        let progress = Progress::new("looking for jobs by id", (top + 1).saturating_sub(bottom));
        let mut next = top;
        while next >= bottom && self.seen < self.expected {
            let last = bottom.max((next + 1).saturating_sub(u64::from(PAGE)));
            let infos = session.job_infos((last..=next).rev())?;
            let of_tubes: Vec<JobInfo> =
                infos.into_iter().flatten().filter(|info| self.names.contains(info.tube.as_str())).collect();
            self.seen += of_tubes.len() as u64;
            progress.add(next + 1 - last);
            if !give(session, of_tubes)? {
                return Ok(false);
            }
            next = last - 1;
        }
        Ok(true)
    }
}

/// The newest id that the server has given out. There is no command for it: a job is put, whose delay keeps it from
/// everybody, into a tube that nobody watches, and deleted at once.
pub fn newest_id(session: &mut Session) -> Result<u64, Failure> {
    let tube: Name = PROBE_TUBE.parse().map_err(|error| Failure::Local(format!("{error}")))?;
    let before: Name = session.client.list_tube_used()?.parse().unwrap_or_else(|_| Name::default_tube());
    session.client.use_tube(&tube)?;
    let put = session.client.put(b"", &PutOptions { pri: u32::MAX, delay: 3600, ttr: 1, tags: Vec::new() });
    let id = match put {
        Ok(inserted) => {
            session.client.delete(inserted.id)?;
            Ok(inserted.id)
        }
        Err(error) => Err(Failure::from(error).while_doing("a job is put to learn the newest id")),
    };
    session.client.call(&Command::Use(&before))?;
    id
}
