//! `--copy`: a queue comes from C, moves into a database and goes back; a copy is complete or does not exist.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use beanstalkd_testkit::client::Client;
use beanstalkd_testkit::debian_server;
use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::panicking::is_root;
use beanstalkd_testkit::postgres::Cluster;
use beanstalkd_testkit::server::{Server, Transport};
use beanstalkd_testkit::system::SmallDisk;
use rustix::process::Signal;

use crate::servers::{Servers, has, mail_queue, ours, put};

#[test]
fn a_log_is_copied_whole_into_a_database_and_back() {
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let flags = ["--allow-async"];
    let root = servers.directory().to_owned();
    let (first, last) = (root.join("first"), root.join("last"));
    fs::create_dir(&first).unwrap();
    let directory = first.to_str().unwrap();
    let mut ids = Vec::new();
    let mut server = servers.serve_directory(directory);
    let mut client = server.connect().unwrap();
    for number in 0..50 {
        ids.push(put(&mut client, &format!("job {number} {}", "x".repeat(number * 500))));
    }
    client.exchange(b"delete 7\r\n", b"DELETED\r\n").unwrap();
    let (copied, said) = servers.run(&["--copy", directory, &url, "--allow-async"]);
    assert!(!copied && said.contains("is locked by"), "a server uses it: {said}");
    server.stop(Signal::TERM).unwrap();
    let (_, before) = servers.run(&["--dump", directory]);
    let (copied, said) = servers.run(&["--copy", directory, &url, "--allow-async"]);
    assert!(copied && said.contains("49 jobs"), "{said}");
    assert_eq!(servers.run(&["--dump", &url]).1, before);
    let (copied, said) = servers.run(&["--copy", directory, &url, "--allow-async"]);
    assert!(!copied && said.contains("has a log already"), "{said}");
    let mut server = servers.serve(&url, &flags);
    let mut client = server.connect().unwrap();
    assert!(has(&mut client, ids[49], "job 49") && put(&mut client, "more") > ids[49]);
    server.stop(Signal::TERM).unwrap();
    let (_, before) = servers.run(&["--dump", &url]);
    let target = last.to_str().unwrap();
    let (copied, said) = servers.run(&["--copy", &url, target, "--allow-async"]);
    assert!(copied && said.contains("50 jobs"), "{said}");
    assert_eq!(servers.run(&["--dump", target]).1, before);
    let (copied, said) = servers.run(&["--copy", &url, target, "--allow-async"]);
    assert!(!copied && said.contains("expected a directory that is empty"), "{said}");
    assert!(has(&mut servers.serve_directory(target).connect().unwrap(), ids[49], "job 49"));
}

#[test]
fn a_copy_that_is_broken_off_leaves_no_log() {
    let Some((cluster, url, servers)) = mail_queue() else { return };
    let directory = servers.directory().join("log");
    fs::create_dir(&directory).unwrap();
    let directory = directory.to_str().unwrap();
    let mut server = servers.serve_directory(directory);
    put(&mut server.connect().unwrap(), "job");
    server.stop(Signal::TERM).unwrap();
    // The tables exist, but a row cannot be added to the log.
    servers.use_once(&cluster.url("other"));
    cluster
        .query(
            "CREATE FUNCTION beanstalkd.refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no'; END $$;
            CREATE TRIGGER refuse BEFORE INSERT ON beanstalkd.log FOR EACH ROW EXECUTE FUNCTION beanstalkd.refuse()",
        )
        .unwrap();
    let (copied, said) = servers.run(&["--copy", directory, &url, "--allow-async"]);
    assert!(!copied && said.contains("nothing was copied"), "{said}");
    let (found, said) = servers.run(&["--check", &url]);
    assert!(!found && said.contains("no binlog here"), "{said}");
    cluster.query("DROP TRIGGER refuse ON beanstalkd.log").unwrap();
    let (copied, said) = servers.run(&["--copy", directory, &url, "--allow-async", "--takeover-after", "1"]);
    assert!(copied, "{said}");
}

/// The state, priority and tube that `stats-job` names.
fn seen(client: &mut Client, id: u64) -> String {
    let pairs = client.pairs(&format!("stats-job {id}")).unwrap();
    ["state", "pri", "tube"].map(|key| pairs.get(key).map_or("-", String::as_str)).join(" ")
}

fn serve_by_c(program: &Path, directory: &Path) -> Server {
    let flags = ["-f0", "-s", "1048576", "-b", directory.to_str().unwrap()].map(str::to_owned);
    Server::start(program, Transport::Unix, &flags).unwrap()
}

#[test]
fn a_queue_comes_from_c_moves_into_a_database_and_goes_back_to_c() {
    let Some(c) = debian_server() else { return };
    let Some((_cluster, url, servers)) = mail_queue() else { return };
    let (first, last) = (servers.directory().join("first"), servers.directory().join("last"));
    fs::create_dir(&first).unwrap();
    let mut server = serve_by_c(&c, &first);
    let mut client = server.connect().unwrap();
    let ready = put(&mut client, "ready");
    client.exchange(b"use mail\r\n", b"USING mail\r\n").unwrap();
    client.exchange(b"put 7 3600 60 7\r\ndelayed\r\n", b"INSERTED 2\r\n").unwrap();
    client.exchange(b"watch mail\r\n", b"WATCHING 2\r\n").unwrap();
    let large = "x".repeat(60_000);
    let buried = put(&mut client, &large);
    client.ask(format!("reserve-job {buried}\r\n").as_bytes()).unwrap();
    client.exchange(format!("bury {buried} 9\r\n").as_bytes(), b"BURIED\r\n").unwrap();
    let gone = put(&mut client, "gone");
    client.exchange(format!("delete {gone}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
    let expected = ["ready 0 default", "delayed 7 mail", "buried 9 mail"];
    let states = |client: &mut Client| [ready, 2, buried].map(|id| seen(client, id));
    assert_eq!(states(&mut client), expected);
    server.stop(Signal::KILL).unwrap();

    let (copied, said) = servers.run(&["--copy", first.to_str().unwrap(), &url, "--allow-async"]);
    assert!(copied && said.contains("3 jobs"), "{said}");
    let mut server = servers.serve(&url, &["--allow-async"]);
    let mut client = server.connect().unwrap();
    assert_eq!(states(&mut client), expected);
    assert!(has(&mut client, ready, "ready") && has(&mut client, buried, &large));
    assert!(!has(&mut client, gone, "gone"));
    let added = put(&mut client, "added");
    client.exchange(format!("delete {ready}\r\n").as_bytes(), b"DELETED\r\n").unwrap();
    let back = ["--copy", &url, last.to_str().unwrap(), "--allow-async"];
    let (copied, said) = servers.run(&back);
    assert!(!copied && said.contains("the queue belongs to"), "a server uses it: {said}");
    assert!(!last.exists());
    server.stop(Signal::TERM).unwrap();

    let (copied, said) = servers.run(&back);
    assert!(copied && said.contains("3 jobs"), "{said}");
    let server = serve_by_c(&c, &last);
    let mut client = server.connect().unwrap();
    assert_eq!([2, buried].map(|id| seen(&mut client, id)), expected[1..]);
    assert!(has(&mut client, buried, &large) && has(&mut client, added, "added"));
    assert!(!has(&mut client, ready, "ready") && !has(&mut client, gone, "gone"));
}

/// A directory with two files, the second of which is the larger one.
fn two_files(servers: &Servers) -> PathBuf {
    let directory = servers.directory().join("from");
    fs::create_dir(&directory).unwrap();
    let flags = ["-s", "65536", "-z", "1m"];
    let mut server = servers.serve_directory_with(directory.to_str().unwrap(), &flags);
    let mut client = server.connect().unwrap();
    put(&mut client, "small");
    put(&mut client, &"x".repeat(400_000));
    server.stop(Signal::TERM).unwrap();
    directory
}

/// Runs a copy of two files, and kills it when it writes to the second one.
const KILLED_AT_A_WRITE: &str = "exec strace -o /dev/null -e inject=pwrite64:signal=KILL:when=2 \"$@\"";

#[test]
fn a_copy_that_dies_or_finds_no_room_makes_no_directory() {
    let servers = Servers::new();
    let (from, to) = (two_files(&servers), servers.directory().join("to"));
    let killed = has_tool("strace").then_some((KILLED_AT_A_WRITE, None));
    for (shell, code) in killed.into_iter().chain([("ulimit -f 200; exec \"$@\"", Some(10))]) {
        let mut command = Command::new("sh");
        command.args(["-c", shell, "sh"]).arg(ours()).arg("--copy").args([&from, &to]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{}: {said}", output.status);
        assert!(
            code.is_none() || said.contains("File too large") && said.contains("nothing was copied"),
            "{said}"
        );
        assert!(!to.exists());
        assert_eq!(remains(servers.directory()), Vec::<String>::new());
    }
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    assert!(servers.run(&["--copy", from, to]).0);
    assert_eq!(servers.run(&["--dump", to]).1, servers.run(&["--dump", from]).1);
}

#[test]
fn an_empty_directory_keeps_its_owner_and_mode_and_a_link_is_refused() {
    let servers = Servers::new();
    let (from, to) = (two_files(&servers), servers.directory().join("to"));
    let copy_to = |to: &Path| servers.run(&["--copy", from.to_str().unwrap(), to.to_str().unwrap()]);
    fs::create_dir(&to).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o750)).unwrap();
    if is_root() {
        chown(&to, Some(12), Some(34)).unwrap();
    }
    let owner = |path: &Path| fs::metadata(path).map(|found| (found.uid(), found.gid())).unwrap();
    let before = owner(&to);
    let link = servers.directory().join("link");
    symlink(&to, &link).unwrap();
    for link in [link.clone(), link.join("")] {
        let (copied, said) = copy_to(&link);
        assert!(!copied && said.contains("it is a link"), "{said}");
    }
    assert!(copy_to(&to).0);
    assert_eq!((owner(&to), fs::metadata(&to).unwrap().mode() & 0o777), (before, 0o750));
    assert_eq!(owner(&to.join("binlog.1")), before);
    if let Some(disk) = SmallDisk::mount(1 << 20) {
        let (copied, said) = copy_to(disk.path());
        assert!(!copied && said.contains("it is a mount point"), "{said}");
    }
}

/// The remains of copies in `directory`.
fn remains(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name());
    let mut left: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    left.retain(|name| name.contains(".copy-"));
    left.sort();
    left
}

/// Without enough descriptors, or where the file system has no files without names, the directory has a name of its
/// own.
#[test]
fn the_next_copy_removes_what_one_that_was_killed_has_left_and_nothing_else() {
    if !has_tool("strace") {
        return;
    }
    let servers = Servers::new();
    let (from, to) = (two_files(&servers), servers.directory().join("to"));
    let beside = |name: &str| servers.directory().join(name);
    for (directory, file) in [("to.copy-12", "binlog.1"), ("to.copy-13", "letter"), ("to.copy-x", "binlog.1")]
    {
        fs::create_dir(beside(directory)).unwrap();
        fs::write(beside(directory).join(file), "").unwrap();
    }
    let shell = format!("ulimit -n 20; {KILLED_AT_A_WRITE}");
    let mut command = Command::new("sh");
    let output =
        command.args(["-c", &shell, "sh"]).arg(ours()).arg("--copy").args([&from, &to]).output().unwrap();
    assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(remains(servers.directory()).len(), 3, "its own, and the two that are none");
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    assert!(servers.run(&["--copy", from, to]).0);
    assert_eq!(remains(servers.directory()), ["to.copy-13", "to.copy-x"]);
    assert_eq!(servers.run(&["--dump", to]).1, servers.run(&["--dump", from]).1);
    let files = fs::read_dir(to).unwrap().flatten().map(|entry| entry.file_name());
    let strange = files.filter(|name| !name.to_string_lossy().starts_with("binlog.") && name != "lock");
    assert_eq!(strange.count(), 0);
}

/// Lets a copy into `url` begin, and kills it in the middle.
fn kill_a_copy(cluster: &Cluster, servers: &Servers, from: &str, url: &str) {
    let trigger = "CREATE FUNCTION beanstalkd.wait() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
        CREATE TRIGGER wait BEFORE INSERT ON beanstalkd.log FOR EACH ROW WHEN (NEW.start > 100000)
        EXECUTE FUNCTION beanstalkd.wait()";
    cluster.query(trigger).unwrap();
    let mut copy = Command::new(ours())
        .args(["--copy", from, url, "--allow-async", "--store-password-file", &servers.password_file()])
        .spawn()
        .unwrap();
    let sleeps = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    cluster.wait_for(&format!("SELECT count(*) {sleeps}"), "1").unwrap();
    copy.kill().unwrap();
    copy.wait().unwrap();
    cluster.query(&format!("SELECT pg_terminate_backend(pid) {sleeps}")).unwrap();
    cluster.query("DROP TRIGGER wait ON beanstalkd.log; DROP FUNCTION beanstalkd.wait").unwrap();
}

#[test]
fn a_copy_that_is_killed_leaves_no_job_in_the_database() {
    let Some((cluster, _, servers)) = mail_queue() else { return };
    let from = two_files(&servers);
    let from = from.to_str().unwrap();
    servers.use_once(&cluster.url("other"));
    let [first, second] = ["first", "second"].map(|queue| cluster.url(queue));
    for url in [&first, &second] {
        kill_a_copy(&cluster, &servers, from, url);
        let left =
            "SELECT count(*) FROM beanstalkd.log JOIN beanstalkd.queue ON queue = id WHERE name <> 'other'";
        assert_eq!(cluster.query(left).unwrap(), "0", "the database has rows of a copy that was killed");
        let (found, said) = servers.run(&["--check", url]);
        assert!(!found && said.contains("no binlog here"), "{said}");
    }
    let server = servers.serve(&first, &["--allow-async"]);
    assert_eq!(crate::servers::figure(&mut server.connect().unwrap(), "current-jobs-ready"), "0");
    let (copied, said) = servers.run(&["--copy", from, &second, "--allow-async", "--takeover-after", "1"]);
    assert!(copied, "{said}");
    assert_eq!(servers.run(&["--dump", &second]).1, servers.run(&["--dump", from]).1);
}
