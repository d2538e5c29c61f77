//! Measures this server side by side with a stateless floor and with other servers: `make bench`.
//!
//! Owns: the command line and the order of the rows. The figure is the server's own cost (processor time, system
//! calls, resident bytes), because it holds where wall time wobbles; doc/performance.md says how each row is
//! obtained. Exits 0 where everything asked for was measured, whatever the figures say.

mod client;
mod failure;
mod floor;
mod load;
mod machine;
mod rows;
mod runner;
mod server;
mod table;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::machine::Cores;
use crate::runner::Bench;
use crate::server::{Contender, Role};
use crate::table::{Row, Target};

/// What is compared with where no peer is named: the package of Debian and its kin.
const USUAL_PEER: &str = "/usr/bin/beanstalkd";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("floor") => serve_floor(&arguments[1..]).map(|()| true),
        _ => run(&arguments),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_floor(arguments: &[String]) -> io::Result<()> {
    let (Some(port), Some(body_bytes)) = (
        arguments.first().and_then(|port| port.parse().ok()),
        arguments.get(1).and_then(|body_bytes| body_bytes.parse().ok()),
    ) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "use: floor PORT BODY-BYTES"));
    };
    floor::serve(port, body_bytes)
}

const USAGE: &str = "\
use: bench [--peer PATH]... [--ours PATH] [--rows WORD,..] [--quick]
  --peer PATH      another server to compare with (default: Debian's, if installed)
  --ours PATH      the server under test (default: the one just built)
  --rows WORD,..   only sections whose name contains one of these words
  --quick          short rounds, small backlogs";

/// What the command line asks for.
#[derive(Default)]
struct Chosen {
    peers: Vec<String>,
    ours: Option<String>,
    rows: String,
    quick: bool,
}

impl Chosen {
    fn parse(arguments: &[String]) -> Result<Self, lexopt::Error> {
        use lexopt::{Arg::Long, ValueExt as _};
        let mut chosen = Self::default();
        let mut line = lexopt::Parser::from_args(arguments);
        while let Some(argument) = line.next()? {
            match argument {
                Long("peer") => chosen.peers.push(line.value()?.string()?),
                Long("ours") => chosen.ours = Some(line.value()?.string()?),
                Long("rows") => chosen.rows = line.value()?.string()?,
                Long("quick") => chosen.quick = true,
                // Passed by cargo.
                Long("bench") => {}
                other => return Err(other.unexpected()),
            }
        }
        Ok(chosen)
    }
}

/// Returns whether everything asked for was measured.
fn run(arguments: &[String]) -> io::Result<bool> {
    let chosen = Chosen::parse(arguments)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{error}\n{USAGE}")))?;

    machine::raise_descriptor_limit()?;
    let cores = Cores::first_two()?;
    cores.pin_generator()?;
    let ours = chosen.ours.unwrap_or_else(|| env!("CARGO_BIN_EXE_beanstalkd").to_owned());
    let bench = Bench { contenders: contenders(&chosen.peers, &ours)?, cores, quick: chosen.quick };
    let words = chosen.rows;
    let words: Vec<&str> = words.split(',').collect();

    let mut rows = Vec::new();
    for section in rows::SECTIONS {
        if words.iter().any(|word| section.name.contains(word)) {
            eprintln!("bench: {}", section.name);
            rows.extend((section.measure)(&bench));
        }
    }
    report(&rows, &bench);
    Ok(!rows.is_empty() && !rows.iter().any(|row| row.is_unmeasured(&bench.contenders)))
}

fn contenders(peers: &[String], ours: &str) -> io::Result<Vec<Contender>> {
    let mut peers: Vec<PathBuf> = peers.iter().map(PathBuf::from).collect();
    if peers.is_empty() && Path::new(USUAL_PEER).exists() {
        peers.push(PathBuf::from(USUAL_PEER));
    }
    let floor = Contender { role: Role::Floor, label: "floor".to_owned(), program: env::current_exe()? };
    let mut all = vec![floor];
    all.extend(peers.into_iter().map(|program| Contender::new(Role::Peer, program)));
    all.push(Contender { label: "ours".to_owned(), ..Contender::new(Role::Ours, PathBuf::from(ours)) });
    Ok(all)
}

fn report(rows: &[Row], bench: &Bench) {
    println!("{}", machine::describe());
    if bench.cores.are_one() {
        println!("Server and generator share one core: latencies and throughput mean nothing.");
    }
    let (beside, table): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| matches!(row.target, Target::None));
    println!();
    table::print(&table, &bench.contenders);
    if !beside.is_empty() {
        println!("\nBeside the targets:\n");
        table::print(&beside, &bench.contenders);
    }
}
