//! Metrics, health checks and the page of a running server, over HTTP. Each test has a separate server.

mod prometheus;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use beanstalkd_testkit::PATIENCE;
use beanstalkd_testkit::http;
use beanstalkd_testkit::panicking::{self, Client, wait_for_some, wait_until};
use beanstalkd_testkit::server::free_address;
use beanstalkd_testkit::{has_tool, is_installed, skip};
use rustix::process::Signal;

/// A server with metrics.
struct Server {
    server: panicking::Server,
    /// The address of the metrics.
    metrics: SocketAddr,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let metrics = free_address().unwrap();
        let address = metrics.to_string();
        let server = panicking::Server::start(&[&["--metrics", &address], options].concat());
        Self { server, metrics }
    }

    fn client(&self) -> Client {
        self.server.connect()
    }

    fn connect(&self) -> TcpStream {
        connect(self.metrics)
    }

    /// The status and the body of the reply to an HTTP/1.0 request for `path`.
    fn get(&self, path: &str) -> (String, String) {
        get(self.connect(), path)
    }
}

fn connect(metrics: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(metrics).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The status and the body.
fn get(stream: impl Read + Write, path: &str) -> (String, String) {
    let (head, body) = http::get(stream, path).unwrap();
    (head.lines().next().unwrap().strip_prefix("HTTP/1.1 ").unwrap().to_owned(), body)
}

/// A server on which each counter has counted something.
fn eventful_server(options: &[&str]) -> Server {
    let server = Server::start(options);
    let mut client = server.client();
    for _ in 0..6 {
        client.ask("put 5 0 60 1\r\nx");
    }
    client.ask("put 5 100 60 1\r\nx");
    for line in ["reserve", "reserve-job 2", "reserve"] {
        client.reserve(line);
    }
    for line in ["delete 1", "release 2 5 0", "bury 3 5", "kick-job 3", "pause-tube default 9"] {
        assert_ne!(client.ask(line), "NOT_FOUND", "{line}");
    }
    client.ask("nonsense");
    client.ask(&format!("put 0 0 1 70000\r\n{}", "x".repeat(70000)));
    server
}

#[test]
fn every_key_of_stats_has_a_series_with_its_value() {
    let server = eventful_server(&[]);
    let mut client = server.client();
    let (status, text) = server.get("/metrics");
    assert_eq!(status, "200 OK");
    let families = prometheus::parse(&text);
    let samples: BTreeMap<_, _> = families.iter().flat_map(|family| &family.samples).cloned().collect();
    let stats = client.data("stats");
    for (key, value) in &stats {
        if let Some(command) = key.strip_prefix("cmd-").filter(|command| *command != "stats") {
            let series = format!("beanstalkd_commands_total{{command=\"{command}\"}}");
            assert_eq!(samples[&series].to_string(), *value, "{key}");
        }
    }
    for (key, series) in [
        ("current-jobs-ready", "beanstalkd_current_jobs_ready"),
        ("current-jobs-urgent", "beanstalkd_current_jobs_urgent"),
        ("current-jobs-delayed", "beanstalkd_current_jobs_delayed"),
        ("total-jobs", "beanstalkd_jobs_total"),
        ("max-job-size", "beanstalkd_max_job_size_bytes"),
        ("pid", "beanstalkd_pid"),
        ("job-kicks", "beanstalkd_job_kicks_total"),
        ("malformed-commands", "beanstalkd_malformed_commands_total"),
        ("rejected-puts", "beanstalkd_rejected_puts_total"),
    ] {
        assert_eq!(samples[series].to_string(), stats[key], "{key}");
        assert_ne!(stats[key], "0", "{key} is not 0, so that the test can tell it from other keys");
    }
    let info = samples.keys().find(|series| series.starts_with("beanstalkd_info{")).unwrap();
    for key in ["version", "hostname", "os", "platform", "id"] {
        assert!(info.contains(&format!("{key}=\"{}\"", stats[key])), "{key}: {info}");
    }
}

#[test]
fn every_number_of_stats_tube_has_a_series_with_its_value() {
    let server = eventful_server(&[]);
    let mut client = server.client();
    // Times pass between two requests.
    let (stats, text) = wait_for_some(
        || "the same stats twice".to_owned(),
        || {
            let stats = client.data("stats-tube default");
            let text = server.get("/metrics").1;
            (client.data("stats-tube default") == stats).then_some((stats, text))
        },
    );
    let families = prometheus::parse(&text);
    let of_tubes = families.iter().filter(|family| family.name.starts_with("beanstalkd_tube_"));
    let mut values: Vec<u64> = of_tubes
        .filter(|family| family.kind != "histogram")
        .map(|family| match family.samples.as_slice() {
            [(series, value)] if series.ends_with("{tube=\"default\"}") => *value as u64,
            other => panic!("expected one sample for the one tube: {other:?}"),
        })
        .collect();
    // Waiting and running times are histograms, and no series has an id.
    let others = ["oldest-ready-id", "wait-time-count", "run-time-count"];
    let numbers = stats.iter().filter(|(key, _)| !others.contains(&key.as_str()));
    let mut numbers: Vec<u64> = numbers.filter_map(|(_, value)| value.parse().ok()).collect();
    values.sort_unstable();
    numbers.sort_unstable();
    assert_eq!(values, numbers);
}

#[test]
fn waiting_and_running_times_are_histograms_of_the_tubes_that_have_any() {
    let server = eventful_server(&["--metrics-tubes", "100000"]);
    let mut client = server.client();
    let stats = client.data("stats-tube default");
    // Enough tubes that the histograms take several slices.
    for number in 0..3000 {
        assert_eq!(client.ask(&format!("use tube-{number}")), format!("USING tube-{number}"));
        let id = client.put(0, 60, b"x");
        if number % 2 == 0 {
            client.send(format!("reserve-job {id}\r\ndelete {id}\r\n"));
            assert!(
                client.line().starts_with("RESERVED ") && client.line() == "x" && client.line() == "DELETED"
            );
            client.put(0, 60, b"x");
        }
    }
    let families = prometheus::parse(&server.get("/metrics").1);
    let samples: BTreeMap<_, _> = families.iter().flat_map(|family| &family.samples).cloned().collect();
    for kind in ["wait", "run"] {
        let count = samples[&format!("beanstalkd_tube_{kind}_seconds_count{{tube=\"default\"}}")];
        assert_eq!(count.to_string(), stats[&format!("{kind}-time-count")]);
        assert!(count > 0.0);
        let of_tubes = samples
            .keys()
            .filter(|series| series.starts_with(&format!("beanstalkd_tube_{kind}_seconds_count")));
        assert_eq!(of_tubes.count(), 1501, "a tube without reservations has no histogram");
    }
}

#[test]
fn promtool_accepts_the_metrics() {
    if !has_tool("promtool") {
        return;
    }
    let mut promtool =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn().unwrap();
    let server = eventful_server(&[]);
    promtool.stdin.take().unwrap().write_all(server.get("/metrics").1.as_bytes()).unwrap();
    assert!(promtool.wait().unwrap().success());
}

#[test]
fn promtool_accepts_the_alert_rules_and_their_tests() {
    if !has_tool("promtool") {
        return;
    }
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/monitoring");
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn each_alert_has_a_test() {
    let rules = include_str!("../../packaging/monitoring/alerts.yml");
    let tests = include_str!("../../packaging/monitoring/alerts_test.yml");
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let untested = alerts.filter(|name| !tests.contains(&format!("alertname: {name}\n")));
    assert_eq!(untested.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn commands_and_turns_are_counted_by_their_time() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for _ in 0..10 {
        assert_eq!(client.ask("use default"), "USING default");
    }
    let families = prometheus::parse(&server.get("/metrics").1);
    let count = |name: &str| {
        let sample = families.iter().flat_map(|family| &family.samples).find(|sample| sample.0 == name);
        sample.unwrap_or_else(|| panic!("no {name}")).1
    };
    // The start of the server sent one more.
    assert_eq!(count("beanstalkd_command_seconds_count"), 11.0);
    assert!(count("beanstalkd_command_seconds_sum") > 0.0);
    assert!(count("beanstalkd_turn_seconds_count") >= 10.0);
    assert_eq!(count("beanstalkd_binlog_sync_seconds_count"), 0.0);
}

#[test]
fn a_binlog_shows_its_state_and_the_time_of_its_syncs() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&["-b", directory.path().to_str().unwrap(), "-f0"]);
    let mut client = server.client();
    for number in 1..=3 {
        assert_eq!(client.put(0, 60, b"x"), number);
    }
    let text = server.get("/metrics").1;
    let families = prometheus::parse(&text);
    let samples: BTreeMap<_, _> = families.iter().flat_map(|family| &family.samples).cloned().collect();
    assert_eq!(samples["beanstalkd_binlog_state{state=\"ok\"}"], 1.0);
    // Each put was acknowledged after its sync.
    assert!(samples["beanstalkd_binlog_sync_seconds_count"] >= 3.0);
    assert_eq!(samples["beanstalkd_binlog_sync_seconds_count"], samples["beanstalkd_binlog_syncs_total"]);
    assert!(samples["beanstalkd_binlog_bytes"] > 0.0);
    assert!(!text.contains("See stats."));
}

#[test]
fn readiness_falls_while_draining() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/readyz").0, "200 OK");
    server.server.signal(Signal::USR1);
    // The server obeys the signal in a later turn.
    wait_until("the server drains", || server.get("/readyz").0 == "503 Service Unavailable");
    assert_eq!(server.get("/healthz").0, "200 OK");
    server.server.signal(Signal::USR2);
    wait_until("the server takes jobs again", || server.get("/readyz").0 == "200 OK");
}

#[test]
fn twenty_thousand_tubes_are_scraped_while_clients_are_served() {
    const TUBES: usize = 20_000;
    let server = Server::start(&["--metrics-tubes", "100000"]);
    let mut client = server.client();
    for first in (0..TUBES).step_by(1000) {
        let commands: String = (first..first + 1000).map(|n| format!("watch tube-{n}\r\n")).collect();
        client.send(commands);
        for _ in 0..1000 {
            assert!(client.line().starts_with("WATCHING "));
        }
    }
    // A client that asks for metrics and does not read them must not stop the others.
    let mut lazy = server.connect();
    lazy.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let scrape = std::thread::scope(|scope| {
        let metrics = server.metrics;
        let scrape = scope.spawn(move || get(connect(metrics), "/metrics").1);
        while !scrape.is_finished() {
            assert_eq!(client.ask("use default"), "USING default");
        }
        scrape.join().unwrap()
    });
    let families = prometheus::parse(&scrape);
    let tubes = families.iter().find(|family| family.name == "beanstalkd_tube_current_watching").unwrap();
    assert_eq!(tubes.samples.len(), TUBES + 1);
    let mut first = [0; 12];
    lazy.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
}

#[test]
fn too_many_http_connections_close_the_one_that_has_been_idle_longest() {
    let server = Server::start(&[]);
    let mut crowd: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        let mut stream = server.connect();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).expect("a new connection is served");
        assert_eq!(&reply, b"HTTP/1.1 200");
        crowd.push(stream);
    }
    let mut rest = Vec::new();
    crowd[0].read_to_end(&mut rest).expect("the oldest connection was closed");
}

#[test]
fn metrics_are_served_on_a_unix_socket() {
    let server = panicking::Server::start(&["--metrics", "unix:{dir}/metrics"]);
    let stream = UnixStream::connect(server.directory().join("metrics")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(get(stream, "/healthz"), ("200 OK".to_owned(), "ok\n".to_owned()));
}

/// The page's script runs, so the content policy permits it, and it reads the figures.
#[test]
fn a_browser_shows_the_tubes() {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let Some(chromium) = names.into_iter().find(|name| is_installed(name)) else {
        return skip("there is no Chromium");
    };
    let server = eventful_server(&[]);
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Command::new(chromium);
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    browser.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    browser.args(["--virtual-time-budget=5000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    browser.arg(format!("http://{}/", server.metrics)).stderr(Stdio::null());
    // It shows the page as it is after five seconds of its own clock.
    wait_until("the page has the figures", || {
        let page = String::from_utf8(browser.output().unwrap().stdout).unwrap();
        page.contains("<td title=\"default\">default</td>") && page.contains(">serving</b>")
    });
}
