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
mod random;
mod rows;
mod runner;
mod server;
mod table;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::{Arg, ValueExt};

use crate::machine::Cores;
use crate::runner::Bench;
use crate::server::{Contender, Role};
use crate::table::{Row, Target};

/// What is compared with where no peer is named: the package of Debian and its kin.
const USUAL_PEER: &str = "/usr/bin/beanstalkd";

const USAGE: &str = "\
use: bench [--peer PATH]... [--ours PATH] [--rows WORD,..] [--quick]
     bench floor PORT BODY-BYTES
  --peer PATH      another server to compare with (default: Debian's, if installed)
  --ours PATH      the server under test (default: the one just built)
  --rows WORD,..   only sections whose name contains one of these words
  --quick          short rounds, small backlogs";

fn main() -> ExitCode {
    match parse(lexopt::Parser::from_env()).map(run) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error}\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
enum Task {
    /// To be the floor, on this port, with bodies of this length.
    Floor(u16, usize),
    Measure(Choice),
}

/// What to measure.
#[derive(Default)]
struct Choice {
    /// Servers to compare with; the usual one where there are none.
    peers: Vec<PathBuf>,
    /// The server under test, if not the one just built.
    ours: Option<PathBuf>,
    /// Words of which a section's name has to contain one; empty for all sections.
    words: Vec<String>,
    quick: bool,
}

fn parse(mut parser: lexopt::Parser) -> Result<Task, lexopt::Error> {
    let mut choice = Choice::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("peer") => choice.peers.push(parser.value()?.into()),
            Arg::Long("ours") => choice.ours = Some(parser.value()?.into()),
            Arg::Long("rows") => {
                choice.words.extend(parser.value()?.string()?.split(',').map(str::to_owned));
            }
            Arg::Long("quick") => choice.quick = true,
            // Cargo passes it.
            Arg::Long("bench") => {}
            Arg::Value(task) if task == "floor" => {
                return Ok(Task::Floor(parser.value()?.parse()?, parser.value()?.parse()?));
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(Task::Measure(choice))
}

/// Returns whether everything asked for was measured.
fn run(task: Task) -> io::Result<bool> {
    let choice = match task {
        Task::Floor(port, body_bytes) => return floor::serve(port, body_bytes).map(|()| true),
        Task::Measure(choice) => choice,
    };
    machine::raise_descriptor_limit()?;
    let cores = Cores::first_two()?;
    cores.pin_generator()?;
    let bench = Bench { contenders: contenders(&choice)?, cores, quick: choice.quick };
    let mut rows = Vec::new();
    for section in rows::SECTIONS {
        if choice.words.is_empty() || choice.words.iter().any(|word| section.name.contains(word.as_str())) {
            eprintln!("bench: {}", section.name);
            rows.extend((section.measure)(&bench));
        }
    }
    report(&rows, &bench);
    Ok(!rows.is_empty() && !rows.iter().any(|row| row.is_unmeasured(&bench.contenders)))
}

fn contenders(choice: &Choice) -> io::Result<Vec<Contender>> {
    let mut peers = choice.peers.clone();
    if peers.is_empty() && Path::new(USUAL_PEER).exists() {
        peers.push(PathBuf::from(USUAL_PEER));
    }
    let ours = choice.ours.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_beanstalkd")));
    let floor = Contender { role: Role::Floor, label: "floor".to_owned(), program: env::current_exe()? };
    let mut all = vec![floor];
    all.extend(peers.into_iter().map(|program| Contender::labelled(Role::Peer, program)));
    all.push(Contender { role: Role::Ours, label: "ours".to_owned(), program: ours });
    Ok(all)
}

fn report(rows: &[Row], bench: &Bench) {
    println!("{}", machine::describe());
    if bench.cores.are_one() {
        println!("Server and generator share one core: latencies and throughput mean nothing.");
    }
    let (beside, table): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| matches!(row.target, Target::None));
    if !table.is_empty() {
        println!();
        table::print(&table, &bench.contenders);
    }
    if !beside.is_empty() {
        println!("\nBeside the targets:\n");
        table::print(&beside, &bench.contenders);
    }
}
