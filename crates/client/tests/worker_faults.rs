//! Workers whose servers die, lie, or know no extension: what becomes of the jobs, and how the run ends.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use beanstalk_client::{
    Address, Client, Connector, Delivery, Error, Event, JobState, Outcome, PutOptions, Reconnect, Report,
    Retry, TubeName, Worker,
};
use beanstalk_testing::{Fake, FakeOptions};

fn tube() -> TubeName {
    "work".parse().unwrap()
}

fn connector() -> Connector {
    let pauses = Reconnect::new().pauses(Duration::from_millis(1), Duration::from_millis(5));
    Connector::new().reconnect(pauses.give_up_after(Duration::from_secs(5)))
}

fn worker(connector: Connector, address: &str) -> Worker {
    Worker::new(connector, address.parse().unwrap()).watch(tube()).until_empty()
}

/// Runs it with threads, or with tasks.
fn run(
    worker: &Worker,
    is_async: bool,
    handler: impl Fn(&Delivery) -> Outcome + Send + Sync + 'static,
) -> Result<Report, Error> {
    if !is_async {
        return worker.run(handler);
    }
    let handler = Arc::new(handler);
    let handler = move |delivery: Arc<Delivery>| {
        let handler = Arc::clone(&handler);
        async move { tokio::task::spawn_blocking(move || handler(&delivery)).await.unwrap() }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(worker.run_async(handler))
}

fn put(fake: &Fake, count: usize) -> Client {
    let mut client = Client::connect(&fake.address().parse().unwrap()).unwrap();
    for number in 0..count {
        client.put_in(&tube(), number.to_string().as_bytes(), &PutOptions::new()).unwrap();
    }
    client
}

#[test]
fn at_every_command_a_lost_connection_loses_no_job() {
    for (at, is_after, is_async) in
        (1..=14).flat_map(|at| [(at, false, false), (at, true, false), (at, false, true), (at, true, true)])
    {
        // The puts are the first commands.
        let at = at + 4;
        let (close_before, close_after) = if is_after { (0, at) } else { (at, 0) };
        let fake = Fake::start_with(FakeOptions { close_before, close_after, ..FakeOptions::default() });
        let mut client = put(&fake, 3);
        let runs = Arc::new(Mutex::new(BTreeMap::<Vec<u8>, u32>::new()));
        let counted = Arc::clone(&runs);
        let report = run(&worker(connector(), &fake.address()), is_async, move |delivery| {
            *counted.lock().unwrap().entry(delivery.body.clone()).or_default() += 1;
            Outcome::Done
        })
        .unwrap();
        fake.disarm();
        let runs = runs.lock().unwrap();
        assert_eq!(runs.len(), 3, "at {at}: every job has run: {runs:?}");
        assert!(runs.values().sum::<u32>() <= 4, "at {at}: one of them again at most: {runs:?}");
        assert_eq!(report.deleted + report.unconfirmed + report.lost, u64::from(runs.values().sum::<u32>()));
        assert!(client.peek_next(JobState::Ready).is_err() && client.peek_next(JobState::Reserved).is_err());
    }
}

#[test]
fn attempts_are_known_without_a_question_where_the_server_has_fields() {
    let extensions: Vec<&str> = beanstalk_client::Verb::ALL
        .iter()
        .map(|verb| verb.as_str())
        .filter(|word| word.contains('-'))
        .collect();
    let of_c = ["reserve-with-timeout", "reserve-job", "stats-job", "peek-ready", "list-tube-used"];
    let none = extensions.into_iter().filter(|word| !of_c.contains(word)).collect::<Vec<_>>();
    for (without, is_asked) in [(vec![], false), (vec!["reserve-fields"], true), (none, true)] {
        for is_async in [false, true] {
            let fake = Fake::start_with(FakeOptions { without: without.clone(), ..FakeOptions::default() });
            let _client = put(&fake, 3);
            fake.take_log();
            let attempts = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&attempts);
            let retry = Retry::new().delays(Duration::ZERO, Duration::ZERO);
            let worker = worker(connector(), &fake.address()).retry(retry);
            let report = run(&worker, is_async, move |delivery| {
                assert_eq!(
                    (delivery.tube(), delivery.ttr, delivery.reserves),
                    ("work", 60, delivery.attempt)
                );
                counted.fetch_add(delivery.attempt as usize, Ordering::SeqCst);
                match delivery.body.as_slice() {
                    b"1" if delivery.attempt == 1 => Outcome::Failed("once".to_owned()),
                    _ => Outcome::Done,
                }
            });
            let report = report.unwrap();
            assert_eq!((report.deleted, report.released), (3, 1), "{without:?}");
            assert_eq!(attempts.load(Ordering::SeqCst), 1 + 1 + 2 + 1);
            let log = fake.take_log();
            let asked = log.iter().filter(|line| line.starts_with("stats-job")).count();
            // The counters of a job that has failed say whether it was buried before.
            assert_eq!(asked, if is_asked { 4 } else { 1 }, "{log:?}");
        }
    }
}

/// A server that answers each line on a connection with the next of its texts, and closes it after the last.
fn scripted(scripts: Vec<Vec<Vec<u8>>>) -> (String, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for (script, stream) in scripts.into_iter().zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            for text in script {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(&text);
            }
        }
    });
    (format!("unix:{}", path.display()), directory)
}

/// What a server says until the worker has reserved a job.
fn reserved(job: &[u8]) -> Vec<Vec<u8>> {
    let fields = b"USING tube attempts timeouts releases age pri ttr trace\r\n";
    vec![b"WATCHING 2\r\n".to_vec(), b"WATCHING 1\r\n".to_vec(), fields.to_vec(), job.to_vec()]
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
            let report = run(&worker(connector(), &address), is_async, move |delivery| {
                counted.fetch_add(1, Ordering::SeqCst);
                assert_eq!(delivery.body, b"\xff\xfe", "a body may be anything");
                Outcome::Done
            });
            assert_eq!(report.unwrap().deleted, 1, "cut at {cut}");
            assert_eq!(ran.load(Ordering::SeqCst), 1, "cut at {cut}");
        }
        // A server that says nothing of the fields that it has agreed to is asked, as one that has none.
        let stats = b"---\nid: 7\ntube: work\nstate: reserved\npri: 0\nage: 0\nttr: 60\nreleases: 1\n";
        let data = [format!("OK {}\r\n", stats.len()).as_bytes(), stats, b"\r\n"].concat();
        let rest = vec![data, b"DELETED\r\n".to_vec(), b"TIMED_OUT\r\n".to_vec()];
        let (address, _directory) = scripted(vec![[reserved(b"RESERVED 7 1\r\nx\r\n"), rest].concat()]);
        let report = run(&worker(connector(), &address), is_async, |delivery| {
            assert_eq!(delivery.attempt, 2);
            Outcome::Done
        });
        assert_eq!(report.unwrap().deleted, 1);
    }
}

/// What is no answer to a reserve or a delete, and what a worker would take for the next answer if it read on.
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

/// The answers on a connection after the first one, to the worker's greeting, which it sends at once, and then to each
/// command.
fn again(answers: &[&[u8]]) -> Vec<Vec<u8>> {
    let greeting = reserved(answers[0]).concat();
    std::iter::once(greeting).chain(answers[1..].iter().map(|answer| answer.to_vec())).collect()
}

#[test]
fn an_answer_that_is_none_is_reported_and_the_worker_goes_on_with_another_connection() {
    let job = b"RESERVED 7 5 work 1 0 0 0 0 60 -\r\nright\r\n".as_slice();
    let good = || again(&[job, b"DELETED\r\n", b"TIMED_OUT\r\n"]);
    for (wrong, is_async) in WRONG.iter().flat_map(|wrong| [(wrong, false), (wrong, true)]) {
        let wrong = [wrong, NEXT].concat();
        let at_reserve = vec![reserved(&wrong), again(&[&wrong]), good()];
        let at_delete = vec![[reserved(job), vec![wrong.clone()]].concat(), again(&[job, &wrong]), good()];
        for (script, unconfirmed) in [(at_reserve, 0), (at_delete, 2)] {
            let (address, _directory) = scripted(script);
            let reports = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&reports);
            let worker = worker(connector(), &address).on_event(move |event| match event {
                Event::Disconnected(error) => {
                    assert!(error.is_out_of_step(), "{error}");
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                Event::Ended { delivery, .. } => assert_eq!(delivery.body, b"right"),
                _ => {}
            });
            let report = run(&worker, is_async, |_| Outcome::Done).unwrap();
            let said = String::from_utf8_lossy(&wrong);
            assert_eq!((report.deleted, report.unconfirmed), (1, unconfirmed), "{said}");
            assert_eq!(reports.load(Ordering::SeqCst), 2, "{said}");
        }
    }
}

#[test]
fn a_server_that_never_answers_right_ends_the_worker_when_it_is_told_to_or_out_of_patience() {
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
fn a_server_that_dies_while_a_job_runs_is_no_panic_and_a_stop_ends_the_worker() {
    for is_async in [false, true] {
        let Some(server) = beanstalk_testing::ours(&[]) else { return };
        let address: Address = server.address().parse().unwrap();
        let mut client = Client::connect(&address).unwrap();
        client.put_in(&tube(), b"x", &PutOptions::new()).unwrap();
        let worker = Worker::new(Connector::new(), address).watch(tube());
        let (server, stopper) = (Mutex::new(Some(server)), worker.stopper());
        let report = run(&worker, is_async, move |_| {
            drop(server.lock().unwrap().take());
            stopper.stop();
            Outcome::Done
        });
        let report = report.unwrap();
        assert_eq!((report.unconfirmed, report.deleted), (1, 0), "{report:?}");
    }
}

#[test]
fn two_workers_with_one_session_take_it_from_each_other_and_no_job_runs_twice() {
    const JOBS: usize = 20;
    for is_async in [false, true] {
        let Some(server) = beanstalk_testing::ours(&[]) else { return };
        let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
        for number in 0..JOBS {
            client.put_in(&tube(), number.to_string().as_bytes(), &PutOptions::new()).unwrap();
        }
        let runs = Arc::new(Mutex::new(BTreeMap::<Vec<u8>, u32>::new()));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (runs, address) = (Arc::clone(&runs), server.address());
                scope.spawn(move || {
                    let connector = connector().session("w".parse().unwrap(), Duration::from_secs(60));
                    let ended = run(&worker(connector, &address), is_async, move |delivery| {
                        *runs.lock().unwrap().entry(delivery.body.clone()).or_default() += 1;
                        Outcome::Done
                    });
                    ended.unwrap();
                });
            }
        });
        let runs = runs.lock().unwrap();
        assert!(runs.values().all(|count| *count == 1), "{runs:?}");
        // A job whose RESERVED was lost stays with the session: until its TTR ends, nobody has it.
        let left = client.stats_tube(&tube()).unwrap();
        let left = left.number("current-jobs-reserved").unwrap() + left.number("current-jobs-ready").unwrap();
        assert!(runs.len() + left as usize >= JOBS, "{left} left, {} have run", runs.len());
        assert_eq!(left as usize, JOBS - runs.len());
    }
}
