//! The driver with tokio: the tests of the blocking driver, and tests of dropped futures.

use std::time::Duration;

use beanstalk_client::asynchronous::{Client, Pool};
use beanstalk_client::{
    Command, Connector, Error, JobState, PutOptions, Reconnect, Refusal, Reply, Request, TubeName,
};
use beanstalkd_testkit::fake::{Fake, Fault, at_each_command};
use beanstalkd_testkit::installed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

mod support;

use support::{on_one_thread, reconnecting as connector, tube};

#[tokio::test]
async fn against_every_server_a_job_goes_through_all_states() {
    for server in installed::servers(&[]) {
        let mut client = Client::connect(&server.address().parse().unwrap()).await.unwrap();
        client.watch(&tube("mail")).await.unwrap();
        assert_eq!(client.ignore(&TubeName::default_tube()).await.unwrap(), 1);
        let id = client.put_in(&tube("mail"), b"hello", &PutOptions::new()).await.unwrap().id;
        assert_eq!(client.reserve().await.unwrap().body, b"hello");
        client.touch(id).await.unwrap();
        client.bury(id, 5).await.unwrap();
        assert_eq!(client.stats_job(id).await.unwrap().state, JobState::Buried);
        assert_eq!(client.kick(10).await.unwrap(), 1);
        assert_eq!(client.reserve_with_timeout(1).await.unwrap().id, id);
        assert!(client.release(id, 1, 100).await.unwrap());
        client.delete(id).await.unwrap();
        assert!(client.delete(id).await.unwrap_err().is_not_found());
        let bodies: Vec<Vec<u8>> = (0..300_usize).map(|i| vec![i as u8; i * 218]).collect();
        let options = PutOptions::new();
        let mut ids = Vec::new();
        let puts = bodies.iter().map(|body| Request::Put(&options, body));
        let sent = client.send_all(puts, |position, reply| match reply {
            Ok(Reply::Inserted(id)) => ids.push((position, id)),
            other => panic!("{other:?}"),
        });
        sent.await.unwrap();
        let peeks = ids.iter().map(|(_, id)| Command::Peek(*id));
        let mut count = 0;
        let sent = client.send_all(peeks, |position, reply| match reply {
            Ok(Reply::Found(_, body)) => {
                assert_eq!(body.as_slice(), bodies[position]);
                count += 1;
            }
            other => panic!("{other:?}"),
        });
        sent.await.unwrap();
        assert_eq!(count, bodies.len());
        client.quit().await.unwrap();
    }
}

#[test]
fn at_every_command_a_lost_connection_doubles_no_job_and_loses_none_silently() {
    for fault in Fault::CLOSINGS {
        let lose = |fake: &Fake, at| on_one_thread(loses_no_job_silently(fake, at));
        at_each_command(fault, 9, lose);
    }
}

async fn loses_no_job_silently(fake: &Fake, at: usize) {
    let mut client = connector().connect_async(&fake.address().parse().unwrap()).await.unwrap();
    client.use_tube(&tube("a")).await.unwrap();
    let options = PutOptions::new();
    let texts: Vec<String> = (0..8).map(|n| format!("job {n}")).collect();
    let mut is_known = Vec::new();
    let puts = texts.iter().map(|text| Request::Put(&options, text.as_bytes()));
    let sent = client.send_all(puts, |_, result| match result {
        Ok(Reply::Inserted(_)) => is_known.push(true),
        Err(Error::Unconfirmed { command: "put" }) => is_known.push(false),
        other => panic!("at {at}: {other:?}"),
    });
    sent.await.unwrap();
    assert_eq!(is_known.len(), texts.len(), "at {at}: each put has an answer");
    fake.disarm();
    let mut found = vec![0; texts.len()];
    while let Ok(job) = client.peek_next(JobState::Ready).await {
        let body = String::from_utf8(job.body).unwrap();
        found[texts.iter().position(|text| *text == body).unwrap()] += 1;
        client.delete(job.id).await.unwrap();
    }
    for (count, is_known) in found.into_iter().zip(is_known) {
        assert!(if is_known { count == 1 } else { count <= 1 }, "at {at}");
    }
}

#[tokio::test]
async fn a_future_may_be_dropped_at_any_moment() {
    for server in installed::servers(&[]) {
        let mut client = Client::connect(&server.address().parse().unwrap()).await.unwrap();
        let mut other = Client::connect(&server.address().parse().unwrap()).await.unwrap();
        let dropped = timeout(Duration::from_millis(20), client.reserve_with_timeout(60)).await;
        assert!(dropped.is_err());
        let id = other.put(b"x", &PutOptions::new()).await.unwrap().id;
        // The server has assigned the job to the abandoned reserve.
        assert_eq!(client.stats_job(id).await.unwrap().state, JobState::Reserved);
        assert_eq!(client.reserve_with_timeout(0).await.unwrap().id, id);
        client.delete(id).await.unwrap();
        assert!(client.reserve_with_timeout(0).await.unwrap_err().is_timed_out());
        // The next command is a reserve, too.
        assert!(timeout(Duration::from_millis(200), client.reserve()).await.is_err());
        let id = other.put(b"x", &PutOptions::new()).await.unwrap().id;
        let next = timeout(Duration::from_secs(30), client.reserve()).await;
        assert_eq!(next.expect("it has the job of the dropped one").unwrap().id, id);
        client.delete(id).await.unwrap();
        // At each of its awaits.
        for polls in 0..6 {
            let options = PutOptions::new();
            let mut put = Box::pin(client.put(b"y", &options));
            for _ in 0..polls {
                if futures_poll(put.as_mut()).await.is_some() {
                    break;
                }
            }
            drop(put);
            assert_eq!(client.list_tube_used().await.unwrap(), "default");
        }
    }
}

/// Polls a future once.
async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let polled = std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    });
    let output = polled.await;
    tokio::task::yield_now().await;
    output
}

#[tokio::test]
async fn the_next_command_ends_an_abortable_reserve_that_was_dropped() {
    let Some(server) = installed::ours(&[]) else { return };
    let mut client = Client::connect(&server.address().parse().unwrap()).await.unwrap();
    assert!(timeout(Duration::from_millis(20), client.reserve_with_abort(None)).await.is_err());
    let jobs = timeout(Duration::from_secs(30), client.reserve_batch(3, None)).await;
    assert!(jobs.expect("it does not wait for a job").unwrap().is_empty());
    assert!(timeout(Duration::from_millis(20), client.reserve_with_abort(None)).await.is_err());
    let stats = timeout(Duration::from_secs(30), client.stats()).await.expect("it does not wait for a job");
    assert!(stats.is_ok());
}

#[tokio::test]
async fn a_pool_lends_what_it_has_and_says_when_it_has_none() {
    let fake = Fake::start();
    let pool = |connector| Pool::new(connector, fake.address().parse().unwrap(), 1);
    let hasty = pool(Connector::new().timeout(Some(Duration::from_secs(30))));
    let lent = hasty.get().await.unwrap();
    // The clock jumps to the time-out.
    tokio::time::pause();
    assert!(matches!(hasty.get().await, Err(Error::PoolExhausted)));
    tokio::time::resume();
    drop(lent);
    let pool = pool(Connector::new());
    let mut client = pool.get().await.unwrap();
    client.use_tube(&tube("a")).await.unwrap();
    drop(client);
    let mut client = pool.get().await.unwrap();
    assert_eq!(client.list_tube_used().await.unwrap(), "default");
    let id = client.put(b"x", &PutOptions::new()).await.unwrap().id;
    client.reserve_job(id).await.unwrap();
    drop(client);
    let mut client = pool.get().await.unwrap();
    client.peek(id).await.unwrap();
    assert!(matches!(pool.get_within(Some(Duration::ZERO)).await, Err(Error::PoolExhausted)));
    assert_eq!(pool.len(), 1);
    drop(client);
    assert_eq!((pool.len(), pool.is_empty()), (1, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_counts_a_connection_once_while_it_is_lent_and_returned() {
    let fake = Fake::start();
    let pool = Pool::new(Connector::new(), fake.address().parse().unwrap(), 1);
    let borrower = tokio::spawn({
        let pool = pool.clone();
        async move {
            for _ in 0..5_000 {
                pool.get().await.unwrap();
            }
        }
    });
    while !borrower.is_finished() {
        assert!(pool.len() <= 1);
    }
    borrower.await.unwrap();
    assert_eq!(pool.len(), 1);
}

#[tokio::test]
async fn a_pipeline_hands_refusals_on_as_replies_or_as_errors() {
    for server in installed::servers(&[]) {
        let mut client = Client::connect(&server.address().parse().unwrap()).await.unwrap();
        let mut blocking = beanstalk_client::Client::connect(&server.address().parse().unwrap()).unwrap();
        let (options, large) = (PutOptions::new(), vec![b'x'; 70_000]);
        let puts = || [Request::Put(&options, b"x"), Request::Put(&options, &large)];
        let is_put = |reply: Reply<'_>| matches!(reply, Reply::Inserted(_));
        assert_eq!(client.call_all(puts(), is_put).await.unwrap(), [true, false]);
        let (mut found, mut same) = (Vec::new(), Vec::new());
        client.send_all(puts(), |_, result| found.push(result.map(drop))).await.unwrap();
        blocking.send_all(puts(), |_, result| same.push(result.map(drop))).unwrap();
        if client.extensions().await.unwrap().has("drain") {
            client.drain().await.unwrap();
            client.send_all(puts(), |_, result| found.push(result.map(drop))).await.unwrap();
            assert!(matches!(found[2], Err(Error::Refused(Refusal::Draining))));
            let job = client.reserve().await.unwrap();
            let puts = [(options.clone(), &b"next"[..])];
            let error = client.complete(job.id, &puts).await.unwrap_err();
            assert!(matches!(error, Error::Refused(Refusal::Draining)), "{error}");
        }
        for found in [found, same] {
            assert!(matches!(found[..2], [Ok(()), Err(Error::Refused(Refusal::JobTooBig))]), "{found:?}");
        }
    }
}

#[tokio::test]
async fn a_silent_server_is_a_time_out_and_a_lying_one_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for line in ["delete 1\r\n", "touch 1\r\n"] {
            let mut bytes = vec![0; line.len()];
            stream.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes, line.as_bytes());
        }
        stream.write_all(b"DELETED\r\nTOUCHED\r\nHTTP/1.1 200 OK\r\n").await.unwrap();
        stream
    });
    let mut client = Connector::new().connect_async(&beanstalk_client::Address::Unix(path)).await.unwrap();
    client.set_timeout(Some(Duration::from_secs(30)));
    // The clock jumps to the time-out.
    tokio::time::pause();
    assert!(matches!(client.delete(1).await, Err(Error::TimedOut)));
    tokio::time::resume();
    client.touch(1).await.unwrap();
    assert!(matches!(client.kick(1).await, Err(Error::Malformed(_))));
    assert!(matches!(client.kick(1).await, Err(Error::Closed)));
    drop(server.await);
}

/// Reads a part of what the client sends, and answers with this.
async fn answer(stream: &mut tokio::net::UnixStream, text: &str) -> String {
    let mut bytes = [0; 4096];
    let read = stream.read(&mut bytes).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    String::from_utf8(bytes[..read].to_vec()).unwrap()
}

fn listener() -> (tokio::net::UnixListener, beanstalk_client::Address, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    (listener, beanstalk_client::Address::Unix(path), directory)
}

fn patient(timeout_ms: u64) -> Connector {
    Connector::new().timeout(Some(Duration::from_millis(timeout_ms))).reconnect(Reconnect::new())
}

#[tokio::test(start_paused = true)]
async fn a_reserve_without_a_limit_has_none_on_the_next_connection_either() {
    let (listener, address, _directory) = listener();
    let server = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        answer(&mut first, "WATCHING 2\r\n").await;
        answer(&mut first, "").await;
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        answer(&mut second, "WATCHING 2\r\n").await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        second.write_all(b"RESERVED 7 0\r\n\r\n").await.unwrap();
        second
    });
    let mut client = patient(2000).connect_async(&address).await.unwrap();
    client.watch(&tube("a")).await.unwrap();
    assert_eq!(client.reserve().await.unwrap().id, 7);
    drop(server.await);
}

#[tokio::test(start_paused = true)]
async fn the_pause_before_a_connection_is_not_taken_from_the_time_of_a_reply() {
    let (first, address, directory) = listener();
    let server = tokio::spawn(async move {
        let (mut stream, _) = first.accept().await.unwrap();
        answer(&mut stream, "WATCHING 2\r\n").await;
        let path = directory.path().join("socket");
        std::fs::remove_file(&path).unwrap();
        drop((stream, first));
        tokio::time::sleep(Duration::from_millis(1200)).await;
        let second = tokio::net::UnixListener::bind(&path).unwrap();
        let (mut stream, _) = second.accept().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        answer(&mut stream, "WATCHING 2\r\nUSING default\r\n").await;
        (stream, second, directory)
    });
    let mut client = patient(300).connect_async(&address).await.unwrap();
    client.watch(&tube("a")).await.unwrap();
    assert_eq!(client.list_tube_used().await.unwrap(), "default");
    drop(server.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn each_reply_has_its_own_time_also_after_one_for_which_nobody_waits() {
    for is_touch_first in [true, false] {
        let (listener, address, _directory) = listener();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (touched, timed_out) = (("TOUCHED\r\n", 500), ("TIMED_OUT\r\n", 5500));
            let answers = if is_touch_first { [touched, timed_out] } else { [timed_out, touched] };
            for (text, after_ms) in answers {
                let _ = stream.read(&mut [0; 64]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(after_ms)).await;
                stream.write_all(text.as_bytes()).await.unwrap();
            }
            stream
        });
        let connector = Connector::new().timeout(Some(Duration::from_secs(1)));
        let mut client = connector.connect_async(&address).await.unwrap();
        let moment = Duration::from_millis(10);
        if is_touch_first {
            assert!(timeout(moment, client.touch(1)).await.is_err());
            assert!(client.reserve_with_timeout(5).await.unwrap_err().is_timed_out());
        } else {
            assert!(timeout(moment, client.reserve_with_timeout(5)).await.is_err());
            client.touch(1).await.unwrap();
        }
        drop(server.await);
    }
}

#[tokio::test]
async fn a_job_of_a_dropped_reserve_is_given_out_only_while_the_server_has_it_reserved() {
    for (touched, next) in [("TOUCHED\r\n", 7), ("NOT_FOUND\r\n", 8)] {
        for is_in_pipeline in [false, true] {
            let (listener, address, _directory) = listener();
            let server = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut sent = String::new();
                while !sent.ends_with("list-tube-used\r\n") {
                    let more = answer(&mut stream, "").await;
                    assert_ne!(more, "", "the client has closed the connection after {sent:?}");
                    sent += &more;
                }
                stream.write_all(b"RESERVED 7 1\r\nx\r\nUSING default\r\n").await.unwrap();
                assert_eq!(answer(&mut stream, touched).await, "touch 7\r\n");
                if next == 8 {
                    answer(&mut stream, "RESERVED 8 1\r\nx\r\n").await;
                }
            });
            let mut client = Client::connect(&address).await.unwrap();
            assert!(timeout(Duration::from_millis(200), client.reserve()).await.is_err());
            client.list_tube_used().await.unwrap();
            let mut found = None;
            if is_in_pipeline {
                let each = |_, result: Result<Reply<'_>, _>| {
                    found = result.ok().and_then(|reply| match reply {
                        Reply::Reserved(id, _) => Some(id.0),
                        _ => None,
                    });
                };
                client.send_all([Command::Reserve], each).await.unwrap();
            } else {
                found = Some(client.reserve().await.unwrap().id);
            }
            assert_eq!(found, Some(next));
            drop(client);
            server.await.unwrap();
        }
    }
}

/// Drops a reserve without a limit after some milliseconds.
async fn drop_reserve(client: &mut Client) {
    assert!(timeout(Duration::from_millis(5), client.reserve()).await.is_err());
}

#[tokio::test]
async fn of_ten_dropped_reserves_one_was_sent_and_its_job_is_given_out_once() {
    for is_in_pipeline in [false, true] {
        let (listener, address, _directory) = listener();
        let (is_dropped, dropped) = tokio::sync::oneshot::channel();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            dropped.await.unwrap();
            assert_eq!(answer(&mut stream, "RESERVED 7 1\r\nx\r\n").await, "reserve\r\n");
            assert_eq!(answer(&mut stream, "TOUCHED\r\n").await, "touch 7\r\n");
            assert_eq!(answer(&mut stream, "TIMED_OUT\r\n").await, "reserve-with-timeout 5\r\n");
        });
        let mut client = Client::connect(&address).await.unwrap();
        for _ in 0..10 {
            drop_reserve(&mut client).await;
        }
        is_dropped.send(()).unwrap();
        if is_in_pipeline {
            let is_job = |reply: Reply<'_>| matches!(reply, Reply::Reserved(id, _) if id.0 == 7);
            assert_eq!(client.call_all([Command::Reserve], is_job).await.unwrap(), [true]);
        } else {
            assert_eq!(client.reserve_with_timeout(5).await.unwrap().id, 7);
        }
        assert!(client.reserve_with_timeout(5).await.unwrap_err().is_timed_out());
        server.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserve_is_sent_when_the_dropped_one_before_it_has_no_job() {
    for without_job in ["TIMED_OUT\r\n", "DEADLINE_SOON\r\n"] {
        let (listener, address, _directory) = listener();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(answer(&mut stream, without_job).await, "reserve\r\n");
            assert_eq!(answer(&mut stream, "RESERVED 8 1\r\nx\r\n").await, "reserve\r\n");
        });
        let mut client = Client::connect(&address).await.unwrap();
        drop_reserve(&mut client).await;
        assert_eq!(client.reserve().await.unwrap().id, 8);
        server.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserve_keeps_its_limit_also_after_a_dropped_one_without_a_limit() {
    let (listener, address, _directory) = listener();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(answer(&mut stream, "").await, "reserve\r\n");
        tokio::time::sleep(Duration::from_secs(60)).await;
        stream.write_all(b"RESERVED 7 1\r\nx\r\n").await.unwrap();
        assert_eq!(answer(&mut stream, "TOUCHED\r\n").await, "touch 7\r\n");
    });
    let mut client = patient(2000).connect_async(&address).await.unwrap();
    drop_reserve(&mut client).await;
    for (limit_s, waits_s) in [(5, 5), (0, 1)] {
        let began = tokio::time::Instant::now();
        assert!(client.reserve_with_timeout(limit_s).await.unwrap_err().is_timed_out());
        assert_eq!(began.elapsed().as_secs(), waits_s);
        assert_eq!(
            client.call(Command::ReserveWithTimeout { timeout_s: 1.into() }).await.unwrap(),
            Reply::TimedOut
        );
        let mut refusals = Vec::new();
        let each = |_, result: Result<Reply<'_>, Error>| refusals.push(result.map(drop));
        client.send_all([Command::ReserveWithTimeout { timeout_s: 1.into() }], each).await.unwrap();
        assert!(matches!(refusals[..], [Err(Error::Refused(Refusal::TimedOut))]), "{refusals:?}");
    }
    assert_eq!(client.reserve_with_timeout(100).await.unwrap().id, 7);
    server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_late_also_if_each_reserve_is_dropped() {
    let (listener, address, _directory) = listener();
    let server = tokio::spawn(async move { listener.accept().await.unwrap() });
    let connector = Connector::new().timeout(Some(Duration::from_secs(2)));
    let mut client = connector.connect_async(&address).await.unwrap();
    // The first one is late after 7 seconds.
    for _ in 0..6 {
        assert!(timeout(Duration::from_secs(1), client.reserve_with_timeout(5)).await.is_err());
    }
    assert!(matches!(client.reserve_with_timeout(5).await, Err(Error::TimedOut)));
    drop(server.await);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reserve_is_forgotten_with_its_connection() {
    let (listener, address, _directory) = listener();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer(&mut stream, "").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(answer(&mut stream, "RESERVED 8 1\r\nx\r\n").await, "reserve-with-timeout 5\r\n");
    });
    let mut client = patient(2000).connect_async(&address).await.unwrap();
    drop_reserve(&mut client).await;
    assert_eq!(client.reserve_with_timeout(5).await.unwrap().id, 8);
    server.await.unwrap();
}

#[tokio::test]
async fn a_pipeline_without_a_request_waits_for_no_reply() {
    let (listener, address, _directory) = listener();
    let server = tokio::spawn(async move { listener.accept().await.unwrap() });
    let mut client = Client::connect(&address).await.unwrap();
    drop_reserve(&mut client).await;
    let none = timeout(Duration::from_secs(5), client.send_all([Command::Stats; 0], |_, _| {})).await;
    none.expect("there is no reply to wait for").unwrap();
    drop(server.await);
}

#[tokio::test]
async fn a_wrong_token_is_reported_at_once() {
    let fake = Fake::start();
    let token = beanstalk_client::Token::parse("wrong").unwrap();
    let error = connector().token(token).connect_async(&fake.address().parse().unwrap()).await.unwrap_err();
    let is_refused = matches!(error, Error::Refused(Refusal::Unauthorized) | Error::Unsupported { .. });
    assert!(is_refused, "{error}");
}

#[test]
fn its_futures_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let address = "127.0.0.1:1".parse().unwrap();
    let connect = Client::connect(&address);
    is_send(&connect);
    #[allow(dead_code, reason = "it is compiled, not run")]
    async fn all(client: &mut Client, pool: &Pool) {
        is_send(&client.put(b"x", &PutOptions::new()));
        is_send(&client.reserve_with_timeout(1));
        is_send(&client.send_all([Command::Stats], |_, _| {}));
        is_send(&pool.get());
    }
}
