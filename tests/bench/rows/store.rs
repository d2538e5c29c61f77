//! The queue in PostgreSQL with a synchronous standby, beside the same server on a local directory, and beside what
//! people use instead: a table of jobs with SKIP LOCKED in the same database.
//!
//! The clusters are in the directory for temporary files, which must be on a disk. They and the server share two cores
//! with the load generator, so rates are lower than with separate machines; the database's processor time is not.

use std::io::Write;
use std::time::{Duration, Instant};

use beanstalkd_testkit::postgres::{DATABASE, Installation, PASSWORD, Pair, installation};

use crate::failure::Failure;
use crate::load::{CYCLE, FILL, Generator, Load, Tubes, Until};
use crate::rows::binlog::directory;
use crate::runner::{Bench, median};
use crate::server::{Contender, Role, Server, Setup, Store};
use crate::table::{Figure, Row, Target};

/// Commands that a job takes: put, reserve, delete.
const COMMANDS_PER_JOB: f64 = 3.0;
/// When a standby takes over: the shortest time, which is the usual one.
const TAKEOVER_AFTER_S: u64 = 1;
/// How often the owner is killed. It happens at any time after its last heartbeat.
const TAKEOVERS: usize = 9;
/// How long the standby of a takeover has to connect to the database before the owner is killed.
const STANDBY_CONNECTS: Duration = Duration::from_secs(1);

/// The table of jobs, with the index that a reserve needs.
const JOBS_TABLE: &str = "
    CREATE TABLE jobs (
        id bigserial PRIMARY KEY, priority bigint NOT NULL, body bytea NOT NULL, reserved_until timestamptz
    );
    CREATE INDEX ready ON jobs (priority, id) WHERE reserved_until IS NULL";

/// A job's way through the table, in three transactions, as in a queue.
const JOBS_SCRIPT: &str = r"
INSERT INTO jobs (priority, body) VALUES (0, decode(repeat('78', 64), 'hex'));
UPDATE jobs SET reserved_until = now() + interval '60 s' WHERE id = (SELECT id FROM jobs
    WHERE reserved_until IS NULL ORDER BY priority, id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id, body \gset
DELETE FROM jobs WHERE id = :id;
";

/// A database for one row.
struct Database {
    installation: Installation,
    pair: Pair,
    url: String,
}

impl Database {
    fn start(bench: &Bench) -> Result<Self, Failure> {
        let installation = installation().ok_or(Failure::Skipped("PostgreSQL is not installed"))?.on_disk();
        let pair = bench.cores.on_both(|| Pair::start(&installation))??;
        let url = pair.url("bench");
        Ok(Self { installation, pair, url })
    }

    fn setup(&self, takeover_after_s: Option<u64>) -> Setup<'_> {
        Setup { store: Some(Store { url: &self.url, password: PASSWORD, takeover_after_s }), ..Setup::PLAIN }
    }
}

/// A row of our server alone.
fn row(bench: &Bench, name: String, unit: &'static str, target: Target, figure: &Figure) -> Row {
    let of = |contender: &Contender| match contender.role {
        Role::Ours => figure.clone(),
        _ => Err(Failure::Meaningless),
    };
    Row::new(name, unit, target, bench.contenders.iter().map(of).collect())
}

fn ours(bench: &Bench) -> &Contender {
    let found = bench.contenders.iter().find(|contender| contender.role == Role::Ours);
    found.expect("our server is always measured")
}

/// Names, units and targets of the figures of a measurement, or the reason why it has no figures.
fn rows<const N: usize>(
    bench: &Bench,
    prefix: &str,
    figures: &Result<[f64; N], Failure>,
    heads: [(&str, &'static str, Target); N],
) -> Vec<Row> {
    let row = |(at, (name, unit, target)): (usize, (&str, &'static str, Target))| {
        let figure = figures.as_ref().map(|figures| figures[at]).map_err(Clone::clone);
        row(bench, format!("store, {prefix}: {name}"), unit, target, &figure)
    };
    heads.into_iter().enumerate().map(row).collect()
}

/// Commands per second, and their cost in the database.
pub fn rates(bench: &Bench, name: &str, load: Load) -> Vec<Row> {
    let heads = [
        ("commands/s", "commands/s", Target::None),
        ("to the same in a local directory, -f 0", "ratio", Target::AtLeast(0.3)),
        ("p50 of a batch of puts", "µs", Target::None),
        ("p99 of a batch of puts", "µs", Target::None),
        ("the database's CPU per job", "µs", Target::None),
        ("jobs table: commands/s", "commands/s", Target::None),
        ("commands/s, to the jobs table", "ratio", Target::AtLeast(1.0)),
        ("jobs table: the database's CPU per job", "µs", Target::None),
        ("jobs per database core, to the jobs table", "ratio", Target::AtLeast(20.0)),
    ];
    rows(bench, name, &compare(bench, load), heads)
}

fn compare(bench: &Bench, load: Load) -> Result<[f64; 9], Failure> {
    let database = Database::start(bench)?;
    let round = Duration::from_secs(if bench.quick { 1 } else { 3 });
    let local = directory()?;
    let on_disk = Setup { binlog: Some((local.path(), 0)), ..Setup::PLAIN };
    let mut contests = Vec::new();
    for setup in [on_disk, database.setup(None)] {
        let server = bench.start(ours(bench), setup)?;
        let generator = Generator::connect(server.endpoint(), load)?;
        contests.push((server, generator));
    }
    let mut measured: [Vec<f64>; 5] = Default::default();
    for _ in 0..bench.rounds() {
        let disk = contests[0].1.run(CYCLE, Until::Elapsed(round))?;
        let before = database.pair.primary.cpu_time();
        let store = contests[1].1.run(CYCLE, Until::Elapsed(round))?;
        let cpu_us = (database.pair.primary.cpu_time() - before).as_secs_f64() * 1e6;
        let (table_rate, table_cpu_us) = jobs_table(bench, &database, load.connections, round)?;
        let jobs = store.commands as f64 / COMMANDS_PER_JOB;
        let figures = [store.rate(), store.rate() / disk.rate(), cpu_us / jobs, table_rate, table_cpu_us];
        measured.iter_mut().zip(figures).for_each(|(all, figure)| all.push(figure));
    }
    // Puts alone at last, because their jobs stay.
    let puts = contests[1].1.run(FILL, Until::Elapsed(round))?;
    let [rate, ratio, cpu_us, table_rate, table_cpu_us] = measured.map(median);
    let (p50, p99) = (puts.latency_us(0.5), puts.latency_us(0.99));
    let (to_table, per_core) = (rate / table_rate, table_cpu_us / cpu_us);
    Ok([rate, ratio, p50, p99, cpu_us, table_rate, to_table, table_cpu_us, per_core])
}

/// Commands per second with a table of jobs, and the database's processor time per job. `pgbench` is the client.
fn jobs_table(
    bench: &Bench,
    database: &Database,
    connections: usize,
    round: Duration,
) -> Result<(f64, f64), Failure> {
    let primary = &database.pair.primary;
    primary.query(&format!("DROP TABLE IF EXISTS jobs; {JOBS_TABLE}"))?;
    let mut script = tempfile::NamedTempFile::new()?;
    script.write_all(JOBS_SCRIPT.as_bytes())?;
    database.installation.give(script.path())?;
    let socket = primary.socket();
    let mut command = database.installation.command("pgbench");
    command.args([
        "-n",
        "-M",
        "prepared",
        "-c",
        &connections.to_string(),
        "-T",
        &round.as_secs().to_string(),
    ]);
    command.arg("-f").arg(script.path()).arg("-h").arg(socket.parent().unwrap_or(&socket));
    command.args(["-p", &primary.address().port().to_string(), "-U", "postgres", DATABASE]);
    let before = primary.cpu_time();
    let output = bench.cores.on_both(|| command.output())??;
    let cpu_us = (primary.cpu_time() - before).as_secs_f64() * 1e6;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |key: &str| -> Option<f64> {
        let line = printed.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().split([' ', '/']).next()?.parse().ok()
    };
    match (value("number of transactions actually processed: "), value("tps = ")) {
        (Some(jobs), Some(rate)) if jobs > 0.0 => Ok((rate * COMMANDS_PER_JOB, cpu_us / jobs)),
        _ => Err(Failure::Tool(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// The time without a server when the owner of many jobs is killed.
pub fn takeover(bench: &Bench) -> Vec<Row> {
    let name = format!("takeover of {} jobs", bench.million() / 10);
    let heads = [("from the kill to the first reply, median", "s", Target::AtMost(1.2))];
    rows(bench, &name, &time_takeover(bench), heads)
}

fn time_takeover(bench: &Bench) -> Result<[f64; 1], Failure> {
    let database = Database::start(bench)?;
    let setup = database.setup(Some(TAKEOVER_AFTER_S));
    let mut owner = bench.start(ours(bench), setup)?;
    fill(&owner, bench.million() / 10)?;
    let mut times = Vec::new();
    for _ in 0..TAKEOVERS {
        let (successor, time) = std::thread::scope(|scope| {
            let standby =
                scope.spawn(|| bench.start(ours(bench), setup).map(|server| (server, Instant::now())));
            std::thread::sleep(STANDBY_CONNECTS);
            // Dropping it kills it.
            drop(owner);
            let killed = Instant::now();
            let (server, answered) = standby.join().map_err(|_| Failure::Tool("a panic".to_owned()))??;
            Ok::<_, Failure>((server, (answered - killed).as_secs_f64()))
        })?;
        owner = successor;
        times.push(time);
    }
    Ok([median(times)])
}

/// The time from the start of the server to its first reply.
pub fn start(bench: &Bench) -> Vec<Row> {
    let name = format!("start with {} jobs", bench.million());
    rows(bench, &name, &time_start(bench), [("to first reply", "ms", Target::None)])
}

fn time_start(bench: &Bench) -> Result<[f64; 1], Failure> {
    let database = Database::start(bench)?;
    let server = bench.start(ours(bench), database.setup(None))?;
    fill(&server, bench.million())?;
    server.stop()?;
    Ok([bench.start(ours(bench), database.setup(None))?.first_reply.as_secs_f64() * 1e3])
}

fn fill(server: &Server, jobs: usize) -> Result<(), Failure> {
    let load = Load { tubes: Tubes::Default, ..Load::new(8, 125) };
    Generator::connect(server.endpoint(), load)?.run(FILL, Until::Jobs(jobs)).map(drop)
}

/// The size of the tables under a load that does not end, which has at most a thousand jobs at once.
pub fn tables(bench: &Bench) -> Vec<Row> {
    let jobs = bench.million() * 10;
    let heads = [
        ("largest size in the first half", "MB", Target::None),
        ("largest size in the second half", "MB", Target::None),
        ("growth in the second half", "ratio", Target::AtMost(1.1)),
    ];
    rows(bench, &format!("tables during {jobs} jobs"), &grow(bench, jobs), heads)
}

fn grow(bench: &Bench, jobs: usize) -> Result<[f64; 3], Failure> {
    let database = Database::start(bench)?;
    let server = bench.start(ours(bench), database.setup(None))?;
    let mut generator = Generator::connect(server.endpoint(), Load::new(32, 32))?;
    let mut megabytes = Vec::new();
    for tenth in 1..=10 {
        generator.run(CYCLE, Until::Jobs(jobs / 10))?;
        let size = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class
            WHERE relnamespace = 'beanstalkd'::regnamespace AND relkind = 'r'";
        let bytes = database.pair.primary.query(size)?;
        let size = bytes.parse::<f64>().map_err(|_| Failure::Tool(bytes))? / 1e6;
        eprintln!("bench: {size:.1} MB after {} jobs", jobs / 10 * tenth);
        megabytes.push(size);
    }
    let largest = |sizes: &[f64]| sizes.iter().copied().fold(0.0, f64::max);
    let (first, second) = (largest(&megabytes[..5]), largest(&megabytes[5..]));
    Ok([first, second, second / first])
}
