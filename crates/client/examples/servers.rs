//! Spreads jobs over several servers by their keys, and works for all of them:
//! `cargo run --example servers -- mail 127.0.0.1:11300 127.0.0.1:11301`. Each line of standard input is a key and a
//! text. All jobs of a key go to the same server, in whatever order the servers are named.

use std::error::Error;
use std::io::{self, BufRead};

use beanstalk_client::{Connector, Pool, PutOptions, Report, Servers, TubeName, Worker};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tube, addresses @ ..] = arguments.as_slice() else {
        return Err("usage: servers TUBE ADDRESS…".into());
    };
    produce(tube, addresses, io::stdin().lock())?;
    println!("{:?}", work(tube, addresses)?);
    Ok(())
}

pub(crate) fn produce(tube: &str, addresses: &[String], input: impl BufRead) -> Result<(), Box<dyn Error>> {
    let tube: TubeName = tube.parse()?;
    let mut servers = Servers::new();
    for address in addresses {
        // The names decide: a server that moves to another address must keep its name.
        servers = servers.add(address, Pool::new(Connector::new(), address.parse()?, 4));
    }
    for line in input.lines() {
        let line = line?;
        let (key, text) = line.split_once(' ').ok_or("a line without a text")?;
        let (name, pool) = servers.server_for(key.as_bytes()).ok_or("there is no server")?;
        let job = pool.get()?.put_in(&tube, text.as_bytes(), &PutOptions::new())?;
        println!("{key}: job {} of {name}", job.id);
    }
    Ok(())
}

/// One worker takes the jobs of all servers.
pub(crate) fn work(tube: &str, addresses: &[String]) -> Result<Report, Box<dyn Error>> {
    let [first, others @ ..] = addresses else { return Err("there is no server".into()) };
    let mut worker = Worker::new(Connector::new(), first.parse()?).watch(tube.parse()?).until_empty();
    for address in others {
        worker = worker.server(address.parse()?);
    }
    Ok(worker.run(|job| println!("{}", String::from_utf8_lossy(&job.body)))?)
}
