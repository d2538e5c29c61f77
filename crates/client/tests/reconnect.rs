//! Connections that are lost at any moment: which commands are executed once, which are repeated, and which are
//! unknown.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use beanstalk_client::{
    Address, Client, Command, Connector, Error, Field, Fields, JobId, JobState, Pool, PutOptions, Reconnect,
    Refusal, Reply, Request, TubeName,
};
use beanstalkd_testkit::fake::{Fake, FakeOptions, Fault, at_each_command};
use beanstalkd_testkit::{TOKEN, TOKEN_HASH, installed};

mod support;

use support::{on_one_thread, reconnecting as connector, scripted, tube};

fn connect(fake: &Fake) -> Client {
    connector().connect(&fake.address().parse().unwrap()).unwrap()
}

/// Calls `test` with fakes that close the connection before and after each of its command lines.
fn at_each_loss(at_least: usize, mut test: impl FnMut(&Fake, usize, bool)) {
    for fault in Fault::CLOSINGS {
        let is_after = matches!(fault, Fault::CloseAfter);
        at_each_command(fault, at_least, |fake, at| test(fake, at, is_after));
    }
}

/// How often each body is in the tube.
fn bodies(fake: &Fake, name: &str) -> BTreeMap<String, u32> {
    let mut client = Client::connect(&fake.address().parse().unwrap()).unwrap();
    let mut found = BTreeMap::new();
    let mut cursor = None;
    loop {
        let page = match client.list_jobs(&tube(name), JobState::Ready, 7, cursor.as_ref()) {
            Err(error) if error.is_not_found() => return found,
            page => page.unwrap(),
        };
        for job in page.jobs {
            let body = String::from_utf8(client.peek(job.id).unwrap().body).unwrap();
            *found.entry(body).or_default() += 1;
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return found,
        }
    }
}

#[test]
fn at_every_command_a_lost_connection_doubles_no_job_and_loses_none_silently() {
    at_each_loss(22, |fake, at, _| {
        let mut client = connect(fake);
        let mut certain = Vec::new();
        client.use_tube(&tube("a")).unwrap();
        client.watch(&tube("a")).unwrap();
        client.ignore(&TubeName::default_tube()).unwrap();
        let (plain, keyed) =
            (PutOptions::new(), |n: usize| PutOptions::new().tag(format!("idp:k{n}:600").parse().unwrap()));
        let keyed: Vec<PutOptions> = (0..8).map(keyed).collect();
        let texts: Vec<String> = (0..16).map(|n| format!("job {n}")).collect();
        let puts = texts.iter().enumerate().map(|(n, text)| match n % 2 {
            0 => Request::Put(&plain, text.as_bytes()),
            _ => Request::Put(&keyed[n / 2], text.as_bytes()),
        });
        client
            .send_all(puts, |position, result| match result {
                Ok(Reply::Inserted(_)) => certain.push(position),
                Ok(Reply::Duplicate(..)) => {
                    assert_eq!(position % 2, 1);
                    certain.push(position);
                }
                Err(Error::Unconfirmed { command: "put" }) => assert_eq!(position % 2, 0, "at {at}"),
                other => panic!("at {at}: {other:?}"),
            })
            .unwrap();
        assert_eq!(client.list_tube_used().unwrap(), "a", "at {at}");
        assert_eq!(client.list_tubes_watched().unwrap(), ["a"], "at {at}");
        fake.disarm();
        let stored = bodies(fake, "a");
        for (n, text) in texts.iter().enumerate() {
            let count = stored.get(text).copied().unwrap_or(0);
            assert!(count <= 1, "at {at}: {text} is stored {count} times");
            assert!(count == 1 || !certain.contains(&n), "at {at}: {text} is lost");
            assert!(n % 2 == 0 || count == 1, "at {at}: {text} has a key, and was to be sent again");
        }
        assert!(bodies(fake, "default").is_empty());
    });
}

#[test]
fn a_session_keeps_a_job_through_every_loss() {
    at_each_loss(7, |fake, at, is_after| {
        let mut client = {
            let connector = connector().session(tube("worker-1"), Duration::from_secs(60));
            connector.connect(&fake.address().parse().unwrap()).unwrap()
        };
        let id = loop {
            // If the reply to a put is lost, the caller must decide.
            let _ = client.put(b"x", &PutOptions::new());
            if let Ok(job) = client.peek_next(JobState::Ready) {
                break job.id;
            }
        };
        // If the reply to the reserve is lost, the session has the job, and the second reserve finds none.
        match client.reserve_with_timeout(0) {
            Ok(job) => assert_eq!(job.id, id),
            Err(error) => assert!(error.is_timed_out(), "at {at}: {error}"),
        }
        client.touch(id).unwrap();
        match client.delete(id) {
            Ok(()) => {}
            Err(Error::Unconfirmed { command: "delete" }) => assert!(is_after),
            Err(error) => panic!("at {at}: {error}"),
        }
        assert!(client.peek(id).unwrap_err().is_not_found(), "at {at}");
    });
}

#[test]
fn fields_are_asked_for_again_after_every_loss() {
    at_each_loss(5, |fake, at, _| {
        let mut client = connect(fake);
        client.reserve_fields(&[Field::Tube, Field::Attempts]).unwrap();
        // If the reply to a put is lost, the caller must decide.
        while client.put_in(&tube("a"), b"x", &PutOptions::new()).is_err() {}
        client.watch(&tube("a")).unwrap();
        let Fields { tube, attempts, age, .. } = client.reserve_with_timeout(0).unwrap().fields;
        assert_eq!((tube.as_deref(), age), (Some("a"), None), "at {at}");
        assert!(attempts.is_some_and(|attempts| (1..=2).contains(&attempts)), "at {at}: {attempts:?}");
    });
}

#[test]
fn against_every_server_fields_come_with_the_job_or_are_known_to_be_absent() {
    for server in installed::servers(&[]) {
        let mut client = connector().connect(&server.address().parse().unwrap()).unwrap();
        let asked = client.reserve_fields(&Field::ALL);
        let is_ours = client.extensions().unwrap().has("reserve-fields");
        match asked {
            Ok(()) => assert!(is_ours),
            Err(Error::Unsupported { extension }) => assert!(!is_ours && extension == "reserve-fields"),
            Err(error) => panic!("{error}"),
        }
        let options = PutOptions::new().pri(9).ttr(77);
        let id = client.put(b"x", &options).unwrap().id;
        client.reserve_job(id).unwrap();
        client.release(id, 9, 0).unwrap();
        let fields = client.reserve().unwrap().fields;
        if !is_ours {
            assert_eq!(fields, Fields::default());
            continue;
        }
        let Fields { tube, attempts, timeouts, releases, age, pri, ttr, trace, .. } = fields;
        assert_eq!((tube.as_deref(), attempts), (Some("default"), Some(2)));
        assert_eq!((timeouts, releases, pri, ttr, trace), (Some(0), Some(1), Some(9), Some(77), None));
        assert!(age.is_some());
        let trace = "trc:00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        client.put(b"y", &options.tag(trace.parse().unwrap())).unwrap();
        let jobs = client.reserve_batch(5, None).unwrap();
        let traces: Vec<_> = jobs.iter().map(|job| job.fields.trace.as_ref().unwrap().as_str()).collect();
        assert_eq!(traces, [&trace[4..]]);
    }
}

#[test]
fn a_reply_of_a_connection_that_has_ended_is_not_awaited_on_a_new_one() {
    let fake = Fake::start();
    let mut client = connect(&fake);
    client.set_timeout(Some(Duration::from_millis(50)));
    client.hang_up();
    let received = client.receive();
    assert!(matches!(received, Err(Error::Closed)), "{received:?}");
    client.set_timeout(Some(Duration::from_secs(60)));
    client.use_tube(&tube("a")).unwrap();
}

#[test]
fn without_reconnect_a_lost_connection_is_an_error_for_ever() {
    let fake = Fake::start_with(FakeOptions { close_before: 2, ..FakeOptions::default() });
    let mut client = Client::connect(&fake.address().parse().unwrap()).unwrap();
    client.list_tubes().unwrap();
    assert!(matches!(client.list_tubes(), Err(Error::Closed)));
    assert!(matches!(client.list_tubes(), Err(Error::Closed)));
}

#[test]
fn a_client_gives_up_when_its_server_stays_away() {
    let fake = Fake::start();
    let address = fake.address();
    let reconnect = Reconnect::new().pauses(Duration::from_millis(1), Duration::from_millis(2));
    let reconnect = reconnect.give_up_after(Duration::from_millis(5));
    let mut client = Connector::new().reconnect(reconnect).connect(&address.parse().unwrap()).unwrap();
    client.stats().unwrap();
    client.closer().unwrap().close();
    let path = address.strip_prefix("unix:").unwrap();
    std::fs::rename(path, format!("{path}.away")).unwrap();
    let error = client.stats().unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    std::fs::rename(format!("{path}.away"), path).unwrap();
    client.stats().unwrap();
}

#[test]
fn a_wrong_token_is_reported_at_once_and_not_tried_again() {
    let (address, _directory) =
        scripted([&b"UNAUTHORIZED\r\n"[..], b"AUTHENTICATED\r\n"].map(|text| vec![text.to_vec()]).into());
    let token = beanstalk_client::Token::parse("wrong").unwrap();
    let error = connector().token(token).connect(&address.parse().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::Unauthorized)), "{error}");
}

#[test]
fn a_server_without_sessions_or_tokens_is_reported() {
    let session = Connector::new().session(tube("s"), Duration::from_secs(5));
    let token = Connector::new().token(beanstalk_client::Token::parse("secret").unwrap());
    for (connector, word) in [(session, "session"), (token, "auth")] {
        let fake = Fake::start_with(FakeOptions { without: vec![word], ..FakeOptions::default() });
        let address = fake.address().parse().unwrap();
        let errors = [
            connector.connect(&address).unwrap_err(),
            on_one_thread(connector.connect_async(&address)).unwrap_err(),
            beanstalk_client::Worker::new(connector, address).run(|_| ()).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(&error, Error::Unsupported { extension } if extension == word), "{error}");
        }
    }
}

/// The timers of connections to this port, as Linux shows them.
fn has_keep_alive(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let mut lines = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let to_port = format!(":{port:04X}");
    // The peer's address, the state ESTABLISHED, and the timer of the keep-alive.
    lines.any(|words| words[2].ends_with(&to_port) && words[3] == "01" && words[5].starts_with("02:"))
}

#[test]
fn the_system_notices_that_the_host_of_a_connection_has_vanished() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}").parse().unwrap();
    assert!(!has_keep_alive(port));
    let client = Client::connect(&address).unwrap();
    assert!(has_keep_alive(port));
    drop((listener.accept().unwrap(), client));
    on_one_thread(async {
        let client = Connector::new().connect_async(&address).await.unwrap();
        let accepted = listener.accept().unwrap();
        assert!(has_keep_alive(port));
        drop((client, accepted));
    });
}

/// Answers each line with the next of these texts.
fn answering(mut stream: UnixStream, answers: &'static [&'static str]) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut lines, mut bytes) = (String::new(), [0; 4096]);
        for answer in answers {
            let read = stream.read(&mut bytes).unwrap();
            lines += std::str::from_utf8(&bytes[..read]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
        lines
    })
}

/// A client whose reserve is not answered before its time-out, but then with the job 7.
fn late_reserve() -> (Client, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut client = Client::from(beanstalk_client::Connection::over_unix(ours));
    client.set_timeout(Some(Duration::from_millis(1)));
    assert!(matches!(client.reserve_with_timeout(0), Err(Error::TimedOut)));
    assert!(matches!(client.delete(1), Err(Error::TimedOut)));
    theirs.write_all(b"RESERVED 7 2\r\nhi\r\nDELETED\r\nNOT_FOUND\r\n").unwrap();
    client.set_timeout(Some(Duration::from_secs(60)));
    assert!(client.touch(1).unwrap_err().is_not_found(), "this is the third reply");
    let mut sent = [0; 64];
    let _ = theirs.read(&mut sent).unwrap();
    (client, theirs)
}

#[test]
fn a_reply_that_comes_too_late_is_not_taken_for_the_next_one() {
    let (mut client, theirs) = late_reserve();
    let served = answering(theirs, &["TOUCHED\r\n"]);
    let job = client.reserve().unwrap();
    assert_eq!((job.id, job.body.as_slice()), (7, &b"hi"[..]), "its job is not lost");
    drop(client);
    assert_eq!(served.join().unwrap(), "touch 7\r\n");
    let (mut client, theirs) = late_reserve();
    let served = answering(theirs, &["TOUCHED\r\n", "TIMED_OUT\r\n"]);
    let mut found = Vec::new();
    let reserve = || Command::ReserveWithTimeout { timeout_s: 0.into() };
    let each =
        |_, result: Result<Reply<'_>, _>| found.push(matches!(result, Ok(Reply::Reserved(JobId(7), _))));
    client.send_all([reserve(), reserve()], each).unwrap();
    assert_eq!(found, [true, false], "nor in a pipeline");
    drop(client);
    served.join().unwrap();
}

#[test]
fn a_job_for_nobody_whose_ttr_has_ended_is_given_to_nobody() {
    let (mut client, theirs) = late_reserve();
    let served = answering(theirs, &["NOT_FOUND\r\n", "RESERVED 8 2\r\nho\r\n"]);
    assert_eq!(client.reserve().unwrap().id, 8);
    drop(client);
    assert_eq!(served.join().unwrap(), "touch 7\r\nreserve\r\n");
}

#[test]
fn a_server_that_lies_causes_errors_and_no_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    let words: [&[u8]; 10] = [
        b"RESERVED 1 5\r\nhel",
        b"lo\r\n",
        b"OK 12\r\n---\nid: 1\n\r\n",
        b"INSERTED 5\r\n",
        b"USING \xff\r\n",
        b"NOT_FOUND\r\n",
        b"RESERVED_BATCH 2\r\n",
        b"\r\n",
        b"KICKED 99999999999999999999\r\n",
        b"WATCHING 1\r\n",
    ];
    for seed in 0..300 {
        let mut script = || {
            let mut bytes: Vec<u8> =
                (0..random.usize(1..6)).flat_map(|_| words[random.usize(..words.len())]).copied().collect();
            bytes.truncate(random.usize(..=bytes.len()));
            bytes
        };
        let (address, _directory) = scripted((0..6).map(|_| vec![script()]).collect());
        let reconnect = Reconnect::new().pauses(Duration::from_millis(1), Duration::from_millis(1));
        let connector = Connector::new().timeout(Some(Duration::from_millis(200)));
        let connector = connector.reconnect(reconnect.give_up_after(Duration::from_millis(4)));
        let Ok(mut client) = connector.connect(&address.parse().unwrap()) else { continue };
        let _ = client.use_tube(&tube("a"));
        let put = client.put(b"x", &PutOptions::new());
        assert!(put.is_err() || put.is_ok_and(|put| put.id == 5), "seed {seed}");
        let _ = client.reserve_batch(2, None);
        let mut count = 0;
        let commands = (1..4).map(|id| Command::Peek(JobId(id)));
        let sent = client.send_all(commands, |position, _| {
            assert_eq!(position, count);
            count += 1;
        });
        assert!(sent.is_err() || count == 3, "seed {seed}");
    }
}

#[test]
fn a_server_without_an_extension_gets_only_lines_that_it_knows() {
    let tagged = PutOptions::new().tag("idp:k".parse().unwrap());
    let halves = PutOptions::new().delay(beanstalk_client::Seconds::new(0, 500));
    let without = vec!["list-jobs", "idp", "fractions", "touch-seconds"];
    let fake = Fake::start_with(FakeOptions { without, ..FakeOptions::default() });
    let debians = installed::debians(&[]);
    for address in
        [Some(fake.address()), debians.as_ref().map(|server| server.address())].into_iter().flatten()
    {
        let mut client = connector().connect(&address.parse().unwrap()).unwrap();
        let lacks = |error: Error| match error {
            Error::Unsupported { extension } => extension,
            error => panic!("{error}"),
        };
        // As a body these bytes are harmless; as a command they are not.
        assert_eq!(lacks(client.put(b"drain", &tagged).unwrap_err()), "idp");
        assert_eq!(lacks(client.put(b"drain", &halves).unwrap_err()), "fractions");
        let half = beanstalk_client::Seconds::new(0, 500);
        assert_eq!(lacks(client.reserve_with_timeout(half).unwrap_err()), "fractions");
        let page = client.list_jobs(&TubeName::default_tube(), JobState::Ready, 1, None);
        assert_eq!(lacks(page.unwrap_err()), "list-jobs");
        let id = client.put(b"x", &PutOptions::new()).unwrap().id;
        let plain = PutOptions::new();
        let mut found = Vec::new();
        let requests =
            [Request::Put(&plain, b"1"), Request::Put(&tagged, b"2"), Command::Peek(JobId(id)).into()];
        client.send_all(requests, |position, result| found.push((position, result.is_ok()))).unwrap();
        assert_eq!(found, [(0, true), (1, false), (2, true)]);
        client.put(b"y", &PutOptions::new()).unwrap();
    }
}

#[test]
fn a_pool_lends_what_it_has_and_says_when_it_has_none() {
    let fake = Fake::start();
    let pool = Pool::new(Connector::new(), fake.address().parse().unwrap(), 2);
    let (mut first, second) = (pool.get().unwrap(), pool.get().unwrap());
    assert!(matches!(pool.get_within(Some(Duration::from_millis(5))), Err(Error::PoolExhausted)));
    first.use_tube(&tube("a")).unwrap();
    drop(first);
    let mut again = pool.get().unwrap();
    assert_eq!(again.list_tube_used().unwrap(), "default");
    let id = again.put(b"x", &PutOptions::new()).unwrap().id;
    again.reserve_job(id).unwrap();
    drop(again);
    assert_eq!(pool.len(), 1, "the connection that has reserved a job is closed");
    let mut other = pool.get().unwrap();
    while other.stats_job(id).unwrap().state != JobState::Ready {
        std::thread::yield_now();
    }
    drop((other, second));
    assert_eq!(pool.len(), 2);
    // Other callers could not read its jobs.
    pool.get().unwrap().reserve_fields(&[Field::Age]).unwrap();
    assert_eq!(pool.len(), 1);
    drop((pool.get().unwrap(), pool.get().unwrap()));
    assert_eq!(pool.len(), 2);
    let waiting = (pool.get().unwrap(), pool.get().unwrap());
    let third = std::thread::spawn({
        let pool = pool.clone();
        move || pool.get().unwrap().put(b"y", &PutOptions::new()).unwrap().id
    });
    drop(waiting);
    assert!(third.join().unwrap() > id);
}

#[test]
fn a_pool_does_not_lend_a_connection_that_was_closed_while_it_rested() {
    let fake = Fake::start_with(FakeOptions { close_before: 2, ..FakeOptions::default() });
    let pool = Pool::new(Connector::new(), fake.address().parse().unwrap(), 1);
    let mut client = pool.get().unwrap();
    client.put(b"x", &PutOptions::new()).unwrap();
    let closer = client.closer().unwrap();
    drop(client);
    closer.close();
    fake.disarm();
    pool.get().unwrap().put(b"y", &PutOptions::new()).unwrap();
}

#[test]
fn a_server_with_fewer_extensions_than_the_last_one_gets_only_lines_that_it_knows() {
    for is_async in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let servers = std::thread::spawn(move || {
            let stats = |stream: &mut UnixStream, data: &str| {
                assert_eq!(stream.read(&mut [0; 4096]).unwrap(), "stats\r\n".len());
                write!(stream, "OK {}\r\n{data}\r\n", data.len()).unwrap();
            };
            let (mut first, _) = listener.accept().unwrap();
            stats(&mut first, "---\nextensions: \"idp\"\n");
            let _ = first.read(&mut [0; 4096]);
            drop(first);
            let (mut second, _) = listener.accept().unwrap();
            stats(&mut second, "---\nversion: \"1.13\"\n");
            let mut rest = String::new();
            second.read_to_string(&mut rest).unwrap();
            rest
        });
        let keyed = PutOptions::new().tag("idp:k:600".parse().unwrap());
        let (address, body) = (Address::Unix(path), b"drain\r\n");
        let result = if is_async {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                connector().connect_async(&address).await.unwrap().put(body, &keyed).await
            })
        } else {
            connector().connect(&address).unwrap().put(body, &keyed)
        };
        assert!(matches!(result, Err(Error::Unconfirmed { command: "put" })), "{result:?}");
        assert_eq!(servers.join().unwrap(), "");
    }
}

/// A server with access rules, and the connector of an identity with these roles.
fn guarded(roles: &str) -> Option<(installed::Installed, Connector)> {
    let directory = tempfile::tempdir().unwrap();
    let access = directory.path().join("access");
    std::fs::write(&access, format!("[identities.app]\ntokens = [\"{TOKEN_HASH}\"]\n{roles}\n")).unwrap();
    let server = installed::ours(&["--access", access.to_str().unwrap()])?;
    Some((server, Connector::new().token(beanstalk_client::Token::parse(TOKEN).unwrap())))
}

#[test]
fn a_pool_lends_its_connections_again_where_the_tube_default_is_forbidden() {
    let Some((server, connector)) = guarded("produce = [\"mail\"]") else { return };
    let (address, options): (Address, _) = (server.address().parse().unwrap(), PutOptions::new());
    let is_forbidden = |error: &Error| matches!(error, Error::Refused(Refusal::Forbidden));
    let mail = tube("mail");
    let pool = Pool::new(connector.clone(), address.clone(), 1);
    for _ in 0..3 {
        pool.get().unwrap().put_in(&mail, b"x", &options).unwrap();
        let mut client = pool.get().unwrap();
        assert!(!client.uses(&mail) && client.uses(&TubeName::default_tube()));
        // What the last borrower used is not for the next one.
        assert!(is_forbidden(&client.put(b"x", &options).unwrap_err()));
        let mut found = Vec::new();
        client.send_all([Request::Put(&options, b"x")], |_, result| found.push(result.is_err())).unwrap();
        assert_eq!(found, [true]);
        client.put_in(&mail, b"x", &options).unwrap();
        client.put(b"x", &options).unwrap();
    }
    on_one_thread(async {
        let pool = beanstalk_client::asynchronous::Pool::new(connector, address, 1);
        for _ in 0..3 {
            pool.get().await.unwrap().put_in(&mail, b"x", &options).await.unwrap();
            let mut client = pool.get().await.unwrap();
            assert!(is_forbidden(&client.put(b"x", &options).await.unwrap_err()));
            client.put_in(&mail, b"x", &options).await.unwrap();
        }
    });
}

#[test]
fn a_borrower_who_puts_into_the_tube_of_the_last_one_sends_the_put_alone() {
    let fake = Fake::start();
    let pool = Pool::new(Connector::new(), fake.address().parse().unwrap(), 1);
    let options = PutOptions::new();
    for _ in 0..2 {
        pool.get().unwrap().put_in(&tube("a"), b"x", &options).unwrap();
    }
    pool.get().unwrap().put(b"x", &options).unwrap();
    assert_eq!(
        fake.take_log(),
        ["use a", "put 1024 0 60 1", "put 1024 0 60 1", "use default", "put 1024 0 60 1"]
    );
}

#[test]
fn a_new_connection_is_asked_for_nothing_that_the_rules_have_never_permitted() {
    let Some((server, connector)) = guarded("produce = [\"mail\"]\nwork = [\"mail\"]") else { return };
    let connector = connector.reconnect(Reconnect::new());
    let mut client = connector.connect(&server.address().parse().unwrap()).unwrap();
    client.watch(&tube("mail")).unwrap();
    client.use_tube(&tube("mail")).unwrap();
    client.closer().unwrap().close();
    assert!(client.reserve_with_timeout(0).unwrap_err().is_timed_out());
    let id = client.put(b"x", &PutOptions::new()).unwrap().id;
    assert_eq!(client.reserve_with_timeout(0).unwrap().id, id);
}

#[test]
fn a_pool_does_not_hand_on_the_settings_of_a_borrower() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 64];
            while stream.read(&mut bytes).is_ok_and(|read| read > 0) {
                // Longer than the time-out of the first borrower.
                if bytes.starts_with(b"list-tube-used") {
                    std::thread::sleep(Duration::from_millis(200));
                }
                let _ = stream.write_all(b"USING default\r\n");
            }
        }
    });
    let (address, short) = (Address::Unix(path), Some(Duration::from_millis(20)));
    let pool = Pool::new(Connector::new(), address.clone(), 1);
    let mut client = pool.get().unwrap();
    client.use_tube(&TubeName::default_tube()).unwrap();
    client.set_timeout(short);
    drop(client);
    pool.get().unwrap().list_tube_used().unwrap();
    // The server serves one connection at a time.
    drop(pool);
    on_one_thread(async {
        let pool = beanstalk_client::asynchronous::Pool::new(Connector::new(), address, 1);
        let mut client = pool.get().await.unwrap();
        client.use_tube(&TubeName::default_tube()).await.unwrap();
        client.set_timeout(short);
        drop(client);
        pool.get().await.unwrap().list_tube_used().await.unwrap();
    });
    let fake = Fake::start();
    let pool = Pool::new(Connector::new(), fake.address().parse().unwrap(), 1);
    pool.get().unwrap().set_extensions(beanstalk_client::Extensions::default());
    pool.get().unwrap().put(b"x", &PutOptions::new().tag("grp:g".parse().unwrap())).unwrap();
}
