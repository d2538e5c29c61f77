//! `top`: a live view of tubes and jobs.
//!
//! Owns: the terminal, and the loop that draws, waits for a key, and passes requests to the [`backend`]. [`app`] is the
//! state of the screen and handles keys, without a terminal; [`draw`] draws it.

mod app;
mod backend;
mod body;
mod columns;
mod draw;
mod rows;
mod views;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use app::{App, Reaction};
use backend::{BackendAnswer, BackendRequest};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::commands::ServerArguments;
use crate::failure::{Failure, Result};
use crate::server::PolledServer;
use crate::{interrupt, progress};

/// The longest wait for a key, after which updates of the backend are drawn.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// How long the loop may take to end after a signal. If the terminal is gone, the read of a key never returns, so the
/// loop would not end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// Runs until the user quits.
pub fn run(servers: &ServerArguments, interval: Duration) -> Result {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage("top needs a terminal; `tubes`, `jobs` and `watch` do not".to_owned()));
    }
    progress::hide();
    let opened = servers.open_some()?;
    let (outbox, answers) = channel();
    let mut requests = Vec::new();
    for (address, connected) in servers.addresses().iter().zip(opened) {
        let (address, connector) = (address.clone(), servers.connector().clone());
        let server = PolledServer { address, connector, connected };
        let (sender, inbox) = channel();
        let outbox = outbox.clone();
        std::thread::spawn(move || backend::run(server, &inbox, &outbox));
        requests.push(sender);
    }
    // The send fails only if the backend has ended, and its last answer says why.
    let send = |request: BackendRequest| drop(requests[request.server()].send(request));
    std::thread::spawn(end_after_a_signal);
    let app = App::new(servers.addresses().iter().map(ToString::to_string).collect());
    // This also restores the terminal if the program panics.
    let ended = run_on(ratatui::init(), app, interval, &send, &answers);
    ratatui::restore();
    ended.map_err(|error| Failure::Local(format!("the terminal: {error}")))
}

/// Draws, waits for a key, and passes requests to the backends.
fn run_on(
    mut terminal: DefaultTerminal,
    mut app: App,
    interval: Duration,
    send: &dyn Fn(BackendRequest),
    answers: &Receiver<BackendAnswer>,
) -> io::Result<()> {
    let mut next_refresh = Instant::now();
    loop {
        if Instant::now() >= next_refresh {
            app.refresh().into_iter().for_each(send);
            next_refresh = Instant::now() + interval;
        }
        while let Ok(answer) = answers.try_recv() {
            app.take(answer, Instant::now());
        }
        app.set_width(usize::from(terminal.size()?.width));
        terminal.draw(|frame| draw::draw(frame, &app))?;
        if interrupt::requested() {
            return Ok(());
        }
        if !event::poll(MAX_WAIT)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match app.on_key(key) {
            Reaction::None => {}
            Reaction::Quit => return Ok(()),
            Reaction::Send(request) => {
                send(request);
                next_refresh = Instant::now();
            }
        }
    }
}

fn end_after_a_signal() {
    while !interrupt::wait(Duration::MAX) {}
    std::thread::sleep(GRACE);
    ratatui::restore();
    std::process::exit(130);
}
