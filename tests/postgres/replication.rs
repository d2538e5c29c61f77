//! Commits that would not survive the loss of a database machine.

use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::postgres::{Cluster, Pair, Stop, installation, url};
use beanstalkd_testkit::server::free_address;
use rustix::process::Signal;

use crate::servers::{Servers, has, mail_queue, put};

#[test]
fn a_database_that_does_not_replicate_is_refused() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    for (settings, reason) in [
        (("synchronous_commit", "on"), "synchronous_standby_names is empty"),
        (("synchronous_commit", "off"), "synchronous_commit is off"),
        (("synchronous_commit", "local"), "synchronous_commit is local"),
    ] {
        cluster.set(settings.0, settings.1).unwrap();
        let mut server = servers.launch(&url, &[]);
        assert_eq!(server.wait().code(), Some(10));
        let log = server.log();
        assert!(log.contains(reason) && log.contains("--allow-async"), "{log}");
    }
}

#[test]
fn a_database_without_its_standby_is_refused_and_acknowledges_no_commit() {
    let Some(installation) = installation() else { return };
    let mut pair = Pair::start(&installation).unwrap();
    let (url, servers) = (pair.primary.url("mail"), Servers::new());
    let mut server = servers.serve(&url, &[]);
    let mut client = server.connect().unwrap();
    let first = put(&mut client, "replicated");
    // The operator turns synchronous replication off: the server acknowledges nothing any more, and loses nothing.
    pair.primary.require_standbys("").unwrap();
    client.send(b"put 0 0 100 4\r\nlate\r\n").unwrap();
    assert!(!client.has_reply_within(std::time::Duration::from_millis(1500)).unwrap());
    pair.primary.require_standbys("*").unwrap();
    client.expect(format!("INSERTED {}\r\n", first + 1).as_bytes()).unwrap();
    assert!(server.stop(Signal::TERM).unwrap().success());
    pair.standby.stop(beanstalkd_testkit::postgres::Stop::Fast).unwrap();
    pair.primary.wait_for("SELECT count(*) FROM pg_stat_replication", "0").unwrap();
    let mut alone = servers.launch(&url, &[]);
    assert_eq!(alone.wait().code(), Some(10));
    assert!(alone.log().contains("no synchronous standby is attached"), "{}", alone.log());
}

#[test]
fn commits_wait_for_the_standby_although_the_setting_changes_or_a_wait_is_cancelled() {
    let Some(installation) = installation() else { return };
    let mut pair = Pair::start(&installation).unwrap();
    for setting in ["on", "remote_apply"] {
        pair.primary.set("synchronous_commit", setting).unwrap();
        let servers = Servers::new();
        let server = servers.serve(&pair.primary.url(setting), &[]);
        let mut client = server.connect().unwrap();
        let first = put(&mut client, "replicated");
        pair.primary.set("synchronous_commit", "off").unwrap();
        pair.standby.stop(beanstalkd_testkit::postgres::Stop::Kill).unwrap();
        client.send(b"put 0 0 100 4\r\nlate\r\n").unwrap();
        let moment = std::time::Duration::from_secs(1);
        assert!(!client.has_reply_within(moment).unwrap(), "{setting}: a commit that no standby has");
        let waits = "FROM pg_stat_activity WHERE application_name = 'beanstalkd' AND wait_event = 'SyncRep'";
        pair.primary.wait_for(&format!("SELECT count(*) {waits}"), "1").unwrap();
        // The database then says that the commit is done, and warns that no standby may have it.
        pair.primary.query(&format!("SELECT pg_cancel_backend(pid) {waits}")).unwrap();
        assert!(!client.has_reply_within(moment).unwrap(), "{setting}: a commit whose wait was cancelled");
        wait_until("the log says so", || {
            server.stderr().contains("canceling wait for synchronous replication")
        });
        pair.primary.set("synchronous_commit", setting).unwrap();
        pair.standby.launch().unwrap();
        client.expect(format!("INSERTED {}\r\n", first + 1).as_bytes()).unwrap();
    }
}

#[test]
fn acknowledged_jobs_survive_the_loss_of_the_primary() {
    let Some(installation) = installation() else { return };
    let mut pair = Pair::start(&installation).unwrap();
    let (url, servers) = (pair.url("mail"), Servers::new());
    let server = servers.serve(&url, &[]);
    let mut client = server.connect().unwrap();
    let first = put(&mut client, "before");
    pair.lose_primary().unwrap();
    client.send(b"put 0 0 100 5\r\nlater\r\n").unwrap();
    pair.replace_standby().unwrap();
    client.expect(format!("INSERTED {}\r\n", first + 1).as_bytes()).unwrap();
    assert!(has(&mut client, first, "before"));
    let (sound, report) = servers.run(&["--check", &url]);
    assert!(sound && report.contains("2 jobs"), "{report}");
    assert!(server.stderr().contains("reached again; epoch"), "{}", server.stderr());
}

#[test]
fn without_the_database_commands_wait_and_are_refused_in_the_end() {
    let Some((mut cluster, url, servers)) = mail_queue() else { return };
    // No server can take over before it ends, so it may reply with the reason.
    let flags = ["--allow-async", "--takeover-after", "60", "--store-timeout", "24"];
    let mut server = servers.launch(&url, &flags);
    let mut client = server.connect();
    put(&mut client, "before");
    cluster.restart(beanstalkd_testkit::postgres::Stop::Kill).unwrap();
    put(&mut client, "after a restart");
    cluster.stop(beanstalkd_testkit::postgres::Stop::Fast).unwrap();
    client.exchange(b"put 0 0 100 3\r\nend\r\n", b"INTERNAL_ERROR\r\n").unwrap();
    assert_eq!(server.wait().code(), Some(1));
    assert!(server.log().contains("--store-timeout"), "{}", server.log());
}

#[test]
fn a_server_that_has_seen_a_higher_epoch_uses_no_older_copy_of_the_database() {
    let Some(installation) = installation() else { return };
    // A standby takes over from an owner that is late.
    Pace::watch_disk(&std::env::temp_dir()).unwrap().judge_panics(|| {
        let mut old = Cluster::start(&installation).unwrap();
        let servers = Servers::new();
        servers.use_once(&old.url("mail"));
        let new = old.standby_at(free_address().unwrap(), old.address()).unwrap();
        let position = old.query("SELECT pg_current_wal_lsn()").unwrap();
        new.wait_for(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'"), "t").unwrap();
        old.stop(Stop::Fast).unwrap();
        new.promote().unwrap();
        let url = url(&[old.address(), new.address()], "mail");
        let flags = ["--allow-async", "--wait-for-lock"];
        let owner = servers.launch(&url, &flags);
        let mut client = owner.connect();
        let id = put(&mut client, "in the new one");
        let standby = servers.launch(&url, &flags);
        standby.wait_for("waiting for it");
        // The old one is back and accepts writes. It comes first in the address.
        old.launch().unwrap();
        let end =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'beanstalkd'";
        new.query(end).unwrap();
        assert_eq!(put(&mut client, "again"), id + 1);
        drop(owner);
        assert!(has(&mut standby.connect(), id + 1, "again"));
        assert_eq!(old.query("SELECT epoch FROM beanstalkd.queue").unwrap(), "1");
        drop(new);
        let mut client = standby.connect();
        client.send(b"put 0 0 100 4\r\nlate\r\n").unwrap();
        standby.wait_for("it is an old copy, with epoch 1 of the queue");
    });
}

#[test]
fn a_setting_that_any_standby_fulfils_gives_a_warning() {
    let Some(installation) = installation() else { return };
    let pair = Pair::start(&installation).unwrap();
    let (url, servers) = (pair.primary.url("mail"), Servers::new());
    let server = servers.serve(&url, &[]);
    put(&mut server.connect().unwrap(), "job");
    let warning = "synchronous_standby_names is *: any standby counts";
    assert_eq!(server.stderr().matches(warning).count(), 1, "{}", server.stderr());
    let name = pair.primary.query("SELECT application_name FROM pg_stat_replication").unwrap();
    pair.primary.require_standbys(&format!("FIRST 1 ({name})")).unwrap();
    let server = servers.serve(&pair.primary.url("other"), &[]);
    assert!(!server.stderr().contains("any standby counts"), "{}", server.stderr());
}
