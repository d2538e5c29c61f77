//! What one client can make a server hold, beside its jobs.
//!
//! Owns: the cases. The figure is the largest resident set since the server started, above what is resident once the
//! tubes are there, because a moment's peak is what ends a server in its control group.

use std::net::SocketAddr;

use crate::client::Client;
use crate::failure::Failure;
use crate::runner::{Bench, column};
use crate::server::{Role, Server, Setup};
use crate::table::{Row, Target};

const MIB: f64 = 1024.0 * 1024.0;
/// What one client may take beside its jobs.
const TARGET: Target = Target::AtMost(8.0);
/// Tubes made before their replies are read.
const TUBES_AT_ONCE: usize = 100;
/// Clients that ask for a list and do not read it.
const SILENT: usize = 60;

/// A case: its name, how many tubes with names of how many bytes are there before, and what is done then.
type Case = (&'static str, usize, usize, fn(SocketAddr) -> Result<(), Failure>);

const CASES: [Case; 3] = [
    ("2,000 tubes, 1,000 pipelined list-tubes", 2_000, 190, |address| pipeline(address, "list-tubes", 1_000)),
    ("80,000 pipelined stats", 0, 0, |address| pipeline(address, "stats", 80_000)),
    ("100,000 tubes, 60 clients with a list-tubes each that they do not read", 100_000, 20, stay_silent),
];

/// How much the resident set grows at most, in each case.
pub fn growth(bench: &Bench) -> Vec<Row> {
    CASES
        .into_iter()
        .map(|(name, tubes, name_bytes, ask)| {
            let figures = bench.servers_one_by_one(|contender| {
                if contender.role == Role::Floor {
                    return Err(Failure::Meaningless);
                }
                let server = bench.start(contender, Setup::PLAIN)?;
                make_tubes(&server, tubes, name_bytes)?;
                let before = server.resident_bytes()?;
                ask(server.address)?;
                Ok([(server.peak_resident_bytes()? - before) / MIB])
            });
            Row::new(
                format!("{name}: resident at most, above that before"),
                "MiB",
                TARGET,
                column(&figures, 0),
            )
        })
        .collect()
}

fn make_tubes(server: &Server, tubes: usize, name_bytes: usize) -> Result<(), Failure> {
    let mut client = Client::connect(server.address)?;
    for first in (0..tubes).step_by(TUBES_AT_ONCE) {
        let batch: String = (first..first + TUBES_AT_ONCE)
            .map(|number| format!("use t{number:0name_bytes$}\r\nput 0 0 60 1\r\nx\r\n"))
            .collect();
        client.send(batch.as_bytes())?;
        for _ in 0..TUBES_AT_ONCE {
            client.expect("USING ")?;
            client.expect("INSERTED ")?;
        }
    }
    Ok(())
}

/// Sends a command `count` times before it reads the first reply, and then reads them all.
fn pipeline(address: SocketAddr, command: &str, count: usize) -> Result<(), Failure> {
    let mut client = Client::connect(address)?;
    let mut writer = client.writer()?;
    let commands = format!("{command}\r\n").repeat(count);
    // A server that stops reading until its replies are read must not stop the client.
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, commands.as_bytes()));
    for _ in 0..count {
        client.read_data()?;
    }
    sender.join().map_err(|_| Failure::Closed)??;
    Ok(())
}

/// Clients that ask for a list of all tubes and read nothing, until the server has begun to answer all of them.
fn stay_silent(address: SocketAddr) -> Result<(), Failure> {
    let mut silent = Vec::new();
    let mut control = Client::connect(address)?;
    for _ in 0..SILENT {
        let mut client = Client::connect(address)?;
        client.send(b"list-tubes\r\n")?;
        silent.push(client);
    }
    control.await_stat("cmd-list-tubes", |count| count >= SILENT)?;
    // The first bytes of a reply are in the socket once it is made.
    silent.iter_mut().try_for_each(|client| client.expect("OK "))
}
