//! The faults of a round, and their repair.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_for_some;
use beanstalkd_testkit::postgres::{
    Cluster, DATABASE, PASSWORD, PAUSE_FOR_TAKEOVER, ROLE, Stop, TAKEOVER_AFTER,
};
use beanstalkd_testkit::random::Random;
use beanstalkd_testkit::server::{Address, POLL_INTERVAL};
use rustix::process::Signal;

use crate::clients::{Load, Shared};
use crate::proxy::Link;
use crate::world::World;

/// The difference between the clocks of two machines of the database.
const CLOCK_ERROR: Duration = Duration::from_secs(45);

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The owner gets SIGKILL.
    KillOwner,
    /// The owner stops cleanly and hands over.
    StopOwner,
    /// The owner is paused until another server has taken over.
    PauseOwner,
    /// A server is paused, for a shorter or a longer time than a takeover takes.
    PauseForAWhile,
    /// Both servers are paused, the second one sometimes during its takeover.
    PauseBoth,
    /// The owner is paused until another server has taken over, and this one until the first one is the owner again.
    TakeOverTwice,
    /// The owner is paused while the database accepts no connections.
    PauseWithoutConnections,
    /// A third server waits, too, when the owner is paused, and is killed in the end.
    PauseBesideThird,
    /// The database has no room for files, and the owner cannot reach it then.
    NoRoomForFiles,
    /// The primary gets SIGKILL, and the standby takes its place.
    LosePrimary,
    /// The standby of the database gets SIGKILL, and comes back.
    LoseStandby,
    /// The database is restarted.
    RestartDatabase,
    /// All processes of the primary are paused for a while.
    PauseDatabase,
    /// The database accepts no connections for a while, and has ended those of the servers.
    OutOfConnections,
    /// The disk of the database is full for a while.
    DiskFull,
    /// The owner cannot reach the database for a while, and notices it.
    CutLink,
    /// The owner cannot reach the database for a while, and does not notice it.
    SilentLink,
    /// The link to the database is slow for a while.
    SlowLink,
    /// The replies of the database come late.
    LateAnswers,
    /// The statements of the owner reach the database late.
    LateRequests,
    /// The link between standby and database has a fault, sometimes during a takeover.
    SpoilLinkOfStandby,
    /// The owner gets SIGTERM while it cannot reach the database.
    StopCutOff,
    /// The heartbeat of a dead owner has the time of a clock that was ahead.
    ClockAhead,
    /// The heartbeat of a live owner has the time of a clock that is behind.
    ClockBehind,
    /// The role of the servers has unusual settings.
    HostileSettings,
    /// The role of the servers gets another password.
    RotatePassword,
    /// The link between primary and standby is cut, silent or slow for a while.
    SpoilReplication,
    /// The last reply of the database comes twice.
    RepeatedAnswer,
}

impl Fault {
    /// All faults; a short run begins with the first ones.
    pub const ALL: &[Self] = &[
        Self::PauseOwner,
        Self::LosePrimary,
        Self::NoRoomForFiles,
        Self::PauseWithoutConnections,
        Self::SilentLink,
        Self::HostileSettings,
        Self::PauseForAWhile,
        Self::LateRequests,
        Self::ClockAhead,
        Self::RotatePassword,
        Self::TakeOverTwice,
        Self::KillOwner,
        Self::RepeatedAnswer,
        Self::PauseBoth,
        Self::LoseStandby,
        Self::CutLink,
        Self::StopCutOff,
        Self::StopOwner,
        Self::LateAnswers,
        Self::SpoilLinkOfStandby,
        Self::RestartDatabase,
        Self::ClockBehind,
        Self::OutOfConnections,
        Self::SlowLink,
        Self::DiskFull,
        Self::PauseDatabase,
        Self::SpoilReplication,
        Self::PauseBesideThird,
    ];

    /// Makes the fault, and repairs all that does not recover by itself. No process is paused for longer than
    /// `longest`.
    pub fn strike(
        self,
        world: &mut World,
        load: &Load,
        random: &mut Random,
        longest: Duration,
    ) -> io::Result<()> {
        let a_while = Duration::from_millis(200 + random.below(7000));
        let owner = world.owner();
        match self {
            Self::KillOwner => world.signal(owner, Signal::KILL),
            Self::StopOwner => world.signal(owner, Signal::TERM),
            Self::PauseOwner => pause_owner(world, load, owner, random),
            Self::PauseForAWhile => {
                let server = if random.once_in(4) { 1 - owner } else { owner };
                let still = Standstill::begin(world, load, server);
                thread::sleep(pause_of(longest, random));
                still.end(world);
            }
            Self::PauseBoth => pause_both(world, load, owner, random),
            Self::TakeOverTwice => take_over_twice(world, load, owner),
            Self::PauseWithoutConnections => pause_without_connections(world, load, owner)?,
            Self::PauseBesideThird => {
                let third = world.third()?;
                let address = Address::Tcp(third.address());
                let still = Standstill::begin(world, load, owner);
                // It may be the third server, which no client of the load knows.
                let start = Instant::now();
                while start.elapsed() < TAKEOVER_AFTER.mul_f64(2.0) {
                    load.shared().meet(&address);
                    thread::sleep(POLL_INTERVAL);
                }
                still.end(world);
                load.shared().meet(&address);
            }
            Self::NoRoomForFiles => no_room_for_files(world, load, owner)?,
            Self::StopCutOff => {
                world.set_links(owner, random.pick(&[Link::Silent, Link::LateRequests, Link::LateAnswers]));
                thread::sleep(a_while);
                world.signal(owner, Signal::TERM);
                thread::sleep(a_while);
                world.set_links(owner, Link::Whole);
            }
            Self::ClockAhead => {
                world.keep(owner, false);
                world.signal(owner, Signal::KILL);
                world.pair().primary.query(&shift_heartbeat("+"))?;
                let (pace, start) = (Pace::watch()?, Instant::now());
                world.owner_of(&[1 - owner]);
                pace.assert_within(CLOCK_ERROR / 2, start, || "the clocks have decided".to_owned());
                world.keep(owner, true);
            }
            Self::ClockBehind => drop(world.pair().primary.query(&shift_heartbeat("-"))?),
            Self::HostileSettings => hostile_settings(world, owner, random)?,
            Self::RotatePassword => rotate_password(world, random)?,
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
            Self::LateRequests => spoil_link(world, owner, Link::LateRequests, a_while),
            Self::SpoilLinkOfStandby => spoil_link_of_standby(world, load, owner, random),
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

/// A time between a tenth of a second and `longest`; short ones are as frequent as long ones.
fn pause_of(longest: Duration, random: &mut Random) -> Duration {
    let doublings = (longest.as_millis() / 100).ilog2() + 2;
    let most_ms = 100 << random.below(u64::from(doublings));
    Duration::from_millis(100 + random.below(most_ms)).min(longest)
}

/// A paused server.
pub struct Standstill {
    server: usize,
    id: Option<String>,
    shared: Arc<Shared>,
}

impl Standstill {
    /// Pauses the server.
    pub fn begin(world: &World, load: &Load, server: usize) -> Self {
        let shared = Arc::clone(load.shared());
        let id = shared.meet(&world.listeners(server)[0]).map(|(_, process)| process.id);
        world.stand_still(server);
        if let Some(id) = &id {
            let (mut observed, now) = shared.tick();
            observed.fence.stands_still(id, now);
        }
        Self { server, id, shared }
    }

    /// Resumes the server.
    pub fn end(self, world: &World) {
        if let Some(id) = &self.id {
            let (mut observed, now) = self.shared.tick();
            observed.fence.goes_on(id, now);
        }
        world.signal(self.server, Signal::CONT);
    }
}

/// A paused server is fenced when another one has taken over. The probes send it commands in the meantime, and it may
/// not reply to them when it is resumed.
fn pause_owner(world: &World, load: &Load, owner: usize, random: &mut Random) {
    world.keep(owner, false);
    let still = Standstill::begin(world, load, owner);
    world.owner_of(&[1 - owner]);
    thread::sleep(Duration::from_millis(random.below(2000)));
    still.end(world);
    let status = world.wait_for_end(owner);
    assert!(!status.success(), "a server that was fenced has ended with {status}");
    world.keep(owner, true);
}

fn pause_both(world: &World, load: &Load, owner: usize, random: &mut Random) {
    let first = Standstill::begin(world, load, owner);
    // It is about to take over, is taking over, or has taken over.
    thread::sleep(TAKEOVER_AFTER.mul_f64(0.5) + Duration::from_millis(random.below(2000)));
    let second = Standstill::begin(world, load, 1 - owner);
    let order = if random.once_in(2) { [first, second] } else { [second, first] };
    for still in order {
        thread::sleep(Duration::from_millis(random.below(3000)));
        still.end(world);
    }
}

fn take_over_twice(world: &World, load: &Load, owner: usize) {
    let first = Standstill::begin(world, load, owner);
    world.owner_of(&[1 - owner]);
    let second = Standstill::begin(world, load, 1 - owner);
    // It ends, because it was fenced, starts again, and takes over.
    first.end(world);
    world.owner_of(&[owner]);
    second.end(world);
}

/// A standby that cannot open all connections that it needs leaves the queue to its owner, so that one server remains.
fn pause_without_connections(world: &mut World, load: &Load, owner: usize) -> io::Result<()> {
    wait_for_sessions(&world.pair().primary, "-infinity")?;
    world.keep_all(false);
    let mut sessions = Sessions(Vec::new());
    sessions.take_free(&world.pair().primary)?;
    let still = Standstill::begin(world, load, owner);
    thread::sleep(PAUSE_FOR_TAKEOVER);
    still.end(world);
    wait_for_some(
        || format!("a server is left\n{}", world.logs()),
        || {
            assert!(!(0..2).all(|server| world.has_ended(server)), "no server is left\n{}", world.logs());
            world.addresses().into_iter().find_map(crate::world::open)
        },
    );
    drop(sessions);
    world.keep_all(true);
    Ok(())
}

/// While the next file cannot be made, the records of reservations wait and their replies do not.
fn no_room_for_files(world: &mut World, load: &Load, owner: usize) -> io::Result<()> {
    let refuse = "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'no space left on device' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER no_room BEFORE INSERT ON beanstalkd.file FOR EACH ROW EXECUTE FUNCTION no_room()";
    world.pair().primary.query(refuse)?;
    if let Some((mut client, process)) = load.shared().meet(&world.listeners(owner)[0]) {
        let put = format!("put 0 0 3600 1000\r\n{}\r\n", "x".repeat(1000));
        for command in ["use room\r\n", "watch room\r\n", "ignore default\r\n"] {
            let _ = client.ask(command.as_bytes());
        }
        while client.ask(put.as_bytes()).is_ok_and(|reply| reply.starts_with(b"INSERTED")) {}
        world.set_links(owner, Link::Silent);
        world.pair().primary.query("DROP FUNCTION no_room CASCADE")?;
        world.owner_of(&[1 - owner]);
        for _ in 0..10 {
            let asked_at = load.shared().tick().1;
            let Ok(reply) = client.ask(b"reserve-with-timeout 0\r\n") else { break };
            load.shared().answered(
                &process,
                asked_at,
                &String::from_utf8_lossy(&reply[..reply.len().min(20)]),
            );
        }
    }
    world.set_links(owner, Link::Whole);
    world.pair().primary.query("DROP FUNCTION IF EXISTS no_room CASCADE")?;
    if let Some((mut client, _)) = crate::world::open(world.addresses()[world.owner()]) {
        let _ = client.ask(b"flush-tube room\r\n");
    }
    Ok(())
}

fn spoil_link_of_standby(world: &World, load: &Load, owner: usize, random: &mut Random) {
    let link = random.pick(&[Link::Cut, Link::Silent, Link::LateRequests, Link::LateAnswers]);
    let still = random.once_in(2).then(|| Standstill::begin(world, load, owner));
    // Sometimes in the middle of a takeover.
    thread::sleep(TAKEOVER_AFTER.mul_f64(0.75) + Duration::from_millis(random.below(1500)));
    world.set_links(1 - owner, link);
    thread::sleep(Duration::from_millis(random.below(2000)));
    if let Some(still) = still {
        still.end(world);
    }
    thread::sleep(Duration::from_millis(random.below(2000)));
    world.set_links(1 - owner, Link::Whole);
}

/// Moves the heartbeat of the queue, as if it were of another clock.
fn shift_heartbeat(sign: &str) -> String {
    format!("UPDATE beanstalkd.queue SET heartbeat = heartbeat {sign} interval '{} s'", CLOCK_ERROR.as_secs())
}

/// Settings of the role apply to its next connections: those of the owner or its successor.
fn hostile_settings(world: &mut World, owner: usize, random: &mut Random) -> io::Result<()> {
    const SETTINGS: &[&str] = &[
        "DateStyle = 'German'",
        "DateStyle = 'SQL, DMY'",
        "TimeZone = 'Asia/Kolkata'",
        "statement_timeout = '1ms'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_deferrable = on",
        "standard_conforming_strings = off",
        "bytea_output = 'escape'",
        "idle_in_transaction_session_timeout = '1ms'",
        "extra_float_digits = -15",
        "search_path = 'nowhere'",
        "enable_indexscan = off",
        "enable_indexonlyscan = off",
    ];
    for setting in SETTINGS {
        if random.once_in(2) {
            world.pair().primary.query(&format!("ALTER ROLE {ROLE} SET {setting}"))?;
        }
    }
    end_sessions(&world.pair().primary)?;
    if random.once_in(2) {
        world.keep(owner, false);
        world.signal(owner, Signal::KILL);
        world.owner_of(&[1 - owner]);
        world.keep(owner, true);
    }
    world.owner();
    world.pair().primary.query(&format!("ALTER ROLE {ROLE} RESET ALL")).map(drop)
}

/// The servers read the file with the password at each connect, so they continue with the new password.
fn rotate_password(world: &mut World, random: &mut Random) -> io::Result<()> {
    wait_for_sessions(&world.pair().primary, "-infinity")?;
    world.keep_all(false);
    for password in [format!("rotated {}", random.next()), PASSWORD.to_owned()] {
        let start = world.pair().primary.query("SELECT clock_timestamp()")?;
        world.pair().primary.query(&format!("ALTER ROLE {ROLE} PASSWORD '{password}'"))?;
        world.set_password(&password)?;
        end_sessions(&world.pair().primary)?;
        wait_for_sessions(&world.pair().primary, &start)?;
    }
    world.keep_all(true);
    Ok(())
}

/// Waits until the owner has its session and the standby its two, all younger than `start`.
fn wait_for_sessions(cluster: &Cluster, start: &str) -> io::Result<()> {
    let which = format!("usename = '{ROLE}' AND backend_start > '{start}'");
    cluster.wait_for(&format!("SELECT count(*) >= 3 FROM pg_stat_activity WHERE {which}"), "t")
}

fn end_sessions(cluster: &Cluster) -> io::Result<()> {
    let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'");
    cluster.query(&sql).map(drop)
}

/// The disk of the primary is full, until the end of `time`.
fn fill_disk(world: &mut World, load: &Load, time: Duration) -> io::Result<()> {
    let Some(ballast) = world.pair().primary.fill_disk()? else { return Ok(()) };
    // All that the clients put until then fits into the existing files of the database.
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
            // 'R' means that the session may begin, 'E' that there is no room.
            if kind != *b"R" {
                return Ok(());
            }
            self.0.push(session);
        }
    }
}
