//! No free descriptor: clients and connections of HTTP leave the binlog its own.

use std::os::unix::net::UnixStream;

use beanstalkd_binlog::MAX_DESCRIPTORS;
use beanstalkd_testkit::has_tool;
use beanstalkd_testkit::panicking::{Server, wait_until};

/// Connections of HTTP come after the clients have taken all descriptors that they may have.
#[test]
fn the_binlog_finds_a_descriptor_although_all_connections_of_http_are_open() {
    if !has_tool("prlimit") {
        return;
    }
    // 16 connections for each of the two addresses.
    const HTTP: usize = 32;
    const LIMIT: usize = 40 + HTTP;
    let directory = tempfile::tempdir().unwrap();
    let sites = ["metrics", "admin"].map(|site| directory.path().join(site));
    let [metrics, admin] = sites.each_ref().map(|path| format!("unix:{}", path.display()));
    let binlog = directory.path().join("binlog");
    std::fs::create_dir(&binlog).unwrap();
    let flags = ["-b", binlog.to_str().unwrap(), "-s", "8192", "--metrics", &metrics, "--admin", &admin];
    let server = Server::start_in(&["prlimit", &format!("--nofile={LIMIT}:{LIMIT}")], &flags);
    let mut crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();
    assert_eq!(crowd[0].ask("use x"), "USING x");
    let kept_back = 2 + MAX_DESCRIPTORS;
    wait_until("the server pauses accepting", || server.usage().descriptors() >= LIMIT - kept_back - HTTP);
    let open = |path| (0..HTTP / 2).map(|_| UnixStream::connect(path).unwrap()).collect::<Vec<_>>();
    let _connections = sites.each_ref().map(open);
    wait_until("HTTP has its descriptors", || server.usage().descriptors() >= LIMIT - kept_back);
    // The jobs fill many files, and each of them is acknowledged.
    for _ in 0..200 {
        crowd[0].put(0, 60, &[b'x'; 1_000]);
    }
    assert!(crowd[0].stat("binlog-current-index") > 10);
    // Without the descriptors, the binlog would wait until connections of HTTP time out.
    assert!(!server.log().contains("Too many open files"), "{}", server.log());
}
