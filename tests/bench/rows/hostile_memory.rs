//! How much memory one client can make a server use, beside its jobs.
//!
//! Owns: the cases. The figure is the largest resident set since the server started, less the resident set when the
//! tubes exist. The largest counts, because a short peak is enough for the kernel to end a server in its control group.

use std::net::SocketAddr;

use crate::client::Client;
use crate::failure::Failure;
use crate::runner::{Bench, column};
use crate::server::{Role, Server, Setup};
use crate::table::{Row, Target};

const MIB: f64 = 1024.0 * 1024.0;
/// The memory that one client may take beside its jobs, in MiB.
const TARGET: Target = Target::AtMost(8.0);
/// Tubes made before their replies are read.
const TUBES_AT_ONCE: usize = 100;
/// The number of clients that ask for a list and do not read it.
const SILENT: usize = 60;

/// A case: its name, the number of tubes that exist before, the bytes of their names, and the commands of the clients.
type Case = (&'static str, usize, usize, fn(SocketAddr) -> Result<(), Failure>);

const CASES: [Case; 3] = [
    ("2,000 tubes, 1,000 pipelined list-tubes", 2_000, 190, |address| pipeline(address, "list-tubes", 1_000)),
    ("80,000 pipelined stats", 0, 0, |address| pipeline(address, "stats", 80_000)),
    ("100,000 tubes, 60 clients with a list-tubes each that they do not read", 100_000, 20, stay_silent),
];

/// The largest growth of the resident set in each case.
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
    // In a separate thread, because a server may stop reading until its replies are read.
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
    // The server puts the first bytes of a reply into the socket as soon as it has made the reply.
    silent.iter_mut().try_for_each(|client| client.expect("OK "))
}
