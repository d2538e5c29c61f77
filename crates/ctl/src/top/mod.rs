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
use std::sync::mpsc;
use std::time::{Duration, Instant};

use app::{App, Reaction};
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
    let names = servers.addresses().iter().map(ToString::to_string).collect();
    let (outbox, updates) = mpsc::channel();
    let mut requests = Vec::new();
    for (address, connected) in servers.addresses().iter().zip(opened) {
        let (address, connector) = (address.clone(), servers.connector().clone());
        let server = PolledServer { address, connector, connected };
        let (sender, inbox) = mpsc::channel();
        let outbox = outbox.clone();
        std::thread::spawn(move || backend::run(server, &inbox, &outbox));
        requests.push(sender);
    }
    // The send fails only if the backend has ended, and its last update says why.
    let send = |request: backend::BackendRequest| drop(requests[request.server()].send(request));
    std::thread::spawn(end_after_a_signal);
    let mut app = App::new(names);
    // This also restores the terminal if the program panics.
    let mut terminal = ratatui::init();
    let ended = (|| -> io::Result<()> {
        let mut next_refresh = Instant::now();
        loop {
            if Instant::now() >= next_refresh {
                app.refresh().into_iter().for_each(&send);
                next_refresh = Instant::now() + interval;
            }
            while let Ok(update) = updates.try_recv() {
                app.take(update, Instant::now());
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
