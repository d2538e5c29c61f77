//! The views of `top`, each with its own state: all tubes, the jobs of a tube, and a body. Pure.

use beanstalk_client::{JobInfo, TubeName};

use super::backend::JobsOf;
use super::body::{self, BodyForm};
use super::rows::{ShownTube, SortKey, sort};

/// All tubes.
#[derive(Default)]
pub struct TubesView {
    /// The tubes that match the filter, sorted.
    pub rows: Vec<ShownTube>,
    /// The index of the selected row.
    pub selected: usize,
    /// Only tubes whose names contain this text are shown.
    pub filter: String,
    /// The sort key.
    pub sort: SortKey,
    /// Whether the order is reversed.
    pub reversed: bool,
}

impl TubesView {
    /// Filters and sorts the tubes; the selected tube stays selected.
    pub fn arrange<'a>(&mut self, tubes: impl Iterator<Item = &'a ShownTube>) {
        let selected = self.selected_row().map(|row| (row.server, row.name.clone()));
        self.rows = tubes.filter(|row| row.name.as_str().contains(&self.filter)).cloned().collect();
        sort(&mut self.rows, self.sort, self.reversed);
        let position = selected.and_then(|(server, name)| self.position(server, &name));
        self.selected = inside(position.unwrap_or(self.selected), self.rows.len());
    }

    /// The selected row.
    pub fn selected_row(&self) -> Option<&ShownTube> {
        self.rows.get(self.selected)
    }

    /// The index of the row of this tube.
    pub fn position(&self, server: usize, name: &TubeName) -> Option<usize> {
        self.rows.iter().position(|row| row.server == server && row.name == *name)
    }
}

/// The jobs of a tube in one state.
pub struct JobsView {
    /// Which jobs.
    pub of: JobsOf,
    /// The jobs that were found; `None` before the first answer.
    pub found: Option<Vec<JobInfo>>,
    /// The index of the selected job.
    pub selected: usize,
    /// The next refresh has to include the jobs even on a server without `list-jobs`: the view was just opened, or an
    /// action has changed one of them.
    pub is_stale: bool,
}

impl JobsView {
    /// The view before the first answer.
    pub fn new(of: JobsOf) -> Self {
        Self { of, found: None, selected: 0, is_stale: true }
    }

    /// The jobs that were found so far.
    pub fn jobs(&self) -> &[JobInfo] {
        self.found.as_deref().unwrap_or_default()
    }

    /// The id of the selected job.
    pub fn selected_id(&self) -> Option<u64> {
        self.jobs().get(self.selected).map(|job| job.id)
    }

    /// Shows these jobs.
    pub fn show(&mut self, jobs: Vec<JobInfo>) {
        self.selected = inside(self.selected, jobs.len());
        self.found = Some(jobs);
    }
}

/// The body of a job.
#[derive(Default)]
pub struct BodyView {
    /// The job's id.
    pub id: u64,
    /// The body; empty before the answer.
    pub bytes: Vec<u8>,
    /// Its lines.
    pub lines: Vec<String>,
    /// The first line that is shown.
    pub scroll: usize,
}

impl BodyView {
    /// Divides the body into lines of this width.
    pub fn lay_out(&mut self, form: BodyForm, width: usize) {
        self.lines = body::lines(&self.bytes, form, width);
        self.scroll = inside(self.scroll, self.lines.len());
    }
}

/// The index, or the last one of `count` rows if there are not as many.
pub fn inside(index: usize, count: usize) -> usize {
    index.min(count.saturating_sub(1))
}
