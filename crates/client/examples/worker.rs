//! Works on a tube until it is empty: `cargo run --example worker -- 127.0.0.1:11300 mail`. A job that is not a number
//! fails; after three attempts it is buried. It is tried again at once: a worker with `until_empty` does not wait for
//! delayed jobs.

use std::error::Error;
use std::num::ParseIntError;
use std::time::Duration;

use beanstalk_client::{Connector, Event, Report, Retry, Worker};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, tube] = arguments.as_slice() else { return Err("usage: worker ADDRESS TUBE".into()) };
    println!("{:?}", work(address, tube)?);
    Ok(())
}

pub(crate) fn work(address: &str, tube: &str) -> Result<Report, Box<dyn Error>> {
    let worker = Worker::new(Connector::new(), address.parse()?)
        .watch(tube.parse()?)
        .slots(4)
        .retry(Retry::new().max_attempts(3).delays(Duration::ZERO, Duration::ZERO))
        .until_empty()
        .on_event(|event| match event {
            Event::Ended { job, handled, settled, .. } => {
                println!("job {}, attempt {}: {handled:?}, {settled:?}", job.id, job.attempt);
            }
            Event::Disconnected { error, .. } => eprintln!("{error}"),
            _ => {}
        });
    let report = worker.run(|job| {
        let text = String::from_utf8_lossy(&job.body);
        let number: u64 = text.trim().parse()?;
        println!("{number} * 2 = {}", number * 2);
        Ok::<(), ParseIntError>(())
    })?;
    Ok(report)
}
