//! The jobs of a tube in one state that match a filter.
//!
//! Owns: whether a job matches a filter, and the position of a walk through a state. A call examines a bounded number
//! of jobs and of bytes of their bodies, so a walk through a million jobs, or a search in a body of a gigabyte, takes
//! many short calls. Driven by the responses of the API, which only read, and by the server's tasks.
//!
//! A walk follows the order of the state. If a task changes a job that the walk has found, and the job moves to a
//! position that the walk has not reached, the walk finds it again: the task must recognize it.

use std::{mem, vec};

use memchr::memmem;

use crate::clock::{NS_PER_S, Timestamp};
use crate::job::{JobId, JobState, Position};
use crate::protocol::JobCursor;
use crate::queue::{JobView, Page, PageOrder, Queue, Search};
use crate::tags::TagFilter;
use crate::tube_name::TubeName;

/// The number of jobs on a page of the walk, which are read from the order of a state at once.
const JOBS_PER_PAGE: usize = 128;
/// The number of reserved jobs on a page: larger, because each page examines the reservations of all clients.
const RESERVED_JOBS_PER_PAGE: usize = 1024;
/// How many clients and reservations can be probed in the time of one job.
const PROBES_PER_JOB: usize = 4;
/// The maximum length of the text for which a filter searches, in bytes.
pub(crate) const MAX_CONTAINED_BYTES: usize = 256;

/// The work that a walk may still do in the current call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkBudget {
    /// Jobs to examine.
    pub jobs: usize,
    /// Bytes of bodies to search.
    pub bytes: usize,
}

impl WalkBudget {
    /// The budget of a turn: about 100 microseconds.
    pub const TURN: Self = Self { jobs: 256, bytes: 128 * 1024 };

    fn is_used_up(self) -> bool {
        self.jobs == 0 || self.bytes == 0
    }
}

/// The instant at which jobs were counted. Jobs that came later do not count: their ids are larger, or, if a put has
/// taken its id before, they were put at a later instant. The API reads after all commands of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// The next id at that instant.
    pub next_id: JobId,
    /// The time.
    pub at: Timestamp,
}

/// A filter for the jobs in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Only jobs that existed at this instant; ages are counted from it.
    pub as_of: AsOf,
    /// Only jobs that were put at least this many seconds before.
    pub older_than_s: Option<u64>,
    /// Only jobs that were put less than this many seconds before.
    pub younger_than_s: Option<u64>,
    /// Only jobs with this priority number or a larger one.
    pub min_priority: Option<u32>,
    /// Only jobs with this priority number or a smaller one.
    pub max_priority: Option<u32>,
    /// Only jobs with a matching tag.
    pub tag: Option<TagFilter>,
    /// Only jobs that a rule has sent to a dead tube.
    pub is_dead: bool,
    /// Only jobs whose body has these bytes somewhere; not empty.
    pub contains: Option<Box<str>>,
}

impl Filter {
    /// All jobs that existed at this instant.
    #[must_use]
    pub fn all(as_of: AsOf) -> Self {
        Self {
            as_of,
            older_than_s: None,
            younger_than_s: None,
            min_priority: None,
            max_priority: None,
            tag: None,
            is_dead: false,
            contains: None,
        }
    }

    /// Whether the job passes the filter, except for the search in its body.
    fn takes(&self, job: &JobView<'_>) -> bool {
        let record = &job.record;
        let age_ns = self.as_of.at.since_ns(record.created_at);
        record.id < self.as_of.next_id
            && record.created_at <= self.as_of.at
            && self.older_than_s.is_none_or(|age_s| age_ns >= age_s.saturating_mul(NS_PER_S))
            && self.younger_than_s.is_none_or(|age_s| age_ns < age_s.saturating_mul(NS_PER_S))
            && self.min_priority.is_none_or(|min| record.priority.0 >= min)
            && self.max_priority.is_none_or(|max| record.priority.0 <= max)
            && (!self.is_dead || job.tags.is_some_and(|tags| tags.dead().is_some()))
            && self.tag.as_ref().is_none_or(|tag| job.tags.is_some_and(|tags| tag.matches(&tags)))
    }
}

/// The result of a step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// This job matches.
    Job(JobId),
    /// The budget is used up.
    Unfinished,
    /// There are no more jobs.
    Done,
}

/// The jobs after a page.
#[derive(Debug)]
enum NextPage {
    /// They begin after this position.
    After(Option<Position>),
    /// A search for reserved jobs is in progress.
    Search(Search),
    /// There are none.
    None,
}

/// A walk through a state of a tube.
#[derive(Debug)]
pub struct JobWalk {
    tube: TubeName,
    state: JobState,
    filter: Filter,
    /// The jobs of the last page that have not been examined, at the positions at which they were found.
    page: vec::IntoIter<Position>,
    next_page: NextPage,
    /// The job whose body is being searched, and how many of its bytes have been searched.
    searched: Option<(JobId, usize)>,
    /// The position of the last job that was examined.
    last: Option<Position>,
    /// How many jobs it has examined.
    probed: u64,
}

impl JobWalk {
    /// A walk through the jobs after the position `after`.
    #[must_use]
    pub fn new(tube: TubeName, state: JobState, filter: Filter, after: Option<Position>) -> Self {
        Self {
            tube,
            state,
            filter,
            page: Vec::new().into_iter(),
            next_page: NextPage::After(after),
            searched: None,
            last: after,
            probed: 0,
        }
    }

    /// The tube.
    #[must_use]
    pub fn tube(&self) -> &TubeName {
        &self.tube
    }

    /// The filter.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The cursor after the last job that it has examined.
    #[must_use]
    pub fn cursor(&self) -> Option<JobCursor> {
        self.last.map(|position| JobCursor { state: self.state, position })
    }

    /// How many jobs it has examined.
    #[must_use]
    pub fn probed(&self) -> u64 {
        self.probed
    }

    /// Whether there may be more jobs.
    #[must_use]
    pub fn may_find_more(&self) -> bool {
        self.page.len() > 0 || !matches!(self.next_page, NextPage::None)
    }

    /// Finds the next job that matches.
    pub fn next(&mut self, queue: &Queue, budget: &mut WalkBudget) -> WalkStep {
        loop {
            if budget.is_used_up() {
                return WalkStep::Unfinished;
            }
            let Some(&Position { id, .. }) = self.page.as_slice().first() else {
                if !self.may_find_more() {
                    return WalkStep::Done;
                }
                self.turn_page(queue, budget);
                continue;
            };
            let Some(is_selected) = self.examine(id, queue, budget) else { return WalkStep::Unfinished };
            self.last = self.page.next();
            self.probed += 1;
            budget.jobs = budget.jobs.saturating_sub(1);
            if is_selected {
                return WalkStep::Job(id);
            }
        }
    }

    /// Examines a job of the page. Returns whether it matches, or `None` if the search in its body is incomplete.
    fn examine(&mut self, id: JobId, queue: &Queue, budget: &mut WalkBudget) -> Option<bool> {
        let job = queue
            .job(id)
            .filter(|job| job.record.state == self.state && job.tube.as_str() == self.tube.as_str());
        let Some(job) = job else { return Some(false) };
        if !self.filter.takes(&job) {
            return Some(false);
        }
        let Some(text) = &self.filter.contains else { return Some(true) };
        let start = self.searched.filter(|&(searched, _)| searched == id).map_or(0, |(_, bytes)| bytes);
        let rest = &job.body.as_slice()[start..];
        // A match may begin at the end of this part and continue after it.
        let end = rest.len().min(budget.bytes + text.len());
        let is_found = memmem::find(&rest[..end], text.as_bytes()).is_some();
        budget.bytes -= end.min(budget.bytes);
        self.searched = None;
        if is_found || end == rest.len() {
            return Some(is_found);
        }
        self.searched = Some((id, start + end - (text.len() - 1)));
        None
    }

    fn turn_page(&mut self, queue: &Queue, budget: &mut WalkBudget) {
        let mut search = match mem::replace(&mut self.next_page, NextPage::None) {
            NextPage::None => return,
            NextPage::Search(search) => search,
            NextPage::After(after) if self.state == JobState::Reserved => {
                Search::new(self.tube.clone(), PageOrder::Deadline, after, RESERVED_JOBS_PER_PAGE)
            }
            NextPage::After(after) => {
                let page = queue.page(self.tube.as_str(), self.state, after, JOBS_PER_PAGE);
                return self.begin_page(page.unwrap_or_default());
            }
        };
        let before = search.probes();
        let is_over = queue.search_reserved(&mut search, budget.jobs * PROBES_PER_JOB);
        let probes = usize::try_from(search.probes() - before).unwrap_or(usize::MAX);
        budget.jobs = budget.jobs.saturating_sub(probes.div_ceil(PROBES_PER_JOB));
        if is_over {
            self.begin_page(search.into_page());
        } else {
            self.next_page = NextPage::Search(search);
            budget.jobs = 0;
        }
    }

    fn begin_page(&mut self, Page { jobs, next }: Page) {
        self.page = jobs.into_iter();
        self.next_page = next.map_or(NextPage::None, |next| NextPage::After(Some(next)));
    }
}
