//! Measures this server side by side with a stateless floor and with other servers: `make bench`.
//!
//! Owns: the command line and the order of the rows. The figures are the server's own cost (processor time, system
//! calls, resident bytes), because elapsed time varies more; doc/performance.md says how each row is obtained. Exits
//! with 0 if every row was measured, whether or not it reached its target.

mod client;
mod failure;
mod floor;
mod load;
mod machine;
mod rows;
mod runner;
mod server;
mod table;
mod wire;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::machine::Cores;
use crate::runner::Bench;
use crate::server::{Contender, Role};
use crate::table::{Row, Target};

/// The server to compare with if the command line names none: the one in Debian's package.
const USUAL_PEER: &str = "/usr/bin/beanstalkd";

const USAGE: &str = "\
use: bench [--peer PATH]... [--ours PATH] [--rows WORD,..]... [--quick]
     bench floor PORT BODY-BYTES [CERTIFICATE KEY]";

fn main() -> ExitCode {
    let flags = flags();
    match parse(&flags).map(run) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error}\n{}", flags.usage(USAGE));
            ExitCode::FAILURE
        }
    }
}

/// The options of the command line.
enum Task {
    /// Run as the floor, on this port, with bodies of this length, and with TLS if there are a certificate and its key.
    Floor(u16, usize, Option<(PathBuf, PathBuf)>),
    Measure(Choice),
}

/// The rows to measure.
struct Choice {
    /// Servers to compare with; empty for the usual one.
    peers: Vec<PathBuf>,
    /// The server under test, if not the one just built.
    ours: Option<PathBuf>,
    /// A section is measured if its name contains one of these words; empty for all sections.
    words: Vec<String>,
    quick: bool,
}

fn flags() -> getopts::Options {
    let mut flags = getopts::Options::new();
    flags.optmulti("", "peer", "another server to compare with (default: Debian's, if installed)", "PATH");
    flags.optopt("", "ours", "the server under test (default: the one just built)", "PATH");
    flags.optmulti("", "rows", "only sections whose name contains one of these words", "WORD,..");
    flags.optflag("", "quick", "short rounds, small backlogs");
    flags.optflagmulti("", "bench", "ignored; cargo passes it");
    flags
}

fn parse(flags: &getopts::Options) -> Result<Task, String> {
    let line = flags.parse(env::args_os().skip(1)).map_err(|error| error.to_string())?;
    match line.free.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(Task::Measure(Choice {
            peers: line.opt_strs("peer").into_iter().map(PathBuf::from).collect(),
            ours: line.opt_str("ours").map(PathBuf::from),
            words: line.opt_strs("rows").join(",").split_terminator(',').map(str::to_owned).collect(),
            quick: line.opt_present("quick"),
        })),
        ["floor", port, body_bytes, ref files @ ..] => {
            let number = |error: std::num::ParseIntError| format!("floor: {error}");
            let files = match files {
                [] => None,
                [certificate, key] => Some((certificate.into(), key.into())),
                _ => return Err("floor: a certificate, and a key".to_owned()),
            };
            Ok(Task::Floor(port.parse().map_err(number)?, body_bytes.parse().map_err(number)?, files))
        }
        _ => Err("unknown arguments".to_owned()),
    }
}

/// Returns whether every requested row was measured.
fn run(task: Task) -> io::Result<bool> {
    let choice = match task {
        Task::Floor(port, body_bytes, files) => {
            let tls = files.map(|(certificate, key)| floor::tls_settings(&certificate, &key)).transpose()?;
            return floor::serve(port, body_bytes, tls.as_ref()).map(|()| true);
        }
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
        println!("The server and the load generator share one core: latencies and throughput mean nothing.");
    }
    let (further, table): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| matches!(row.target, Target::None));
    if !table.is_empty() {
        println!();
        table::print(&table, &bench.contenders);
    }
    if !further.is_empty() {
        println!("\nFurther rows, without a target:\n");
        table::print(&further, &bench.contenders);
    }
}
