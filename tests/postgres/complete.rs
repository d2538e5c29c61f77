//! Chains of `complete`s whose log is in a database: nothing is done by half, whoever dies.

use std::fs;
use std::time::Duration;

use beanstalkd_testkit::chains::{Chain, go_on_until};
use beanstalkd_testkit::client::Client;
use beanstalkd_testkit::postgres::{Pair, installation};
use rustix::process::Signal;

use crate::servers::{Servers, mail_queue};

/// Servers, one after the other.
const SERVERS: u64 = 5;
/// How long each of them serves.
const LIFE: Duration = Duration::from_secs(1);

/// Two chains, one of them with a session.
fn begin(client: &mut Client) -> Vec<Chain> {
    ["plain", "held"].map(|name| Chain::begin(client, name, name == "held").unwrap()).into()
}

fn check(chains: &mut [Chain], client: &mut Client) {
    chains.iter_mut().for_each(|chain| chain.check(client).unwrap());
}

/// Every second owner is not killed: it is paused until the next one has the queue, and then resumed.
#[test]
fn a_chain_of_completes_neither_breaks_nor_forks_when_owners_die_or_stand_still() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let mut owner = servers.launch(&url, &["--allow-async"]);
    let mut chains = begin(&mut owner.connect());
    for number in 1..=SERVERS {
        // Without a standby, the owner keeps the queue whatever it does.
        let clients = chains.iter().map(|_| owner.connect()).collect();
        let standby = servers.launch(&url, &["--allow-async", "--wait-for-lock"]);
        standby.wait_for("waiting for it");
        go_on_until(&mut chains, clients, || {
            std::thread::sleep(LIFE);
            if number % 2 == 0 {
                owner.signal(Signal::STOP);
                drop(standby.connect());
                owner.signal(Signal::CONT);
            } else {
                owner.signal(Signal::KILL);
            }
        });
        owner.wait();
        owner = standby;
        check(&mut chains, &mut owner.connect());
    }
    assert!(chains.iter().all(|chain| chain.length() > 0));
}

#[test]
fn a_chain_of_completes_survives_the_loss_of_the_primary() {
    let Some(installation) = installation() else { return };
    let mut pair = Pair::start(&installation).unwrap();
    let (url, servers) = (pair.url("mail"), Servers::new());
    let mut server = servers.serve(&url, &[]);
    let mut chains = begin(&mut server.connect().unwrap());
    let clients = chains.iter().map(|_| server.connect().unwrap()).collect();
    go_on_until(&mut chains, clients, || {
        std::thread::sleep(LIFE);
        pair.lose_primary().unwrap();
        pair.replace_standby().unwrap();
        std::thread::sleep(LIFE);
        server.restart(Signal::KILL).unwrap();
    });
    check(&mut chains, &mut server.connect().unwrap());
}

#[test]
fn a_copy_has_all_of_each_complete() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let [first, last] = ["first", "last"].map(|name| servers.directory().join(name));
    fs::create_dir(&first).unwrap();
    let [first, last] = [&first, &last].map(|path| path.to_str().unwrap());
    let mut server = servers.serve_directory(first);
    let mut chains = begin(&mut server.connect().unwrap());
    let clients = chains.iter().map(|_| server.connect().unwrap()).collect();
    go_on_until(&mut chains, clients, || {
        std::thread::sleep(LIFE);
        server.stop(Signal::KILL).unwrap();
    });
    let copy = |from: &str, to: &str| {
        let (copied, said) = servers.run(&["--copy", from, to, "--allow-async"]);
        assert!(copied, "{said}");
    };
    copy(first, &url);
    let mut server = servers.serve(&url, &["--allow-async"]);
    check(&mut chains, &mut server.connect().unwrap());
    server.stop(Signal::TERM).unwrap();
    copy(&url, last);
    check(&mut chains, &mut servers.serve_directory(last).connect().unwrap());
}
