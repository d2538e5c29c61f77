//! The requirements of a connection to the database: its own settings, an address that works, and the current password.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use beanstalkd_testkit::panicking::{is_root, wait_until};
use beanstalkd_testkit::postgres::{Cluster, DATABASE, ROLE, installation};
use beanstalkd_testkit::server::{Server, Transport};
use beanstalkd_testkit::tls;
use rustix::process::Signal;

use crate::servers::{Servers, has, mail_queue, ours, put};

/// Settings of an administrator that must have no effect on the server.
const HOSTILE: &[(&str, &str)] = &[
    ("statement_timeout", "'1ms'"),
    ("lock_timeout", "'1ms'"),
    ("idle_in_transaction_session_timeout", "'1ms'"),
    ("idle_session_timeout", "'100ms'"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_deferrable", "on"),
    ("DateStyle", "'SQL, DMY'"),
    ("TimeZone", "'Asia/Kolkata'"),
    ("IntervalStyle", "sql_standard"),
    ("bytea_output", "escape"),
    ("client_encoding", "'SJIS'"),
    ("extra_float_digits", "-15"),
    ("standard_conforming_strings", "off"),
    ("search_path", "evil, pg_catalog"),
    ("row_security", "on"),
    ("work_mem", "'64kB'"),
    ("enable_indexscan", "off"),
    ("enable_indexonlyscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_tidscan", "off"),
    ("enable_seqscan", "on"),
    ("random_page_cost", "1000000"),
    ("jit", "on"),
    ("jit_above_cost", "0"),
    ("jit_optimize_above_cost", "0"),
    ("plan_cache_mode", "force_custom_plan"),
    ("force_parallel_mode", "on"),
    ("parallel_setup_cost", "0"),
    ("vacuum_cost_delay", "'100ms'"),
];

/// Functions that would be called instead of those of the database.
const EVIL: &str = "
    CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC;
    CREATE FUNCTION evil.length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT 0';
    CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz'";

fn be_hostile(cluster: &Cluster, whose: &str) {
    for (name, value) in HOSTILE {
        cluster.psql("postgres", &format!("ALTER {whose} SET {name} = {value}")).unwrap();
    }
}

/// Also settings for which a statement of the server would come too late.
#[test]
fn settings_of_the_role_and_of_the_database_change_nothing() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    servers.use_once(&cluster.url("other"));
    cluster.query(EVIL).unwrap();
    be_hostile(&cluster, &format!("DATABASE {DATABASE}"));
    // The test itself is spared.
    cluster
        .psql("postgres", &format!("ALTER ROLE postgres IN DATABASE {DATABASE} SET statement_timeout = 0"))
        .unwrap();
    be_hostile(&cluster, &format!("ROLE {ROLE}"));
    let scans = || {
        let sql = "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname IN ('log', 'file')";
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'beanstalkd'";
        cluster.wait_for(sessions, "0").unwrap();
        cluster.query(sql).unwrap()
    };
    let before = scans();
    let mut server = servers.serve(&url, &["--allow-async", "-s", "65536"]);
    let mut client = server.connect().unwrap();
    let kept = put(&mut client, "kept");
    for _ in 0..30 {
        let id = put(&mut client, &"x".repeat(30_000));
        client.exchange(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
    }
    // A session that is idle for longer than the role permits stays open.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let last = put(&mut client, "last");
    server.restart(Signal::KILL).unwrap();
    let mut client = server.connect().unwrap();
    assert!(has(&mut client, kept, "kept") && has(&mut client, last, "last"));
    assert_eq!(crate::servers::figure(&mut client, "store-reconnects"), "0");
    server.stop(Signal::TERM).unwrap();
    assert_eq!(scans(), before, "a table was read without its index");
    let (sound, report) = servers.run(&["--check", &url]);
    assert!(sound && report.contains("2 jobs"), "{report}");
    let to = servers.directory().join("copy");
    let (copied, said) = servers.run(&["--copy", &url, to.to_str().unwrap(), "--allow-async"]);
    assert!(copied && said.contains("2 jobs"), "{said}");
}

#[test]
fn a_database_that_is_set_to_be_read_only_is_not_written_to() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    cluster.query(&format!("ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")).unwrap();
    let flags = ["--allow-async", "--store-timeout", "4"];
    let mut refused = servers.launch(&url, &flags);
    assert_eq!(refused.wait().code(), Some(10));
    assert!(refused.log().contains("default_transaction_read_only is on"), "{}", refused.log());
}

/// Rows that a policy hides would be lost jobs.
#[test]
fn rows_that_a_policy_hides_are_an_error() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    servers.use_once(&url);
    cluster
        .query(
            "ALTER TABLE beanstalkd.log ENABLE ROW LEVEL SECURITY;
            ALTER TABLE beanstalkd.log FORCE ROW LEVEL SECURITY;
            CREATE POLICY none ON beanstalkd.log USING (false)",
        )
        .unwrap();
    let (sound, said) = servers.run(&["--check", &url]);
    assert!(!sound && said.contains("row-level security"), "{said}");
}

/// A listener that answers each log-in with this refusal.
fn refuse_log_ins(listener: TcpListener, code: &'static str, message: &'static str) {
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 4];
            if stream.read_exact(&mut length).is_ok() {
                let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
                // A client that goes away is refused as well.
                let _ = stream.read_exact(&mut rest);
                let body = format!("SFATAL\0C{code}\0M{message}\0\0");
                let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
                let _ = stream.write_all(&[b"E", &length[..], body.as_bytes()].concat());
            }
        }
    });
}

#[test]
fn a_pooler_is_refused_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    refuse_log_ins(listener, "08P01", "unsupported startup parameter: statement_timeout");
    let servers = Servers::new();
    let url = format!("postgresql://{ROLE}@{address}/{DATABASE}?queue=mail");
    let mut refused = servers.launch(&url, &["--allow-async"]);
    assert_eq!(refused.wait().code(), Some(10));
    let log = refused.log();
    assert!(log.contains("unsupported startup parameter: statement_timeout"), "{log}");
    assert!(log.contains("must be that of PostgreSQL itself"), "{log}");
}

#[test]
fn a_password_that_was_replaced_is_used_by_the_next_connection() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let server = servers.serve(&url, &["--allow-async"]);
    let mut client = server.connect().unwrap();
    put(&mut client, "before");
    cluster.query(&format!("ALTER ROLE {ROLE} PASSWORD 'the next one'")).unwrap();
    fs::write(servers.password_file(), "the next one\n").unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'beanstalkd'";
    cluster.query(end).unwrap();
    let id = put(&mut client, "after");
    // A removed file does no harm to a server that has read it.
    fs::remove_file(servers.password_file()).unwrap();
    cluster
        .query(&format!("ALTER ROLE {ROLE} PASSWORD '{}'", beanstalkd_testkit::postgres::PASSWORD))
        .unwrap();
    cluster.query(end).unwrap();
    assert_eq!(put(&mut client, "later"), id + 1);
}

/// The first of its addresses accepts no log-ins.
#[test]
fn all_addresses_of_a_name_are_tried() {
    // Only root can give a name two addresses.
    let Some(installation) = installation().filter(|_| is_root()) else { return };
    // The resolver puts the address of this machine's own connections first.
    let cluster = Cluster::start_with(&installation, "listen_addresses = '127.0.0.2'\n").unwrap();
    let (port, servers) = (cluster.address().port(), Servers::new());
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    refuse_log_ins(listener, "28000", "no pg_hba.conf entry for this host");
    let hosts = servers.directory().join("hosts");
    fs::write(&hosts, "127.0.0.1 database\n127.0.0.2 database\n").unwrap();
    let mount = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
    let wrapper = ["unshare", "--mount", "sh", "-c", &mount, "sh"].map(OsString::from);
    let url = format!("postgresql://{ROLE}@database:{port}/{DATABASE}?queue=mail&sslmode=disable");
    let flags = ["-b", &url, "--allow-async", "--takeover-after", "1", "--store-password-file"];
    let flags: Vec<String> =
        flags.iter().map(|&flag| flag.to_owned()).chain([servers.password_file()]).collect();
    let server = Server::start_wrapped(&wrapper, ours(), Transport::Unix, &flags).unwrap();
    put(&mut server.connect().unwrap(), "job");
}

#[test]
fn the_words_of_libpq_for_tls_mean_what_they_mean_there() {
    let Some((mut cluster, plain, servers)) = mail_queue() else { return };
    let check = |url: &str| servers.run(&["--check", url]).1;
    let said = check(&format!("{plain}&sslmode=require"));
    assert!(said.contains("does not offer TLS") && said.contains("sslmode=disable"), "{said}");
    // The certificate has another name.
    cluster.require_tls(&tls::authority().issue(tls::Leaf::of("elsewhere"))).unwrap();
    let plain = plain.replace("127.0.0.1", "localhost");
    let [roots, others] = ["roots.pem", "others.pem"].map(|name| servers.directory().join(name));
    fs::write(&roots, tls::authority().pem()).unwrap();
    fs::write(&others, tls::Authority::new("another").pem()).unwrap();
    let none = "no binlog here";
    assert!(check(&format!("{plain}&sslmode=require")).contains(none));
    let with = |mode: &str, roots: &std::path::Path| {
        check(&format!("{plain}&sslmode={mode}&sslrootcert={}", roots.display()))
    };
    assert!(with("verify-ca", &roots).contains(none) && with("require", &roots).contains(none));
    assert!(with("verify-full", &roots).contains("invalid peer certificate"));
    for mode in ["require", "verify-ca", "verify-full"] {
        let said = with(mode, &others);
        assert!(said.contains("invalid peer certificate"), "{mode}: {said}");
    }
    let server = servers.launch(&format!("{plain}&sslmode=require"), &["--allow-async"]);
    put(&mut server.connect(), "encrypted");
    assert!(server.log().contains("can pose as it"), "{}", server.log());
}

#[test]
fn a_database_that_cannot_be_reached_is_reported_with_its_address_and_the_reason() {
    let servers = Servers::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("postgresql://{ROLE}@{address}/{DATABASE}?queue=mail");
    let (done, said) = servers.run(&["--check", &url]);
    let expected = format!("cannot connect to the database at {address}: connection refused");
    assert!(!done && said.contains(&expected) && said.contains("listen_addresses"), "{said}");
    // An address that never answers takes no longer than the connection string allows.
    let silent = TcpListener::bind(address).unwrap();
    let mut child =
        Command::new(ours()).args(["--check", &format!("{url}&connect_timeout=1")]).spawn().unwrap();
    wait_until("the check has ended", || child.try_wait().unwrap().is_some());
    drop(silent);
}
