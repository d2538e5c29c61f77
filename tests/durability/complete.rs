//! `complete` on a real server: after a kill, either all of it has happened or none, wherever the log ends.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use beanstalkd_testkit::chains::{Chain, go_on_until};
use beanstalkd_testkit::client::Failure;
use beanstalkd_testkit::random::{Random, number_from_environment};
use rustix::process::Signal;

use crate::jobs::{ours, start, start_program};

/// Kills, unless `KILLS` is set.
const KILLS: u64 = 12;
/// The number of chains. Each has a tube and a connection.
const CHAINS: u64 = 4;
/// The longest life of a server, in milliseconds.
const MAX_LIFE_MS: u64 = 200;

/// Half of the chains have sessions. Every third kill is followed by a standby, which waits for the lock.
#[test]
fn a_chain_of_completes_neither_breaks_nor_forks_when_servers_are_killed() -> Result<(), Failure> {
    let home = tempfile::tempdir().expect("there is room");
    let directory = home.path().to_str().expect("it is text").to_owned();
    let serve = move || {
        // Small files, so that some completes are at the end of a file, and jobs are copied.
        start_program(ours(), &directory, &["-f", "0", "-s", "8192", "--wait-for-lock"])
    };
    let mut random = Random::new(number_from_environment("SEED").unwrap_or(1));
    let mut server = serve();
    let mut client = server.connect()?;
    let begun = (0..CHAINS).map(|at| Chain::begin(&mut client, &format!("chain-{at}"), at % 2 == 0));
    let mut chains = begun.collect::<Result<Vec<_>, _>>()?;
    for kill in 0..number_from_environment("KILLS").unwrap_or(KILLS) {
        let clients = chains.iter().map(|_| server.connect()).collect::<Result<Vec<_>, _>>()?;
        let life = Duration::from_millis(1 + random.below(MAX_LIFE_MS));
        server = go_on_until(&mut chains, clients, || {
            let standby = (kill % 3 == 0).then(|| thread::spawn(serve.clone()));
            thread::sleep(life);
            match standby {
                Some(standby) => {
                    server.stop(Signal::KILL).expect("it runs");
                    standby.join().expect("it gets the lock")
                }
                None => {
                    server.restart(Signal::KILL).expect("it starts on its log");
                    server
                }
            }
        });
        let mut client = server.connect()?;
        chains.iter_mut().try_for_each(|chain| chain.check(&mut client))?;
    }
    let length: u64 = chains.iter().map(Chain::length).sum();
    println!("{length} completes, none done by half");
    assert!(length > 0, "something was handed on");
    Ok(())
}

/// The state of a server on a log: whether the job of the `complete` exists, its puts, and the job that its group held.
fn seen(directory: &Path) -> Result<(bool, usize, String), Failure> {
    let server = start_program(ours(), directory.to_str().expect("it is text"), &["-f", "0", "-s", "4096"]);
    let mut client = server.connect()?;
    let mut is_there = |id: u64| -> Result<bool, Failure> {
        Ok(client.ask(format!("peek {id}\r\n").as_bytes())?.starts_with(b"FOUND"))
    };
    let (old, news) = (is_there(1)?, [is_there(3)?, is_there(4)?, is_there(5)?]);
    let held = client.ask(b"stats-job 2\r\n")?;
    let held = String::from_utf8_lossy(&held);
    let state = held.lines().find_map(|line| line.strip_prefix("state: ")).unwrap_or("gone").to_owned();
    // The key of the ended job cools down, but only if the job has ended.
    let again = client.ask(b"put 0 0 60 1 idp:k:600\r\nz\r\n")?;
    let again = String::from_utf8_lossy(&again);
    assert_eq!(again.contains(" DELETED"), !old, "{again}");
    Ok((old, news.into_iter().filter(|&is_there| is_there).count(), state))
}

/// The bytes of the log that are not on the disk are zeros.
#[test]
fn a_real_log_that_ends_at_any_byte_has_all_of_a_complete_or_nothing() -> Result<(), Failure> {
    let mut server = start(&["-f", "0", "-s", "4096"]);
    let mut client = server.connect()?;
    client.ask(b"session s 600\r\n")?;
    client.exchange(b"put 0 0 600 1 idp:k:600 grp:g con:c\r\nx\r\n", b"INSERTED 1\r\n")?;
    client.exchange(b"put 0 0 600 1 aft:g\r\ny\r\n", b"INSERTED 2\r\n")?;
    client.exchange(b"reserve-job 1\r\n", b"RESERVED 1 1\r\nx\r\n")?;
    let path = server.directory().join("binlog.1");
    let before = fs::read(&path).expect("there is one file");
    let complete = "complete 1 3\r\nput 0 0 60 1 con:c\r\na\r\nput 0 9 60 0 tub:t exp:600\r\n\r\n\
                    put 0 0 60 1 grp:h idp:l:9\r\nc\r\n";
    client.exchange(complete.as_bytes(), b"COMPLETED 3 4 5\r\n")?;
    server.stop(Signal::KILL).expect("it runs");
    let after = fs::read(&path).expect("there is one file");
    let differs = |at: &usize| before[*at] != after[*at];
    let start = (0..after.len()).find(differs).expect("the complete is in the file");
    let end = (0..after.len()).rfind(differs).expect("the complete is in the file") + 1;
    let mut is_whole = false;
    for cut in start..=end {
        let copy = tempfile::tempdir().expect("there is room");
        let mut bytes = after.clone();
        bytes[cut..].fill(0);
        fs::write(copy.path().join("binlog.1"), bytes).expect("there is room");
        let (old, news, held) = seen(copy.path())?;
        is_whole |= !old;
        let expected = if is_whole { (false, 3, "ready") } else { (true, 0, "delayed") };
        assert_eq!((old, news, held.as_str()), expected, "cut at {cut} of {start} to {end}");
    }
    assert!(is_whole, "all of it is there in the end");
    println!("cut at {} places", end - start);
    Ok(())
}

/// A server that drains refuses the puts; nothing has changed, even after a kill.
#[test]
fn a_complete_that_is_refused_by_a_server_that_drains_is_not_there_after_a_kill() -> Result<(), Failure> {
    let mut server = start(&["-f", "0"]);
    let mut client = server.connect()?;
    client.exchange(b"put 0 0 600 1\r\nx\r\n", b"INSERTED 1\r\n")?;
    client.exchange(b"reserve\r\n", b"RESERVED 1 1\r\nx\r\n")?;
    client.exchange(b"drain\r\n", b"DRAINING\r\n")?;
    client.exchange(b"complete 1 1\r\nput 0 0 60 1\r\ny\r\n", b"DRAINING\r\n")?;
    server.restart(Signal::KILL).expect("it starts on its log");
    let mut client = server.connect()?;
    client.exchange(b"peek 2\r\n", b"NOT_FOUND\r\n")?;
    client.exchange(b"drain\r\n", b"DRAINING\r\n")?;
    client.exchange(b"reserve-job 1\r\n", b"RESERVED 1 1\r\nx\r\n")?;
    client.exchange(b"complete 1 0\r\n", b"COMPLETED\r\n")?;
    server.restart(Signal::KILL).expect("it starts on its log");
    server.connect()?.exchange(b"peek 1\r\n", b"NOT_FOUND\r\n")
}
