//! Puts the lines of standard input into a tube, many at a time:
//! `cargo run --example producer -- 127.0.0.1:11300 mail`. It connects again when the server restarts, and reports the
//! lines that may or may not have been put.

use std::error::Error;
use std::io;

use beanstalk_client::{Connector, PutOptions, Reconnect, Request, TubeName};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, tube] = arguments.as_slice() else { return Err("usage: producer ADDRESS TUBE".into()) };
    let mut client = Connector::new().reconnect(Reconnect::new()).connect(&address.parse()?)?;
    client.use_tube(&tube.parse::<TubeName>()?)?;
    let lines: Vec<String> = io::stdin().lines().collect::<Result<_, _>>()?;
    let options = PutOptions::new();
    let puts = lines.iter().map(|line| Request::Put(&options, line.as_bytes()));
    client.send_all(puts, |position, result| {
        if let Err(error) = result {
            eprintln!("line {}: {error}", position + 1);
        }
    })?;
    println!("{} jobs", lines.len());
    Ok(())
}
