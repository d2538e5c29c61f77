//! The effect of operations that cost much more than simple requests on a normal client.
//!
//! Owns: what the hostile clients send: changes in no order of a million jobs with tags, and commands under access
//! rules whose cost was once that of all tubes. They begin a moment after the measurement.

use std::net::SocketAddr;

use super::hostile::{Hostile, NORMAL_CONNECTIONS, STRETCH, WARM_UP, in_batches, watcher};
use crate::client::{Client, Endpoint};
use crate::failure::Failure;
use crate::load::{CYCLE, Generator, Load, Until};
use crate::runner::{Bench, column};
use crate::server::{Role, Setup};
use crate::table::{Row, Target};

const JOBS: usize = 1_000_000;
/// Has no divisor in common with the number of jobs.
const STRIDE: usize = 769_231;
/// Clients that work at the same time.
const CLIENTS: usize = 8;
/// The maximum number of ids of a batch.
const MAX_BATCH_IDS: usize = 1_000;
/// Two tubes whose numbers are the same in 16 bits of the golden ratio's multiplication.
const MEETING_TUBES: [usize; 2] = [1, 46_369];
const WATCHED: usize = 60_000;
const LISTED: usize = 200_000;

/// The owner of the token may work in tubes that end with 0, everybody else in all.
const RULES: &str = "[strangers]\nproduce = [\"*\"]\nwork = [\"*\"]\nobserve = [\"*\"]\n\
    [identities.narrow]\ntokens = [\"2f1f29274acdf8436e64bd0ef1a87a48ad718fd18fde4c3c9866a449e6492da9\"]\n\
    work = [\"*a*a*a*0\"]\n";

/// Prepares the server, and begins.
type Strike = fn(SocketAddr) -> Result<Hostile, Failure>;

/// Each kind: its name, whether other servers have it, and how it begins.
const KINDS: [(&str, bool, Strike); 9] = [
    ("8 clients that delete a million jobs in no order", true, |address| deleting(address, "", single)),
    ("8 clients that delete a million jobs with four tags in no order", false, |address| {
        deleting(address, TAGS, single)
    }),
    ("8 clients that delete a million jobs with four tags in batches, in no order", false, |address| {
        deleting(address, TAGS, batch)
    }),
    ("8 clients that move a million jobs with four tags in no order", false, |address| {
        deleting(address, TAGS, |ids| {
            ids.iter().map(|id| format!("move {id} t{}\r\n", id % 1_000)).collect::<String>()
        })
    }),
    ("a flush of a million jobs with four tags", false, |address| {
        let client = fill(address, TAGS)?;
        Hostile::one(client, b"flush-tube hostile-0\r\n".to_vec())
    }),
    ("8 clients that reserve a million jobs with four tags in batches", false, |address| {
        fill(address, TAGS)?;
        let commands = "watch hostile-0\r\n".to_owned() + &"reserve-batch 1000\r\n".repeat(JOBS / 8_000);
        several((0..CLIENTS).map(|_| Ok((Client::connect(address)?, commands.clone()))))
    }),
    ("reserves of a key of which another tube has a million jobs", false, |address| {
        let mut client = watcher(address, MEETING_TUBES[1] + 1)?;
        for (tube, jobs) in MEETING_TUBES.into_iter().zip([JOBS, 30_000]) {
            in_batches(&mut client, 1, 1, |_| format!("use hostile-{tube}\r\n"))?;
            in_batches(&mut client, jobs, 1, |_| "put 5 0 3000 0 con:k:100000\r\n\r\n".to_owned())?;
        }
        let mut worker = Client::connect(address)?;
        in_batches(&mut worker, 1, 1, |_| format!("watch hostile-{}\r\n", MEETING_TUBES[1]))?;
        Hostile::one(worker, b"reserve-batch 300\r\n".repeat(100))
    }),
    ("watches of 60,000 tubes under access rules", false, |address| {
        let mut client = Client::connect(address)?;
        in_batches(&mut client, WATCHED, 1, |tube| format!("watch w{tube}\r\n"))?;
        Hostile::one(client, (0..WATCHED).map(|tube| format!("watch x{tube}\r\n")).collect::<String>().into())
    }),
    ("lists of 200,000 long names under access rules", false, |address| {
        let mut client = Client::connect(address)?;
        let name = |tube: usize| format!("watch {}-{tube}\r\n", "a".repeat(190));
        in_batches(&mut client, LISTED, 1, name)?;
        let mut narrow = Client::connect(address)?;
        narrow.send(b"auth the-token-of-narrow-for-the-benchmark\r\n")?;
        narrow.expect("AUTHENTICATED")?;
        let mut hostile = Hostile::one(narrow, b"list-tubes\r\n".repeat(20))?;
        hostile.streams.push(client.into_stream());
        Ok(hostile)
    }),
];

/// Four tags, each with a different name for each job or for ten of them.
const TAGS: &str = " idp:i# con:c#:3 grp:g# exp:90000";

/// The latency of a normal client beside each of them.
pub fn beside(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, is_for_all, strike) in KINDS {
        let figures = bench.in_turns(
            |contender| Ok(contender.clone()),
            |contender| {
                let is_ours = contender.role == Role::Ours;
                if contender.role == Role::Floor || !(is_ours || is_for_all) {
                    return Err(Failure::Meaningless);
                }
                let access = (is_ours && name.ends_with("rules")).then_some(RULES);
                let server = bench.start(contender, Setup { access, ..Setup::PLAIN })?;
                let load = Load::new(NORMAL_CONNECTIONS, 1);
                let mut normal = Generator::connect(Endpoint::Plain(server.address), load)?;
                normal.run(CYCLE, Until::Elapsed(WARM_UP))?;
                let _hostile = strike(server.address)?;
                let beside = normal.run(CYCLE, Until::Elapsed(STRETCH))?;
                Ok([0.5, 0.99, 1.0].map(|share| beside.latency_us(share)))
            },
        );
        let half = if is_for_all { Target::OfPeer(1.0) } else { Target::None };
        let targets = [half, Target::AtMost(2_000.0), Target::AtMost(10_000.0)];
        for (index, (what, target)) in ["p50", "p99", "worst"].into_iter().zip(targets).enumerate() {
            rows.push(Row::new(
                format!("4 x 1 beside {name}: {what}"),
                "µs",
                target,
                column(&figures, index),
            ));
        }
    }
    rows
}

/// Puts the jobs; returns the client, which uses their tube.
fn fill(address: SocketAddr, tags: &str) -> Result<Client, Failure> {
    let mut client = watcher(address, 1)?;
    let put = |job: usize| format!("put 5 0 9000 0{}\r\n\r\n", tags.replace('#', &job.to_string()));
    in_batches(&mut client, JOBS, 1, put)?;
    Ok(client)
}

/// Several clients that delete, or whatever `commands` makes of ids.
fn deleting(address: SocketAddr, tags: &str, commands: fn(&[usize]) -> String) -> Result<Hostile, Failure> {
    fill(address, tags)?;
    let ids: Vec<usize> = (0..JOBS).map(|job| 1 + job * STRIDE % JOBS).collect();
    several(ids.chunks(JOBS / CLIENTS).map(|ids| Ok((Client::connect(address)?, commands(ids)))))
}

fn several(clients: impl Iterator<Item = Result<(Client, String), Failure>>) -> Result<Hostile, Failure> {
    let mut hostile = Hostile::new();
    // All are prepared before the first begins.
    for prepared in clients.collect::<Result<Vec<_>, _>>()? {
        hostile.strike(prepared.0, prepared.1.into_bytes())?;
    }
    Ok(hostile)
}

fn single(ids: &[usize]) -> String {
    ids.iter().map(|id| format!("delete {id}\r\n")).collect()
}

fn batch(ids: &[usize]) -> String {
    let batches =
        ids.chunks(MAX_BATCH_IDS).map(|ids| ids.iter().map(|id| format!(" {id}")).collect::<String>());
    batches.map(|ids| format!("delete-batch{ids}\r\n")).collect()
}
