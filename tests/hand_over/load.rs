//! Hand-overs under load: no job is lost, no command is executed twice, no connection closes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::{Client, scale};
use beanstalkd_testkit::random::Random;
use rustix::process::Signal;

use super::LOGS;
use super::service::Service;

/// The figures that all clients of a load add to.
#[derive(Default)]
struct LoadFigures {
    put: Mutex<HashSet<u64>>,
    deleted: Mutex<HashSet<u64>>,
    is_over: AtomicBool,
    /// All producers have their last replies.
    is_all_put: AtomicBool,
    /// The longest time to a reply, in milliseconds.
    longest_ms: AtomicU64,
}

/// Puts jobs, several in one write, split at random places.
fn produce(mut client: Client, figures: &LoadFigures, seed: u64) {
    let mut random = Random::new(seed);
    while !figures.is_over.load(Ordering::Relaxed) {
        let count = 1 + random.below(20);
        let bytes: Vec<u8> = (0..count).flat_map(|_| *b"put 7 0 600 4\r\nbody\r\n").collect();
        let (first, rest) = bytes.split_at(random.below(bytes.len() as u64) as usize);
        client.send(first);
        thread::sleep(Duration::from_micros(random.below(2_000)));
        client.send(rest);
        for _ in 0..count {
            let line = client.line();
            let id = line.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("a put is answered {line}"));
            assert!(figures.put.lock().unwrap().insert(id.parse().unwrap()), "{id} was given twice");
        }
    }
}

/// Reserves jobs and deletes them.
fn work(mut client: Client, figures: &LoadFigures) {
    loop {
        let is_last = figures.is_all_put.load(Ordering::Relaxed);
        client.send(format!("reserve-with-timeout {}\r\n", u8::from(!is_last)));
        let line = client.line();
        let Some(id) = line.strip_prefix("RESERVED ").and_then(|rest| rest.strip_suffix(" 4")) else {
            assert_eq!(line, "TIMED_OUT");
            if is_last {
                return;
            }
            continue;
        };
        let id = id.to_owned();
        assert_eq!(client.body(4), b"body");
        assert!(figures.deleted.lock().unwrap().insert(id.parse().unwrap()), "{id} was reserved twice");
        assert_eq!(client.ask(&format!("delete {id}")), "DELETED");
    }
}

/// Sends a command again and again, and records the longest time to a reply.
fn probe(mut client: Client, figures: &LoadFigures) {
    while !figures.is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        assert_eq!(client.ask("list-tube-used"), "USING default");
        let ms = start.elapsed().as_millis() as u64;
        figures.longest_ms.fetch_max(ms, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Does `rounds` hand-overs while clients work; returns the longest time that a probing client has waited for a reply.
fn hand_over_under_load(service: &Service, rounds: usize) -> Duration {
    let figures = Arc::new(LoadFigures::default());
    let (mut threads, mut workers) = (Vec::new(), Vec::new());
    for number in 0..4 {
        let (producer, worker) = (service.connect(), service.connect());
        let (of_producer, of_worker) = (Arc::clone(&figures), Arc::clone(&figures));
        threads.push(thread::spawn(move || produce(producer, &of_producer, number)));
        workers.push(thread::spawn(move || work(worker, &of_worker)));
    }
    let (prober, of_prober) = (service.connect(), Arc::clone(&figures));
    threads.push(thread::spawn(move || probe(prober, &of_prober)));
    for _ in 0..rounds {
        service.hand_over();
        thread::sleep(Duration::from_millis(20));
    }
    for (threads, their_end) in [(threads, &figures.is_over), (workers, &figures.is_all_put)] {
        their_end.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("no client has been disturbed"));
    }
    assert_eq!(*figures.put.lock().unwrap(), *figures.deleted.lock().unwrap(), "each job is done, once");
    Duration::from_millis(figures.longest_ms.load(Ordering::Relaxed))
}

#[test]
fn nothing_is_lost_or_done_twice_while_one_program_follows_the_other() {
    for log in LOGS {
        let service = Service::start(log);
        hand_over_under_load(&service, scale("HANDOVER_ROUNDS", 6));
        let mut client = service.connect();
        assert_eq!(
            client.stat("current-jobs-ready") + client.stat("current-jobs-reserved"),
            0,
            "with {log:?}"
        );
    }
}

/// Prints the figures of `make handover`.
#[test]
fn many_connections_and_jobs_are_handed_over() {
    let (connections, jobs) = (scale("HANDOVER_CONNECTIONS", 200), scale("HANDOVER_JOBS", 5_000));
    for log in [&[][..], &["-b", "{dir}"]] {
        let service = Service::start(log);
        let mut filler = service.connect();
        filler.ask("use full");
        for _ in 0..jobs.div_ceil(1000) {
            filler.send((0..1000).flat_map(|_| *b"put 7 0 600 4\r\nbody\r\n").collect::<Vec<u8>>());
            (0..1000).for_each(|_| assert!(filler.line().starts_with("INSERTED ")));
        }
        let mut clients: Vec<Client> = (0..connections).map(|_| service.connect()).collect();
        let (waiting, rest) = clients.split_at_mut(connections / 10);
        let (holding, idle) = rest.split_at_mut(connections / 10);
        for client in waiting.iter_mut() {
            client.send("watch quiet\r\nignore default\r\nreserve\r\n");
        }
        for client in holding.iter_mut() {
            assert_eq!(client.ask("watch full"), "WATCHING 2");
            client.reserve("reserve");
        }
        let before = filler.data("stats-tube full");
        let longest = hand_over_under_load(&service, scale("HANDOVER_ROUNDS", 6));
        println!("{connections} connections, {jobs} jobs, {log:?}: the longest answer took {longest:?}");
        let after = filler.data("stats-tube full");
        for key in ["current-jobs-ready", "current-jobs-reserved", "total-jobs"] {
            assert_eq!(before[key], after[key], "{key}");
        }
        filler.ask("use quiet");
        let mut put: HashSet<u64> = waiting.iter().map(|_| filler.put(0, 600, b"body")).collect();
        for client in waiting {
            assert_eq!((client.line().as_str(), client.line().as_str()), ("WATCHING 2", "WATCHING 1"));
            // Nothing has ordered the reserves of these clients.
            let line = client.line();
            let id = line.strip_prefix("RESERVED ").and_then(|rest| rest.strip_suffix(" 4")?.parse().ok());
            assert!(id.is_some_and(|id| put.remove(&id)), "{line}");
            client.body(4);
        }
        for client in idle {
            assert_eq!(client.ask("list-tube-used"), "USING default");
        }
    }
}

/// At worst a hand-over is a restart: all that was acknowledged still exists.
#[test]
fn a_kill_at_any_moment_of_a_hand_over_loses_nothing_that_was_acknowledged() {
    const FLAGS: &[&str] = &["-b", "{dir}", "-f", "0"];
    let mut random = Random::new(7);
    let mut service = Service::start(FLAGS);
    let (mut put, mut deleted) = (HashSet::new(), HashSet::new());
    for round in 0..scale("HANDOVER_KILLS", 12) {
        let mut client = service.connect();
        for _ in 0..20 {
            assert!(put.insert(client.put(0, 600, b"body")), "an id was given twice");
        }
        let gone = client.reserve("reserve");
        assert_eq!(client.ask(&format!("delete {gone}")), "DELETED");
        assert!(deleted.insert(gone), "a deleted job has come back in round {round}");
        service.replace();
        service.signal(Signal::HUP);
        thread::sleep(Duration::from_micros(random.below(250_000)));
        service.kill_and_restart(FLAGS);
        let mut client = service.connect();
        let left = client.stat("current-jobs-ready") as usize;
        assert_eq!(left, put.len() - deleted.len(), "after round {round}");
    }
}

/// Puts jobs without waiting for the replies: nearly always one is missing.
fn pipeline(mut client: Client, figures: &LoadFigures) {
    const OUTSTANDING: usize = 50;
    let puts = |count| b"put 7 0 600 4\r\nbody\r\n".repeat(count);
    client.send(puts(OUTSTANDING));
    while !figures.is_over.load(Ordering::Relaxed) {
        assert!(client.line().starts_with("INSERTED "));
        client.send(puts(1));
    }
    (0..OUTSTANDING).for_each(|_| assert!(client.line().starts_with("INSERTED ")));
}

/// With `-f 0`, nearly always a marker or a record of the log waits to be written, and a reply for it.
#[test]
fn a_server_that_logs_all_the_time_is_handed_over() {
    let service = Service::start(&["-b", "{dir}", "-f", "0"]);
    let (pace, began) = (Pace::watch_disk(service.directory()).unwrap(), Instant::now());
    let figures = Arc::<LoadFigures>::default();
    let start = || {
        let (client, figures) = (service.connect(), Arc::clone(&figures));
        thread::spawn(move || pipeline(client, &figures))
    };
    let producers = [(); 10].map(|()| start());
    for _ in 0..3 {
        service.hand_over();
    }
    // A sync may have taken longer than the server waits.
    let failed = service.log().matches("cannot hand over").count();
    assert!(failed < 2 || !pace.was_kept_since(began), "{}", service.log());
    figures.is_over.store(true, Ordering::Relaxed);
    producers.into_iter().for_each(|producer| producer.join().unwrap());
}
