//! Producers and a worker as tasks: `cargo run --features tokio --example tokio -- 127.0.0.1:11300 mail`.

use std::error::Error;
use std::sync::Arc;

use beanstalk_client::asynchronous::Pool;
use beanstalk_client::{Connector, Handled, PutOptions, Report, TubeName, Worker, WorkerJob};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, tube] = arguments.as_slice() else { return Err("usage: tokio ADDRESS TUBE".into()) };
    println!("{:?}", run(address, tube).await?);
    Ok(())
}

pub(crate) async fn run(address: &str, tube: &str) -> Result<Report, Box<dyn Error>> {
    let tube: TubeName = tube.parse()?;
    let pool = Pool::new(Connector::new(), address.parse()?, 4);
    let puts: Vec<_> = (0..10)
        .map(|number| {
            let (pool, tube) = (pool.clone(), tube.clone());
            tokio::spawn(async move {
                let body = number.to_string();
                pool.get().await?.put_in(&tube, body.as_bytes(), &PutOptions::new()).await
            })
        })
        .collect();
    for put in puts {
        put.await??;
    }
    let worker = Worker::new(Connector::new(), address.parse()?).watch(tube).slots(4).until_empty();
    let report = worker.run_async(|job: Arc<WorkerJob>| async move {
        println!("{}", String::from_utf8_lossy(&job.body));
        Handled::Done
    });
    Ok(report.await?)
}
