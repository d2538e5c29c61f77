//! Puts the lines of standard input into a tube, many at a time:
//! `cargo run --example producer -- 127.0.0.1:11300 mail`. It connects again when the server restarts, and reports the
//! lines that were not put, and the lines that may have been put or not.

use std::error::Error;
use std::io::{self, BufRead};

use beanstalk_client::{Connector, PutOptions, Reconnect, Request, TubeName};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, tube] = arguments.as_slice() else { return Err("usage: producer ADDRESS TUBE".into()) };
    println!("{} jobs", produce(address, tube, io::stdin().lock())?);
    Ok(())
}

/// Returns the number of jobs.
pub(crate) fn produce(address: &str, tube: &str, input: impl BufRead) -> Result<usize, Box<dyn Error>> {
    let mut client = Connector::new().reconnect(Reconnect::new()).connect(&address.parse()?)?;
    client.use_tube(&tube.parse::<TubeName>()?)?;
    let lines: Vec<String> = input.lines().collect::<Result<_, _>>()?;
    let options = PutOptions::new();
    let puts = lines.iter().map(|line| Request::Put(&options, line.as_bytes()));
    let mut failed = 0;
    client.send_all(puts, |position, result| {
        if let Err(error) = result {
            failed += 1;
            eprintln!("line {}: {error}", position + 1);
        }
    })?;
    match failed {
        0 => Ok(lines.len()),
        failed => Err(format!("{failed} of {} lines were not put, or may not have been", lines.len()).into()),
    }
}
