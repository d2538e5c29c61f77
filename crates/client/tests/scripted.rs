//! Every method of the client against prepared replies: the bytes that it sends, and its result.

use beanstalk_client::{
    Address, Client, Command, Connection, Connector, Culprit, Cursor, Error, Extensions, Field, Fields,
    Handled, JobId, JobState, ModeWord, Pool, Priority, PutOptions, Refusal, Request, Tag, TraceParent,
    TubeName, TubeNameRef, Verb, Worker,
};
use beanstalkd_protocol::PutHeader;
use beanstalkd_testkit::PATIENCE;
use std::cell::RefCell;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::Duration;

mod support;

use support::{on_one_thread, reconnecting as connector, scripted};

thread_local! {
    /// The first command of each call of [`with`] in this thread.
    static SENT: RefCell<Vec<Verb>> = const { RefCell::new(Vec::new()) };
}

/// Runs `act` on a client whose socket already has `reply`. Returns its result and the bytes that it sent.
fn with<T>(reply: &str, act: impl FnOnce(&mut Client) -> T) -> (T, String) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(reply.as_bytes()).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    let mut client = Client::from(Connection::over_unix(ours));
    let result = act(&mut client);
    drop(client);
    let mut sent = String::new();
    theirs.read_to_string(&mut sent).unwrap();
    let command = sent.split("\r\n").next().and_then(|line| beanstalkd_protocol::parse(line.as_bytes()).ok());
    SENT.with_borrow_mut(|all| all.extend(command.map(|command| command.verb())));
    (result, sent)
}

#[track_caller]
fn check<T: Debug + PartialEq>(
    sent: &str,
    reply: &str,
    expected: T,
    act: impl FnOnce(&mut Client) -> Result<T, Error>,
) {
    let (result, line) = with(reply, act);
    assert_eq!(line, format!("{sent}\r\n"));
    assert_eq!(result.unwrap(), expected);
}

fn tube() -> TubeName {
    "mail".parse().unwrap()
}

#[test]
fn commands_of_c() {
    check("use mail", "USING mail\r\n", (), |c| c.use_tube(&tube()));
    check("put 1024 0 60 2\r\nhi", "INSERTED 7\r\n", 7, |c| Ok(c.put(b"hi", &PutOptions::default())?.id));
    check("reserve", "RESERVED 7 2\r\nhi\r\n", b"hi".to_vec(), |c| Ok(c.reserve()?.body));
    check("reserve-with-timeout 0", "RESERVED 7 0\r\n\r\n", 7, |c| Ok(c.reserve_with_timeout(0)?.id));
    check("reserve-job 7", "RESERVED 7 0\r\n\r\n", 7, |c| Ok(c.reserve_job(7)?.id));
    check("delete 7", "DELETED\r\n", (), |c| c.delete(7));
    check("release 7 1 2", "RELEASED\r\n", true, |c| c.release(7, 1, 2));
    check("release 7 1 2", "BURIED\r\n", false, |c| c.release(7, 1, 2));
    check("bury 7 1", "BURIED\r\n", (), |c| c.bury(7, 1));
    check("touch 7", "TOUCHED\r\n", (), |c| c.touch(7));
    check("watch mail", "WATCHING 2\r\n", 2, |c| c.watch(&tube()));
    check("ignore mail", "WATCHING 1\r\n", 1, |c| c.ignore(&tube()));
    check("peek 7", "FOUND 7 1\r\na\r\n", 7, |c| Ok(c.peek(7)?.id));
    check("peek-ready", "FOUND 7 1\r\na\r\n", 7, |c| Ok(c.peek_next(JobState::Ready)?.id));
    check("peek-delayed", "FOUND 7 1\r\na\r\n", 7, |c| Ok(c.peek_next(JobState::Delayed)?.id));
    check("peek-buried", "FOUND 7 1\r\na\r\n", 7, |c| Ok(c.peek_next(JobState::Buried)?.id));
    check("kick 5", "KICKED 3\r\n", 3, |c| c.kick(5));
    check("kick-job 5", "KICKED\r\n", (), |c| c.kick_job(5));
    check("pause-tube mail 9", "PAUSED\r\n", (), |c| c.pause_tube(&tube(), 9));
    check("stats", "OK 9\r\n---\na: 1\n\r\n", Some(1), |c| Ok(c.stats()?.number("a")));
    check("stats-tube mail", "OK 9\r\n---\na: 1\n\r\n", Some(1), |c| Ok(c.stats_tube(&tube())?.number("a")));
    let job = "---\nid: 7\ntube: a\nstate: ready\npri: 1\nage: 2\nttr: 3\n";
    check("stats-job 7", &format!("OK {}\r\n{job}\r\n", job.len()), 7, |c| Ok(c.stats_job(7)?.id));
    check("list-tubes", "OK 8\r\n---\n- a\n\r\n", vec!["a".to_owned()], |c| c.list_tubes());
    check("list-tubes-watched", "OK 8\r\n---\n- a\n\r\n", vec!["a".to_owned()], |c| c.list_tubes_watched());
    check("list-tube-used", "USING a\r\n", "a".to_owned(), |c| c.list_tube_used());
}

#[test]
fn a_connection_that_does_not_ask_uses_the_extensions_that_it_knows() {
    let tagged = PutOptions::new().tag("grp:g".parse().unwrap());
    let is_unsupported = |result: &Result<(), Error>| matches!(result, Err(Error::Unsupported { .. }));
    let (set, sent) = with("", |client| {
        client.set_extensions(Extensions::default());
        client.put(b"delete 1", &tagged).map(drop)
    });
    assert!(is_unsupported(&set) && sent.is_empty(), "{set:?}, sent {sent:?}");
    let (asked, sent) = with("OK 9\r\n---\na: 1\n\r\n", |client| {
        client.known_extensions()?;
        client.put(b"delete 1", &tagged).map(drop)
    });
    assert!(is_unsupported(&asked) && sent == "stats\r\n", "{asked:?}, sent {sent:?}");
    let (refused, _) = with("UNKNOWN_COMMAND\r\n", |client| {
        client.set_extensions(Extensions::default());
        client.touch_all().map(drop)
    });
    assert!(is_unsupported(&refused), "{refused:?}");
}

#[test]
fn extensions() {
    let options = PutOptions { tags: vec!["idp:k".parse().unwrap()], ..PutOptions::default() };
    check(
        "put 1024 0 60 0 idp:k\r\n",
        "INSERTED 7 READY 50\r\n",
        (7, true, Some(JobState::Ready), Some(50)),
        |c| c.put(b"", &options).map(|put| (put.id, put.is_duplicate, put.state, put.pri)),
    );
    check("auth secret", "AUTHENTICATED\r\n", (), |c| c.auth("secret"));
    check("flush-tube mail", "FLUSHED 9\r\n", 9, |c| c.flush_tube(&tube()));
    check("flush-buried mail", "FLUSHED 0\r\n", 0, |c| c.flush_buried(&tube()));
    check("peek-reserved", "FOUND 7 1\r\na\r\n", 7, |c| Ok(c.peek_next(JobState::Reserved)?.id));
    check("move 7 mail", "MOVED\r\n", (), |c| c.move_job(7, &tube()));
    check("reprioritize 7 1", "REPRIORITIZED\r\n", (), |c| c.reprioritize(7, 1));
    check("drain", "DRAINING\r\n", (), |c| c.drain());
    check("undrain", "NOT_DRAINING\r\n", (), |c| c.undrain());
    check("stats-group mail", "OK 15\r\n---\npending: 1\n\r\n", Some(1), |c| {
        Ok(c.stats_group(&tube())?.number("pending"))
    });
    check("reserve-batch 2", "RESERVED_BATCH 1\r\nRESERVED 7 0\r\n\r\n", 1, |c| {
        Ok(c.reserve_batch(2, None)?.len())
    });
    check("reserve-batch 2 3", "RESERVED_BATCH 0\r\n", 0, |c| Ok(c.reserve_batch(2, Some(3.into()))?.len()));
    check("delete-batch 1 2 3", "DELETED_BATCH 2 1\r\n", (2, 1), |c| c.delete_batch(&[1, 2, 3]));
    check("touch-all", "TOUCHED_ALL 4\r\n", 4, |c| c.touch_all());
    check("session mail 1.5", "SESSION 2\r\n", 2, |c| c.session(&tube(), Duration::from_millis(1500)));
    check("touch 7 90", "TOUCHED\r\n", (), |c| c.touch_for(7, 90));
    check("release 7 1 2 uncounted", "RELEASED\r\n", (), |c| c.release_uncounted(7, 1, 2));
    check("wait-job 7", "DELETED 7\r\n", true, |c| c.wait_job(7, None));
    check("wait-job 7 1.5", "BURIED 7\r\n", false, |c| {
        c.wait_job(7, Some(beanstalk_client::Seconds::new(1, 500)))
    });
    check("list-clients 1", "OK 22\r\n---\nnext: \"\"\nclients:\n\r\n", 0, |c| {
        Ok(c.list_clients(1, None)?.0.len())
    });
    check("kill-client 9", "KILLED\r\n", (), |c| c.kill_client(9));
    check("reserve-fields tube attempts", "USING tube attempts\r\n", (), |c| {
        c.reserve_fields(&[Field::Tube, Field::Attempts])
    });
    check("reserve-fields age", "USING age\r\n", (), |c| c.reserve_fields(&[Field::Age]));
    check("reserve-fields", "USING\r\n", (), |c| c.reserve_fields(&[]));
    check("watch mail 5", "WATCHING 1\r\n", 1, |c| c.watch_weighted(&tube(), 5));
    check("reserve-mode weighted", "USING weighted\r\n", (), |c| c.reserve_mode(ModeWord::Weighted));
    check("reserve-with-abort 3", "RESERVED 7 0\r\n\r\n", 7, |c| {
        Ok(c.reserve_with_abort(Some(3.into()))?.id)
    });
}

#[test]
fn a_complete_has_its_puts_after_it() {
    let next = PutOptions::new().ttr(120);
    let puts: [(PutOptions, &[u8]); 2] = [(PutOptions::new(), b"hi"), (next, b"")];
    let sent = "complete 7 2\r\nput 1024 0 60 2\r\nhi\r\nput 1024 0 120 0\r\n";
    check(sent, "COMPLETED 8 9\r\n", vec![8, 9], |c| c.complete(7, &puts));
    check("complete 7 0", "COMPLETED\r\n", vec![], |c| c.complete(7, &[]));
    let (refused, sent) = with("", |c| c.complete(7, &vec![(PutOptions::new(), &b""[..]); 101]));
    assert!(matches!(refused, Err(Error::Invalid(rule)) if rule.contains(" 100 ")) && sent.is_empty());
}

#[test]
fn an_argument_that_breaks_a_rule_is_not_sent_and_the_error_names_the_rule() {
    fn check<T>((result, sent): (Result<T, Error>, String), limit: &str) {
        let error = result.err().unwrap();
        assert!(matches!(error, Error::Invalid(rule) if rule.contains(limit)) && sent.is_empty(), "{error}");
        assert!(error.culprit() == Culprit::Caller && !error.to_string().contains("server"), "{error}");
    }
    let (long, graces) = ("s".repeat(TubeName::MAX_BYTES), [Duration::from_millis(3_600_001), Duration::MAX]);
    for grace in graces {
        check(with("", |c| c.session(&tube(), grace)), "1 hour");
        // Not even a connection is tried.
        let opened = Connector::new().session(tube(), grace).open(&Address::Unix("/nonexistent".into()));
        check((opened, String::new()), "1 hour");
    }
    let connector = Connector::new().session(long.parse().unwrap(), Duration::ZERO);
    let worker = Worker::new(connector, Address::Unix("/nonexistent".into()));
    check((worker.run(|_| Handled::Done), String::new()), " 200 bytes");
    check(with("", |c| c.delete_batch(&[])), "1 to 1000 ");
    check(with("", |c| c.delete_batch(&[1; 1001])), "1 to 1000 ");
    check(with("", |c| c.auth("a b")), "visible characters");
    check(with("", |c| c.reserve_fields(&[Field::Age, Field::Age])), "at most once");
}

#[track_caller]
fn is_not_sent<'a>(request: impl Into<Request<'a>>) {
    let request = request.into();
    let (refused, sent) = with("", |c| c.call(request).map(drop));
    assert!(matches!(refused, Err(Error::Invalid(_))) && sent.is_empty(), "{request:?}");
    let (results, sent) = with("", |c| {
        let mut results = Vec::new();
        c.send_all([request], |_, result| results.push(result.map(drop))).unwrap();
        results
    });
    assert!(matches!(results[..], [Err(Error::Invalid(_))]) && sent.is_empty(), "{request:?}");
}

#[test]
fn a_line_whose_body_is_missing_is_not_sent() {
    for line in ["put 1 0 60 5", "put 1 0 60 5 idp:k", "complete 7 1"] {
        is_not_sent(beanstalkd_protocol::parse(line.as_bytes()).unwrap());
    }
}

#[test]
fn a_request_is_one_command() {
    let header = PutHeader { priority: Priority(0), delay_s: 0.into(), ttr_s: 0.into(), size: 0 };
    let cursor = Cursor::parse("ready-1-8").unwrap();
    is_not_sent(Command::PutWith(header, b" idp:k\r\n\r\ndelete 1"));
    is_not_sent(Request::Complete(JobId(7), &vec![(PutOptions::new(), &b"delete 1"[..]); 101]));
    for token in [&b"a\r\ndelete 1"[..], b"a\n", b"a b", b"\0", b""] {
        is_not_sent(Command::Auth(token));
    }
    let jobs =
        |after| Command::ListJobs { tube: "t".try_into().unwrap(), state: JobState::Ready, limit: 1, after };
    let Ok(twice) = beanstalkd_protocol::parse(b"list-jobs t ready 1 ready-1-8") else { panic!("a page") };
    let put = Command::PutWith(header, b" idp:k");
    for command in
        [twice, put, Command::Auth(b"a"), Command::Reserve, Command::Quit, Command::Delete(JobId(1))]
    {
        is_not_sent(Request::PageAfter(command, &cursor));
    }
    let (_, sent) = with("", |c| c.call(Request::PageAfter(jobs(None), &cursor)).map(drop));
    assert_eq!(sent, "list-jobs t ready 1 ready-1-8\r\n");
}

#[test]
fn a_text_that_ends_a_line_is_no_argument() {
    for end in ["\r\ndelete 1", "\n", "\r", "\0", " ", " b"] {
        let text = format!("a{end}");
        assert!(TubeNameRef::try_from(&*text).is_err() && text.parse::<TubeName>().is_err(), "{text:?}");
        assert!(Cursor::parse(&text).is_none(), "{text:?}");
        let trace = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01{end}");
        assert!(trace.parse::<TraceParent>().is_err() && format!("trc:{trace}").parse::<Tag>().is_err());
        let values = ["idp:a", "idp:a:1", "con:a", "con:a:1", "grp:a", "aft:a", "exp:1", "tub:a"];
        for tag in values.map(|value| format!("{value}{end}")) {
            assert!(tag.parse::<Tag>().is_err(), "{tag:?}");
        }
    }
}

#[test]
fn fields_are_those_that_the_connection_has_asked_for() {
    let replies = [
        "USING tube attempts\r\n",
        "RESERVED 7 2 mail 3\r\nhi\r\n",
        "RESERVED_BATCH 2\r\nRESERVED 8 0 a 1\r\n\r\nRESERVED 9 0 b 2\r\n\r\n",
        "FOUND 7 2\r\nhi\r\n",
        "USING\r\n",
        "RESERVED 10 0\r\n\r\n",
    ];
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        for reply in replies {
            let _ = theirs.read(&mut [0; 4096]);
            theirs.write_all(reply.as_bytes()).unwrap();
        }
    });
    let mut c = Client::from(Connection::over_unix(ours));
    c.reserve_fields(&[Field::Tube, Field::Attempts]).unwrap();
    let mut jobs = vec![c.reserve().unwrap()];
    jobs.extend(c.reserve_batch(5, None).unwrap());
    assert_eq!(c.peek(7).unwrap().fields, Fields::default());
    c.reserve_fields(&[]).unwrap();
    jobs.push(c.reserve_job(10).unwrap());
    let seen: Vec<_> =
        jobs.iter().map(|job| (job.id, job.fields.tube.as_deref(), job.fields.attempts)).collect();
    let expected =
        [(7, Some("mail"), Some(3)), (8, Some("a"), Some(1)), (9, Some("b"), Some(2)), (10, None, None)];
    assert_eq!(seen, expected);
}

#[test]
fn every_command_of_the_server_has_a_method() {
    commands_of_c();
    extensions();
    a_page_of_jobs();
    a_complete_has_its_puts_after_it();
    let missing = |verb: &Verb| SENT.with_borrow(|sent| !sent.contains(verb));
    // Its method takes the client: see `Client::quit`.
    assert_eq!(Verb::ALL.into_iter().filter(missing).collect::<Vec<_>>(), [Verb::Quit]);
}

#[test]
fn a_page_of_jobs() {
    let data = "---\nnext: \"ready-1-9\"\njobs:\n- {id: 7, pri: 1, age: 2, delay: 3, ttr: 4, time-left: 0, bytes: 5, \
        reserves: 0, timeouts: 0, releases: 0, buries: 0, kicks: 0, group: \"g\"}\n";
    let reply = format!("OK {}\r\n{data}\r\n", data.len());
    let after = Cursor::parse("ready-1-8");
    let (page, sent) = with(&reply, |c| c.list_jobs(&tube(), JobState::Ready, 1, after.as_ref()));
    assert_eq!(sent, "list-jobs mail ready 1 ready-1-8\r\n");
    let page = page.unwrap();
    assert_eq!(page.next.unwrap().as_str(), "ready-1-9");
    assert_eq!((page.jobs[0].id, page.jobs[0].bytes, page.jobs[0].tags.len()), (7, Some(5), 1));
}

#[test]
fn refusals_are_distinguished_from_failures() {
    for (reply, refusal) in [
        ("NOT_FOUND\r\n", Refusal::NotFound),
        ("OUT_OF_MEMORY\r\n", Refusal::OutOfMemory),
        ("UNKNOWN_COMMAND\r\n", Refusal::UnknownCommand),
    ] {
        match with(reply, |c| c.delete(1)).0 {
            Err(Error::Refused(found)) => assert_eq!(found, refusal),
            other => panic!("{other:?}"),
        }
    }
    let draining = with("DRAINING\r\n", |c| c.put(b"", &PutOptions::default())).0.unwrap_err();
    assert!(matches!(draining, Error::Refused(Refusal::Draining)));
    let exists = with("EXISTS 5\r\n", |c| c.move_job(1, &tube())).0.unwrap_err();
    assert!(matches!(exists, Error::Refused(Refusal::Exists(JobId(5)))));
    let other = with("PAUSED\r\n", |c| c.delete(1)).0.unwrap_err();
    assert!(matches!(other, Error::Unexpected { .. }) && other.culprit() == Culprit::Server, "{other}");
    let closed = with("DELE", |c| c.delete(1)).0.unwrap_err();
    assert!(matches!(closed, Error::Closed) && closed.culprit() == Culprit::Network, "{closed}");
    let http = with("HTTP/1.1 400 Bad Request\r\n", |c| c.stats().map(drop)).0.unwrap_err();
    assert!(matches!(http, Error::Malformed(_)), "{http}");
    let no_yaml = with("OK 5\r\nhello\r\n", |c| c.stats().map(drop)).0.unwrap_err();
    assert!(matches!(no_yaml, Error::MalformedData(_)), "{no_yaml}");
}

#[test]
fn a_reply_that_comes_late_can_still_be_received() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = Client::from(Connection::over_unix(ours));
    client.set_timeout(Some(Duration::from_millis(1)));
    theirs.write_all(b"DELE").unwrap();
    assert!(matches!(client.delete(1), Err(Error::TimedOut)));
    theirs.write_all(b"TED\r\n").unwrap();
    client.set_timeout(Some(Duration::from_secs(60)));
    assert_eq!(client.receive().unwrap(), beanstalk_client::Reply::Deleted);
}

#[test]
fn the_job_of_a_late_reserve_is_the_result_of_the_next_one() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = Client::from(Connection::over_unix(ours));
    client.set_timeout(Some(Duration::from_millis(1)));
    assert!(matches!(client.reserve_with_timeout(0), Err(Error::TimedOut)));
    client.set_timeout(Some(Duration::from_secs(60)));
    let server = std::thread::spawn(move || {
        let late = support::answer(&mut theirs, b"RESERVED 7 1\r\nx\r\n");
        [late, support::answer(&mut theirs, b"TOUCHED\r\n")]
    });
    assert_eq!(client.reserve_with_timeout(5).unwrap().id, 7);
    assert_eq!(server.join().unwrap(), ["reserve-with-timeout 0\r\n", "touch 7\r\n"]);
}

#[test]
fn a_wait_ends_when_another_thread_closes_the_connection() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut client = Client::from(Connection::over_unix(ours));
    let closer = client.closer().unwrap();
    let waiting = std::thread::spawn(move || client.reserve());
    let mut line = [0; 9];
    (&theirs).read_exact(&mut line).unwrap();
    closer.close();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
}

#[test]
fn garbage_from_a_server_is_an_error_and_not_a_panic() {
    let mut random = fastrand::Rng::with_seed(1);
    let words: [&[u8]; 8] =
        [b"OK ", b"RESERVED ", b"RESERVED_BATCH ", b"\r\n", b" ", b"9", b"---\n", b"\xff"];
    for _ in 0..20_000 {
        let bytes: Vec<u8> =
            (0..random.usize(..12)).flat_map(|_| words[random.usize(..words.len())]).copied().collect();
        let _ = beanstalk_client::Reply::read(&bytes);
        let _ = beanstalk_client::parse_dictionary(&bytes);
        let _ = beanstalk_client::parse_list(&bytes);
        let _ = beanstalk_client::Page::parse(&bytes, "t", JobState::Ready);
    }
}

/// A server whose first connection answers a command with a reply that is not its own, and each later command with the
/// reply to the one before. The second connection answers right.
fn one_reply_off(wrong: &str) -> (Address, tempfile::TempDir) {
    let bytes = |replies: &[&str]| replies.iter().map(|reply| reply.as_bytes().to_vec()).collect();
    let (right, late) = ("INSERTED 7\r\n", "INSERTED 6\r\n");
    let (address, directory) = scripted(vec![bytes(&[wrong, late, late]), bytes(&[right, right])]);
    (address.parse().unwrap(), directory)
}

#[test]
fn after_the_reply_to_another_command_a_connection_is_not_used_any_more() {
    let options = PutOptions::new();
    let keyed = PutOptions::new().tag("idp:k".parse().unwrap());
    let once = Connector::new();
    // A put with a key asks for the extensions first.
    for (wrong, first) in [("DELETED\r\n", &options), ("TOUCHED\r\n", &keyed)] {
        let is_unexpected =
            |error: &Error| matches!(error, Error::Unexpected { .. }) && error.is_out_of_step();

        let (address, _directory) = one_reply_off(wrong);
        let mut client = connector().connect(&address).unwrap();
        assert!(is_unexpected(&client.put(b"x", first).unwrap_err()));
        assert_eq!(client.put(b"y", &options).unwrap().id, 7);
        let (address, _directory) = one_reply_off(wrong);
        let mut client = once.connect(&address).unwrap();
        assert!(is_unexpected(&client.put(b"x", first).unwrap_err()));
        assert!(matches!(client.put(b"y", &options), Err(Error::Closed)));
        let (address, _directory) = one_reply_off(wrong);
        let pool = Pool::new(once.clone(), address, 1);
        assert!(is_unexpected(&pool.get().unwrap().put(b"x", first).unwrap_err()));
        assert!(pool.is_empty());
        assert_eq!(pool.get().unwrap().put(b"y", &options).unwrap().id, 7);

        on_one_thread(async {
            let (address, _directory) = one_reply_off(wrong);
            let mut client = connector().connect_async(&address).await.unwrap();
            assert!(is_unexpected(&client.put(b"x", first).await.unwrap_err()));
            assert_eq!(client.put(b"y", &options).await.unwrap().id, 7);
            let (address, _directory) = one_reply_off(wrong);
            let mut client = once.connect_async(&address).await.unwrap();
            assert!(is_unexpected(&client.put(b"x", first).await.unwrap_err()));
            assert!(matches!(client.put(b"y", &options).await, Err(Error::Closed)));
            let (address, _directory) = one_reply_off(wrong);
            let pool = beanstalk_client::asynchronous::Pool::new(once.clone(), address, 1);
            assert!(is_unexpected(&pool.get().await.unwrap().put(b"x", first).await.unwrap_err()));
            assert!(pool.is_empty());
            assert_eq!(pool.get().await.unwrap().put(b"y", &options).await.unwrap().id, 7);
        });
    }
}

/// Accepts this many connections, answers the first line of each with the reply to another command, and waits until
/// the client has closed it.
fn answers_wrong(connections: usize) -> (Address, JoinHandle<()>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            assert!(stream.read(&mut [0; 100]).unwrap() > 0);
            stream.write_all(b"TOUCHED\r\n").unwrap();
            assert_eq!(stream.read(&mut [0; 100]).unwrap(), 0);
        }
    });
    (format!("unix:{}", path.display()).parse().unwrap(), server, directory)
}

#[test]
fn after_an_unexpected_reply_a_connection_is_closed_at_once() {
    // A put with a key asks for the extensions first.
    let keyed = PutOptions::new().tag("idp:k".parse().unwrap());
    let put = || Request::Put(&keyed, b"x");
    let (address, server, _directory) = answers_wrong(6);
    let mut blocking = [(); 3].map(|()| Connection::open(&address).unwrap());
    let [called, asked, sent] = &mut blocking;
    assert!(called.call(put()).unwrap_err().is_out_of_step());
    assert!(asked.known_extensions().unwrap_err().is_out_of_step());
    assert!(sent.send_all([put()], |_, _| {}).unwrap_err().is_out_of_step());
    on_one_thread(async {
        let mut connections = Vec::new();
        for _ in 0..3 {
            connections.push(beanstalk_client::asynchronous::Connection::open(&address).await.unwrap());
        }
        let [called, asked, sent] = &mut connections[..] else { unreachable!() };
        assert!(called.call(put()).await.unwrap_err().is_out_of_step());
        assert!(asked.known_extensions().await.unwrap_err().is_out_of_step());
        assert!(sent.send_all([put()], |_, _| {}).await.unwrap_err().is_out_of_step());
        server.join().unwrap();
    });
}

#[test]
fn after_data_that_cannot_be_read_a_connection_is_used_further() {
    let (address, _directory) = scripted(vec![vec![b"OK 3\r\nabc\r\n".to_vec(), b"USING a\r\n".to_vec()]; 2]);
    let address = address.parse().unwrap();
    let pool = Pool::new(Connector::new(), address, 1);
    let error = pool.get().unwrap().stats().unwrap_err();
    assert!(matches!(error, Error::MalformedData(_)) && !error.is_out_of_step(), "{error}");
    assert_eq!((pool.len(), pool.get().unwrap().list_tube_used().unwrap().as_str()), (1, "a"));
}
