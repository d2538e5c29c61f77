//! Every method of beanstalkc against the server at $BEANSTALKD_PORT.

use std::time::Duration;

use beanstalkc::Beanstalkc;

const NOW: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3600);

fn main() {
    let port = std::env::var("BEANSTALKD_PORT").unwrap().parse().unwrap();
    let mut client = Beanstalkc::new()
        .host("127.0.0.1")
        .port(port)
        .connection_timeout(Some(Duration::from_secs(10)))
        .connect()
        .unwrap();
    tubes(&mut client);
    by_id(&mut client);
    by_job(&mut client);
    stats(&mut client);
    let mut client = client.reconnect().unwrap();
    assert_eq!(client.using().unwrap(), "default");
    println!("clients: beanstalkc's methods: good");
}

fn tubes(client: &mut Beanstalkc) {
    assert_eq!(client.using().unwrap(), "default");
    assert_eq!(client.use_tube("work").unwrap(), "work");
    assert_eq!(client.watch("work").unwrap(), 2);
    assert_eq!(client.ignore("default").unwrap(), 1);
    assert!(client.ignore("work").is_err());
    assert_eq!(client.watching().unwrap(), ["work"]);
    assert_eq!(client.tubes().unwrap(), ["default", "work"]);
}

fn by_id(client: &mut Beanstalkc) {
    let id = client.put(b"first", 10, NOW, HOUR).unwrap();
    assert_eq!(client.peek(id).unwrap().body(), b"first");
    assert_eq!(client.peek_ready().unwrap().id(), id);
    assert_eq!(client.reserve().unwrap().id(), id);
    client.touch(id).unwrap();
    client.release(id, 20, NOW).unwrap();
    assert_eq!(client.reserve_with_timeout(NOW).unwrap().id(), id);
    client.release_default(id).unwrap();
    assert_eq!(client.reserve().unwrap().id(), id);
    client.bury(id, 7).unwrap();
    let stats = client.stats_job(id).unwrap();
    assert_eq!((stats["state"].as_str(), stats["pri"].as_str()), ("buried", "7"));
    client.kick_job(id).unwrap();
    assert_eq!(client.reserve().unwrap().id(), id);
    client.bury_default(id).unwrap();
    assert_eq!(client.peek_buried().unwrap().id(), id);
    assert_eq!(client.kick(10).unwrap(), 1);
    client.delete(id).unwrap();
    assert!(client.delete(id).is_err() && client.peek(id).is_err());
    assert!(client.reserve_with_timeout(NOW).is_err());
}

fn by_job(client: &mut Beanstalkc) {
    let id = client.put_default(b"second").unwrap();
    let mut job = client.reserve().unwrap();
    assert!(job.reserved() && job.id() == id && job.body() == b"second");
    job.touch().unwrap();
    assert_eq!(job.stats().unwrap()["tube"], "work");
    job.release_default().unwrap();
    let mut job = client.reserve().unwrap();
    job.bury(7).unwrap();
    job.kick().unwrap();
    let mut job = client.reserve().unwrap();
    job.bury_default().unwrap();
    job.kick().unwrap();
    let mut job = client.reserve().unwrap();
    job.release(7, HOUR).unwrap();
    let mut job = client.peek_delayed().unwrap();
    assert_eq!(job.id(), id);
    job.delete().unwrap();
}

fn stats(client: &mut Beanstalkc) {
    client.pause_tube("work", HOUR).unwrap();
    let tube = client.stats_tube("work").unwrap();
    assert_eq!((tube["name"].as_str(), tube["pause"].as_str()), ("work", "3600"));
    client.pause_tube("work", NOW).unwrap();
    assert!(client.stats_tube("none").is_err());
    let server = client.stats().unwrap();
    assert_eq!((server["total-jobs"].as_str(), server["draining"].as_str()), ("2", "false"));
}
