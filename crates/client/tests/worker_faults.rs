//! Workers whose servers crash, send wrong answers, or lack extensions: the outcome for the jobs, and the end of the
//! run.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use beanstalk_client::{
    Address, Client, Connector, Error, Event, Handled, JobState, PutOptions, Reconnect, Report, Retry,
    TubeName, Worker,
};
use beanstalkd_protocol::Origin;
use beanstalkd_testkit::fake::{Fake, FakeOptions, Fault, at_each_command_after};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::{PATIENCE, installed};

mod support;

use support::{
    JOB, answer, noting, reconnecting as connector, reserved, run_worker as run, scripted, with_session,
};

fn tube() -> TubeName {
    "work".parse().unwrap()
}

fn worker(connector: Connector, address: &str) -> Worker {
    Worker::new(connector, address.parse().unwrap()).watch(tube()).until_empty()
}

fn put(fake: &Fake, count: usize) -> Client {
    put_at(&fake.address(), count)
}

fn put_at(address: &str, count: usize) -> Client {
    let mut client = Client::connect(&address.parse().unwrap()).unwrap();
    for number in 0..count {
        client.put_in(&tube(), number.to_string().as_bytes(), &PutOptions::new()).unwrap();
    }
    client
}

#[test]
fn at_every_command_a_lost_connection_loses_no_job() {
    let set_up = |address: &str| drop(put_at(address, 3));
    for (fault, is_async) in Fault::CLOSINGS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        at_each_command_after(set_up, fault, 10, |fake, at| {
            let runs = Arc::new(Mutex::new(BTreeMap::<Vec<u8>, u32>::new()));
            let counted = Arc::clone(&runs);
            let report = run(&worker(connector(), &fake.address()), is_async, move |job| {
                *counted.lock().unwrap().entry(job.body.clone()).or_default() += 1;
                Handled::Done
            })
            .unwrap();
            fake.disarm();
            let runs = runs.lock().unwrap();
            assert_eq!(runs.len(), 3, "at {at}: every job has run: {runs:?}");
            let count = runs.values().sum::<u32>();
            assert!(count <= 4, "at {at}: one of them again at most: {runs:?}");
            assert_eq!(report.deleted + report.unconfirmed + report.lost, u64::from(count));
            let mut client = Client::connect(&fake.address().parse().unwrap()).unwrap();
            client.use_tube(&tube()).unwrap();
            for state in [JobState::Ready, JobState::Reserved] {
                assert!(client.peek_next(state).is_err(), "at {at}: a job is {state:?}");
            }
        });
    }
}

#[test]
fn attempts_are_known_without_a_question_where_the_server_has_fields() {
    let extensions = beanstalk_client::Verb::ALL.into_iter().filter(|verb| verb.origin() == Origin::Ours);
    let none = extensions.map(|verb| verb.as_str()).collect::<Vec<_>>();
    for (without, is_asked) in [(vec![], false), (vec!["reserve-fields"], true), (none, true)] {
        for is_async in [false, true] {
            let fake = Fake::start_with(FakeOptions { without: without.clone(), ..FakeOptions::default() });
            let _client = put(&fake, 3);
            fake.take_log();
            let attempts = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&attempts);
            let retry = Retry::new().delays(Duration::ZERO, Duration::ZERO);
            let worker = worker(connector(), &fake.address()).retry(retry);
            let report = run(&worker, is_async, move |job| {
                assert_eq!((job.tube(), job.ttr, job.reserves), ("work", 60, job.attempt));
                counted.fetch_add(job.attempt as usize, Ordering::SeqCst);
                match job.body.as_slice() {
                    b"1" if job.attempt == 1 => Handled::Failed("once".to_owned()),
                    _ => Handled::Done,
                }
            });
            let report = report.unwrap();
            assert_eq!((report.deleted, report.released), (3, 1), "{without:?}");
            assert_eq!(attempts.load(Ordering::SeqCst), 1 + 1 + 2 + 1);
            let log = fake.take_log();
            let asked = log.iter().filter(|line| line.starts_with("stats-job")).count();
            // The counters of a failed job show whether it was buried before.
            assert_eq!(asked, if is_asked { 4 } else { 1 }, "{log:?}");
        }
    }
}

#[test]
fn a_job_that_is_known_to_be_lost_is_not_touched_again() {
    for is_async in [false, true] {
        let fake = Arc::new(Fake::start());
        let mut client = Client::connect(&fake.address().parse().unwrap()).unwrap();
        let [id, other] = ["work", "other"].map(|name| {
            let tube = name.parse().unwrap();
            client.put_in(&tube, name.as_bytes(), &PutOptions::new().ttr(1)).unwrap().id
        });
        let (server, log) = (Arc::clone(&fake), Mutex::new(Vec::new()));
        let touches = move |id: u64| {
            let mut log = log.lock().unwrap();
            log.append(&mut server.take_log());
            log.iter().filter(|line| **line == format!("touch {id}")).count()
        };
        let (client, seen) = (Mutex::new(client), Arc::new(AtomicUsize::new(0)));
        let seen_by_handler = Arc::clone(&seen);
        let worker = worker(connector(), &fake.address()).watch("other".parse().unwrap()).slots(2);
        let report = run(&worker, is_async, move |job| {
            if job.body == b"other" {
                wait_until("the other job", || seen_by_handler.load(Ordering::SeqCst) > 0);
                return Handled::Done;
            }
            client.lock().unwrap().flush_tube(&tube()).unwrap();
            wait_until("a touch of the lost job", || touches(id) > 0);
            let before = touches(other);
            wait_until("further touches", || touches(other) >= before + 3);
            seen_by_handler.store(touches(id), Ordering::SeqCst);
            Handled::Done
        });
        let report = report.unwrap();
        assert_eq!((report.deleted, report.lost), (1, 1), "{report:?}");
        assert_eq!(seen.load(Ordering::SeqCst), 1, "touches of the lost job");
    }
}

#[test]
fn half_a_reply_is_a_lost_connection() {
    let whole = b"RESERVED 7 2 work 1 0 0 0 0 60 -\r\n\xff\xfe\r\n".as_slice();
    for is_async in [false, true] {
        for cut in 1..whole.len() {
            let again = [reserved(whole), vec![b"DELETED\r\n".to_vec(), b"TIMED_OUT\r\n".to_vec()]].concat();
            // On the second connection all of the greeting comes at once.
            let greeting = again[..3].concat();
            let second = [vec![[greeting, again[3].clone()].concat()], again[4..].to_vec()].concat();
            let (address, _directory) = scripted(vec![reserved(&whole[..cut]), second]);
            let ran = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&ran);
            let report = run(&worker(connector(), &address), is_async, move |job| {
                counted.fetch_add(1, Ordering::SeqCst);
                assert_eq!(job.body, b"\xff\xfe", "a body may be anything");
                Handled::Done
            });
            assert_eq!(report.unwrap().deleted, 1, "cut at {cut}");
            assert_eq!(ran.load(Ordering::SeqCst), 1, "cut at {cut}");
        }
        // If a server accepts the fields but does not send them, the worker asks about each job, as without the
        // extension.
        let stats = b"---\nid: 7\ntube: work\nstate: reserved\npri: 0\nage: 0\nttr: 60\nreleases: 1\n";
        let data = [format!("OK {}\r\n", stats.len()).as_bytes(), stats, b"\r\n"].concat();
        let rest = vec![data, b"DELETED\r\n".to_vec(), b"TIMED_OUT\r\n".to_vec()];
        let (address, _directory) = scripted(vec![[reserved(b"RESERVED 7 1\r\nx\r\n"), rest].concat()]);
        let report = run(&worker(connector(), &address), is_async, |job| {
            assert_eq!(job.attempt, 2);
            Handled::Done
        });
        assert_eq!(report.unwrap().deleted, 1);
    }
}

/// Wrong answers to a reserve or a delete, and bytes that a worker would take for the next answer if it continued.
const WRONG: &[&[u8]] = &[
    b"RESERVED 7 \xff\r\n",
    b"RESERVED\r\n",
    b"RESERVED 7 2\r\nhello\r\n",
    b"RESERVED 7 -1\r\n",
    b"RESERVED 7 99999999999999999999\r\n",
    b"RESERVED_BATCH 1\r\nFOUND 7 1\r\nx\r\n",
    b"HTTP/1.1 502 Bad Gateway\r\n",
    b"\r\n",
    b"OK 3\r\nabc\r\n",
    b"USING work\r\n",
    b"TOUCHED\r\n",
    b"FOUND 7 1\r\nx\r\n",
    b"INSERTED 7\r\n",
];
const NEXT: &[u8] = b"DELETED\r\nRESERVED 9 5 work 1 0 0 0 0 60 -\r\nwrong\r\n";

/// The answers on a later connection: to the worker's greeting, which it sends at once, and then to each command.
fn again(answers: &[&[u8]]) -> Vec<Vec<u8>> {
    let greeting = reserved(answers[0]).concat();
    std::iter::once(greeting).chain(answers[1..].iter().map(|answer| answer.to_vec())).collect()
}

#[test]
fn an_invalid_answer_is_reported_and_the_worker_continues_with_another_connection() {
    let good = || again(&[JOB, b"DELETED\r\n", b"TIMED_OUT\r\n"]);
    for (wrong, is_async) in WRONG.iter().flat_map(|wrong| [(wrong, false), (wrong, true)]) {
        let wrong = [wrong, NEXT].concat();
        let at_reserve = vec![reserved(&wrong), again(&[&wrong]), good()];
        let at_delete = vec![[reserved(JOB), vec![wrong.clone()]].concat(), again(&[JOB, &wrong]), good()];
        for (script, unconfirmed) in [(at_reserve, 0), (at_delete, 2)] {
            let (address, _directory) = scripted(script);
            let reports = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&reports);
            let worker = worker(connector(), &address).on_event(move |event| match event {
                Event::Disconnected { error, .. } => {
                    assert!(error.is_out_of_step(), "{error}");
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                Event::Ended { job, .. } => assert_eq!(job.body, b"right"),
                _ => {}
            });
            let report = run(&worker, is_async, |_| Handled::Done).unwrap();
            let said = String::from_utf8_lossy(&wrong);
            assert_eq!((report.deleted, report.unconfirmed), (1, unconfirmed), "{said}");
            assert_eq!(reports.load(Ordering::SeqCst), 2, "{said}");
        }
    }
}

#[test]
fn a_server_that_never_answers_right_ends_the_worker_at_its_limit_or_at_a_stop() {
    for is_async in [false, true] {
        let wrong = |count| vec![again(&[b"HTTP/1.1 502 Bad Gateway\r\n"]); count];
        let first = || reserved(b"USING work\r\n");
        let (address, _directory) = scripted([vec![first()], wrong(9)].concat());
        let worker = Worker::new(connector(), address.parse().unwrap()).watch(tube());
        let (stopper, reports) = (worker.stopper(), AtomicUsize::new(0));
        let worker = worker.on_event(move |_| {
            if reports.fetch_add(1, Ordering::SeqCst) == 4 {
                stopper.stop();
            }
        });
        assert_eq!(run(&worker, is_async, |_| unreachable!("no job")).unwrap(), Report::default());
        let (address, _directory) = scripted(vec![first()]);
        let impatient = connector().reconnect(Reconnect::new().give_up_after(Duration::ZERO));
        let error =
            run(&crate::worker(impatient, &address), is_async, |_| unreachable!("no job")).unwrap_err();
        assert!(matches!(error, Error::Unexpected { .. }), "{error}");
    }
}

#[test]
fn a_server_that_ends_each_connection_at_once_is_asked_less_and_less() {
    for is_async in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            for text in &reserved(b"")[..3] {
                answer(&mut first, text);
            }
            drop(first);
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        const EVENTS: usize = 8;
        let worker = Worker::new(connector(), Address::Unix(path)).watch(tube());
        let (stopper, events) = (worker.stopper(), AtomicUsize::new(0));
        let worker = worker.on_event(move |_| {
            if events.fetch_add(1, Ordering::SeqCst) == EVENTS - 1 {
                stopper.stop();
            }
        });
        run(&worker, is_async, |_| unreachable!("no job")).unwrap();
        let connects = accepted.load(Ordering::SeqCst);
        // Between two reports, which a pause separates, one connection and another one at once.
        assert!(connects <= 2 * EVENTS, "{connects}");
    }
}

#[test]
fn one_of_several_servers_that_is_not_there_does_not_end_the_worker() {
    let nowhere = || "unix:/nonexistent/socket".parse::<Address>().unwrap();
    for is_async in [false, true] {
        let fake = Fake::start();
        let _client = put(&fake, 3);
        // It never gives up.
        let first = || Worker::new(Connector::new(), nowhere());
        let both = || first().server(fake.address().parse().unwrap()).watch(tube());
        let worker = both();
        let (stopper, left, missing) = (worker.stopper(), AtomicUsize::new(3), Arc::new(AtomicUsize::new(0)));
        let missed = Arc::clone(&missing);
        let worker = worker.on_event(move |event| {
            if matches!(event, Event::Disconnected { error: Error::Connect { .. }, .. }) {
                missed.fetch_add(1, Ordering::SeqCst);
            }
        });
        // The last job is done when the other server has been missed twice.
        let report = run(&worker, is_async, move |_| {
            if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                wait_until("two reports", || missing.load(Ordering::SeqCst) >= 2);
                stopper.stop();
            }
            Handled::Done
        });
        assert_eq!(report.unwrap().deleted, 3);
        // The work of all servers was to be done.
        let mut client = put(&fake, 1);
        let error = run(&both().until_empty(), is_async, |_| Handled::Done).unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        assert!(client.peek_next(JobState::Ready).is_err(), "that of this one is done");
        let none = first().server(nowhere()).slots(2);
        assert!(run(&none, is_async, |_| Handled::Done).is_err());
    }
}

#[test]
fn a_server_that_hangs_does_not_delay_a_stop_for_long() {
    let runs = [false, true].map(|is_async| {
        std::thread::spawn(move || {
            let (sender, stoppers) = std::sync::mpsc::channel::<beanstalk_client::Stopper>();
            let stoppers = Mutex::new(stoppers);
            let (address, _directory, _served) = noting(2, move |_, stream, _| {
                reserved(b"")[..3].iter().for_each(|text| drop(answer(stream, text)));
                assert!(answer(stream, b"").starts_with("reserve-with-timeout"));
                stoppers.lock().unwrap().recv().unwrap().stop();
                // Until the worker ends the connection.
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let hours = Connector::new().timeout(Some(Duration::from_secs(3600)));
            let worker = Worker::new(hours, address.parse().unwrap()).watch(tube());
            sender.send(worker.stopper()).unwrap();
            run(&worker, is_async, |_| unreachable!("no job")).unwrap();
        })
    });
    runs.into_iter().for_each(|run| run.join().unwrap());
}

#[test]
fn a_server_that_says_at_once_that_no_job_came_in_time_is_asked_once_a_second() {
    for is_async in [false, true] {
        let none = || b"TIMED_OUT\r\n".to_vec();
        let script = [reserved(&none()), vec![none(), JOB.to_vec(), b"DELETED\r\n".to_vec()]].concat();
        let (address, _directory) = scripted(vec![script]);
        let worker = Worker::new(connector(), address.parse().unwrap()).watch(tube());
        let (stopper, began) = (worker.stopper(), Instant::now());
        let report = run(&worker, is_async, move |_| {
            stopper.stop();
            Handled::Done
        });
        assert_eq!(report.unwrap().deleted, 1);
        let reserves = 3;
        assert!(began.elapsed() >= Duration::from_secs(reserves - 1), "the worker has not waited in between");
    }
}

#[test]
fn a_server_that_dies_while_a_job_runs_is_no_panic_and_a_stop_ends_the_worker() {
    for is_async in [false, true] {
        let Some(server) = installed::ours(&[]) else { return };
        let address: Address = server.address().parse().unwrap();
        let mut client = Client::connect(&address).unwrap();
        client.put_in(&tube(), b"x", &PutOptions::new()).unwrap();
        let worker = Worker::new(Connector::new(), address).watch(tube());
        let (server, stopper) = (Mutex::new(Some(server)), worker.stopper());
        let report = run(&worker, is_async, move |_| {
            drop(server.lock().unwrap().take());
            stopper.stop();
            Handled::Done
        });
        let report = report.unwrap();
        assert_eq!((report.unconfirmed, report.deleted), (1, 0), "{report:?}");
    }
}

#[test]
fn two_workers_with_one_session_take_it_from_each_other_and_no_job_runs_twice() {
    const JOBS: usize = 200;
    for is_async in [false, true] {
        let Some(server) = installed::ours(&[]) else { return };
        let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
        for number in 0..JOBS {
            client.put_in(&tube(), number.to_string().as_bytes(), &PutOptions::new()).unwrap();
        }
        let runs = Arc::new(Mutex::new(BTreeMap::<Vec<u8>, u32>::new()));
        let reports = std::thread::scope(|scope| {
            let workers = [(); 2].map(|()| {
                let (runs, address) = (Arc::clone(&runs), server.address());
                scope.spawn(move || {
                    let connector = connector().session("w".parse().unwrap(), Duration::from_secs(60));
                    let report = run(&worker(connector, &address), is_async, move |job| {
                        *runs.lock().unwrap().entry(job.body.clone()).or_default() += 1;
                        Handled::Done
                    });
                    report.unwrap()
                })
            });
            workers.map(|worker| worker.join().unwrap())
        });
        let runs = runs.lock().unwrap();
        assert!(runs.values().all(|count| *count == 1), "{runs:?}");
        // A job whose RESERVED or whose delete was lost stays with the session: until its TTR ends, no other client
        // gets it.
        let left = client.stats_tube(&tube()).unwrap();
        let left = left.number("current-jobs-reserved").unwrap() + left.number("current-jobs-ready").unwrap();
        let deleted = (JOBS as u64).checked_sub(left).unwrap();
        let confirmed = reports.iter().map(|report| report.deleted).sum::<u64>();
        let unsure = reports.iter().map(|report| report.unconfirmed + report.lost).sum::<u64>();
        assert_eq!(runs.len() as u64, confirmed + unsure, "{reports:?}");
        assert!((confirmed..=confirmed + unsure).contains(&deleted), "{left} left, {reports:?}");
    }
}

#[test]
fn a_server_that_hangs_at_the_end_of_a_job_delays_a_stop_by_one_time_out() {
    // The worker is stopped before the job ends, or while it waits for the reply; the server does not reply, or closes
    // this connection and does not reply on the next ones, which it accepts.
    let cases = [(true, false), (true, true), (false, false)];
    let pace = Pace::watch().unwrap();
    let runs = cases.iter().flat_map(|case| [(*case, false), (*case, true)]);
    let runs = runs.map(|((stops_first, closes), is_async)| {
        let pace = pace.clone();
        let hang = move || {
            let (sender, stoppers) = std::sync::mpsc::channel::<beanstalk_client::Stopper>();
            let stoppers = Mutex::new(stoppers);
            let (address, _directory, _served) = noting(usize::MAX, move |number, stream, _| {
                if number == 0 {
                    let texts = [&[b"SESSION 0\r\n".to_vec()][..], &reserved(JOB)].concat();
                    texts.iter().for_each(|text| drop(answer(stream, text)));
                    assert_eq!(answer(stream, b""), "delete 7\r\n");
                    stoppers.lock().unwrap().recv().unwrap().stop();
                }
                if number > 0 || !closes {
                    // Until the worker ends the connection.
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            });
            let timeout = Duration::from_secs(if stops_first { 3600 } else { 2 });
            let connector = with_session(true).timeout(Some(timeout));
            let worker = Worker::new(connector, address.parse().unwrap()).watch(tube());
            let (stopper, began) = (worker.stopper(), Instant::now());
            sender.send(worker.stopper()).unwrap();
            let report = run(&worker, is_async, move |_| {
                if stops_first {
                    stopper.stop();
                }
                Handled::Done
            });
            assert_eq!(figures(report), [0, 0, 1]);
            // Further attempts would take many time-outs.
            assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        };
        // The server has the time-out for each reply before it hangs.
        std::thread::spawn(move || pace.judge_panics(hang))
    });
    runs.collect::<Vec<_>>().into_iter().for_each(|run| run.join().unwrap());
}

#[test]
fn a_job_of_a_lost_connection_is_ended_on_the_next_one_only_if_its_session_has_it() {
    let (unconfirmed, deleted) = ([0, 0, 1], [1, 0, 0]);
    for (touched, report) in
        [(None, unconfirmed), (Some("NOT_FOUND\r\n"), unconfirmed), (Some("TOUCHED\r\n"), deleted)]
    {
        for is_async in [false, true] {
            let (address, _directory, served) = noting(2, move |number, stream, notes| {
                let session = if touched.is_some() { b"SESSION 1\r\n".as_slice() } else { b"" };
                let texts = [&[session.to_vec()][..], &reserved(JOB)].concat();
                let greeting = texts[..4].concat();
                match (number, touched) {
                    (0, _) => {
                        texts
                            .iter()
                            .filter(|text| !text.is_empty())
                            .for_each(|text| drop(answer(stream, text)));
                        assert_eq!(answer(stream, b""), "delete 7\r\n");
                    }
                    (_, None) => notes.push(answer(stream, &[&greeting[..], b"TIMED_OUT\r\n"].concat())),
                    (_, Some(touched)) => {
                        notes.push(answer(stream, &[&greeting[..], touched.as_bytes()].concat()));
                        if touched == "TOUCHED\r\n" {
                            notes.push(answer(stream, b"DELETED\r\n"));
                        }
                        notes.push(answer(stream, b"TIMED_OUT\r\n"));
                    }
                }
            });
            let worker = worker(with_session(touched.is_some()), &address);
            assert_eq!(figures(run(&worker, is_async, |_| Handled::Done)), report, "{touched:?}");
            let notes = served.join().unwrap();
            let deletes = notes.iter().filter(|lines| lines.contains("delete")).count();
            assert_eq!(deletes as u64, report[0], "{notes:?}");
            assert_eq!(notes[0].contains("touch 7"), touched.is_some(), "{notes:?}");
        }
    }
}

/// How many were deleted, released, and not confirmed.
fn figures(report: Result<Report, Error>) -> [u64; 3] {
    let Report { deleted, released, given_back, buried, lost, unconfirmed, .. } = report.unwrap();
    assert_eq!((given_back, buried, lost), (0, 0, 0));
    [deleted, released, unconfirmed]
}

#[test]
fn a_job_that_comes_after_the_stop_is_given_back_and_not_run() {
    for (has_session, is_async) in [(false, false), (false, true), (true, false), (true, true)] {
        let (sender, stoppers) = std::sync::mpsc::channel::<beanstalk_client::Stopper>();
        let stoppers = Mutex::new(stoppers);
        let (address, _directory, served) = noting(1, move |_, stream, notes| {
            if has_session {
                answer(stream, b"SESSION 0\r\n");
            }
            let texts = reserved(JOB);
            texts[..3].iter().for_each(|text| drop(answer(stream, text)));
            assert!(answer(stream, b"").starts_with("reserve-with-timeout"));
            stoppers.lock().unwrap().recv().unwrap().stop();
            stream.write_all(JOB).unwrap();
            if has_session {
                notes.push(answer(stream, b"RELEASED\r\n"));
            }
            notes.push(answer(stream, b""));
        });
        let worker = Worker::new(with_session(has_session), address.parse().unwrap()).watch(tube());
        sender.send(worker.stopper()).unwrap();
        assert_eq!(figures(run(&worker, is_async, |_| Handled::Done)), [0, 0, 0]);
        let expected = ["release 7 0 0 uncounted\r\n", "quit\r\n"];
        assert_eq!(served.join().unwrap(), expected[usize::from(!has_session)..]);
    }
}

#[test]
fn a_handler_that_panics_before_its_future_is_there_has_failed() {
    let fake = Fake::start();
    let _client = put(&fake, 3);
    let retry = Retry::new().delays(Duration::ZERO, Duration::ZERO);
    let (worker, calls) = (worker(connector(), &fake.address()).retry(retry), AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let report = runtime.block_on(worker.run_async(move |_| {
        assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "the first call");
        async {}
    }));
    assert_eq!(figures(report), [3, 1, 0]);
}

#[test]
fn a_hook_that_panics_ends_all_slots_and_the_panic_is_that_of_the_run() {
    for is_async in [false, true] {
        let fake = Fake::start();
        let _client = put(&fake, 1);
        let worker = Worker::new(connector(), fake.address().parse().unwrap()).watch(tube()).slots(3);
        let worker = worker.on_event(|_| panic!("the hook"));
        let act = std::panic::AssertUnwindSafe(|| run(&worker, is_async, |_| Handled::Done));
        let panic = std::panic::catch_unwind(act).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the hook"));
    }
}

#[test]
fn a_server_out_of_memory_is_asked_again_and_the_end_of_each_attempt_is_reported() {
    for refused in [b"OUT_OF_MEMORY\r\n".as_slice(), b"INTERNAL_ERROR\r\n"] {
        for is_async in [false, true] {
            let good = again(&[JOB, b"DELETED\r\n", b"TIMED_OUT\r\n"]);
            let (address, _directory) = scripted(vec![reserved(refused), again(&[JOB, refused]), good]);
            let report = run(&worker(connector(), &address), is_async, |_| Handled::Done);
            assert_eq!(figures(report), [1, 0, 1]);
        }
    }
}
