//! The driver with tokio: the tests of the blocking one, and those of dropped futures.

use std::time::Duration;

use beanstalk_client::asynchronous::{Client, Pool};
use beanstalk_client::{
    Command, Connector, Error, JobState, PutOptions, Reconnect, Refusal, Reply, Request, TubeName,
};
use beanstalk_testing::{Fake, FakeOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

fn tube(name: &str) -> TubeName {
    name.parse().unwrap()
}

fn connector() -> Connector {
    let pauses = Reconnect::new().pauses(Duration::from_millis(1), Duration::from_millis(5));
    Connector::new().reconnect(pauses.give_up_after(Duration::from_secs(5)))
}

#[tokio::test]
async fn against_every_server_a_job_goes_through_all_states() {
    for server in beanstalk_testing::servers(&[]) {
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

#[tokio::test]
async fn at_every_command_a_lost_connection_doubles_no_job_and_loses_none_silently() {
    for (at, is_after) in (1..=14).flat_map(|at| [(at, false), (at, true)]) {
        let (close_before, close_after) = if is_after { (0, at) } else { (at, 0) };
        let fake = Fake::start_with(FakeOptions { close_before, close_after, ..FakeOptions::default() });
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
}

#[tokio::test]
async fn a_future_may_be_dropped_at_any_moment() {
    for server in beanstalk_testing::servers(&[]) {
        let mut client = Client::connect(&server.address().parse().unwrap()).await.unwrap();
        let mut other = Client::connect(&server.address().parse().unwrap()).await.unwrap();
        let dropped = timeout(Duration::from_millis(20), client.reserve_with_timeout(1)).await;
        assert!(dropped.is_err());
        let id = other.put(b"x", &PutOptions::new()).await.unwrap().id;
        // The server has assigned the job to the abandoned reserve.
        assert_eq!(client.stats_job(id).await.unwrap().state, JobState::Reserved);
        assert_eq!(client.reserve_with_timeout(0).await.unwrap().id, id);
        client.delete(id).await.unwrap();
        assert!(client.reserve_with_timeout(0).await.unwrap_err().is_timed_out());
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
    let Some(server) = beanstalk_testing::ours(&[]) else { return };
    let mut client = Client::connect(&server.address().parse().unwrap()).await.unwrap();
    assert!(timeout(Duration::from_millis(20), client.reserve_with_abort(None)).await.is_err());
    let stats = timeout(Duration::from_secs(30), client.stats()).await.expect("it does not wait for a job");
    assert!(stats.is_ok());
}

#[tokio::test]
async fn a_pool_lends_what_it_has_and_says_when_it_has_none() {
    let fake = Fake::start();
    let connector = Connector::new().timeout(Some(Duration::from_millis(50)));
    let pool = Pool::new(connector, fake.address().parse().unwrap(), 1);
    let mut client = pool.get().await.unwrap();
    client.use_tube(&tube("a")).await.unwrap();
    assert!(matches!(pool.get().await, Err(Error::PoolExhausted)));
    drop(client);
    let mut client = pool.get().await.unwrap();
    assert_eq!(client.list_tube_used().await.unwrap(), "default");
    let id = client.put(b"x", &PutOptions::new()).await.unwrap().id;
    client.reserve_job(id).await.unwrap();
    drop(client);
    let mut client = pool.get().await.unwrap();
    client.peek(id).await.unwrap();
}

#[tokio::test]
async fn a_silent_server_is_a_time_out_and_a_lying_one_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 64];
        let read = stream.read(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..read], b"delete 1\r\n");
        let read = stream.read(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..read], b"touch 1\r\n");
        stream.write_all(b"DELETED\r\nTOUCHED\r\nHTTP/1.1 200 OK\r\n").await.unwrap();
        stream
    });
    let connector = Connector::new().timeout(Some(Duration::from_millis(100)));
    let mut client = connector.connect_async(&beanstalk_client::Address::Unix(path)).await.unwrap();
    assert!(matches!(client.delete(1).await, Err(Error::TimedOut)));
    client.set_timeout(Some(Duration::from_secs(30)));
    client.touch(1).await.unwrap();
    assert!(matches!(client.kick(1).await, Err(Error::Malformed(_))));
    assert!(matches!(client.kick(1).await, Err(Error::Closed)));
    drop(server.await);
}

#[tokio::test]
async fn a_wrong_token_is_said_at_once() {
    let fake = Fake::start();
    let token = beanstalk_client::Token::parse("wrong").unwrap();
    let error = connector().token(token).connect_async(&fake.address().parse().unwrap()).await.unwrap_err();
    let is_said = matches!(error, Error::Refused(Refusal::Unauthorized | Refusal::UnknownCommand));
    assert!(is_said, "{error}");
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
