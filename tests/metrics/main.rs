//! Metrics, health and the page of a server that runs, over HTTP; each test has a server of its own.

mod prometheus;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long an answer may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    process: Child,
    directory: tempfile::TempDir,
    /// `HOST:PORT` of the metrics.
    metrics: String,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_beanstalkd"));
        command.arg("-l").arg(format!("unix:{}", directory.path().join("socket").display()));
        command.args(["--metrics", "127.0.0.1:0"]).args(options).env_remove("RUST_LOG");
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut address_after = |what: &str| loop {
            let line = log.next().expect("the server says where it listens").unwrap();
            if let Some((_, address)) = line.split_once(what) {
                break address.to_owned();
            }
        };
        // In the order in which it opens them.
        let metrics = address_after("serving metrics on ");
        address_after("listening on ");
        // The log is read on, so that the server never waits for us.
        std::thread::spawn(move || log.for_each(drop));
        let server = Self { process, directory, metrics };
        // Whoever is answered by the loop knows that it has taken over from the start.
        assert_eq!(server.client().ask("list-tube-used\r\n"), "USING default\r\n");
        server
    }

    fn client(&self) -> Client {
        let stream = UnixStream::connect(self.directory.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.metrics).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The status line and the body that HTTP/1.0 brings, whose end is that of the connection.
    fn get(&self, path: &str) -> (String, String) {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.lines().next().unwrap().strip_prefix("HTTP/1.1 ").unwrap();
        (status.to_owned(), body.to_owned())
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([name, id.as_str()]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client of the protocol.
struct Client(BufReader<UnixStream>);

impl Client {
    fn send(&mut self, commands: &str) {
        self.0.get_mut().write_all(commands.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn ask(&mut self, commands: &str) -> String {
        self.send(commands);
        self.line()
    }

    /// The dictionary that a command answers with.
    fn stats(&mut self, command: &str) -> BTreeMap<String, String> {
        let head = self.ask(command);
        let length: usize = head.strip_prefix("OK ").expect("stats").trim_end().parse().unwrap();
        let mut body = vec![0; length + 2];
        self.0.read_exact(&mut body).unwrap();
        let text = String::from_utf8(body).unwrap();
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

/// A server on which every kind of thing has happened.
fn eventful_server(options: &[&str]) -> Server {
    let server = Server::start(options);
    let mut client = server.client();
    for _ in 0..6 {
        client.ask("put 5 0 60 1\r\nx\r\n");
    }
    client.ask("put 5 100 60 1\r\nx\r\n");
    for commands in ["reserve\r\n", "reserve-job 2\r\n", "reserve\r\n"] {
        client.ask(commands);
        client.line();
    }
    for commands in
        ["delete 1\r\n", "release 2 5 0\r\n", "bury 3 5\r\n", "kick-job 3\r\n", "pause-tube default 9\r\n"]
    {
        assert!(!client.ask(commands).contains("NOT_FOUND"), "{commands}");
    }
    client.ask("nonsense\r\n");
    client.ask(&format!("put 0 0 1 70000\r\n{}\r\n", "x".repeat(70000)));
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
    let stats = client.stats("stats\r\n");
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
        assert_ne!(stats[key], "0", "{key} is told apart from others");
    }
    let info = samples.keys().find(|series| series.starts_with("beanstalkd_info{")).unwrap();
    for key in ["version", "hostname", "os", "platform", "id"] {
        assert!(info.contains(&format!("{key}=\"{}\"", stats[key].trim_matches('"'))), "{key}: {info}");
    }
}

#[test]
fn every_number_of_stats_tube_has_a_series_with_its_value() {
    let server = eventful_server(&[]);
    let mut client = server.client();
    let stats = client.stats("stats-tube default\r\n");
    let families = prometheus::parse(&server.get("/metrics").1);
    let of_tubes = families.iter().filter(|family| family.name.starts_with("beanstalkd_tube_"));
    // The time that is left of the pause goes on between the two.
    let still = of_tubes.filter(|family| family.name != "beanstalkd_tube_pause_time_left_seconds");
    let mut values: Vec<u64> = still
        .map(|family| match family.samples.as_slice() {
            [(series, value)] if series.ends_with("{tube=\"default\"}") => *value as u64,
            other => panic!("one tube, one sample: {other:?}"),
        })
        .collect();
    let still = stats.iter().filter(|(key, _)| *key != "pause-time-left");
    let mut numbers: Vec<u64> = still.filter_map(|(_, value)| value.parse().ok()).collect();
    values.sort_unstable();
    numbers.sort_unstable();
    assert_eq!(values, numbers);
}

#[test]
fn promtool_accepts_the_metrics() {
    let Ok(mut promtool) = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn()
    else {
        eprintln!("skipped: there is no promtool");
        return;
    };
    let server = eventful_server(&[]);
    promtool.stdin.take().unwrap().write_all(server.get("/metrics").1.as_bytes()).unwrap();
    assert!(promtool.wait().unwrap().success());
}

#[test]
fn commands_and_turns_are_counted_by_their_time() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for _ in 0..10 {
        assert_eq!(client.ask("use default\r\n"), "USING default\r\n");
    }
    let families = prometheus::parse(&server.get("/metrics").1);
    let count = |name: &str| {
        let sample = families.iter().flat_map(|family| &family.samples).find(|sample| sample.0 == name);
        sample.unwrap_or_else(|| panic!("no {name}")).1
    };
    // One more was asked when the server started.
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
        assert_eq!(client.ask("put 0 0 60 1\r\nx\r\n"), format!("INSERTED {number}\r\n"));
    }
    let text = server.get("/metrics").1;
    let families = prometheus::parse(&text);
    let samples: BTreeMap<_, _> = families.iter().flat_map(|family| &family.samples).cloned().collect();
    assert_eq!(samples["beanstalkd_binlog_state{state=\"ok\"}"], 1.0);
    // Each put was acknowledged once it was synced.
    assert!(samples["beanstalkd_binlog_sync_seconds_count"] >= 3.0);
    assert_eq!(samples["beanstalkd_binlog_sync_seconds_count"], samples["beanstalkd_binlog_syncs_total"]);
    assert!(samples["beanstalkd_binlog_bytes"] > 0.0);
    assert!(!text.contains("See stats."));
}

#[test]
fn readiness_falls_while_draining() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/readyz").0, "200 OK");
    server.signal("-USR1");
    // The signal is obeyed in a turn to come.
    while server.get("/readyz").0 != "503 Service Unavailable" {}
    assert_eq!(server.get("/healthz").0, "200 OK");
    server.signal("-USR2");
    while server.get("/readyz").0 != "200 OK" {}
}

#[test]
fn twenty_thousand_tubes_are_scraped_while_clients_are_served() {
    const TUBES: usize = 20_000;
    let server = Server::start(&["--metrics-tubes", "100000"]);
    let mut client = server.client();
    for first in (0..TUBES).step_by(1000) {
        let commands: String = (first..first + 1000).map(|n| format!("watch tube-{n}\r\n")).collect();
        client.send(&commands);
        for _ in 0..1000 {
            assert!(client.line().starts_with("WATCHING "));
        }
    }
    // One that asks and does not read keeps nobody else from anything.
    let mut lazy = server.connect();
    lazy.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let scrape = std::thread::scope(|scope| {
        let scrape = scope.spawn(|| server.get("/metrics").1);
        while !scrape.is_finished() {
            assert_eq!(client.ask("use default\r\n"), "USING default\r\n");
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
fn a_crowd_at_the_metrics_turns_out_the_stillest() {
    let server = Server::start(&[]);
    let mut crowd: Vec<TcpStream> = Vec::new();
    for _ in 0..40 {
        let mut stream = server.connect();
        stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).expect("a newcomer is served");
        assert_eq!(&reply, b"HTTP/1.1 200");
        crowd.push(stream);
    }
    let mut rest = Vec::new();
    crowd[0].read_to_end(&mut rest).expect("the first of them was closed");
}

#[test]
fn metrics_are_served_on_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", directory.path().join("metrics").display());
    // The later option counts, and then the log names this address.
    let server = Server::start(&["--metrics", &address]);
    assert_eq!(server.metrics, address);
    let mut stream = UnixStream::connect(directory.path().join("metrics")).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nok\n"));
}

/// The page's script runs, so its policy lets it, and it understands the figures.
#[test]
fn a_browser_shows_the_tubes() {
    let is_there = |name: &&str| {
        let mut version = Command::new(name);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    let Some(chromium) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there) else {
        eprintln!("skipped: there is no Chromium");
        return;
    };
    let server = eventful_server(&[]);
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Command::new(chromium);
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    browser.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    browser.args(["--virtual-time-budget=5000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    let page = browser.arg(format!("http://{}/", server.metrics)).stderr(Stdio::null()).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("<td title=\"default\">default</td>"), "{page}");
    assert!(page.contains(">serving</b>"));
}
