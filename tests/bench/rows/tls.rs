//! The cost of TLS: cycles, handshakes, and the memory of connections. The floor is the same loop behind the same
//! rustls. Another server is behind stunnel, whose cost is included.

use crate::client::Client;
use crate::failure::Failure;
use crate::load::Load;
use crate::runner::{Bench, Contest, column, per_command_us};
use crate::server::{Server, Setup};
use crate::table::{Row, Target};

const WITH_TLS: Setup<'static> = Setup { has_tls: true, ..Setup::PLAIN };

/// Handshakes in a round.
const HANDSHAKES: u64 = 200;

/// Processor time per command over TLS, beside the floor, beside a server behind stunnel, and beside the same server
/// without TLS.
pub fn cost(bench: &Bench, name: &str, load: Load) -> Vec<Row> {
    let figures = bench.in_turns(
        |contender| {
            let plain = Contest::open(bench.start(contender, Setup::PLAIN)?, load)?;
            Ok((plain, Contest::open(bench.start(contender, WITH_TLS)?, load)?))
        },
        |(plain, tls)| {
            let (plain_us, _) = plain.cycles(bench.round())?;
            let (cpu_us, outcome) = tls.cycles(bench.round())?;
            Ok([
                cpu_us,
                cpu_us / plain_us,
                outcome.rate() / 1e3,
                outcome.latency_us(0.5),
                outcome.latency_us(0.99),
                cpu_us - plain_us,
            ])
        },
    );
    let name = format!("{name} over TLS");
    let row = |what: &str, unit, target, index| {
        Row::new(format!("{name}: {what}"), unit, target, column(&figures, index))
    };
    vec![
        row("CPU per command", "µs", Target::TimesFloor(1.15), 0),
        row("the same beside the peer behind stunnel", "µs", Target::OfPeer(0.5), 0),
        row("CPU, to that without TLS", "ratio", Target::None, 1),
        row("CPU that TLS adds", "µs", Target::None, 5),
        row("throughput", "1000 commands/s", Target::None, 2),
        row("p50 of a batch", "µs", Target::None, 3),
        row("p99 of a batch", "µs", Target::None, 4),
    ]
}

/// Processor time of a full handshake, with the connection around it and one command. 1 / 0.9 of the floor's time is
/// 0.9 of its handshakes in a second.
pub fn handshakes(bench: &Bench) -> Vec<Row> {
    let figures = bench.in_turns(
        |contender| bench.start(contender, WITH_TLS),
        |server| {
            let (cpu, ()) = server.cpu_of(|| (0..HANDSHAKES).try_for_each(|_| connect(server).map(drop)))?;
            Ok([per_command_us(cpu, HANDSHAKES)])
        },
    );
    vec![Row::new(
        "full handshakes, ECDSA P-256: CPU each",
        "µs",
        Target::TimesFloor(1.11),
        column(&figures, 0),
    )]
}

/// Resident bytes for each connection over TLS that has sent a command and is idle now.
pub fn idle(bench: &Bench) -> Vec<Row> {
    let connections = if bench.quick { 300 } else { 1000 };
    let figures = bench.one_by_one(|contender| {
        let server = bench.start(contender, WITH_TLS)?;
        let first = connect(&server)?;
        let before = server.resident_bytes()?;
        let idle = (0..connections).map(|_| connect(&server)).collect::<Result<Vec<_>, _>>()?;
        let each = (server.resident_bytes()? - before) / f64::from(connections);
        drop((first, idle));
        Ok([each])
    });
    vec![Row::new(
        "idle connections over TLS: resident each",
        "bytes",
        Target::AtMost(12_288.0),
        column(&figures, 0),
    )]
}

/// A client that has got a reply, so that the server has done its part of the handshake.
fn connect(server: &Server) -> Result<Client<impl std::io::Read + std::io::Write>, Failure> {
    let mut client = Client::connect_to(server.endpoint())?;
    client.send(b"delete 0\r\n")?;
    client.line()?;
    Ok(client)
}
