//! Works on a tube until it is empty: `cargo run --example worker -- 127.0.0.1:11300 mail`. A job that is not a number
//! fails; after three attempts it is buried.

use std::error::Error;
use std::num::ParseIntError;

use beanstalk_client::{Connector, Event, Retry, Worker};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, tube] = arguments.as_slice() else { return Err("usage: worker ADDRESS TUBE".into()) };
    let worker = Worker::new(Connector::new(), address.parse()?)
        .watch(tube.parse()?)
        .slots(4)
        .retry(Retry::new().max_attempts(3))
        .until_empty()
        .on_event(|event| match event {
            Event::Ended { delivery, outcome, settled, .. } => {
                println!("job {}, attempt {}: {outcome:?}, {settled:?}", delivery.id, delivery.attempt);
            }
            Event::Disconnected(error) => eprintln!("{error}"),
            _ => {}
        });
    let report = worker.run(|job| {
        let text = String::from_utf8_lossy(&job.body);
        let number: u64 = text.trim().parse()?;
        println!("{number} * 2 = {}", number * 2);
        Ok::<(), ParseIntError>(())
    })?;
    println!("{report:?}");
    Ok(())
}
