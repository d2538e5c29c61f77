//! What goes wrong in a round, and how it is mended.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use beanstalkd_testkit::postgres::{Cluster, DATABASE, ROLE, Stop};
use beanstalkd_testkit::random::Random;
use rustix::process::Signal;

use crate::clients::Load;
use crate::proxy::Link;
use crate::world::{TAKEOVER_AFTER, World};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The owner gets SIGKILL.
    KillOwner,
    /// The owner stops cleanly and hands over.
    StopOwner,
    /// The owner stands still until another server has taken over, and goes on then.
    PauseOwner,
    /// The primary gets SIGKILL, and the standby takes its place.
    LosePrimary,
    /// The standby of the database gets SIGKILL, and comes back.
    LoseStandby,
    /// The database is restarted.
    RestartDatabase,
    /// All processes of the primary stand still for a while.
    PauseDatabase,
    /// The database takes no connections for a while, and has ended those of the servers.
    OutOfConnections,
    /// The disk of the database is full for a while.
    DiskFull,
    /// The owner cannot reach the database for a while, and sees that.
    CutLink,
    /// The owner cannot reach the database for a while, and sees nothing of it.
    SilentLink,
    /// The way to the database is slow for a while.
    SlowLink,
    /// The answers of the database come late.
    LateAnswers,
    /// The link between primary and standby is cut, silent or slow for a while.
    SpoilReplication,
    /// The database's last answer comes twice.
    RepeatedAnswer,
}

impl Fault {
    /// All of them; those with which a short run begins come first.
    pub const ALL: &[Self] = &[
        Self::PauseOwner,
        Self::LosePrimary,
        Self::KillOwner,
        Self::SilentLink,
        Self::RepeatedAnswer,
        Self::LoseStandby,
        Self::CutLink,
        Self::StopOwner,
        Self::LateAnswers,
        Self::RestartDatabase,
        Self::OutOfConnections,
        Self::SlowLink,
        Self::DiskFull,
        Self::PauseDatabase,
        Self::SpoilReplication,
    ];

    /// Lets it happen, and mends what does not mend itself.
    pub fn strike(self, world: &mut World, load: &Load, random: &mut Random) -> io::Result<()> {
        let a_while = Duration::from_millis(200 + random.below(4000));
        let owner = world.owner();
        match self {
            Self::KillOwner => world.signal(owner, Signal::KILL),
            Self::StopOwner => world.signal(owner, Signal::TERM),
            Self::PauseOwner => pause_owner(world, owner, random),
            Self::LosePrimary => {
                world.pair().lose_primary()?;
                if random.once_in(2) {
                    thread::sleep(a_while);
                }
                world.pair().replace_standby()?;
            }
            Self::LoseStandby => {
                world.pair().standby.stop(Stop::Kill)?;
                thread::sleep(a_while);
                world.pair().standby.launch()?;
            }
            Self::RestartDatabase => {
                let how = random.pick(&[Stop::Fast, Stop::Kill]);
                world.pair().primary.restart(how)?;
            }
            Self::PauseDatabase => {
                world.pair().primary.pause();
                thread::sleep(a_while);
                world.pair().primary.resume();
            }
            Self::OutOfConnections => {
                let sessions = Sessions::take_all(&world.pair().primary)?;
                thread::sleep(a_while);
                drop(sessions);
            }
            Self::DiskFull => fill_disk(world, load, a_while)?,
            Self::CutLink => spoil_link(world, owner, Link::Cut, a_while),
            Self::SilentLink => spoil_link(world, owner, Link::Silent, a_while),
            Self::LateAnswers => spoil_link(world, owner, Link::LateAnswers, a_while),
            Self::SlowLink => {
                let delay = Duration::from_millis(1 + random.below(300));
                spoil_link(world, owner, Link::Slow(delay), a_while);
            }
            Self::SpoilReplication => {
                let slow = Link::Slow(Duration::from_millis(1 + random.below(100)));
                world.set_replication(random.pick(&[Link::Cut, Link::Silent, slow]));
                thread::sleep(a_while);
                world.set_replication(Link::Whole);
            }
            Self::RepeatedAnswer => world.set_links(owner, Link::Repeating),
        }
        Ok(())
    }
}

fn spoil_link(world: &World, member: usize, link: Link, time: Duration) {
    world.set_links(member, link);
    thread::sleep(time);
    world.set_links(member, Link::Whole);
}

/// A server that stands still is fenced when another one has taken over: it may say nothing that is a promise.
fn pause_owner(world: &World, owner: usize, random: &mut Random) {
    let address = world.addresses()[owner];
    let Some((mut client, _)) = crate::world::open(address) else { return };
    world.keep(owner, false);
    world.signal(owner, Signal::STOP);
    // It has this in its socket when it goes on.
    let asked = client.send(b"put 0 0 60 7\r\nignored\r\nreserve-with-timeout 0\r\n");
    let successor = world.owner();
    assert_ne!(successor, owner, "a process that stands still has answered");
    thread::sleep(Duration::from_millis(random.below(2000)));
    world.signal(owner, Signal::CONT);
    let status = world.wait_for_end(owner);
    assert!(!status.success(), "a server that was fenced has ended with {status}");
    if asked.is_ok() {
        let said = client.read_to_end().unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let is_promise = ["INSERTED", "RESERVED", "TIMED_OUT"].iter().any(|word| said.contains(word));
        assert!(!is_promise, "a server that was fenced has answered: {said:?}");
    }
    world.keep(owner, true);
}

/// The disk of the primary has no room left, until the end of `time`.
fn fill_disk(world: &mut World, load: &Load, time: Duration) -> io::Result<()> {
    let Some(ballast) = world.pair().primary.fill_disk()? else { return Ok(()) };
    // What the clients put until then fits into the files that the database has already.
    load.wait_for_replies(2000, time);
    thread::sleep(time.min(TAKEOVER_AFTER));
    drop(ballast);
    // It may have ended when it could not write its log.
    if !world.pair().primary.takes_queries() {
        world.pair().primary.restart(Stop::Kill)?;
    }
    Ok(())
}

/// Sessions of the superuser that leave no room for others.
struct Sessions(Vec<UnixStream>);

impl Sessions {
    /// Takes all sessions that are free, ends those of the servers, and takes these, too.
    fn take_all(cluster: &Cluster) -> io::Result<Self> {
        let mut all = Self(Vec::new());
        all.take_free(cluster)?;
        if let Some(mut first) = all.0.first() {
            let sql =
                format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'\0");
            let length = u32::try_from(4 + sql.len()).expect("it is short");
            first.write_all(&[b"Q", &length.to_be_bytes()[..], sql.as_bytes()].concat())?;
        }
        all.take_free(cluster)?;
        Ok(all)
    }

    fn take_free(&mut self, cluster: &Cluster) -> io::Result<()> {
        let parameters = format!("user\0postgres\0database\0{DATABASE}\0\0");
        let length = u32::try_from(8 + parameters.len()).expect("it is short");
        let hello = [&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), parameters.as_bytes()].concat();
        loop {
            let mut session = UnixStream::connect(cluster.socket())?;
            session.write_all(&hello)?;
            let mut kind = [0];
            session.read_exact(&mut kind)?;
            // 'R' says that the session may begin, 'E' that there is no room.
            if kind != *b"R" {
                return Ok(());
            }
            self.0.push(session);
        }
    }
}
