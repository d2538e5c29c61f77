use super::*;
use beanstalkd_protocol::{Field, FieldList, Refusal, Reply, Verb, parse_dictionary};

fn delivery(releases: u64, timeouts: u64, buries: u64, retry: &Retry) -> Delivery {
    let stats = format!(
        "---\nid: 1\ntube: t\nstate: reserved\npri: 0\nage: 0\nttr: 1\nreleases: {releases}\n\
        timeouts: {timeouts}\nburies: {buries}\n"
    );
    let info = JobInfo::from_stats(&parse_dictionary(stats.as_bytes()).unwrap()).unwrap();
    Delivery::new(
        Job { id: 1, body: Vec::new(), fields: Fields::default() },
        Some(info),
        retry,
        &Stopper::default(),
    )
}

#[test]
fn a_job_is_tried_as_often_as_the_retry_says_and_again_after_a_kick() {
    let retry = Retry::new().max_attempts(3).delays(Duration::from_secs(10), Duration::from_secs(15));
    let failed = Outcome::Failed("x".to_owned());
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
        let delivery = delivery(releases, timeouts, buries, &retry);
        assert_eq!(Settled::plan(&failed, &delivery, &retry), plan, "{releases} {timeouts} {buries}");
    }
    let server = Retry::by_server();
    let delivery = delivery(99, 99, 99, &server);
    assert_eq!(Settled::plan(&failed, &delivery, &server), seconds(0));
    assert_eq!(delivery.touch_every(), Duration::from_millis(333));
    let hopeless = Outcome::Hopeless("x".to_owned());
    assert_eq!(Settled::plan(&hopeless, &delivery, &server), Settled::Buried);
}

#[test]
fn counters_are_asked_for_only_where_the_fields_do_not_say_enough() {
    let worker = |retry| Worker::new(Connector::new(), "127.0.0.1:1".parse().unwrap()).retry(retry);
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
    let delivery = Delivery::new(job, None, &server, &Stopper::default());
    assert_eq!((delivery.tube(), delivery.attempt, delivery.reserves), ("t", 4, 9));
    assert_eq!((delivery.age, delivery.pri, delivery.ttr, delivery.trace()), (1, 2, 3, None));
}

#[test]
fn a_server_that_answers_wrong_again_and_again_is_asked_less_and_less() {
    let worker = Worker::new(Connector::new(), "127.0.0.1:1".parse().unwrap());
    let wrong = Error::of_reply(Verb::Reserve, &Reply::Deleted);
    let (away, mut attempts) = (Duration::ZERO, Attempts::default());
    let mut pause = |error: &Error, away| worker.pause_after(error, away, &mut attempts);
    let ms: Vec<_> = (0..10).map(|_| pause(&wrong, away).unwrap().as_millis()).collect();
    assert_eq!(ms, [0, 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    // A lost connection has its own pauses; a refusal is permanent.
    assert_eq!(pause(&Error::Closed, away), Some(Duration::ZERO));
    assert_eq!(pause(&Error::Refused(Refusal::Forbidden), away), None);
    worker.stopper().stop();
    assert_eq!(pause(&wrong, away), None);
    let connector = Connector::new().reconnect(Reconnect::new().give_up_after(Duration::from_secs(9)));
    let worker = Worker::new(connector, "127.0.0.1:1".parse().unwrap());
    let pause = |seconds| worker.pause_after(&wrong, Duration::from_secs(seconds), &mut Attempts::default());
    assert_eq!((pause(9), pause(10)), (Some(Duration::ZERO), None));
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
    assert_eq!(Outcome::from(()), Outcome::Done);
    assert_eq!(Outcome::from(Ok::<(), fmt::Error>(())), Outcome::Done);
    assert_eq!(Outcome::from(Err::<(), _>("no")), Outcome::Failed("no".to_owned()));
}
