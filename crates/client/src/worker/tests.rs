//! The decisions of a worker without a server: how often a job is tried, and what is done with a job that has failed.

use super::*;
use beanstalkd_protocol::{Field, FieldList, Refusal, Reply, Verb, parse_dictionary};

fn worker(retry: Retry) -> Worker {
    Worker::new(Connector::new(), "127.0.0.1:1".parse().unwrap()).retry(retry)
}

fn worker_job(releases: u64, timeouts: u64, buries: u64, retry: &Retry) -> WorkerJob {
    let stats = format!(
        "---\nid: 1\ntube: t\nstate: reserved\npri: 0\nage: 0\nttr: 1\nreleases: {releases}\n\
        timeouts: {timeouts}\nburies: {buries}\n"
    );
    let info = JobInfo::from_stats(&parse_dictionary(stats.as_bytes()).unwrap()).unwrap();
    WorkerJob::new(
        Job { id: 1, body: Vec::new(), fields: Fields::default() },
        Some(info),
        &worker(*retry),
        &FailedJobs::default(),
    )
}

#[test]
fn a_job_is_tried_as_often_as_the_retry_says_and_again_after_a_kick() {
    let retry = Retry::new().max_attempts(3).delays(Duration::from_secs(10), Duration::from_secs(15));
    let failed = Handled::Failed("x".to_owned());
    let seconds = |seconds| Settled::Released(Duration::from_secs(seconds));
    for (releases, timeouts, buries, plan) in [
        (0, 0, 0, seconds(10)),
        (1, 0, 0, seconds(15)),
        (0, 1, 0, seconds(15)),
        (1, 1, 0, Settled::Buried),
        (9, 9, 0, Settled::Buried),
        (2, 0, 1, seconds(10)),
        (3, 1, 1, Settled::Buried),
        (0, 0, u64::MAX, seconds(10)),
    ] {
        let worker_job = worker_job(releases, timeouts, buries, &retry);
        assert_eq!(Settled::plan(&failed, &worker_job, &retry), plan, "{releases} {timeouts} {buries}");
    }
    let server = Retry::by_server();
    let worker_job = worker_job(99, 99, 99, &server);
    assert_eq!(Settled::plan(&failed, &worker_job, &server), seconds(0));
    let own = Handled::RetryAfter(Duration::from_secs(7), "x".to_owned());
    assert_eq!(Settled::plan(&own, &worker_job, &Retry::by_handler()), seconds(7));
    assert_eq!(worker_job.touch_every(), Duration::from_millis(333));
    let bury = Handled::Bury("x".to_owned());
    assert_eq!(Settled::plan(&bury, &worker_job, &server), Settled::Buried);
}

#[test]
fn a_worker_counts_its_own_failures_whatever_the_counters_of_the_job_hide() {
    let (worker, failures) = (worker(Retry::new()), FailedJobs::default());
    let worker_job = |releases: u64, buries: u64, failures_of_server: Option<u64>| {
        let stats =
            format!("id: 7\ntube: t\nstate: reserved\npri: 0\nage: 0\nttr: 1\nreleases: {releases}\n");
        let own = failures_of_server.map(|count| format!("failures: {count}\n")).unwrap_or_default();
        let stats = format!("---\n{stats}buries: {buries}\n{own}");
        let info = JobInfo::from_stats(&parse_dictionary(stats.as_bytes()).unwrap()).unwrap();
        WorkerJob::new(
            Job { id: 7, body: Vec::new(), fields: Fields::default() },
            Some(info),
            &worker,
            &failures,
        )
    };
    let again = Settled::Released(Duration::ZERO);
    // Buried in its first attempt and kicked: the counters would allow four further series.
    for attempt in 1..=5 {
        let job = worker_job(attempt - 1, 1, None);
        assert_eq!(job.attempt, attempt);
        failures.note(&job, again);
    }
    // Nobody has asked how often it was buried before its first failure here.
    let fields = Fields { attempts: Some(1), ..Fields::default() };
    let first = WorkerJob::new(Job { id: 7, body: Vec::new(), fields }, None, &worker, &failures);
    failures.note(&first, again);
    assert_eq!(worker_job(1, 3, None).attempt, 2);
    failures.note(&worker_job(4, 1, None), Settled::Buried);
    (0..5).for_each(|releases| failures.note(&worker_job(releases, 1, None), again));
    // Two time-outs, or failures of others, count, too. What is given back does not.
    assert_eq!(worker_job(7, 1, None).attempt, 8);
    failures.note(&worker_job(7, 1, None), Settled::GivenBack(Duration::ZERO));
    assert_eq!(worker_job(7, 1, None).attempt, 8);
    // Buried and kicked by another worker, or by this one.
    assert_eq!(worker_job(7, 2, None).attempt, 1);
    failures.note(&worker_job(7, 1, None), Settled::Buried);
    assert_eq!(worker_job(7, 1, None).attempt, 4, "as far as the counters show it");
    // The server no longer counts the failures of a dead job that was sent back to its tube.
    assert_eq!(worker_job(3, 0, Some(3)).attempt, 4);
    failures.note(&worker_job(3, 0, Some(3)), again);
    assert_eq!(worker_job(4, 0, Some(0)).attempt, 1);
}

#[test]
fn refused_puts_are_a_failure_of_the_job() {
    let puts = Handled::DoneAndPut(vec![(PutOptions::new(), b"next".to_vec())]);
    assert_eq!(puts.puts(), [(PutOptions::new(), &b"next"[..])]);
    let unsupported = Error::Unsupported { extension: "complete".to_owned() };
    for (error, is_refused) in [
        (Error::Refused(Refusal::Draining), true),
        (Error::Refused(Refusal::JobTooBig), true),
        (Error::Invalid("complete has at most 100 puts"), true),
        (unsupported, true),
        (Error::Refused(Refusal::NotFound), false),
        (Error::Refused(Refusal::OutOfMemory), false),
        (Error::Closed, false),
    ] {
        assert_eq!(puts.refused(&error).is_some(), is_refused, "{error}");
        assert_eq!(Handled::Done.refused(&error), None);
    }
}

#[test]
fn counters_are_asked_for_only_where_the_fields_do_not_say_enough() {
    let fields = |releases, timeouts| {
        let list = FieldList::new(Field::ALL).unwrap();
        Fields::read(list, &format!("t 9 {timeouts} {releases} 1 2 3 -"))
    };
    let (usual, server, once) = (Retry::new(), Retry::by_server(), Retry::new().max_attempts(1));
    for (retry, releases, timeouts, is_asked) in [
        (usual, 0, 0, false),
        (usual, 1, 0, true),
        (usual, 0, 1, true),
        (server, 5, 5, false),
        (once, 5, 5, false),
    ] {
        assert_eq!(worker(retry).needs_info(&fields(releases, timeouts)), is_asked, "{retry:?}");
    }
    assert!(worker(server).with_info().needs_info(&fields(0, 0)));
    assert!(worker(server).needs_info(&Fields::default()), "a server without fields");
    let job = Job { id: 1, body: Vec::new(), fields: fields(2, 1) };
    let worker_job = WorkerJob::new(job, None, &worker(server), &FailedJobs::default());
    assert_eq!((worker_job.tube(), worker_job.attempt, worker_job.reserves), ("t", 4, 9));
    assert_eq!((worker_job.age, worker_job.pri, worker_job.ttr, worker_job.trace()), (1, 2, 3, None));
}

#[test]
fn a_server_that_answers_wrong_again_and_again_is_asked_less_and_less() {
    let worker = worker(Retry::new());
    let wrong = Error::of_reply(Verb::Reserve, &Reply::Deleted);
    let (away, mut backoff) = (Duration::ZERO, Backoff::default());
    let mut pause = |error: &Error, away| worker.pause_after(error, away, &mut backoff);
    for (attempt, ms) in [0, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000].into_iter().enumerate() {
        // A server that ends each connection at once is asked as seldom.
        let error = if attempt % 2 == 0 { &wrong } else { &Error::Closed };
        let paused = pause(error, away).unwrap().as_millis();
        assert!((ms / 2..=ms).contains(&paused), "{attempt}: {paused}");
    }
    assert_eq!(pause(&Error::Refused(Refusal::Forbidden), away), None, "a refusal is permanent");
    worker.stopper().stop();
    assert_eq!(pause(&wrong, away), None);
    let connector = Connector::new().reconnect(Reconnect::new().give_up_after(Duration::from_secs(9)));
    let worker = Worker::new(connector, "127.0.0.1:1".parse().unwrap());
    let pause = |seconds| worker.pause_after(&wrong, Duration::from_secs(seconds), &mut Backoff::default());
    assert_eq!((pause(9), pause(10)), (Some(Duration::ZERO), None));
}

#[test]
fn the_reply_to_its_last_command_says_what_has_become_of_a_job() {
    for (result, settled, goes_on) in [
        (Ok(true), Settled::Deleted, true),
        (Ok(false), Settled::Buried, true),
        (Err(Error::Unconfirmed { command: "delete" }), Settled::Unconfirmed, true),
        (Err(Error::Closed), Settled::Unconfirmed, true),
        (Err(Error::Refused(Refusal::NotFound)), Settled::Lost, true),
        (Err(Error::Refused(Refusal::Forbidden)), Settled::Unconfirmed, false),
    ] {
        let text = format!("{result:?}");
        let (found, next) = Settled::Deleted.after(result);
        assert_eq!((found, next.is_ok()), (settled, goes_on), "{text}");
    }
}

#[test]
fn only_a_session_lets_a_command_for_a_job_be_sent_on_another_connection() {
    let pauses =
        |worker: &Worker, error: &Error| worker.pause_for_job(error, &mut Backoff::default()).is_some();
    let connector = Connector::new().session("s".parse().unwrap(), Duration::from_secs(9));
    let with_session = Worker::new(connector, "127.0.0.1:1".parse().unwrap());
    assert!(pauses(&with_session, &Error::Closed) && pauses(&with_session, &Error::TimedOut));
    assert!(!pauses(&with_session, &Error::Refused(Refusal::NotFound)));
    assert!(!pauses(&worker(Retry::new()), &Error::Closed), "without a session");
    with_session.stopper().stop();
    assert!(pauses(&with_session, &Error::Closed));
    assert!(!pauses(&with_session, &Error::TimedOut), "it stops, and the server hangs");
}

#[test]
fn a_worker_ends_if_no_slot_finds_its_server_at_first() {
    let two = || worker(Retry::new()).server("127.0.0.1:2".parse().unwrap()).slots(2);
    let failed = |worker: &Worker, start: &slot::FirstConnections, attempt| {
        start.failed(worker, Error::Closed, attempt, Duration::ZERO).ok()
    };
    let (worker, start) = (two(), two().make_slots().unwrap().1);
    for attempt in [1, 2, 1, 2, 1] {
        assert_eq!(failed(&worker, &start, attempt), Some(true), "the fourth slot has not tried yet");
    }
    assert_eq!(failed(&worker, &start, 1), None, "none of four slots has a server");
    let (worker, start) = (two(), two().make_slots().unwrap().1);
    start.connected();
    assert!((0..4).all(|_| failed(&worker, &start, 1) == Some(true)), "one of them has");
    let forbidden = Error::Refused(Refusal::Forbidden);
    assert!(start.failed(&worker, forbidden, 1, Duration::ZERO).is_err(), "a refusal is permanent");
    let connector = Connector::new().reconnect(Reconnect::new().give_up_after(Duration::from_secs(9)));
    let impatient =
        Worker::new(connector, "127.0.0.1:1".parse().unwrap()).server("127.0.0.1:2".parse().unwrap());
    for (seconds, goes_on) in [(9, true), (10, false)] {
        let result = start.failed(&impatient, Error::Closed, 2, Duration::from_secs(seconds));
        assert_eq!(result.is_ok(), goes_on, "{seconds}");
    }
    assert!(start.result().is_ok());
    let until_empty = two().until_empty();
    assert_eq!(failed(&until_empty, &start, 1), Some(false));
    assert!(start.result().is_err(), "the jobs of one server were not done");
}

#[test]
fn a_delay_is_never_shorter_than_asked_for() {
    let ms = Duration::from_millis;
    assert_eq!((seconds(ms(1500), true), seconds(ms(1500), false)), (Seconds::new(1, 500), 2.into()));
    assert_eq!(seconds(ms(0), false), Seconds::ZERO);
    assert_eq!(seconds(Duration::MAX, false), Seconds::MAX);
}

#[test]
fn results_are_outcomes() {
    assert_eq!(Handled::from(()), Handled::Done);
    assert_eq!(Handled::from(Ok::<(), fmt::Error>(())), Handled::Done);
    assert_eq!(Handled::from(Err::<(), _>("no")), Handled::Failed("no".to_owned()));
}
