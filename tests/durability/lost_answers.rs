//! A put whose reply was lost is sent again with its key, and is stored once.

use rustix::process::Signal;

use crate::jobs::start;

const BODY: &[u8] = b"a body\r\n";

/// How the reply is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// The client's connection is cut.
    Cut,
    /// The server is killed and started again.
    Kill,
    /// The server is killed after the reply has come, and started again.
    KillWhenAnswered,
}

fn line(key: &str) -> Vec<u8> {
    format!("put 0 0 60 {} idp:{key}:60 exp:1000\r\n", BODY.len() - 2).into_bytes()
}

#[test]
fn a_put_that_is_cut_off_anywhere_and_sent_again_with_its_key_is_stored_once() {
    let mut server = start(&["-f", "0"]);
    let mut stored = 0;
    for loss in [Loss::Cut, Loss::Kill, Loss::KillWhenAnswered] {
        for sent in 0..=BODY.len() {
            if matches!(loss, Loss::KillWhenAnswered) && sent < BODY.len() {
                continue;
            }
            let key = format!("{loss:?}-{sent}");
            let mut client = server.connect().unwrap();
            client.send(&line(&key)).unwrap();
            client.send(&BODY[..sent]).unwrap();
            let first = match loss {
                Loss::Cut => None,
                Loss::Kill => None,
                Loss::KillWhenAnswered => Some(String::from_utf8(client.read_reply().unwrap()).unwrap()),
            };
            drop(client);
            if !matches!(loss, Loss::Cut) {
                server.restart(Signal::KILL).unwrap();
            }
            let mut client = server.connect().unwrap();
            client.send(&[&line(&key)[..], BODY].concat()).unwrap();
            let again = String::from_utf8(client.read_reply().unwrap()).unwrap();
            stored += 1;
            assert_eq!(
                client.job_count().unwrap(),
                stored,
                "{loss:?} after {sent} bytes: {first:?}, {again:?}"
            );
            if let Some(first) = first {
                assert_eq!(again, format!("{} READY\r\n", first.trim_end()), "the first is named");
            }
            // A third time, and after another end.
            server.restart(Signal::KILL).unwrap();
            let mut client = server.connect().unwrap();
            client.send(&[&line(&key)[..], BODY].concat()).unwrap();
            let third = String::from_utf8(client.read_reply().unwrap()).unwrap();
            let words: Vec<&str> = again.split_ascii_whitespace().take(2).collect();
            assert_eq!(third, format!("{} READY\r\n", words.join(" ")), "{loss:?} after {sent} bytes");
        }
    }
}

#[test]
fn a_key_counts_and_a_group_holds_after_a_kill_as_before() {
    let mut server = start(&["-f", "0"]);
    let mut client = server.connect().unwrap();
    let put = |tags: &str| format!("put 0 0 60 1 {tags}\r\nx\r\n").into_bytes();
    for (tags, id) in [("idp:k:1000", 1), ("grp:g", 2), ("aft:g", 3), ("grp:h", 4), ("aft:h con:c", 5)] {
        client.exchange(&put(tags), format!("INSERTED {id}\r\n").as_bytes()).unwrap();
    }
    client.exchange(b"delete 1\r\n", b"DELETED\r\n").unwrap();
    client.exchange(b"delete 4\r\n", b"DELETED\r\n").unwrap();
    // A later member does not hold a free job again.
    client.exchange(&put("grp:h"), b"INSERTED 6\r\n").unwrap();
    server.restart(Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    client.exchange(&put("idp:k:1000"), b"INSERTED 1 DELETED\r\n").unwrap();
    client.exchange(b"kick-job 3\r\n", b"NOT_FOUND\r\n").unwrap();
    client.exchange(b"reserve-job 5\r\n", b"RESERVED 5 1\r\nx\r\n").unwrap();
    client.exchange(b"delete 2\r\n", b"DELETED\r\n").unwrap();
    client.exchange(b"reserve-job 3\r\n", b"RESERVED 3 1\r\nx\r\n").unwrap();
    client.exchange(b"flush-tube default\r\n", b"FLUSHED 3\r\n").unwrap();
    server.restart(Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    let reply = String::from_utf8({
        client.send(&put("idp:k:1000")).unwrap();
        client.read_reply().unwrap()
    });
    assert!(!reply.unwrap().contains("DELETED"), "a flush forgets keys for good");
}

#[test]
fn a_moved_job_keeps_its_tags_after_a_kill_and_a_flushed_group_holds_nothing() {
    let mut server = start(&["-f", "0"]);
    let mut client = server.connect().unwrap();
    let put = |tags: &str| format!("put 9 0 60 1 {tags}\r\nx\r\n").into_bytes();
    for (tags, id) in [("grp:g", 1), ("idp:k con:c aft:g exp:1000", 2), ("grp:h", 3), ("aft:h", 4)] {
        client.exchange(&put(tags), format!("INSERTED {id}\r\n").as_bytes()).unwrap();
    }
    for id in [2, 4] {
        client.exchange(format!("move {id} t\r\n").as_bytes(), b"MOVED\r\n").unwrap();
    }
    client.exchange(b"move 1 u\r\n", b"MOVED\r\n").unwrap();
    client.exchange(b"flush-tube default\r\n", b"FLUSHED 1\r\n").unwrap();
    server.restart(Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    let stats = String::from_utf8(client.ask(b"stats-job 2\r\n").unwrap()).unwrap();
    for line in [
        "tube: \"t\"",
        "idempotency-key: \"k\"",
        "concurrency-key: \"c\"",
        "after-group: \"g\"",
        "held: true",
    ] {
        assert!(stats.lines().any(|other| other == line), "{line} is missing in {stats}");
    }
    assert!(!stats.contains("expires-in: 0"), "{stats}");
    client.exchange(b"use t\r\n", b"USING t\r\n").unwrap();
    client.exchange(&put("idp:k"), b"INSERTED 2 DELAYED\r\n").unwrap();
    client.exchange(b"reserve-job 4\r\n", b"RESERVED 4 1\r\nx\r\n").unwrap();
    client.exchange(b"delete 1\r\n", b"DELETED\r\n").unwrap();
    client.exchange(b"reserve-job 2\r\n", b"RESERVED 2 1\r\nx\r\n").unwrap();
}
