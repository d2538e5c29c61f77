//! A full file system: which commands succeed, which are refused, and that no job is lost or damaged.
//!
//! Needs root, to mount a small file system in memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::jobs::{ours, see_jobs, start_program};
use beanstalkd_testkit::client::{Client, id_of, put_command};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::server::Server;
use beanstalkd_testkit::system::SmallDisk;

/// The size of the file system.
const DISK_BYTES: u64 = 4 << 20;
/// The size of an unrelated file, which the test removes later.
const BALLAST_BYTES: usize = 512 << 10;
/// The number of releases, burials, kicks and deletes on the full disk.
const COMMANDS: u64 = 10_000;
/// The time within which puts must succeed again when there is room, on a machine that keeps time: the server tries
/// again every second.
const RECOVERY: Duration = Duration::from_secs(2);

/// Puts until there is no room, and adds the jobs to `states`.
fn fill(client: &mut Client, length: usize, states: &mut BTreeMap<u64, &'static str>) {
    loop {
        let reply = client.ask(&put_command(0, 0, 3600, &vec![b'x'; length])).unwrap();
        match id_of(&reply, "INSERTED") {
            Some(id) => states.insert(id, "ready"),
            None => {
                assert_eq!(String::from_utf8_lossy(&reply), "OUT_OF_MEMORY\r\n");
                return;
            }
        };
    }
}

/// Puts some jobs that can be kicked.
fn prepare(client: &mut Client, states: &mut BTreeMap<u64, &'static str>) {
    for _ in 0..500 {
        let delayed =
            id_of(&client.ask(&put_command(0, 3600, 3600, b"delayed")).unwrap(), "INSERTED").unwrap();
        let buried = id_of(&client.ask(&put_command(0, 0, 3600, b"buried")).unwrap(), "INSERTED").unwrap();
        client.ask(format!("reserve-job {buried}\r\n").as_bytes()).unwrap();
        client.exchange(format!("bury {buried} 0\r\n").as_bytes(), b"BURIED\r\n").unwrap();
        states.extend([(delayed, "delayed"), (buried, "buried")]);
    }
}

/// A random command on job `id`, the reply to it if it succeeds, and the state to which it then leads.
fn invent(random: &mut Random, id: u64, state: &str) -> (String, &'static str, &'static str) {
    match (random.below(8), state) {
        (0, _) => (format!("delete {id}"), "DELETED", "deleted"),
        (1..=3, "reserved") => (format!("release {id} 1 3600"), "RELEASED", "delayed"),
        (4, "reserved") => (format!("release {id} 2 0"), "RELEASED", "ready"),
        (_, "reserved") => (format!("bury {id} 3"), "BURIED", "buried"),
        (1..=4, "buried" | "delayed") => (format!("kick-job {id}"), "KICKED", "ready"),
        _ => (format!("reserve-job {id}"), "RESERVED", "reserved"),
    }
}

/// Sends ten thousand commands. Those that need no room must succeed, and a refused one must change nothing. Returns
/// the number of times that each command got each reply.
fn run_commands(client: &mut Client, states: &mut BTreeMap<u64, &'static str>) -> BTreeMap<String, u64> {
    let mut random = Random::new(1);
    let mut replies = BTreeMap::new();
    for number in 0..COMMANDS {
        // Now and then the oldest jobs are deleted, which frees some room. Otherwise puts use the freed room.
        let has_air = number / 500 % 4 >= 2;
        let oldest = *states.first_key_value().unwrap().0;
        let (id, delete) = if has_air && random.once_in(2) {
            (oldest, true)
        } else {
            (random.pick(&states.keys().copied().collect::<Vec<_>>()), false)
        };
        let (command, success, next) = if delete {
            (format!("delete {id}"), "DELETED", "deleted")
        } else {
            invent(&mut random, id, states[&id])
        };
        let reply = client.ask(format!("{command}\r\n").as_bytes()).unwrap();
        let word = String::from_utf8_lossy(&reply).split([' ', '\r']).next().unwrap().to_owned();
        let verb = command.split(' ').next().unwrap();
        if word == success {
            states.insert(id, next);
            states.retain(|_, state| *state != "deleted");
        } else {
            assert_eq!(word, "OUT_OF_MEMORY", "{command}");
            let may_be_refused =
                verb == "bury" || verb == "kick-job" || verb == "release" && !command.ends_with(" 0");
            assert!(may_be_refused, "expected {command} to succeed");
        }
        *replies.entry(format!("{verb} {word}")).or_default() += 1;
        if !has_air && random.once_in(3) {
            fill(client, 300, states);
        }
    }
    replies
}

/// Requires that every job exists, in the state that follows from the replies.
fn assert_states(client: &mut Client, states: &BTreeMap<u64, &'static str>) {
    let highest = *states.last_key_value().unwrap().0;
    let seen = see_jobs(client, 1..=highest).unwrap();
    assert!(seen.keys().eq(states.keys()), "the existing jobs are those that were acknowledged");
    for (id, state) in states {
        assert_eq!(seen[id].state, *state, "job {id}");
    }
    assert_eq!(client.job_count().unwrap(), states.len() as u64);
}

#[test]
fn on_a_full_disk_deletes_go_on_and_nothing_is_lost() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else { return };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
    let directory = disk.path().to_str().unwrap();
    let flags = ["-f", "0", "-s", "65536"];
    let mut server = start_program(ours(), directory, &flags);
    assert_eq!(warnings_of(&server, &disk), 0, "{}", server.stderr());
    let mut client = server.connect().unwrap();
    let mut states = BTreeMap::new();
    prepare(&mut client, &mut states);
    fill(&mut client, 300, &mut states);
    fill(&mut client, 0, &mut states);
    let filled = states.len();
    let replies = run_commands(&mut client, &mut states);
    println!("{filled} jobs, then {replies:?}");
    let count = |reply: &str| replies.get(reply).copied().unwrap_or(0);
    assert!(count("delete DELETED") > 500 && count("reserve-job RESERVED") > 500, "{replies:?}");
    for (verb, success) in [("bury", "BURIED"), ("release", "RELEASED"), ("kick-job", "KICKED")] {
        assert!(
            count(&format!("{verb} OUT_OF_MEMORY")) > 0,
            "expected OUT_OF_MEMORY for some {verb}: {replies:?}"
        );
        assert!(count(&format!("{verb} {success}")) > 0, "expected {success} for some {verb}: {replies:?}");
    }
    fill(&mut client, 300, &mut states);
    assert_states(&mut client, &states);

    std::fs::remove_file(&ballast).unwrap();
    let (pace, freed) = (Pace::watch().unwrap(), Instant::now());
    while id_of(&client.ask(&put_command(0, 0, 3600, &[b'x'; 300])).unwrap(), "INSERTED").is_none_or(|id| {
        states.insert(id, "ready");
        false
    }) {
        pace.assert_within(RECOVERY, freed, || "until a put succeeds".to_owned());
    }
    println!("a put {} ms after space was freed", freed.elapsed().as_millis());
    server.stop(Signal::KILL).unwrap();
    let server = start_program(ours(), directory, &flags);
    let mut client = server.connect().unwrap();
    let highest = *states.last_key_value().unwrap().0;
    let seen = see_jobs(&mut client, 1..=highest).unwrap();
    assert!(
        seen.keys().eq(states.keys()),
        "after a restart the existing jobs are those that were acknowledged"
    );
}

#[test]
fn on_a_full_disk_deletes_make_room_although_each_file_keeps_a_job() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else { return };
    let server = start_program(ours(), disk.path().to_str().unwrap(), &["-f", "0", "-s", "65536"]);
    let mut client = server.connect().unwrap();
    let mut states = BTreeMap::new();
    fill(&mut client, 300, &mut states);
    let kept: Vec<u64> = states.keys().copied().filter(|id| id % 50 == 0).collect();
    for id in states.keys().filter(|id| *id % 50 != 0) {
        client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
    }
    let (pace, deleted) = (Pace::watch().unwrap(), Instant::now());
    let again = loop {
        if let Some(id) = id_of(&client.ask(&put_command(0, 0, 60, b"again")).unwrap(), "INSERTED") {
            break id;
        }
        pace.assert_within(RECOVERY, deleted, || "until a put succeeds".to_owned());
    };
    let seen = see_jobs(&mut client, 1..=again).unwrap();
    assert!(
        seen.keys().copied().eq(kept.into_iter().chain([again])),
        "the existing jobs are those that were acknowledged"
    );
}

/// A `complete` with puts is refused, and has no effect, even after a kill; one without puts ends its job.
#[test]
fn on_a_full_disk_a_complete_is_refused_whole() {
    let Some(disk) = SmallDisk::mount(DISK_BYTES) else { return };
    let directory = disk.path().to_str().unwrap();
    let flags = ["-f", "0", "-s", "65536"];
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; BALLAST_BYTES]).unwrap();
    let mut server = start_program(ours(), directory, &flags);
    let mut client = server.connect().unwrap();
    let mut states = BTreeMap::new();
    fill(&mut client, 300, &mut states);
    let (first, last) = (*states.first_key_value().unwrap().0, *states.last_key_value().unwrap().0);
    let reserve = format!("reserve-job {first}\r\n");
    assert_eq!(id_of(&client.ask(reserve.as_bytes()).unwrap(), "RESERVED"), Some(first));
    let puts: Vec<u8> = (0..2).flat_map(|_| put_command(0, 0, 3600, &[b'y'; 3000])).collect();
    let complete = [format!("complete {first} 2\r\n").as_bytes(), &puts].concat();
    client.exchange(&complete, b"OUT_OF_MEMORY\r\n").unwrap();
    server.stop(Signal::KILL).unwrap();
    std::fs::remove_file(&ballast).unwrap();
    let server = start_program(ours(), directory, &flags);
    let mut client = server.connect().unwrap();
    let seen = see_jobs(&mut client, 1..=last + 10).unwrap();
    assert!(seen.keys().eq(states.keys()), "nothing has changed");
    assert_eq!(id_of(&client.ask(reserve.as_bytes()).unwrap(), "RESERVED"), Some(first));
    client.exchange(format!("complete {first} 0\r\n").as_bytes(), b"COMPLETED\r\n").unwrap();
}

/// The number of warnings that name the directory.
fn warnings_of(server: &Server, disk: &SmallDisk) -> usize {
    let path = disk.path().to_str().unwrap();
    server.stderr().lines().filter(|line| line.contains(" warn ") && line.contains(path)).count()
}

#[test]
fn a_disk_of_less_than_two_files_takes_as_many_jobs_as_with_c_also_after_deletes() {
    let Some(disk) = SmallDisk::mount(16 << 20) else { return };
    let server = start_program(ours(), disk.path().to_str().unwrap(), &[]);
    let mut client = server.connect().unwrap();
    let mut states = BTreeMap::new();
    fill(&mut client, 10_000, &mut states);
    println!("{} jobs", states.len());
    assert_eq!(warnings_of(&server, &disk), 1, "expected one warning at the start: {}", server.stderr());
    assert!(states.len() >= 1030, "C takes 1030, this {}", states.len());
    for id in states.keys() {
        client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
    }
    let (pace, deleted) = (Pace::watch().unwrap(), Instant::now());
    while id_of(&client.ask(&put_command(0, 0, 60, &[b'x'; 10_000])).unwrap(), "INSERTED").is_none() {
        pace.assert_within(RECOVERY, deleted, || "until a put succeeds".to_owned());
    }
}
