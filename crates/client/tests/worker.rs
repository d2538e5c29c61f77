//! Workers, with threads and with tasks, against the server of this repository and Debian's.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use beanstalk_client::{
    Address, Client, Connector, Event, Handled, JobState, PutOptions, Reconnect, Report, Retry, Settled,
    Stopper, TubeName, Worker, WorkerJob,
};
use beanstalkd_testkit::installed::{self, Installed};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_until;

mod support;

use support::{JOB, answer, noting, reserved, run_worker, with_session};

fn tube() -> TubeName {
    "work".parse().unwrap()
}

fn put(server: &Installed, count: usize, options: &PutOptions) -> Client {
    let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
    for number in 0..count {
        client.put_in(&tube(), number.to_string().as_bytes(), options).unwrap();
    }
    client
}

fn worker(server: &Installed) -> Worker {
    Worker::new(Connector::new(), server.address().parse().unwrap()).watch(tube()).until_empty()
}

/// Runs it with threads, or with tasks.
fn run(
    worker: &Worker,
    is_async: bool,
    handler: impl Fn(&WorkerJob) -> Handled + Send + Sync + 'static,
) -> Report {
    support::run_worker(worker, is_async, handler).unwrap()
}

fn each(mut test: impl FnMut(&Installed, bool)) {
    for server in installed::servers(&[]) {
        for is_async in [false, true] {
            test(&server, is_async);
            let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
            client.use_tube(&tube()).unwrap();
            for state in JobState::ALL.into_iter().filter(|state| *state != JobState::Reserved) {
                while let Ok(job) = client.peek_next(state) {
                    client.delete(job.id).unwrap();
                }
            }
        }
    }
}

#[test]
fn every_job_is_done_once_and_no_more_than_the_slots_at_a_time() {
    each(|server, is_async| {
        let mut client = put(server, 50, &PutOptions::new());
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let report = run(&worker(server).slots(4), is_async, move |_| {
            seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            Handled::Done
        });
        assert_eq!(report.deleted, 50, "{report:?}");
        assert!((1..=4).contains(&most.load(Ordering::SeqCst)));
        let empty = client.stats_tube(&tube());
        assert!(empty.is_err() || empty.unwrap().number("current-jobs-ready") == Some(0));
    });
}

#[test]
fn outcomes_decide_on_the_job_and_a_panic_is_a_failure() {
    each(|server, is_async| {
        let mut client = put(server, 6, &PutOptions::new().pri(7));
        // Longer than the test may take.
        let delay = Duration::from_millis(3_600_500);
        let retry = Retry::new().max_attempts(2).delays(delay, 2 * delay);
        let (sender, events) = mpsc::channel();
        let worker = worker(server).retry(retry).on_event(move |event| {
            if let Event::Ended { job, settled, .. } = event {
                sender.send((String::from_utf8(job.body.clone()).unwrap(), job.attempt, *settled)).unwrap();
            }
        });
        let report = run(&worker, is_async, |job| match job.body.as_slice() {
            b"0" => Handled::Done,
            b"1" => Handled::Failed("no".to_owned()),
            b"2" => Handled::Postpone(Duration::from_secs(60)),
            b"3" => Handled::Bury("never".to_owned()),
            b"5" => Handled::RetryAfter(Duration::from_secs(1800), "busy".to_owned()),
            _ => panic!("a handler may"),
        });
        let (released, given_back) = (report.released, report.given_back);
        assert_eq!((report.deleted, released, given_back, report.buried), (1, 3, 1, 1), "{report:?}");
        drop(worker);
        let events: Vec<_> = events.iter().collect();
        for body in ["1", "4"] {
            assert!(events.contains(&(body.to_owned(), 1, Settled::Released(delay))), "{events:?}");
        }
        assert!(events.contains(&("5".to_owned(), 1, Settled::Released(Duration::from_secs(1800)))));
        let buried = client.peek_next(JobState::Buried).unwrap();
        assert_eq!(buried.body, b"3");
        assert_eq!(client.stats_job(buried.id).unwrap().pri, 7);
        let is_ours = client.extensions().unwrap().has("release-uncounted");
        let again = (1..=buried.id + 1).rev().filter_map(|id| client.stats_job(id).ok());
        let again = again.into_iter().find(|info| info.delay == 60).unwrap();
        assert_eq!(
            again.releases,
            u64::from(!is_ours),
            "giving back counts only where the server knows no other way"
        );
    });
}

#[test]
fn a_job_that_is_postponed_without_a_delay_counts_nothing_on_any_server() {
    each(|server, is_async| {
        let _client = put(server, 1, &PutOptions::new());
        let worker =
            Worker::new(Connector::new(), server.address().parse().unwrap()).watch(tube()).with_info();
        let (stopper, counters) = (worker.stopper(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&counters);
        let report = run(&worker, is_async, move |job| {
            seen.lock().unwrap().push((job.attempt, job.info.as_ref().map(|info| info.releases)));
            if job.reserves == 1 {
                return Handled::Postpone(Duration::ZERO);
            }
            stopper.stop();
            Handled::Done
        });
        assert_eq!(*counters.lock().unwrap(), [(1, Some(0)); 2]);
        assert_eq!((report.given_back, report.deleted), (1, 1), "{report:?}");
    });
}

#[test]
fn a_job_that_fails_too_often_is_buried() {
    each(|server, is_async| {
        let mut client = put(server, 1, &PutOptions::new());
        let retry = Retry::new().max_attempts(3).delays(Duration::ZERO, Duration::ZERO);
        let report = run(&worker(server).retry(retry), is_async, |_| Handled::Failed("no".to_owned()));
        assert_eq!((report.released, report.buried), (2, 1), "{report:?}");
        let id = client.peek_next(JobState::Buried).unwrap().id;
        client.kick_job(id).unwrap();
        let report = run(&worker(server).retry(retry), is_async, |_| Handled::Failed("no".to_owned()));
        assert_eq!(
            (report.released, report.buried),
            (2, 1),
            "a kick gives it all its attempts again: {report:?}"
        );
    });
}

#[test]
fn a_job_buried_in_its_first_attempt_has_its_attempts_after_a_kick_and_no_more() {
    each(|server, is_async| {
        let mut client = put(server, 1, &PutOptions::new());
        let retry = Retry::new().max_attempts(4).delays(Duration::ZERO, Duration::ZERO);
        let worker = worker(server).retry(retry);
        run(&worker, is_async, |_| Handled::Bury("no".to_owned()));
        let buried = client.peek_next(JobState::Buried).unwrap();
        client.kick_job(buried.id).unwrap();
        let attempts = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&attempts);
        run(&worker, is_async, move |job| {
            seen.lock().unwrap().push(job.attempt);
            Handled::Failed("no".to_owned())
        });
        assert_eq!(*attempts.lock().unwrap(), [1, 2, 3, 4]);
    });
}

#[test]
fn a_job_is_done_and_the_next_ones_are_put_or_it_has_failed() {
    each(|server, is_async| {
        let mut client = put(server, 2, &PutOptions::new());
        let retry = Retry::new().max_attempts(1);
        let (sender, events) = mpsc::channel();
        let worker = worker(server).retry(retry).on_event(move |event| {
            if let Event::Ended { handled: Handled::Failed(why), .. } = event {
                sender.send(why.clone()).unwrap();
            }
        });
        let to_work = |options: PutOptions| options.tag("tub:work".parse().unwrap());
        let report = run(&worker, is_async, move |job| match job.body.as_slice() {
            b"0" => Handled::DoneAndPut(vec![
                (to_work(PutOptions::new().pri(1)), b"next".to_vec()),
                (to_work(PutOptions::new().delay(60)), b"later".to_vec()),
            ]),
            b"1" => Handled::DoneAndPut(vec![(to_work(PutOptions::new()), vec![b'x'; 1 << 20])]),
            _ => Handled::Done,
        });
        drop(worker);
        let reasons: Vec<String> = events.iter().collect();
        let is_ours = client.extensions().unwrap().has("complete");
        let figures = (report.completed, report.deleted, report.buried);
        assert_eq!(figures, if is_ours { (1, 1, 1) } else { (0, 0, 2) }, "{report:?} {reasons:?}");
        let expected = if is_ours { "JOB_TOO_BIG" } else { "extension complete" };
        assert!(reasons[0].contains(expected), "{reasons:?}");
        client.use_tube(&tube()).unwrap();
        assert_eq!(client.peek_next(JobState::Delayed).is_ok(), is_ours);
    });
}

#[test]
fn a_job_that_takes_longer_than_its_ttr_is_touched_until_it_ends() {
    let pace = Pace::watch().unwrap();
    let run_long = |server: &Installed, is_async| {
        let mut client = put(server, 1, &PutOptions::new().ttr(1));
        let (began, beginning) = mpsc::channel();
        let worker = worker(server).on_event(move |event| {
            if let Event::Began(job) = event {
                began.send(job.id).unwrap();
            }
        });
        let other = Mutex::new(Client::connect(&server.address().parse().unwrap()).unwrap());
        let report = run(&worker, is_async, move |job| {
            // Two TTRs, by the clock of the server. A job is at most a second older than its reservation.
            let age = || other.lock().unwrap().stats_job(job.id).unwrap().age;
            wait_until("two TTRs", || age() >= 3);
            Handled::Done
        });
        assert!(client.stats_job(beginning.recv().unwrap()).unwrap_err().is_not_found());
        if (report.deleted, report.lost) == (1, 0) { Ok(()) } else { Err(report) }
    };
    each(|server, is_async| pace.judge(|| run_long(server, is_async)).unwrap());
}

#[test]
fn a_worker_that_is_stopped_lets_its_handlers_end_and_takes_no_more() {
    each(|server, is_async| {
        let mut client = put(server, 10, &PutOptions::new());
        let worker = Worker::new(Connector::new(), server.address().parse().unwrap()).watch(tube()).slots(2);
        let stopper = worker.stopper();
        let report = run(&worker, is_async, move |job| {
            stopper.stop();
            assert!(job.is_stopping());
            Handled::Done
        });
        assert!((1..=2).contains(&report.deleted), "{report:?}");
        let left = client.stats_tube(&tube()).unwrap();
        assert_eq!(left.number("current-jobs-ready"), Some(10 - report.deleted));
        assert_eq!(left.number("current-jobs-reserved"), Some(0));
    });
}

#[test]
fn a_job_whose_ttr_has_ended_is_reported_as_lost() {
    each(|server, is_async| {
        let mut client = put(server, 1, &PutOptions::new());
        let address = server.address();
        let report = run(&worker(server), is_async, move |job| {
            // The only way in which another client can take the job from the worker.
            let mut other = Client::connect(&address.parse().unwrap()).unwrap();
            if other.extensions().unwrap().has("flush-tube") {
                other.flush_tube(&tube()).unwrap();
            }
            assert!(job.attempt == 1);
            Handled::Done
        });
        let is_ours = client.extensions().unwrap().has("flush-tube");
        assert_eq!((report.lost, report.deleted), if is_ours { (1, 0) } else { (0, 1) }, "{report:?}");
    });
}

#[test]
fn a_worker_has_the_jobs_of_the_tube_default_without_tubes_or_if_it_watches_it() {
    each(|server, is_async| {
        let address: Address = server.address().parse().unwrap();
        let mut client = Client::connect(&address).unwrap();
        client.put(b"x", &PutOptions::new()).unwrap();
        assert_eq!(run(&worker(server), is_async, |_| Handled::Done).deleted, 0);
        for tubes in [&[][..], &["default"], &["work", "default"]] {
            let worker = Worker::new(Connector::new(), address.clone()).until_empty();
            let worker = tubes.iter().fold(worker, |worker, tube| worker.watch(tube.parse().unwrap()));
            assert_eq!(run(&worker, is_async, |_| Handled::Done).deleted, 1, "{tubes:?}");
            client.put(b"x", &PutOptions::new()).unwrap();
        }
        let left = client.peek_next(JobState::Ready).unwrap().id;
        client.delete(left).unwrap();
    });
}

#[test]
fn a_server_that_is_not_there_is_an_error_at_the_start_and_later_an_event() {
    let nowhere = "unix:/nonexistent/socket".parse().unwrap();
    let reconnect = Reconnect::new().give_up_after(Duration::from_millis(1));
    let worker = Worker::new(Connector::new().reconnect(reconnect), nowhere);
    assert!(worker.run(|_| ()).is_err());
}

#[test]
fn a_worker_survives_its_server_and_keeps_its_job_with_a_session() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().to_str().unwrap();
    for is_async in [false, true] {
        let arguments = ["-b", log, "-f0"];
        let Some(server) = installed::ours(&arguments) else { return };
        let mut client = put(&server, 1, &PutOptions::new());
        let (cut, cuts) = mpsc::channel();
        let session = Connector::new().session("w".parse().unwrap(), Duration::from_secs(60));
        let worker =
            Worker::new(session, server.address().parse().unwrap()).watch(tube()).on_event(move |event| {
                if let Event::Disconnected { .. } = event {
                    let _ = cut.send(());
                }
            });
        let address = server.address();
        let stopper = worker.stopper();
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let report = run(&worker, is_async, move |job| {
            counted.fetch_add(1, Ordering::SeqCst);
            // The session is taken over: the connection of the worker is closed while it works.
            let mut other = Client::connect(&address.parse().unwrap()).unwrap();
            let count = other.session(&"w-0".parse().unwrap(), Duration::from_secs(60)).unwrap();
            assert_eq!(count, 1);
            assert_eq!(job.attempt, 1);
            stopper.stop();
            Handled::Done
        });
        assert_eq!((report.deleted, runs.load(Ordering::SeqCst)), (1, 1), "{report:?}");
        assert!(client.stats_tube(&tube()).is_err() || client.peek_next(JobState::Ready).is_err());
        assert!(cuts.try_recv().is_err(), "the connection was opened again at once");
    }
}

#[test]
fn the_worker_of_the_page_on_clients_is_the_one_of_the_readme_which_is_compiled() {
    let page = include_str!("../../../doc/clients.md");
    let worker = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(include_str!("../README.md").contains(worker), "{worker}");
}

#[test]
fn a_stopped_worker_waits_once_for_a_server_that_hangs() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let pace = Pace::watch().unwrap();
    let (job, quick) = (JOB, b"RESERVED 7 5 work 1 0 0 0 0 1 -\r\nright\r\n");
    let cases = [("delete", job), ("touch", quick.as_slice()), ("stats", job)];
    let cases = cases.iter().flat_map(|case| [(*case, false), (*case, true)]);
    let runs =
        cases.flat_map(|case| [(case, false), (case, true)]).map(|(((at, job), has_session), is_async)| {
            let pace = pace.clone();
            let stop = move || {
                let (sender, stoppers) = std::sync::mpsc::channel::<Stopper>();
                let (stops, stopped) = std::sync::mpsc::channel();
                let stoppers = Mutex::new(stoppers);
                let connections = Arc::new(AtomicUsize::new(0));
                let opened = Arc::clone(&connections);
                let (address, _directory, _served) = noting(usize::MAX, move |number, stream, _| {
                    opened.fetch_add(1, Ordering::SeqCst);
                    if number == 0 {
                        let session = if has_session { vec![b"SESSION 0\r\n".to_vec()] } else { Vec::new() };
                        [session, reserved(job)].concat().iter().for_each(|text| drop(answer(stream, text)));
                        assert!(answer(stream, b"").starts_with(at), "{at}");
                        stoppers.lock().unwrap().recv().unwrap().stop();
                        stops.send(Instant::now()).unwrap();
                    }
                    // Until the worker ends the connection.
                    let _ = stream.read_to_end(&mut Vec::new());
                });
                let connector = with_session(has_session).timeout(Some(TIMEOUT));
                let worker = Worker::new(connector, address.parse().unwrap()).watch(tube());
                sender.send(worker.stopper()).unwrap();
                let report = run_worker(&worker, is_async, move |job| match at {
                    "stats" => Handled::RetryAfter(Duration::from_millis(1_500), String::new()),
                    "touch" => {
                        wait_until("the touch", || job.is_stopping());
                        Handled::Done
                    }
                    _ => Handled::Done,
                });
                assert_eq!(report.unwrap().unconfirmed, 1);
                if at == "delete" {
                    assert_eq!(connections.load(Ordering::SeqCst), 1, "it would take another time-out");
                }
                let took = stopped.recv().unwrap().elapsed();
                let case = format!("at {at}, with a session {has_session}, as tasks {is_async}");
                assert!(took < TIMEOUT * 2, "{took:?} {case}");
            };
            // The server has the time-out for each reply before it hangs.
            std::thread::spawn(move || pace.judge_panics(stop))
        });
    let runs: Vec<_> = runs.collect();
    let failed = runs.into_iter().filter_map(|run| run.join().err()).count();
    assert_eq!(failed, 0);
}
