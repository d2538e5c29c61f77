//! `top`: tubes and jobs, live.
//!
//! Owns: the terminal, and the loop that draws, waits for a key, and passes requests to the [`backend`]. [`app`] is what is
//! shown and what a key does, without any terminal; [`draw`] puts it on the screen.

mod app;
mod backend;
mod draw;
mod rows;

use crate::commands::Servers;
use crate::failure::Failure;
use crate::{interrupt, progress};
use app::{App, Reaction};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long one wait for a key may be: then what the backend has brought is shown.
const TURN: Duration = Duration::from_millis(50);

/// How long after a signal the loop may take to end. It never ends by itself where the terminal is gone: the reader of
/// keys then reads without end.
const GRACE: Duration = Duration::from_secs(1);

/// Shows until the user quits.
pub fn run(servers: &Servers, interval: Duration) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "top needs a terminal; `tubes`, `jobs` and `watch` do without".to_owned(),
        ));
    }
    progress::hide();
    let sessions = servers.all()?;
    let names: Vec<String> = sessions.iter().map(|session| session.address.to_string()).collect();
    let (requests, inbox) = mpsc::channel();
    let (outbox, updates) = mpsc::channel();
    let timeout = servers.timeout();
    std::thread::spawn(move || backend::run(sessions, timeout, &inbox, &outbox));
    std::thread::spawn(end_after_a_signal);
    let mut app = App::new(names);
    // It also restores the terminal when the program panics.
    let mut terminal = ratatui::init();
    let ended = (|| -> io::Result<()> {
        let mut next_look = Instant::now();
        loop {
            if Instant::now() >= next_look && !app.is_waiting() {
                // A backend that has ended has told why.
                let _ = requests.send(app.look());
                next_look = Instant::now() + interval;
            }
            while let Ok(update) = updates.try_recv() {
                app.take(update, Instant::now());
            }
            terminal.draw(|frame| draw::draw(frame, &app))?;
            if interrupt::requested() {
                return Ok(());
            }
            if !event::poll(TURN)? {
                continue;
            }
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match app.on_key(key) {
                Reaction::None => {}
                Reaction::Quit => return Ok(()),
                Reaction::Ask(request) => {
                    let _ = requests.send(request);
                    next_look = Instant::now();
                }
            }
        }
    })();
    ratatui::restore();
    ended.map_err(|error| Failure::Local(format!("the terminal: {error}")))
}

fn end_after_a_signal() {
    while !interrupt::wait(Duration::MAX) {}
    std::thread::sleep(GRACE);
    ratatui::restore();
    std::process::exit(130);
}
