//! The state of `top`, and the effect of each key. Pure: no terminal, no server, no clock.

use std::time::Instant;

use beanstalk_client::{JobInfo, JobState, TubeName};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::backend::{BackendAnswer, BackendRequest, JobsOf, RequestedAction};
use super::body::{self, BodyForm};
use super::rows::{Rates, ShownTube, SortKey, sort};
use crate::commands::change::JobChange;
use crate::output::counted;

/// The length of a pause that the key `p` starts, in seconds.
const PAUSE: u32 = 3600;

/// The view that is on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// All tubes.
    Tubes,
    /// The jobs of a tube in one state.
    Jobs(JobsOf),
    /// The body of one of these jobs, by its id.
    Body(JobsOf, u64),
}

/// A server, as the screen shows it.
#[derive(Default)]
pub struct ShownServer {
    /// Its address.
    pub name: String,
    /// The reason why it does not answer; `None` while it does, and before the first answer.
    pub gone: Option<String>,
    /// Whether it has ever answered.
    pub is_known: bool,
    rows: Vec<ShownTube>,
    rates: Rates,
    /// A refresh was requested, and its answer has not arrived.
    is_refreshing: bool,
}

/// A prompt that takes the next keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// The user types a filter.
    Filter,
    /// The help, which the next key closes.
    Help,
    /// A question, and the request to send if the answer is `y`.
    Confirm(String, BackendRequest),
}

/// The action of the event loop after a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing.
    None,
    /// End the program.
    Quit,
    /// Send this to the backend.
    Send(BackendRequest),
}

/// The state of the screen.
pub struct App {
    /// The servers.
    pub servers: Vec<ShownServer>,
    /// The view that is on the screen.
    pub view: View,
    /// The tubes that match the filter, sorted.
    pub rows: Vec<ShownTube>,
    /// The jobs of the tube that is shown; `None` until they are found.
    pub jobs: Option<Vec<JobInfo>>,
    /// The lines of the body.
    pub body: Vec<String>,
    /// How the body is shown.
    pub form: BodyForm,
    /// The index of the selected row.
    pub selected: usize,
    /// The first line of the body that is shown.
    pub scroll: usize,
    /// Only tubes whose names contain this text are shown.
    pub filter: String,
    /// The sort key of the tubes.
    pub sort: SortKey,
    /// Whether the order of the tubes is reversed.
    pub reversed: bool,
    /// The prompt that takes the next keys, if there is one.
    pub prompt: Option<Prompt>,
    /// The result of the last action, or an error.
    pub message: String,
    bytes: Vec<u8>,
    width: usize,
    /// The next refresh has to include the jobs even on a server without `list-jobs`: their view was just opened, or an
    /// action has changed one of them.
    needs_jobs: bool,
}

impl App {
    /// The state before the first refresh.
    pub fn new(servers: Vec<String>) -> Self {
        let server = |name| ShownServer { name, ..ShownServer::default() };
        Self {
            servers: servers.into_iter().map(server).collect(),
            view: View::Tubes,
            rows: Vec::new(),
            jobs: None,
            body: Vec::new(),
            form: BodyForm { hex: false, wrap: true },
            selected: 0,
            scroll: 0,
            filter: String::new(),
            sort: SortKey::Buried,
            reversed: false,
            prompt: None,
            message: String::new(),
            bytes: Vec::new(),
            width: 80,
            needs_jobs: false,
        }
    }

    /// The requests for the next refresh: for all servers except servers whose last refresh is in progress.
    pub fn refresh(&mut self) -> Vec<BackendRequest> {
        let ready = (0..self.servers.len()).filter(|server| !self.servers[*server].is_refreshing);
        let ready: Vec<usize> = ready.collect();
        ready.into_iter().map(|server| self.refresh_one(server)).collect()
    }

    fn refresh_one(&mut self, server: usize) -> BackendRequest {
        self.servers[server].is_refreshing = true;
        let jobs = match &self.view {
            View::Jobs(of) | View::Body(of, _) if of.server == server => Some(of.clone()),
            View::Tubes | View::Jobs(_) | View::Body(..) => None,
        };
        let needs_jobs = jobs.is_some() && std::mem::take(&mut self.needs_jobs);
        BackendRequest::Refresh { server, jobs, needs_jobs }
    }

    /// Sets the width of the screen, to which a body is wrapped.
    pub fn set_width(&mut self, width: usize) {
        if self.width != width {
            self.width = width;
            self.lay_out_body();
        }
    }

    fn lay_out_body(&mut self) {
        self.body = body::lines(&self.bytes, self.form, self.width);
        self.scroll = self.scroll.min(self.body.len().saturating_sub(1));
    }

    /// Applies an update of the backend.
    pub fn take(&mut self, update: BackendAnswer, now: Instant) {
        match update {
            BackendAnswer::Tubes(number, tubes) => {
                let server = &mut self.servers[number];
                server.is_refreshing = false;
                server.is_known = true;
                (server.rows, server.gone) = match tubes {
                    Ok(tubes) => (server.rates.rows(number, &tubes, now), None),
                    Err(why) => (Vec::new(), Some(why)),
                };
                self.arrange();
            }
            // After a key has changed the view, an earlier answer no longer belongs to it.
            BackendAnswer::Jobs(of, found) => {
                if matches!(&self.view, View::Jobs(shown) | View::Body(shown, _) if *shown == of) {
                    match found {
                        Ok(jobs) => self.jobs = Some(jobs),
                        Err(why) => self.message = why,
                    }
                    self.keep_selection_inside();
                }
            }
            BackendAnswer::Body(id, bytes) => {
                if matches!(&self.view, View::Body(_, shown) if *shown == id) {
                    self.bytes = bytes;
                    self.lay_out_body();
                }
            }
            BackendAnswer::Message(text) => {
                self.message = text;
                self.needs_jobs = true;
            }
        }
    }

    /// Filters and sorts the tubes; the selected tube stays selected.
    fn arrange(&mut self) {
        let selected = self.selected_row().map(|row| (row.server, row.name.clone()));
        let all = self.servers.iter().flat_map(|server| &server.rows);
        self.rows = all.filter(|row| row.name.as_str().contains(&self.filter)).cloned().collect();
        sort(&mut self.rows, self.sort, self.reversed);
        if self.view == View::Tubes {
            let same = |row: &ShownTube| Some((row.server, row.name.clone())) == selected;
            self.selected = self.rows.iter().position(same).unwrap_or(self.selected);
            self.keep_selection_inside();
        }
    }

    fn keep_selection_inside(&mut self) {
        let count = if self.view == View::Tubes { self.rows.len() } else { self.jobs().len() };
        self.selected = self.selected.min(count.saturating_sub(1));
    }

    /// The jobs that were found so far.
    pub fn jobs(&self) -> &[JobInfo] {
        self.jobs.as_deref().unwrap_or_default()
    }

    fn selected_row(&self) -> Option<&ShownTube> {
        self.rows.get(self.selected).filter(|_| self.view == View::Tubes)
    }

    fn selected_job(&self) -> Option<u64> {
        match &self.view {
            View::Tubes => None,
            View::Jobs(_) => self.jobs().get(self.selected).map(|job| job.id),
            View::Body(_, id) => Some(*id),
        }
    }

    /// Handles a key.
    pub fn on_key(&mut self, key: KeyEvent) -> Reaction {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Reaction::Quit;
        }
        if let Some(prompt) = self.prompt.take() {
            return self.answer(prompt, key.code);
        }
        self.message.clear();
        match key.code {
            KeyCode::Up => self.step(-1),
            KeyCode::Down => self.step(1),
            KeyCode::PageUp => self.step(-20),
            KeyCode::PageDown => self.step(20),
            KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => {
                self.prompt = Some(Prompt::Help);
                Reaction::None
            }
            KeyCode::Char('q') if self.view == View::Tubes => Reaction::Quit,
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.back(),
            KeyCode::Enter | KeyCode::Right => self.drill(),
            code => match self.view.clone() {
                View::Tubes => self.on_tube_key(code),
                View::Jobs(of) | View::Body(of, _) => self.on_job_key(of, code),
            },
        }
    }

    fn answer(&mut self, prompt: Prompt, code: KeyCode) -> Reaction {
        match (prompt, code) {
            (Prompt::Confirm(_, request), KeyCode::Char('y' | 'Y')) => Reaction::Send(request),
            (Prompt::Confirm(..), _) => {
                self.message = "nothing was changed".to_owned();
                Reaction::None
            }
            (Prompt::Help, _) | (Prompt::Filter, KeyCode::Enter) => Reaction::None,
            (Prompt::Filter, code) => {
                match code {
                    KeyCode::Esc => self.filter.clear(),
                    KeyCode::Backspace => drop(self.filter.pop()),
                    KeyCode::Char(character) => self.filter.push(character),
                    _ => {}
                }
                self.prompt = Some(Prompt::Filter).filter(|_| code != KeyCode::Esc);
                self.arrange();
                Reaction::None
            }
        }
    }

    fn step(&mut self, by: isize) -> Reaction {
        let at = if matches!(self.view, View::Body(..)) { &mut self.scroll } else { &mut self.selected };
        *at = at.saturating_add_signed(by);
        self.scroll = self.scroll.min(self.body.len().saturating_sub(1));
        self.keep_selection_inside();
        Reaction::None
    }

    fn show(&mut self, view: View) -> Reaction {
        if let View::Jobs(_) = view {
            (self.jobs, self.selected) = (None, 0);
        }
        self.view = view;
        self.needs_jobs = true;
        let server = match &self.view {
            View::Tubes => 0,
            View::Jobs(of) | View::Body(of, _) => of.server,
        };
        Reaction::Send(self.refresh_one(server))
    }

    fn back(&mut self) -> Reaction {
        match self.view.clone() {
            View::Tubes => Reaction::None,
            View::Jobs(of) => {
                self.view = View::Tubes;
                let same = |row: &ShownTube| row.server == of.server && row.name == of.tube;
                self.selected = self.rows.iter().position(same).unwrap_or(0);
                Reaction::None
            }
            View::Body(of, id) => {
                self.view = View::Jobs(of);
                self.selected = self.jobs().iter().position(|job| job.id == id).unwrap_or(self.selected);
                self.keep_selection_inside();
                Reaction::None
            }
        }
    }

    fn drill(&mut self) -> Reaction {
        match (self.view.clone(), self.selected_row().cloned(), self.selected_job()) {
            (View::Tubes, Some(row), _) => {
                let state = first_state(&row);
                self.show(View::Jobs(JobsOf { server: row.server, tube: row.name, state }))
            }
            (View::Jobs(of), _, Some(id)) => {
                (self.bytes, self.body, self.scroll) = (Vec::new(), Vec::new(), 0);
                let server = of.server;
                self.view = View::Body(of, id);
                Reaction::Send(BackendRequest::Body { server, id })
            }
            _ => Reaction::None,
        }
    }

    fn on_tube_key(&mut self, code: KeyCode) -> Reaction {
        match code {
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('/') => self.prompt = Some(Prompt::Filter),
            _ => {
                let Some(row) = self.selected_row().cloned() else { return Reaction::None };
                return self.act_on_tube(&row, code);
            }
        }
        self.arrange();
        Reaction::None
    }

    fn act_on_tube(&mut self, row: &ShownTube, code: KeyCode) -> Reaction {
        let request = |action| BackendRequest::Act(row.server, row.name.clone(), action);
        let [ready, reserved, delayed, buried] = row.counts;
        let (name, total) = (&row.name, ready + reserved + delayed + buried);
        match code {
            KeyCode::Char('p') if row.pause > 0 => Reaction::Send(request(RequestedAction::Pause(0))),
            KeyCode::Char('p') => Reaction::Send(request(RequestedAction::Pause(PAUSE))),
            KeyCode::Char('k') => self.ask(
                format!("kick {} of {name}", counted(buried, "buried job")),
                request(RequestedAction::KickBuried),
            ),
            KeyCode::Char('D') => self
                .ask(format!("delete {} of {name}", counted(total, "job")), request(RequestedAction::Flush)),
            _ => Reaction::None,
        }
    }

    fn on_job_key(&mut self, of: JobsOf, code: KeyCode) -> Reaction {
        if let (View::Jobs(_), KeyCode::Tab | KeyCode::BackTab) = (&self.view, code) {
            let at = JobState::ALL.iter().position(|state| *state == of.state).unwrap_or(0);
            let by = if code == KeyCode::Tab { 1 } else { 3 };
            let state = JobState::ALL[(at + by) % JobState::ALL.len()];
            return self.show(View::Jobs(JobsOf { state, ..of }));
        }
        if let (View::Body(..), KeyCode::Char(key @ ('w' | 'x'))) = (&self.view, code) {
            match key {
                'w' => self.form.wrap = !self.form.wrap,
                _ => self.form.hex = !self.form.hex,
            }
            self.lay_out_body();
            return Reaction::None;
        }
        let Some(id) = self.selected_job() else { return Reaction::None };
        let request = |change| job_request(of.server, &of.tube, id, change);
        match code {
            KeyCode::Char('k') => Reaction::Send(request(JobChange::Kick)),
            KeyCode::Char('b') => Reaction::Send(request(JobChange::Bury)),
            KeyCode::Char('d') => self.ask(format!("delete job {id}"), request(JobChange::Delete)),
            _ => Reaction::None,
        }
    }

    fn ask(&mut self, what: String, request: BackendRequest) -> Reaction {
        self.prompt = Some(Prompt::Confirm(what, request));
        Reaction::None
    }
}

fn job_request(server: usize, tube: &TubeName, id: u64, change: JobChange) -> BackendRequest {
    BackendRequest::Act(server, tube.clone(), RequestedAction::Job(id, change))
}

/// The state whose jobs are shown first: buried, or otherwise the first state with jobs.
fn first_state(row: &ShownTube) -> JobState {
    let [ready, reserved, delayed, buried] = row.counts;
    match () {
        () if buried > 0 => JobState::Buried,
        () if ready > 0 => JobState::Ready,
        () if reserved > 0 => JobState::Reserved,
        () if delayed > 0 => JobState::Delayed,
        () => JobState::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Tube;
    use beanstalk_client::parse_dictionary;

    fn tube(name: &str, ready: u64, buried: u64) -> Tube {
        let data = format!("---\ncurrent-jobs-ready: {ready}\ncurrent-jobs-buried: {buried}\n");
        Tube { name: name.parse().unwrap(), stats: parse_dictionary(data.as_bytes()).unwrap() }
    }

    fn app() -> App {
        let mut app = App::new(vec!["here".to_owned()]);
        app.take(
            BackendAnswer::Tubes(0, Ok(vec![tube("a", 9, 0), tube("b", 1, 2), tube("c", 0, 0)])),
            Instant::now(),
        );
        app
    }

    fn press(app: &mut App, code: KeyCode) -> Reaction {
        app.on_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn type_in(app: &mut App, keys: &str) {
        keys.chars().for_each(|key| drop(press(app, KeyCode::Char(key))));
    }

    fn selected(app: &App) -> String {
        app.rows[app.selected].name.to_string()
    }

    #[test]
    fn the_selected_tube_stays_selected_when_the_order_changes() {
        let mut app = app();
        assert_eq!(selected(&app), "b");
        press(&mut app, KeyCode::Down);
        assert_eq!(selected(&app), "a");
        type_in(&mut app, "r");
        assert_eq!(selected(&app), "a");
    }

    #[test]
    fn a_filter_can_be_typed_kept_and_cancelled() {
        let mut app = app();
        type_in(&mut app, "/b");
        assert_eq!((app.rows.len(), app.filter.as_str()), (1, "b"));
        press(&mut app, KeyCode::Enter);
        assert_eq!((app.rows.len(), &app.prompt), (1, &None));
        type_in(&mut app, "/q");
        assert_eq!(app.rows.len(), 0, "a letter of the filter is no command");
        press(&mut app, KeyCode::Esc);
        assert_eq!(app.rows.len(), 3);
    }

    #[test]
    fn nothing_is_deleted_without_a_yes() {
        let mut app = app();
        assert_eq!(press(&mut app, KeyCode::Char('D')), Reaction::None);
        assert_eq!(press(&mut app, KeyCode::Enter), Reaction::None);
        press(&mut app, KeyCode::Char('D'));
        let asked = press(&mut app, KeyCode::Char('y'));
        assert_eq!(
            asked,
            Reaction::Send(BackendRequest::Act(0, "b".parse().unwrap(), RequestedAction::Flush))
        );
    }

    #[test]
    fn one_job_is_asked_about_in_the_singular() {
        for (buried, kick, delete) in [
            (1, "kick 1 buried job of t", "delete 1 job of t"),
            (2, "kick 2 buried jobs of t", "delete 2 jobs of t"),
        ] {
            for (key, question) in [('k', kick), ('D', delete)] {
                let mut app = App::new(vec!["here".to_owned()]);
                app.take(BackendAnswer::Tubes(0, Ok(vec![tube("t", 0, buried)])), Instant::now());
                press(&mut app, KeyCode::Char(key));
                assert!(
                    matches!(&app.prompt, Some(Prompt::Confirm(asked, _)) if asked == question),
                    "{question}"
                );
            }
        }
    }

    #[test]
    fn drilling_shows_buried_jobs_first_and_old_answers_are_dropped() {
        let mut app = app();
        let of = JobsOf { server: 0, tube: "b".parse().unwrap(), state: JobState::Buried };
        let refresh =
            Reaction::Send(BackendRequest::Refresh { server: 0, jobs: Some(of.clone()), needs_jobs: true });
        assert_eq!(press(&mut app, KeyCode::Enter), refresh);
        press(&mut app, KeyCode::Tab);
        assert!(matches!(&app.view, View::Jobs(of) if of.state == JobState::Ready));
        let data = b"---\nid: 1\ntube: \"b\"\nstate: buried\npri: 0\nage: 0\nttr: 1\n";
        let job = JobInfo::from_stats(&parse_dictionary(data).unwrap()).unwrap();
        app.take(BackendAnswer::Jobs(of, Ok(vec![job])), Instant::now());
        assert!(app.jobs.is_none(), "of another state");
        press(&mut app, KeyCode::Esc);
        assert_eq!((&app.view, selected(&app)), (&View::Tubes, "b".to_owned()));
        assert_eq!(press(&mut app, KeyCode::Char('q')), Reaction::Quit);
    }
}
