//! The state of `top`, and the effect of each key. Pure: no terminal, no server, no clock.

use std::mem;
use std::time::Instant;

use beanstalk_client::JobState;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::backend::{BackendAnswer, BackendRequest, JobsOf, RequestedAction};
use super::body::BodyForm;
use super::rows::{Rates, ShownTube};
use super::views::{BodyView, JobsView, TubesView, inside};
use crate::commands::change::JobChange;
use crate::output::counted;

/// The length of a pause that the key `p` starts, in seconds.
const PAUSE: u32 = 3600;

/// The view that is on the screen.
#[derive(Default)]
pub enum View {
    /// All tubes.
    #[default]
    Tubes,
    /// The jobs of a tube; or the body of one of them, if that is there.
    Jobs(JobsView, Option<BodyView>),
}

/// A server, as the screen shows it.
#[derive(Default)]
pub struct ShownServer {
    /// Its address.
    pub name: String,
    /// Its tubes, or the reason why it does not answer; `None` before the first answer.
    pub answer: Option<Result<Vec<ShownTube>, String>>,
    rates: Rates,
    /// A refresh was requested, and its answer has not arrived.
    is_refreshing: bool,
}

impl ShownServer {
    /// The reason why it does not answer.
    pub fn gone(&self) -> Option<&str> {
        self.answer.as_ref()?.as_ref().err().map(String::as_str)
    }
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
#[derive(Default)]
pub struct App {
    /// The servers.
    pub servers: Vec<ShownServer>,
    /// Their tubes.
    pub tubes: TubesView,
    /// The view that is on the screen.
    pub view: View,
    /// How bodies are shown.
    pub form: BodyForm,
    width: usize,
    /// The prompt that takes the next keys, if there is one.
    pub prompt: Option<Prompt>,
    /// The result of the last action, or an error.
    pub message: String,
}

impl App {
    /// The state before the first refresh.
    pub fn new(servers: Vec<String>) -> Self {
        let server = |name| ShownServer { name, ..ShownServer::default() };
        Self {
            servers: servers.into_iter().map(server).collect(),
            form: BodyForm { hex: false, wrap: true },
            width: 80,
            ..Self::default()
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
        let (jobs, needs_jobs) = match &mut self.view {
            View::Jobs(jobs, _) if jobs.of.server == server => {
                (Some(jobs.of.clone()), mem::take(&mut jobs.is_stale))
            }
            View::Tubes | View::Jobs(..) => (None, false),
        };
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
        if let View::Jobs(_, Some(body)) = &mut self.view {
            body.lay_out(self.form, self.width);
        }
    }

    /// Applies an update of the backend.
    pub fn take(&mut self, update: BackendAnswer, now: Instant) {
        match (update, &mut self.view) {
            (BackendAnswer::Tubes(number, tubes), _) => {
                let server = &mut self.servers[number];
                server.is_refreshing = false;
                server.answer = Some(tubes.map(|tubes| server.rates.rows(number, &tubes, now)));
                self.arrange();
            }
            (BackendAnswer::Jobs(of, found), View::Jobs(jobs, _)) if jobs.of == of => match found {
                Ok(found) => jobs.show(found),
                Err(why) => self.message = why,
            },
            (BackendAnswer::Body(id, bytes), View::Jobs(_, Some(body))) if body.id == id => {
                body.bytes = bytes;
                self.lay_out_body();
            }
            // A key has changed the view since the request.
            (BackendAnswer::Jobs(..) | BackendAnswer::Body(..), _) => {}
            (BackendAnswer::Message(text), view) => {
                self.message = text;
                if let View::Jobs(jobs, _) = view {
                    jobs.is_stale = true;
                }
            }
        }
    }

    fn arrange(&mut self) {
        let answers = self.servers.iter().filter_map(|server| server.answer.as_ref());
        self.tubes.arrange(answers.flatten().flatten());
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
            KeyCode::Char('q') if matches!(self.view, View::Tubes) => Reaction::Quit,
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.back(),
            KeyCode::Enter | KeyCode::Right => self.drill(),
            code => match &self.view {
                View::Tubes => self.on_tubes_key(code),
                View::Jobs(jobs, None) => self.on_jobs_key(jobs.of.clone(), jobs.selected_id(), code),
                View::Jobs(jobs, Some(body)) => self.on_body_key(&jobs.of.clone(), body.id, code),
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
                    KeyCode::Esc => self.tubes.filter.clear(),
                    KeyCode::Backspace => drop(self.tubes.filter.pop()),
                    KeyCode::Char(character) => self.tubes.filter.push(character),
                    _ => {}
                }
                self.prompt = Some(Prompt::Filter).filter(|_| code != KeyCode::Esc);
                self.arrange();
                Reaction::None
            }
        }
    }

    fn step(&mut self, by: isize) -> Reaction {
        let (index, count) = match &mut self.view {
            View::Tubes => (&mut self.tubes.selected, self.tubes.rows.len()),
            View::Jobs(jobs, None) => {
                let count = jobs.jobs().len();
                (&mut jobs.selected, count)
            }
            View::Jobs(_, Some(body)) => (&mut body.scroll, body.lines.len()),
        };
        *index = inside(index.saturating_add_signed(by), count);
        Reaction::None
    }

    fn show_jobs(&mut self, of: JobsOf) -> Reaction {
        let server = of.server;
        self.view = View::Jobs(JobsView::new(of), None);
        Reaction::Send(self.refresh_one(server))
    }

    fn back(&mut self) -> Reaction {
        if let View::Jobs(jobs, body) = &mut self.view {
            match body.take() {
                Some(BodyView { id, .. }) => {
                    let position = jobs.jobs().iter().position(|job| job.id == id);
                    jobs.selected = position.unwrap_or(jobs.selected);
                }
                None => {
                    let JobsOf { server, tube, .. } = &jobs.of;
                    self.tubes.selected = self.tubes.position(*server, tube).unwrap_or(0);
                    self.view = View::Tubes;
                }
            }
        }
        Reaction::None
    }

    fn drill(&mut self) -> Reaction {
        match &mut self.view {
            View::Tubes => {
                let of = self.tubes.selected_row().map(jobs_of);
                of.map_or(Reaction::None, |of| self.show_jobs(of))
            }
            View::Jobs(_, Some(_)) => Reaction::None,
            View::Jobs(jobs, body) => {
                let Some(id) = jobs.selected_id() else { return Reaction::None };
                *body = Some(BodyView { id, ..BodyView::default() });
                Reaction::Send(BackendRequest::Body { server: jobs.of.server, id })
            }
        }
    }

    fn on_tubes_key(&mut self, code: KeyCode) -> Reaction {
        match code {
            KeyCode::Char('s') => self.tubes.sort = self.tubes.sort.next(),
            KeyCode::Char('r') => self.tubes.reversed = !self.tubes.reversed,
            KeyCode::Char('/') => self.prompt = Some(Prompt::Filter),
            _ => {
                let Some(row) = self.tubes.selected_row().cloned() else { return Reaction::None };
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

    fn on_jobs_key(&mut self, of: JobsOf, selected: Option<u64>, code: KeyCode) -> Reaction {
        let by = match code {
            KeyCode::Tab => 1,
            KeyCode::BackTab => JobState::ALL.len() - 1,
            code => return selected.map_or(Reaction::None, |id| self.act_on_job(&of, id, code)),
        };
        let at = JobState::ALL.iter().position(|state| *state == of.state).unwrap_or(0);
        self.show_jobs(JobsOf { state: JobState::ALL[(at + by) % JobState::ALL.len()], ..of })
    }

    fn on_body_key(&mut self, of: &JobsOf, id: u64, code: KeyCode) -> Reaction {
        match code {
            KeyCode::Char('w') => self.form.wrap = !self.form.wrap,
            KeyCode::Char('x') => self.form.hex = !self.form.hex,
            code => return self.act_on_job(of, id, code),
        }
        self.lay_out_body();
        Reaction::None
    }

    fn act_on_job(&mut self, of: &JobsOf, id: u64, code: KeyCode) -> Reaction {
        let request =
            |change| BackendRequest::Act(of.server, of.tube.clone(), RequestedAction::Job(id, change));
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

/// The jobs of a tube that are shown first: the buried ones, or otherwise those of the first state with jobs.
fn jobs_of(row: &ShownTube) -> JobsOf {
    let [ready, reserved, delayed, buried] = row.counts;
    let state = match () {
        () if buried > 0 => JobState::Buried,
        () if ready > 0 => JobState::Ready,
        () if reserved > 0 => JobState::Reserved,
        () if delayed > 0 => JobState::Delayed,
        () => JobState::Ready,
    };
    JobsOf { server: row.server, tube: row.name.clone(), state }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Tube;
    use beanstalk_client::{JobInfo, parse_dictionary};

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
        app.tubes.selected_row().unwrap().name.to_string()
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
        assert_eq!((app.tubes.rows.len(), app.tubes.filter.as_str()), (1, "b"));
        press(&mut app, KeyCode::Enter);
        assert_eq!((app.tubes.rows.len(), &app.prompt), (1, &None));
        type_in(&mut app, "/q");
        assert_eq!(app.tubes.rows.len(), 0, "a letter of the filter is no command");
        press(&mut app, KeyCode::Esc);
        assert_eq!(app.tubes.rows.len(), 3);
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
        assert!(matches!(&app.view, View::Jobs(jobs, None) if jobs.of.state == JobState::Ready));
        let data = b"---\nid: 1\ntube: \"b\"\nstate: buried\npri: 0\nage: 0\nttr: 1\n";
        let job = JobInfo::from_stats(&parse_dictionary(data).unwrap()).unwrap();
        app.take(BackendAnswer::Jobs(of, Ok(vec![job])), Instant::now());
        assert!(matches!(&app.view, View::Jobs(jobs, None) if jobs.found.is_none()), "of another state");
        press(&mut app, KeyCode::Esc);
        assert!(matches!(app.view, View::Tubes) && selected(&app) == "b");
        assert_eq!(press(&mut app, KeyCode::Char('q')), Reaction::Quit);
    }
}
