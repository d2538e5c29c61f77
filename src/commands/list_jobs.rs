//! The commands that show jobs: `list-jobs`, the `peek` commands, and `peek-reserved`.
//!
//! Owns: how much of a search for reserved jobs and of a list is done in a turn. A page of jobs in any other state is
//! found at once, and a short page is also written at once.

use std::vec;

use crate::exchange::{Output, Until};
use crate::executor::{Caller, Executor, Outcome, answer, stall_with_memory};
use crate::job::{JobId, JobState};
use crate::protocol::{JobCursor, ListWriter, Reply};
use crate::queue::{Page, PageOrder, Search};
use crate::stats::{StatsJob, write_line};

/// Jobs written in a turn: about 100 microseconds.
const JOBS_PER_TURN: usize = 128;
/// The cost of a written job, in simple requests.
const COST_PER_JOB: u64 = 4;
/// Clients and reservations probed in a turn: about 100 microseconds.
const PROBES_PER_TURN: usize = 1000;
/// How many probes cost as much as a simple request.
const PROBES_PER_COST: u64 = 2;
/// The usual length of a job's line, in bytes.
const LINE_BYTES: usize = 160;
/// How many of the earliest reserved jobs are found, so that one of them is probably still reserved at the end of the
/// search.
const CANDIDATES: usize = 64;

/// The purpose of a search for reserved jobs.
#[derive(Clone, Copy, Debug)]
enum SearchPurpose {
    /// `list-jobs`.
    Page,
    /// `peek-reserved`.
    First,
}

/// A page of `list-jobs` that is being written.
struct JobPage {
    /// The tube's name.
    tube: Box<str>,
    state: JobState,
    /// The jobs that have not been written yet.
    jobs: vec::IntoIter<JobId>,
    writer: ListWriter,
}

impl Executor {
    /// The jobs of a tube in a state, after the position `after`.
    pub(super) fn list_jobs(
        &mut self,
        caller: &mut Caller<'_>,
        (tube, state): (&str, JobState),
        limit: u32,
        after: Option<JobCursor>,
    ) -> Outcome {
        let Some(name) = self.queue.tube_name(tube).cloned() else {
            return answer(caller.output, &Reply::NotFound);
        };
        let limit = limit as usize;
        let after = after.map(|cursor| cursor.position);
        if state == JobState::Reserved {
            let search = Search::new(name, PageOrder::Deadline, after, limit);
            return self.search(caller, SearchPurpose::Page, search);
        }
        let page = self.queue.page(tube, state, after, limit).unwrap_or_default();
        self.write_page(caller, (name.as_str(), state), page)
    }

    /// The job of the used tube that has been reserved longest.
    pub(super) fn peek_reserved(&mut self, caller: &mut Caller<'_>) -> Outcome {
        let tube = self.queue.used_tube(caller.client).clone();
        let search = Search::new(tube, PageOrder::Since, None, CANDIDATES);
        self.search(caller, SearchPurpose::First, search)
    }

    /// The commands `peek`.
    pub(super) fn peek(&mut self, id: Option<JobId>, output: &mut Output) -> Outcome {
        let found = id.and_then(|id| Some(Reply::Found(id, self.queue.body(id)?)));
        answer(output, &found.unwrap_or(Reply::NotFound))
    }

    /// Does a turn's share of a search, and answers if the search is complete.
    fn search(&mut self, caller: &mut Caller<'_>, purpose: SearchPurpose, mut search: Search) -> Outcome {
        let probes = search.probes();
        let is_over = self.queue.search_reserved(&mut search, PROBES_PER_TURN);
        self.count_cost((search.probes() - probes) / PROBES_PER_COST);
        if !is_over {
            return self.search_later(caller, purpose, search);
        }
        let tube = search.tube().clone();
        let page = search.into_page();
        match purpose {
            SearchPurpose::Page => self.write_page(caller, (tube.as_str(), JobState::Reserved), page),
            SearchPurpose::First => {
                let is_there = |id: &JobId| {
                    let job = self.queue.job(*id);
                    job.is_some_and(|job| job.is_in(tube.as_str(), JobState::Reserved))
                };
                let first = page.jobs.iter().map(|position| position.id).find(is_there);
                if first.is_none() && !page.jobs.is_empty() {
                    // All of them were released in the meantime.
                    let search = Search::new(tube, PageOrder::Since, None, CANDIDATES);
                    return self.search_later(caller, purpose, search);
                }
                self.peek(first, caller.output)
            }
        }
    }

    fn search_later(&self, caller: &mut Caller<'_>, purpose: SearchPurpose, search: Search) -> Outcome {
        let memory_bytes = search.memory_bytes();
        match purpose {
            SearchPurpose::Page => self.next_slice(caller.output, memory_bytes, move |executor, caller| {
                executor.search(caller, purpose, search)
            }),
            // Its few candidates are counted, but it is no list: it is refused only when a reserve is.
            SearchPurpose::First => {
                stall_with_memory(memory_bytes, Until::NextTurn, move |executor, caller| {
                    executor.search(caller, purpose, search)
                })
            }
        }
    }

    fn write_page(
        &mut self,
        caller: &mut Caller<'_>,
        (tube, state): (&str, JobState),
        page: Page,
    ) -> Outcome {
        let expected = LINE_BYTES * (page.jobs.len() + 1);
        let next = page.next.map(|position| JobCursor { state, position });
        let Some(writer) = self.page_writer("jobs", next, expected, caller.output) else {
            return answer(caller.output, &Reply::OutOfMemory);
        };
        let jobs: Vec<JobId> = page.jobs.into_iter().map(|position| position.id).collect();
        let page = JobPage { tube: tube.into(), state, jobs: jobs.into_iter(), writer };
        self.write_jobs(caller, page)
    }

    /// Writes a turn's share of the page. A job that has left the tube or the state in the meantime is left out.
    fn write_jobs(&mut self, caller: &mut Caller<'_>, mut page: JobPage) -> Outcome {
        let mut line = String::new();
        for id in page.jobs.by_ref().take(JOBS_PER_TURN) {
            self.count_cost(COST_PER_JOB);
            let Some(job) = self.queue.job(id).filter(|job| job.is_in(&page.tube, page.state)) else {
                continue;
            };
            line.clear();
            let session = self.session_shown_to(caller.client, id);
            let dead_from = self.source_shown_to(caller.client, &job);
            let view = StatsJob { job, session, dead_from, waits_for: "", file: 0, now: caller.now };
            write_line(&view, &mut line);
            if page.writer.push_lines(&line).is_err() {
                return answer(caller.output, &Reply::OutOfMemory);
            }
        }
        if page.jobs.len() > 0 {
            let memory_bytes = page.writer.memory_bytes() + size_of_val(page.jobs.as_slice());
            return self.next_slice(caller.output, memory_bytes, |executor, caller| {
                executor.write_jobs(caller, page)
            });
        }
        self.answer_list(page.writer, caller.output)
    }
}
