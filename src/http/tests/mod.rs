//! Exchanges over bytes, with the figures of a queue without a server.

mod admin;
mod walks;

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::binlog;
use crate::clock::Timestamp;
use crate::job::{Body, Priority};
use crate::os::CpuTime;
use crate::protocol::Verb;
use crate::queue::{ClientId, NewJob, Queue};
use crate::stats::{CommandCounts, ServerInfo, Timings, TubeSums, extensions};

/// The parts of a server from which the figures are read.
struct FigureSources {
    info: ServerInfo,
    queue: Queue,
    commands: CommandCounts,
    timings: Timings,
    history: SampleHistory,
    tasks: Tasks,
    site: Site,
    draining: bool,
}

impl Default for FigureSources {
    fn default() -> Self {
        let cpu_time =
            || CpuTime { user: Duration::from_micros(1_500_000), system: Duration::from_micros(250_000) };
        let mut commands = CommandCounts::default();
        (0..7).for_each(|_| commands.add(Verb::Put));
        Self {
            info: ServerInfo {
                version: "2.0".to_owned(),
                instance: ServerInfo::instance_of(7),
                pid: 4711,
                hostname: "Queue.Example".to_owned(),
                os: "a \"b\"\\\n".to_owned(),
                platform: "x86_64".to_owned(),
                started_at: Timestamp(0),
                cpu_time,
            },
            queue: Queue::default(),
            commands,
            timings: Timings::default(),
            history: SampleHistory::default(),
            tasks: Tasks::default(),
            site: Site::Metrics(1000),
            draining: false,
        }
    }
}

impl FigureSources {
    /// Puts a job into the tube that the client uses.
    fn put(&mut self, client: ClientId) {
        let id = self.queue.allocate_id();
        let job = NewJob { id, priority: Priority(0), delay_s: 0.into(), ttr_s: 1.into() };
        self.queue.put(client, job, Body::copy_of(b"").unwrap(), Timestamp(1));
    }

    fn sources(&self) -> Sources<'_> {
        Sources {
            server: ServerView {
                tls: None,
                info: &self.info,
                queue: &self.queue,
                sums: TubeSums::of(&self.queue),
                identities: None,
                extensions: extensions(false),
                binlog: binlog::Stats {
                    sync_us: 2_500_001,
                    state: binlog::LogState::Ok,
                    ..binlog::Stats::default()
                },
                commands: &self.commands,
                timings: &self.timings,
                is_draining: self.draining,
                max_job_bytes: 65_535,
                binlog_file_bytes: 0,
                buffer_bytes: 0,
                connections: 0,
                refused_connections: 0,
                malformed: 0,
                refused_puts: 0,
                now: Timestamp(0),
            },
            usage: |_| Usage::default(),
            history: &self.history,
            address: HttpAddress::Tcp(Some("metrics.example")),
            site: &self.site,
            tasks: &self.tasks,
            clients: &|_, _| None,
        }
    }
}

/// Works and sends until there is nothing left to do.
fn drive(exchange: &mut HttpExchange, phase: ServerPhase<'_>) -> String {
    let mut sent = Vec::new();
    while exchange.turn(phase) {
        sent.extend_from_slice(exchange.output());
        exchange.advance(exchange.output().len());
    }
    String::from_utf8(sent).unwrap()
}

fn answer(figures: &FigureSources, request: &str) -> String {
    let mut exchange = HttpExchange::default();
    exchange.feed(request.as_bytes());
    drive(&mut exchange, ServerPhase::Serving(&figures.sources()))
}

fn status(response: &str) -> &str {
    response.split("\r\n").next().unwrap().strip_prefix("HTTP/1.1 ").unwrap()
}

fn body(response: &str) -> String {
    let (head, mut rest) = response.split_once("\r\n\r\n").unwrap();
    if !head.contains("Transfer-Encoding: chunked") {
        return rest.to_owned();
    }
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let (chunk, after) = after.split_at(size);
        body.push_str(chunk);
        rest = after.strip_prefix("\r\n").unwrap();
        if size == 0 {
            assert_eq!(rest, "");
            return body;
        }
    }
}

#[test]
fn each_path_and_method_has_its_status() {
    let figures = FigureSources::default();
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
        ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
        ("GET /metrics?name=x HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
        ("GET /api/v1/tubes HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
        ("GET /api/v1/jobs/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
        ("GET /page.json HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
        ("GET /healthz HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
        ("GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
        ("GET http://127.0.0.1:9130/metrics HTTP/1.1\r\nHost: 127.0.0.1:9130\r\n\r\n", "200 OK"),
        ("GET http://127.0.0.1:9130 HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
        ("GET http://127.0.0.1:9130/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", "405 Method Not Allowed"),
        ("stats\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/2.0\r\n\r\n", "400 Bad Request"),
        ("GET /healthz HTTP/1.1\r\n\r\n", "400 Bad Request"),
        ("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400 Bad Request"),
        ("GET /healthz HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", "400 Bad Request"),
        ("GET /healthz HTTP/1.0\n\n", "400 Bad Request"),
        ("GET /healthz HTTP/1.0\r\nA: b\n\r\n", "400 Bad Request"),
        ("GET /healthz HTTP/1.0\r\nA: b\r\n\n", "400 Bad Request"),
        ("\nGET /healthz HTTP/1.0\r\n\r\n", "400 Bad Request"),
        ("\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", "400 Bad Request"),
    ] {
        assert_eq!(status(&answer(&figures, request)), expected, "{request:?}");
    }
}

#[test]
fn a_request_with_a_body_is_answered_at_metrics_before_the_body_comes() {
    let figures = FigureSources::default();
    for (path, length, expected) in [
        ("/api/v1/tubes", "Content-Length: 200000", "200 OK"),
        ("/api/v1/server", "Transfer-Encoding: chunked", "200 OK"),
        ("/metrics", "Content-Length: 200000", "200 OK"),
        ("/nothing", "Content-Length: 1", "404 Not Found"),
    ] {
        let response =
            answer(&figures, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n"));
        assert_eq!(status(&response), expected, "{path}");
        assert!(response.contains("Connection: close\r\n"), "{response}");
    }
    let change = "POST /api/v1/tubes HTTP/1.1\r\nHost: localhost\r\nX-Beanstalkd-Admin: 1\r\nContent-Length: 9\r\n\r\n";
    assert_eq!(status(&answer(&figures, change)), "403 Forbidden");
}

#[test]
fn requests_may_come_in_pieces_and_be_pipelined() {
    let figures = FigureSources::default();
    let requests = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\n\
                    HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n\
                    GET /api/v1/tubes HTTP/1.1\r\nHost: localhost\r\n\r\n\
                    GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: x, Close\r\n\r\n\
                    GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let whole = answer(&figures, requests);
    assert_eq!(whole.matches("HTTP/1.1 200 OK").count(), 4, "none follows the one that closes");
    let mut exchange = HttpExchange::default();
    let mut pieces = String::new();
    for byte in requests.bytes() {
        assert!(exchange.room() > 0 || exchange.is_finished());
        exchange.feed(&[byte]);
        pieces += &drive(&mut exchange, ServerPhase::Serving(&figures.sources()));
    }
    assert_eq!(pieces, whole);
    assert!(exchange.is_finished());
}

#[test]
fn heads_without_end_are_refused_within_bounds() {
    let figures = FigureSources::default();
    let mut exchange = HttpExchange::default();
    exchange.feed(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    while exchange.room() > 0 {
        assert!(!exchange.turn(ServerPhase::Serving(&figures.sources())));
        exchange.feed(&vec![b'x'; exchange.room()]);
    }
    let response = drive(&mut exchange, ServerPhase::Serving(&figures.sources()));
    assert_eq!(status(&response), "431 Request Header Fields Too Large");
    assert!(exchange.is_finished());
    let crowd = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(100));
    assert_eq!(status(&answer(&figures, &crowd)), "431 Request Header Fields Too Large");
}

#[test]
fn requests_before_the_end_are_answered_and_an_incomplete_one_is_not() {
    for (request, answers) in [
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n", 0),
        ("", 0),
    ] {
        let figures = FigureSources::default();
        let mut exchange = HttpExchange::default();
        exchange.feed(request.as_bytes());
        exchange.end();
        let response = drive(&mut exchange, ServerPhase::Serving(&figures.sources()));
        assert_eq!(response.matches("200 OK").count(), answers);
        assert!(exchange.is_finished());
    }
}

#[test]
fn http_1_0_gets_no_chunks() {
    let figures = FigureSources::default();
    let old = answer(&figures, "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(old.contains("Connection: close") && !old.contains("chunked"));
    assert_eq!(body(&old), body(&answer(&figures, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")));
}

#[test]
fn readiness_is_not_liveness() {
    let mut figures = FigureSources::default();
    let ask = |path: &str, phase: ServerPhase<'_>| {
        let mut exchange = HttpExchange::default();
        exchange.feed(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let response = drive(&mut exchange, phase);
        (status(&response)[..3].to_owned(), body(&response))
    };
    let is = |code: &str, text: &str| (code.to_owned(), text.to_owned());
    assert_eq!(ask("/readyz", ServerPhase::Serving(&figures.sources())), is("200", "ready\n"));
    figures.draining = true;
    assert_eq!(ask("/readyz", ServerPhase::Serving(&figures.sources())), is("503", "draining\n"));
    assert_eq!(
        ask("/readyz?exclude=draining", ServerPhase::Serving(&figures.sources())),
        is("200", "ready\n")
    );
    assert_eq!(ask("/healthz", ServerPhase::Serving(&figures.sources())), is("200", "ok\n"));
    let starting = ServerPhase::Starting("replaying the binlog\n");
    assert_eq!(ask("/healthz", starting), is("200", "ok\n"));
    for path in ["/readyz", "/readyz?exclude=draining", "/metrics", "/api/v1/server", "/api/v1/tubes"] {
        assert_eq!(ask(path, starting), is("503", "replaying the binlog\n"));
    }
}

#[test]
fn texts_are_escaped_and_units_are_base_units() {
    let metrics =
        body(&answer(&FigureSources::default(), "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    for line in [
        "beanstalkd_info{version=\"2.0\",id=\"a000000000000007\",hostname=\"Queue.Example\",\
         os=\"a \\\"b\\\"\\\\\\n\",platform=\"x86_64\"} 1\n",
        "beanstalkd_cpu_user_seconds_total 1.500000000\n",
        "beanstalkd_commands_total{command=\"put\"} 7\n",
        "beanstalkd_draining 0\n",
        "beanstalkd_binlog_state{state=\"ok\"} 1\n",
        "beanstalkd_binlog_sync_time_seconds_total 2.500001000\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    let data =
        body(&answer(&FigureSources::default(), "GET /api/v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    for pair in [
        r#""version":"2.0","rusage-utime":1.500000,"rusage-stime":0.250000"#,
        r#""draining":false,"id":"a000000000000007""#,
        r#""os":"a \"b\"\\\n""#,
        r#""binlog-sync-microseconds":2500001,"binlog-state":"ok""#,
    ] {
        assert!(data.contains(pair), "{pair}");
    }
}

#[test]
fn the_history_of_the_page_is_sampled_from_the_stats() {
    let mut figures = FigureSources::default();
    figures.queue.connect();
    let mut history = SampleHistory::default();
    history.take_sample(&figures.sources().server);
    figures.history = history;
    let data = body(&answer(&figures, "GET /api/v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert!(data.contains(r#""history":{"ages_ms":[0],"total-jobs":[0],"#), "{data}");
    assert!(data.contains(r#""current-connections":[1]}"#), "{data}");
}

#[test]
fn a_scrape_of_twenty_thousand_tubes_is_made_of_small_slices() {
    const TUBES: usize = 20_000;
    let mut figures = FigureSources { site: Site::Metrics(TUBES), ..FigureSources::default() };
    let client = figures.queue.connect();
    for number in 1..TUBES {
        figures.queue.watch(client, &format!("tube-{number}"));
    }
    let mut exchange = HttpExchange::default();
    exchange.feed(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (mut turns, mut response) = (0, String::new());
    while exchange.turn(ServerPhase::Serving(&figures.sources())) {
        turns += 1;
        let output = exchange.output();
        // A slice may exceed the bound by the line that reached it and by the frame of its chunk.
        assert!(output.len() < SLICE_BYTES + 1024, "{}", output.len());
        // The next slice comes only when the socket has taken all of this one.
        response.push_str(std::str::from_utf8(output).unwrap());
        if let Some(most) = output.len().checked_sub(1) {
            exchange.advance(most);
            assert!(!exchange.turn(ServerPhase::Serving(&figures.sources())));
            exchange.advance(1);
        }
    }
    assert!(!exchange.is_rendering(), "the scrape is over");
    let body = body(&response);
    assert!(turns >= TUBES / snapshot::TUBES_PER_SLICE + body.len() / (SLICE_BYTES + 1024));
    for number in [1, TUBES / 2, TUBES - 1] {
        let line = format!("beanstalkd_tube_current_watching{{tube=\"tube-{number}\"}} 1\n");
        assert_eq!(body.matches(&line).count(), 1);
    }
    assert!(body.contains("beanstalkd_metrics_tubes_omitted 0\n"));
    // If a client disconnects in the middle, its data is freed in slices, too.
    exchange.feed(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for _ in 0..=TUBES / snapshot::TUBES_PER_SLICE {
        exchange.turn(ServerPhase::Serving(&figures.sources()));
        exchange.advance(exchange.output().len());
    }
    assert!(exchange.is_rendering());
    let slices = 1 + (0..TUBES).take_while(|_| !exchange.free_slice()).count();
    assert!(slices > 20, "{slices} slices");
}

#[test]
fn a_tube_that_is_made_again_during_a_scrape_appears_once() {
    const TUBES: usize = 3 * snapshot::TUBES_PER_SLICE;
    let mut figures = FigureSources { site: Site::Metrics(2 * TUBES), ..FigureSources::default() };
    let client = figures.queue.connect();
    for number in 0..TUBES {
        figures.queue.watch(client, &format!("tube-{number}"));
    }
    let mut exchange = HttpExchange::default();
    exchange.feed(b"GET /metrics HTTP/1.0\r\n\r\n");
    for _ in 0..3 {
        // The request, its head, and the first slice of tubes.
        assert!(exchange.turn(ServerPhase::Serving(&figures.sources())));
        exchange.advance(exchange.output().len());
    }
    figures.queue.ignore(client, "tube-0");
    figures.queue.watch(client, "tube-0");
    let text = drive(&mut exchange, ServerPhase::Serving(&figures.sources()));
    let lines = text.lines().filter(|line| line.contains("current_watching{tube=\"tube-0\"}"));
    assert_eq!(lines.count(), 1);
}

/// A page from another server whose name resolves to this server's address cannot read the tubes.
#[test]
fn only_requests_that_name_this_server_get_the_figures_of_the_page() {
    let figures = FigureSources::default();
    for (host, expected) in [
        ("127.0.0.1:9130", "200 OK"),
        ("[::1]:9130", "200 OK"),
        ("localhost:9130", "200 OK"),
        ("queue.example", "200 OK"),
        ("METRICS.example:9130", "200 OK"),
        ("evil.example:9130", "421 Misdirected Request"),
        ("127.0.0.1.evil.example", "421 Misdirected Request"),
        ("", "421 Misdirected Request"),
    ] {
        let request = format!("GET /api/v1/tubes?sort=name HTTP/1.1\r\nhOST: {host}\r\n\r\n");
        assert_eq!(status(&answer(&figures, &request)), expected, "{host}");
    }
    let absolute = "GET http://evil.example/api/v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let refusal = answer(&figures, absolute);
    assert_eq!(status(&refusal), "421 Misdirected Request");
    assert!(body(&refusal).contains("--metrics NAME:PORT"), "{refusal}");
    // Prometheus may use any name.
    let scrape = "GET /metrics HTTP/1.1\r\nHost: queue.internal:9130\r\n\r\n";
    assert_eq!(status(&answer(&figures, scrape)), "200 OK");
}

#[test]
fn the_page_finds_a_tube_among_twenty_thousand() {
    let mut figures = FigureSources::default();
    let client = figures.queue.connect();
    for number in 0..20_000 {
        figures.queue.watch(client, &format!("tube-{number}"));
    }
    let names = |query: &str| -> Vec<String> {
        let data = body(&answer(
            &figures,
            &format!("GET /api/v1/tubes?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ));
        let tubes = data.split("{\"name\":\"").skip(1);
        tubes.map(|tube| tube.split('"').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names("search=E-19999"), ["tube-19999"]);
    assert_eq!(names("sort=current-watching&order=ascending")[0], "default");
    assert_eq!(names("sort=name")[..2], ["tube-9999", "tube-9998"]);
    assert_eq!(names("sort=name&order=ascending&search=tube-1999").len(), 11);
}

#[test]
fn series_of_tubes_are_capped_and_the_page_has_the_fullest() {
    let mut figures = FigureSources { site: Site::Metrics(2), ..FigureSources::default() };
    let client = figures.queue.connect();
    for number in 0..1500 {
        figures.queue.watch(client, &format!("tube-{number}"));
    }
    figures.queue.use_tube(client, "tube-1400");
    figures.put(client);
    let metrics = body(&answer(&figures, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(metrics.matches("beanstalkd_tube_jobs_total{").count(), 2);
    assert!(metrics.contains("beanstalkd_metrics_tubes_omitted 1499\n"));
    figures.site = Site::Metrics(0);
    let metrics = body(&answer(&figures, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert!(!metrics.contains("beanstalkd_tube_"));
    let data = body(&answer(&figures, "GET /api/v1/tubes?limit=500 HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let first = r#"{"total":1501,"matched":1501,"tubes":[{"name":"tube-1400","current-jobs-urgent":1"#;
    assert!(data.starts_with(first), "{data}");
    assert_eq!(data.matches("{\"name\":").count(), 500);
}
