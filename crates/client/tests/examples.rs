//! The programs in `examples/`, each of which runs twice on a server that is in use already.

use std::collections::BTreeMap;

use beanstalk_client::{Client, JobState, PutOptions, TubeName};
use beanstalkd_testkit::installed::{self, Installed};

#[allow(dead_code, reason = "the test calls what its main calls")]
#[path = "../examples/producer.rs"]
mod producer;
#[allow(dead_code, reason = "the test calls what its main calls")]
#[path = "../examples/servers.rs"]
mod servers;
#[allow(dead_code, reason = "the test calls what its main calls")]
#[path = "../examples/tokio.rs"]
mod tasks;
#[allow(dead_code, reason = "the test calls what its main calls")]
#[path = "../examples/worker.rs"]
mod worker;

/// A client of a server that has jobs in other tubes.
fn used(server: &Installed) -> Client {
    let mut client = Client::connect(&server.address().parse().unwrap()).unwrap();
    client.put(b"somebody else's", &PutOptions::new().pri(0)).unwrap();
    client
}

fn bodies(client: &mut Client, state: JobState) -> Vec<String> {
    let mut found = Vec::new();
    while let Ok(job) = client.peek_next(state) {
        client.delete(job.id).unwrap();
        found.push(String::from_utf8(job.body).unwrap());
    }
    found
}

#[test]
fn the_producer_puts_every_line_or_says_which_it_has_not() {
    for server in installed::servers(&[]) {
        let mut client = used(&server);
        client.use_tube(&"mail".parse().unwrap()).unwrap();
        for _ in 0..2 {
            let count = producer::produce(&server.address(), "mail", &b"ann\nbob\n"[..]).unwrap();
            assert_eq!((count, bodies(&mut client, JobState::Ready)), (2, vec!["ann".into(), "bob".into()]));
        }
        let large = format!("ann\n{}\nbob\n", "x".repeat(70_000));
        let error = producer::produce(&server.address(), "mail", large.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("1 of 3 lines"), "{error}");
        assert_eq!(bodies(&mut client, JobState::Ready), ["ann", "bob"]);
        if client.extensions().unwrap().has("drain") {
            client.drain().unwrap();
            let error = producer::produce(&server.address(), "mail", &b"ann\n"[..]).unwrap_err();
            assert!(error.to_string().starts_with("1 of 1 lines"), "{error}");
        }
    }
}

#[test]
fn the_worker_does_what_is_a_number_and_buries_what_is_not() {
    for server in installed::servers(&[]) {
        let mut client = used(&server);
        client.use_tube(&"mail".parse().unwrap()).unwrap();
        for _ in 0..2 {
            for body in [&b"21"[..], b"no number"] {
                client.put(body, &PutOptions::new()).unwrap();
            }
            let report = worker::work(&server.address(), "mail").unwrap();
            assert_eq!((report.deleted, report.released, report.buried), (1, 2, 1), "{report:?}");
            assert_eq!(bodies(&mut client, JobState::Buried), ["no number"]);
        }
    }
}

#[test]
fn producers_and_a_worker_run_as_tasks() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for server in installed::servers(&[]) {
        let _client = used(&server);
        for _ in 0..2 {
            assert_eq!(runtime.block_on(tasks::run(&server.address(), "mail")).unwrap().deleted, 10);
        }
    }
}

#[test]
fn each_key_has_one_of_the_servers_and_the_worker_does_the_jobs_of_all() {
    let servers = [(); 3].map(|()| installed::ours(&[]));
    let servers: Vec<Installed> = servers.into_iter().flatten().collect();
    if servers.is_empty() {
        return;
    }
    let mut clients: Vec<Client> = servers.iter().map(used).collect();
    let mut addresses: Vec<String> = servers.iter().map(Installed::address).collect();
    let keys: Vec<String> = (0..30).map(|number| format!("customer-{number}")).collect();
    let lines: String = keys.iter().map(|key| format!("{key} {key}\n")).collect();
    let tube: TubeName = "mail".parse().unwrap();
    let mut homes = BTreeMap::new();
    for _ in 0..2 {
        servers::produce("mail", &addresses, lines.as_bytes()).unwrap();
        // In another order, the servers have the same keys.
        addresses.reverse();
        for (number, client) in clients.iter_mut().enumerate() {
            client.use_tube(&tube).unwrap();
            let found = bodies(client, JobState::Ready);
            assert!(!found.is_empty() && found.len() < keys.len(), "the keys are spread");
            for key in found {
                assert_eq!(*homes.entry(key).or_insert(number), number);
            }
        }
        assert_eq!(homes.len(), keys.len());
        servers::produce("mail", &addresses, lines.as_bytes()).unwrap();
        assert_eq!(servers::work("mail", &addresses).unwrap().deleted, keys.len() as u64);
    }
}
