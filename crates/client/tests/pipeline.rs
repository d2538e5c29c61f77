//! Pipelines, against servers that answer one command at a time and do not read while they cannot send a reply; and
//! large bodies, against a server that is slow.

mod support;

use beanstalk_client::{
    Address, Client, Command, Connection, Connector, Error, JobId, JobState, PutOptions, Refusal, Reply,
    Request, TubeName,
};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::{PATIENCE, installed};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// A server that reads no further line before its reply of `bytes` bytes is sent.
fn slow_server(bytes: usize) -> Client {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        // Nothing is read ahead: commands that are not answered stay in the socket.
        let mut input = BufReader::with_capacity(1, theirs.try_clone().unwrap());
        let mut output = theirs;
        let mut line = String::new();
        while input.read_line(&mut line).is_ok_and(|read| read > 0) {
            let id: u64 = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
            let mut reply = format!("FOUND {id} {bytes}\r\n").into_bytes();
            reply.resize(reply.len() + bytes, b'x');
            reply.extend_from_slice(b"\r\n");
            if output.write_all(&reply).is_err() {
                return;
            }
            line.clear();
        }
    });
    let mut client = Client::from(Connection::over_unix(ours));
    client.set_timeout(Some(PATIENCE));
    client
}

#[test]
fn large_replies_do_not_deadlock_a_pipeline() {
    // A megabyte of commands and eighty of replies: more than the kernel's buffers can hold in either direction.
    let mut client = slow_server(2_000);
    let peek = |id: u64| Command::Peek(JobId(u64::MAX - id));
    let mut next = 0;
    client
        .pipeline((0..40_000).map(peek), |position, reply| {
            assert_eq!(position, next);
            next += 1;
            match reply {
                Reply::Found(id, _) => assert_eq!(id.0, u64::MAX - position as u64),
                other => panic!("{other:?}"),
            }
        })
        .unwrap();
    assert_eq!(next, 40_000);
}

#[test]
fn many_short_replies_to_large_puts_do_not_deadlock_a_pipeline() {
    // Each write of a reply takes a separate buffer in the kernel: a server may stop reading after about 70 of them.
    for server in installed::servers(&[]) {
        let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
        client.set_timeout(Some(PATIENCE));
        let body = vec![b'x'; 10_000];
        let options = PutOptions::default();
        client
            .pipeline((0..1_000).map(|_| Request::Put(&options, &body)), |_, reply| {
                assert!(matches!(reply, Reply::Inserted(_)))
            })
            .unwrap();
    }
}

/// The size of a body that a slow server reads and sends in pieces, and the pause between two of them.
const LARGE: usize = 4 * 1024 * 1024;
const PIECE: usize = LARGE / 32;
const PAUSE: Duration = Duration::from_millis(75);

/// Reads a put with a large body, replies, reads a command, and sends that body, all of it slowly.
fn serve_slowly(mut stream: UnixStream) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    input.read_line(&mut String::new()).unwrap();
    let mut left = LARGE + 2;
    while left > 0 {
        std::thread::sleep(PAUSE);
        let mut piece = vec![0; PIECE.min(left)];
        if input.read_exact(&mut piece).is_err() {
            return;
        }
        left -= piece.len();
    }
    stream.write_all(b"INSERTED 1\r\n").unwrap();
    input.read_line(&mut String::new()).unwrap();
    stream.write_all(format!("FOUND 1 {LARGE}\r\n").as_bytes()).unwrap();
    for piece in vec![b'x'; LARGE].chunks(PIECE) {
        std::thread::sleep(PAUSE);
        if stream.write_all(piece).is_err() {
            return;
        }
    }
    stream.write_all(b"\r\n").unwrap();
}

#[test]
fn a_body_may_take_longer_than_the_time_out_while_its_bytes_come() {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Unix(directory.path().join("socket"));
    let Address::Unix(path) = &address else { unreachable!() };
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        listener.incoming().for_each(|stream| drop(std::thread::spawn(|| serve_slowly(stream.unwrap()))))
    });
    let (body, options) = (vec![b'x'; LARGE], PutOptions::new());
    // Each body takes 2.4 s.
    let connector = Connector::new().timeout(Some(Duration::from_secs(1)));
    let put_and_peek = || -> Result<(), Error> {
        let mut client = connector.connect(&address)?;
        assert_eq!(client.put(&body, &options)?.id, 1);
        assert!(client.peek(1)?.body == body);
        support::on_one_thread(async {
            let mut client = connector.connect_async(&address).await?;
            assert_eq!(client.put(&body, &options).await?.id, 1);
            assert!(client.peek(1).await?.body == body);
            Ok(())
        })
    };
    Pace::watch().unwrap().judge(put_and_peek).unwrap();
}

#[test]
fn against_every_server_bodies_of_every_size_are_returned_unchanged() {
    for server in installed::servers(&[]) {
        let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
        let tube: TubeName = "sizes".parse().unwrap();
        client.use_tube(&tube).unwrap();
        let bodies: Vec<Vec<u8>> = (0..300_usize).map(|i| vec![i as u8; i * 218]).collect();
        let options = PutOptions::default();
        let puts = bodies.iter().map(|body| Request::Put(&options, body));
        let inserted = client.call_all(puts, |reply| match reply {
            Reply::Inserted(id) => id,
            other => panic!("{}: {other:?}", server.address()),
        });
        let ids = inserted.unwrap();
        // Puts with large bodies alternate with peeks with large replies.
        let mixed = ids
            .iter()
            .zip(&bodies)
            .flat_map(|(id, body)| [Command::Peek(*id).into(), Request::Put(&options, body)]);
        client
            .pipeline(mixed, |position, reply| match (position % 2, reply) {
                (0, Reply::Found(_, body)) => assert_eq!(body.as_slice(), bodies[position / 2]),
                (1, Reply::Inserted(_)) => {}
                (_, other) => panic!("{}: {other:?}", server.address()),
            })
            .unwrap();
    }
}

#[test]
fn against_every_server_a_job_goes_through_all_states() {
    for server in installed::servers(&[]) {
        let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
        let tube: TubeName = "mail".parse().unwrap();
        client.use_tube(&tube).unwrap();
        assert_eq!(client.list_tube_used().unwrap(), "mail");
        assert_eq!(client.watch(&tube).unwrap(), 2);
        assert_eq!(client.ignore(&TubeName::default_tube()).unwrap(), 1);
        assert_eq!(client.list_tubes_watched().unwrap(), ["mail"]);
        let id = client.put(b"hello", &PutOptions::default()).unwrap().id;
        assert_eq!(client.peek(id).unwrap().body, b"hello");
        assert_eq!(client.reserve().unwrap().id, id);
        client.touch(id).unwrap();
        client.bury(id, 5).unwrap();
        assert_eq!(client.peek_next(JobState::Buried).unwrap().id, id);
        let info = client.stats_job(id).unwrap();
        assert_eq!((info.state, info.pri, info.tube.as_str(), info.buries), (JobState::Buried, 5, "mail", 1));
        client.kick_job(id).unwrap();
        assert_eq!(client.reserve_job(id).unwrap().id, id);
        assert!(client.release(id, 1, 100).unwrap());
        assert_eq!(client.peek_next(JobState::Delayed).unwrap().id, id);
        assert_eq!(client.kick(10).unwrap(), 1);
        client.delete(id).unwrap();
        assert!(client.delete(id).unwrap_err().is_not_found());
        let timed_out = client.reserve_with_timeout(0).unwrap_err();
        assert!(matches!(timed_out, beanstalk_client::Error::Refused(Refusal::TimedOut)));
        client.pause_tube(&tube, 60).unwrap();
        assert_eq!(client.stats_tube(&tube).unwrap().number("pause"), Some(60));
        assert!(client.stats().unwrap().number("total-jobs").unwrap() >= 1);
        assert!(client.list_tubes().unwrap().contains(&"mail".to_owned()));
        client.quit().unwrap();
    }
}
