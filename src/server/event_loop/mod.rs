//! The loop around [`Server`]: the poll, the sockets, the signals, the clock.
//!
//! Owns: everything that uses the system while the server runs. Turns the poll's events into [`Readiness`], reads the
//! clock before each turn, and decides how long to sleep. `listeners.rs` accepts clients.

mod hand_over;
mod listeners;
mod memory;
mod reload;

use std::fmt;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use log::{error, info};
use mio::event::Event;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

pub use self::hand_over::{HandOverInputs, answer};
pub use self::listeners::AcceptLimits;
pub use self::reload::{ReadRules, ReadTubeRules, Reload};

use self::hand_over::HandOver;
use self::listeners::Listeners;
use self::memory::Memory;
use super::notifier::Notifier;
use super::{Executor, Readiness, Server};
use crate::binlog::BinlogError;
use crate::clock::Timestamp;
use crate::description::{Malformed, Reader};
use crate::http::{HttpServer, ServerPhase, Site};
use crate::os;
use crate::os::listen::Listener;
use crate::os::signals::{Signal, Signals};
use crate::poll_token::PollToken;
use crate::queue::ClientId;
use crate::stream::{Accepted, Socket};

/// The maximum number of events from one poll.
const MAX_EVENTS: usize = 1024;

/// A longer sleep is interrupted: the clock counts the time while the machine is suspended, but the poll may not.
const MAX_SLEEP: Duration = Duration::from_secs(10);

/// How long the server sends replies after the signal to stop.
const FLUSH: Duration = Duration::from_secs(1);
/// How long the tasks of the binlog's store can wait for a moment in which the loop has nothing else to do.
const MAX_UNBEGUN_NS: u64 = 1_000_000;

/// The server's clock: the wall time at the start plus the boot time since then.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_ns: u64,
}

impl Clock {
    /// A clock that adds this to the time since the machine was started.
    #[must_use]
    pub fn with_offset(offset_ns: u64) -> Self {
        Self { offset_ns }
    }

    /// A clock that starts at the wall time.
    #[must_use]
    pub fn start() -> Self {
        Self { offset_ns: os::clock::wall_time_ns().saturating_sub(os::clock::boot_time_ns()) }
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp(self.offset_ns + os::clock::boot_time_ns())
    }

    /// How far the machine's wall clock, which can be set, is ahead of this one at `now`, in nanoseconds.
    #[must_use]
    pub fn wall_offset_ns(now: Timestamp) -> i64 {
        now.offset_ns(os::clock::wall_time_ns())
    }
}

/// The reason why the loop has ended early.
#[derive(Debug)]
pub enum LoopError {
    /// The poll itself has failed.
    Poll(io::Error),
    /// The disk has failed: changes that the binlog does not contain were not acknowledged.
    Binlog(BinlogError),
}

impl fmt::Display for LoopError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(error) => write!(out, "poll: {error}"),
            Self::Binlog(error) => {
                write!(out, "{error}; ending, so that a restart begins from what the disk holds")
            }
        }
    }
}

impl std::error::Error for LoopError {}

/// The settings of the loop.
#[derive(Clone, Copy, Debug)]
pub struct LoopSettings {
    /// How many clients can connect.
    pub accept: AcceptLimits,
    /// Fills the memory reserve again; returns whether it is full.
    pub fill_memory_reserve: fn() -> bool,
    /// How long to poll for events before sleeping.
    pub spin: Duration,
    /// How long a client may be idle that neither waits for the end of a command nor has reserved a job; `None` for no
    /// limit.
    pub idle_timeout: Option<Duration>,
}

/// The server with its sockets.
pub struct EventLoop {
    poll: Poll,
    registry: Rc<Registry>,
    server: Server<Socket>,
    listeners: Listeners,
    signals: Signals,
    clock: Clock,
    spin: Duration,
    memory: Memory,
    /// Since when the store of the binlog has had tasks that it has not begun.
    unbegun_since: Option<Timestamp>,
    notifier: Option<Notifier>,
    metrics: Option<HttpServer>,
    admin: Option<HttpServer>,
    reload: Reload,
    hand_over: HandOver,
}

impl EventLoop {
    /// A loop that serves on `listeners`; `reload` has the files that SIGHUP reads again.
    ///
    /// # Errors
    /// If the system provides no poll, or does not add a socket to it.
    pub fn new(
        executor: Executor,
        listeners: Vec<Listener>,
        reload: Reload,
        mut signals: Signals,
        clock: Clock,
        settings: LoopSettings,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = Rc::new(poll.registry().try_clone()?);
        registry.register(&mut signals, PollToken::Signals.into(), Interest::READABLE)?;
        let listeners = Listeners::open(listeners, reload.acceptor(), settings.accept, &registry)?;
        let mut server = Server::new(executor);
        server.limit_log_ins(listeners.log_in_limit());
        server.executor_mut().measure_time(move || clock.now());
        if let Some(acceptor) = reload.acceptor() {
            server.executor_mut().show_tls(acceptor);
        }
        if let Some(timeout) = settings.idle_timeout {
            server.close_idle_after(timeout);
        }
        let memory = Memory::new(settings.fill_memory_reserve);
        Ok(Self {
            poll,
            registry,
            server,
            listeners,
            signals,
            clock,
            spin: settings.spin,
            memory,
            notifier: Notifier::from_environment(),
            metrics: None,
            admin: None,
            reload,
            hand_over: HandOver::default(),
            unbegun_since: None,
        })
    }

    /// Starts the thread on which the store of the binlog does its slow work.
    ///
    /// # Errors
    /// If the system provides no thread.
    pub fn start_binlog(&mut self) -> io::Result<()> {
        let waker = Waker::new(&self.registry, PollToken::BinlogHelper.into())?;
        let wake = move || {
            if let Err(error) = waker.wake() {
                error!("cannot wake the loop: {error}");
            }
        };
        self.server.executor_mut().persistence.start_binlog(wake)
    }

    /// Serves a site on `listener`, too. `host` is the host that the command line names for it.
    ///
    /// # Errors
    /// If the system does not add the socket to its poll.
    pub fn serve_http(&mut self, listener: Listener, host: Option<String>, site: Site) -> io::Result<()> {
        let is_admin = matches!(site, Site::Admin(_));
        let site = HttpServer::new(listener, self.reload.acceptor(), host, site, &self.registry)?;
        if is_admin {
            self.server.executor_mut().accept_orders(os::process::random_u64() as u32);
            self.admin = Some(site);
        } else {
            self.metrics = Some(site);
        }
        Ok(())
    }

    /// Serves until a signal says to stop; then sends the replies that are owed for a moment.
    ///
    /// # Errors
    /// If the poll or the disk fails.
    pub fn run(mut self) -> Result<(), LoopError> {
        // Signals that came while the server waited for its store cause no event. One of them may ask for new rules,
        // which must be in force before the first command.
        let stop = self.obey_signals(self.clock.now());
        self.server.executor_mut().begin_graces(self.clock.now());
        let mut events = Events::with_capacity(MAX_EVENTS);
        if let Some(notifier) = &mut self.notifier {
            notifier.ready(self.server.executor(), self.clock.now());
        }
        while !stop
            && !self.turn(&mut events).map_err(LoopError::Poll)?
            && !self.server.executor().has_failed()
        {}
        info!("stopping");
        if let Some(notifier) = &mut self.notifier {
            notifier.stopping(self.clock.now());
        }
        self.listeners.close();
        // From now on, health checks fail to connect.
        self.metrics = None;
        self.admin = None;
        self.flush_replies(&mut events).map_err(LoopError::Poll)?;
        self.server.executor_mut().close_binlog(self.clock.now()).map_err(LoopError::Binlog)
    }

    /// One turn; returns whether it is time to stop.
    #[inline(always)] // `run` alone calls it.
    fn turn(&mut self, events: &mut Events) -> io::Result<bool> {
        self.poll_for_events(events)?;
        let now = self.clock.now();
        let mut stop = false;
        for event in events.iter() {
            match PollToken::decode(event.token()) {
                Some(PollToken::Signals) => stop |= self.obey_signals(now),
                Some(PollToken::Listener(number)) => self.listeners.notice(number),
                Some(PollToken::HttpListener(_) | PollToken::HttpConnection(_)) => {
                    for site in self.metrics.iter_mut().chain(&mut self.admin) {
                        site.notice(event);
                    }
                }
                // The server gets the events of its clients below; the binlog's store is polled in each turn.
                Some(PollToken::Client(_) | PollToken::BinlogHelper | PollToken::HandOver) | None => {}
            }
        }
        let clients = events.iter().filter_map(|event| Some((client_of(event.token())?, readiness(event))));
        self.turn_of_server(clients, now);
        self.begin_binlog_tasks(events.is_empty(), now);
        if self.metrics.is_some() {
            let spent_ns = self.clock.now().since_ns(now);
            self.server.executor_mut().observe_turn(spent_ns);
        }
        // After the clients were served, so that descriptors of disconnected clients can be used again.
        if !self.hand_over.is_paused() {
            self.listeners.accept(&mut self.server, &self.registry, now);
        }
        let executor = self.server.executor();
        self.memory.manage(executor.counted_cost(), || executor.memory_bytes(), now);
        self.turn_http_and_report(now);
        // A server that has received SIGTERM stops and does not hand over.
        if self.hand_over.is_wanted() && !stop {
            self.continue_hand_over(now);
        }
        Ok(stop)
    }

    /// Runs the turns of the HTTP sites, and reports to the service manager.
    fn turn_http_and_report(&mut self, now: Timestamp) {
        for site in [&mut self.metrics, &mut self.admin].into_iter().flatten() {
            let (executor, connections) = self.server.parts();
            site.turn(ServerPhase::Serving((executor, &connections)), now);
        }
        if let Some(acceptor) = self.reload.acceptor() {
            acceptor.report(now);
        }
        self.server.executor_mut().log_refused_puts(now);
        self.server.executor_mut().log_full_dead_tubes(now);
        if let Some(notifier) = &mut self.notifier {
            notifier.turn(self.server.executor(), now);
        }
    }

    /// When there is work even if no event comes.
    fn next_turn_at(&self) -> Option<Timestamp> {
        let executor = self.server.executor();
        let next = Timestamp::earliest([
            self.server.next_turn_at(),
            executor.persistence.store_tasks_begin_at(),
            self.listeners.next_turn_at(),
            executor.next_line_of_refused_puts_at(),
            self.memory.next_turn_at(),
            self.notifier.as_ref().map(Notifier::next_at),
            self.metrics.as_ref().map(HttpServer::next_turn_at),
            self.admin.as_ref().map(HttpServer::next_turn_at),
        ]);
        if !self.hand_over.is_wanted() {
            return next;
        }
        Timestamp::earliest([next, self.hand_over.next_turn_at(self.clock.now())])
    }

    /// Sends the replies that are owed, for a moment: the server does not wait for a client that does not read.
    fn flush_replies(&mut self, events: &mut Events) -> io::Result<()> {
        let end = self.clock.now() + FLUSH.as_nanos() as u64;
        while self.server.owes_replies() && self.clock.now() < end && !self.server.executor().has_failed() {
            let next = self.server.next_turn_at().map_or(end, |at| at.min(end));
            let left = next.since_ns(self.clock.now());
            self.wait(events, Some(Duration::from_nanos(left)))?;
            let now = self.clock.now();
            let writable = |event: &Event| {
                Some((client_of(event.token())?, Readiness { readable: false, ..readiness(event) }))
            };
            self.turn_of_server(events.iter().filter_map(writable), now);
            self.begin_binlog_tasks(true, now);
        }
        Ok(())
    }

    /// A turn of the server, after it has polled the store of the binlog.
    fn turn_of_server(&mut self, events: impl Iterator<Item = (ClientId, Readiness)>, now: Timestamp) {
        self.server.poll_binlog(now);
        self.server.executor_mut().persistence.set_wall_offset(|| Clock::wall_offset_ns(now));
        self.server.turn(events, now);
    }

    /// Starts the tasks of the binlog's store once the loop has nothing else to do. With `-f 0`, a sync then covers all
    /// clients that the last sync has answered, instead of only the first of them.
    fn begin_binlog_tasks(&mut self, had_no_event: bool, now: Timestamp) {
        self.unbegun_since = match self.server.executor().persistence.store_tasks_begin_at() {
            None => None,
            Some(at) => {
                let since = self.unbegun_since.unwrap_or(now);
                let is_idle = had_no_event && self.server.next_turn_at() != Some(Timestamp::AT_ONCE);
                let is_time = at <= now && (is_idle || now.since_ns(since) >= MAX_UNBEGUN_NS);
                if is_time {
                    self.server.executor_mut().persistence.begin_store_tasks();
                }
                (!is_time).then_some(since)
            }
        };
    }

    /// Sleeps until an event comes, or until the next turn is due.
    fn poll_for_events(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = self.next_turn_at().map(|at| match at {
            // If there is work at once, the clock need not be read.
            Timestamp::AT_ONCE => Duration::ZERO,
            at => Duration::from_nanos(at.since_ns(self.clock.now())).min(MAX_SLEEP),
        });
        if !self.spin.is_zero() && timeout.is_none_or(|timeout| !timeout.is_zero()) {
            let start = self.clock.now();
            loop {
                self.wait(events, Some(Duration::ZERO))?;
                let spun = Duration::from_nanos(self.clock.now().since_ns(start));
                if !events.is_empty() || timeout.is_some_and(|timeout| spun >= timeout) {
                    return Ok(());
                }
                if spun >= self.spin {
                    break;
                }
            }
        }
        self.wait(events, timeout)
    }

    #[inline]
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            result => result,
        }
    }

    fn obey_signals(&mut self, now: Timestamp) -> bool {
        let mut stop = false;
        let signals: Vec<Signal> = self.signals.pending().collect();
        for signal in signals {
            match signal {
                Signal::Drain => self.server.executor_mut().set_draining(true),
                Signal::Undrain => self.server.executor_mut().set_draining(false),
                Signal::Reload => {
                    if !self.begin_hand_over(now) {
                        self.reload_without_hand_over();
                    }
                }
                Signal::Stop => stop = true,
            }
        }
        stop
    }

    /// Reloads, because there is no other program.
    fn reload_without_hand_over(&mut self) {
        if let Some(notifier) = &mut self.notifier {
            notifier.forget_failed_hand_over();
        }
        self.reload_files();
    }

    /// Reads the files again that SIGHUP reloads.
    fn reload_files(&mut self) {
        self.reload.carry_out(&mut self.server, self.clock.now());
        for site in self.metrics.iter_mut().chain(&mut self.admin) {
            site.recheck_certificates();
        }
    }

    /// From now on, SIGHUP hands this server over if its program's file has been replaced.
    pub fn enable_hand_over(&mut self, inputs: HandOverInputs) {
        self.hand_over = HandOver::new(inputs);
    }

    /// Continues with the state that another program has described. Called before the first turn, and before the server
    /// opens its binlog; `has_binlog` says whether it has one.
    ///
    /// # Errors
    /// If the bytes are not a description, or if its sockets are not open.
    pub fn read_description(
        &mut self,
        from: &mut Reader<'_>,
        now: Timestamp,
        has_binlog: bool,
    ) -> Result<(), Malformed> {
        let registry = &self.registry;
        self.server.read_description(from, now, has_binlog, |id, handle| {
            let accepted = Accepted::adopt(handle).map_err(|_| Malformed("a socket is missing"))?;
            let watched = accepted.watch(Rc::clone(registry), PollToken::Client(id));
            watched.map_err(|_| Malformed("a socket cannot be watched"))
        })
    }

    /// The executor of the commands, for changes before the first turn.
    pub fn executor_mut(&mut self) -> &mut Executor {
        self.server.executor_mut()
    }
}

fn readiness(event: &Event) -> Readiness {
    Readiness {
        readable: event.is_readable(),
        writable: event.is_writable(),
        read_closed: event.is_read_closed(),
        failed: event.is_error() || event.is_write_closed(),
    }
}

fn client_of(token: Token) -> Option<ClientId> {
    match PollToken::decode(token) {
        Some(PollToken::Client(id)) => Some(id),
        _ => None,
    }
}
