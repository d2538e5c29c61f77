//! Connections over bytes, with figures of a queue that no server owns.

use std::time::Duration;

use super::*;
use crate::queue::PoisonLimits;

struct Figures {
    queue: Queue,
    timings: Timings,
    history: History,
    max_tubes: usize,
    draining: bool,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            queue: Queue::new(PoisonLimits::default()),
            timings: Timings::default(),
            history: History::default(),
            max_tubes: 1000,
            draining: false,
        }
    }
}

impl Sources for Figures {
    fn queue(&self) -> &Queue {
        &self.queue
    }
    fn each_value(&self, each: &mut dyn FnMut(&'static str, Value)) {
        each("cmd-put", Value::Counter(7));
        each("current-jobs-ready", Value::Gauge(3));
        each("version", Value::Text("2.0".to_owned()));
        each("rusage-utime", Value::Seconds(Duration::from_micros(1_500_000)));
        each("draining", Value::Word(if self.draining { "true" } else { "false" }));
        each("binlog-state", Value::Word("ok"));
        each("binlog-sync-microseconds", Value::Counter(2_500_001));
        each("hostname", Value::Text("a \"b\"\\\n".to_owned()));
    }
    fn timings(&self) -> &Timings {
        &self.timings
    }
    fn history(&self) -> &History {
        &self.history
    }
    fn process(&self) -> ProcessFigures {
        ProcessFigures::default()
    }
    fn started_at(&self) -> Timestamp {
        Timestamp(0)
    }
    fn is_draining(&self) -> bool {
        self.draining
    }
    fn max_tubes(&self) -> usize {
        self.max_tubes
    }
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

/// Works and sends until there is nothing to do.
fn drive(connection: &mut Connection, phase: Phase<'_>) -> String {
    let mut sent = Vec::new();
    while connection.turn(phase) {
        sent.extend_from_slice(connection.output());
        connection.advance(connection.output().len());
    }
    String::from_utf8(sent).unwrap()
}

fn answer(figures: &Figures, request: &str) -> String {
    let mut connection = Connection::default();
    connection.feed(request.as_bytes());
    drive(&mut connection, Phase::Serving(figures))
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
fn paths_and_methods_are_answered_as_they_deserve() {
    let figures = Figures::default();
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
        ("GET /metrics?name=x HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /page.json HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /healthz HTTP/1.0\r\n\r\n", "200 OK"),
        ("GET /readyz HTTP/1.1\r\n\r\n", "200 OK"),
        ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("GET http://elsewhere/ HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", "405 Method Not Allowed"),
        ("stats\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/2.0\r\n\r\n", "400 Bad Request"),
        ("GET /\0 HTTP/1.1\r\n\r\n", "400 Bad Request"),
    ] {
        assert_eq!(status(&answer(&figures, request)), expected, "{request:?}");
    }
}

#[test]
fn requests_may_come_in_pieces_and_behind_one_another() {
    let figures = Figures::default();
    let requests = "GET /healthz HTTP/1.1\r\nA: b\r\n\r\nHEAD /metrics HTTP/1.1\r\n\r\nGET /page.json HTTP/1.1\r\n\r\n\
                    GET /readyz HTTP/1.1\r\nConnection: x, Close\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n";
    let whole = answer(&figures, requests);
    assert_eq!(whole.matches("HTTP/1.1 200 OK").count(), 4, "none follows the one that closes");
    let mut connection = Connection::default();
    let mut pieces = String::new();
    for byte in requests.bytes() {
        assert!(connection.room() > 0 || connection.is_finished());
        connection.feed(&[byte]);
        pieces += &drive(&mut connection, Phase::Serving(&figures));
    }
    assert_eq!(pieces, whole);
    assert!(connection.is_finished());
}

#[test]
fn heads_without_end_are_refused_within_bounds() {
    let figures = Figures::default();
    let mut connection = Connection::default();
    connection.feed(b"GET / HTTP/1.1\r\nX: ");
    while connection.room() > 0 {
        assert!(!connection.turn(Phase::Serving(&figures)));
        connection.feed(&vec![b'x'; connection.room()]);
    }
    let response = drive(&mut connection, Phase::Serving(&figures));
    assert_eq!(status(&response), "431 Request Header Fields Too Large");
    assert!(connection.is_finished());
    let crowd = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    assert_eq!(status(&answer(&figures, &crowd)), "431 Request Header Fields Too Large");
}

#[test]
fn what_was_asked_before_the_end_is_answered_and_half_a_request_is_not() {
    for (request, answers) in
        [("GET /healthz HTTP/1.1\r\n\r\n", 1), ("GET /healthz HTTP/1.1\r\n", 0), ("", 0)]
    {
        let figures = Figures::default();
        let mut connection = Connection::default();
        connection.feed(request.as_bytes());
        connection.end();
        let response = drive(&mut connection, Phase::Serving(&figures));
        assert_eq!(response.matches("200 OK").count(), answers);
        assert!(connection.is_finished());
    }
}

#[test]
fn http_1_0_gets_no_chunks() {
    let figures = Figures::default();
    let old = answer(&figures, "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(old.contains("Connection: close") && !old.contains("chunked"));
    assert_eq!(body(&old), body(&answer(&figures, "GET /metrics HTTP/1.1\r\n\r\n")));
}

#[test]
fn readiness_is_told_apart_from_life() {
    let mut figures = Figures::default();
    let ask = |path: &str, phase: Phase<'_>| {
        let mut connection = Connection::default();
        connection.feed(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes());
        let response = drive(&mut connection, phase);
        (status(&response)[..3].to_owned(), body(&response))
    };
    let is = |code: &str, text: &str| (code.to_owned(), text.to_owned());
    assert_eq!(ask("/readyz", Phase::Serving(&figures)), is("200", "ready\n"));
    figures.draining = true;
    assert_eq!(ask("/readyz", Phase::Serving(&figures)), is("503", "draining\n"));
    assert_eq!(ask("/healthz", Phase::Serving(&figures)), is("200", "ok\n"));
    let starting = Phase::Starting("replaying the binlog\n");
    assert_eq!(ask("/healthz", starting), is("200", "ok\n"));
    for path in ["/readyz", "/metrics", "/page.json"] {
        assert_eq!(ask(path, starting), is("503", "replaying the binlog\n"));
    }
}

#[test]
fn texts_are_escaped_and_units_are_base_units() {
    let metrics = body(&answer(&Figures::default(), "GET /metrics HTTP/1.1\r\n\r\n"));
    for line in [
        "beanstalkd_info{version=\"2.0\",hostname=\"a \\\"b\\\"\\\\\\n\"} 1\n",
        "beanstalkd_cpu_user_seconds_total 1.500000000\n",
        "beanstalkd_commands_total{command=\"put\"} 7\n",
        "beanstalkd_draining 0\n",
        "beanstalkd_binlog_state{state=\"ok\"} 1\n",
        "beanstalkd_binlog_sync_time_seconds_total 2.500001000\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    let data = body(&answer(&Figures::default(), "GET /page.json HTTP/1.1\r\n\r\n"));
    assert!(
        data.contains(
            r#""version":"2.0","rusage-utime":1.500000,"draining":"false","binlog-state":"ok","binlog-sync-microseconds":2500001,"hostname":"a \"b\"\\\n""#
        )
    );
}

#[test]
fn a_scrape_of_twenty_thousand_tubes_is_made_of_small_slices() {
    const TUBES: usize = 20_000;
    let mut figures = Figures { max_tubes: TUBES, ..Figures::default() };
    let client = figures.queue.connect();
    for number in 1..TUBES {
        figures.queue.watch(client, &format!("tube-{number}"));
    }
    let mut connection = Connection::default();
    connection.feed(b"GET /metrics HTTP/1.1\r\n\r\n");
    let (mut turns, mut response) = (0, String::new());
    while connection.turn(Phase::Serving(&figures)) {
        turns += 1;
        let output = connection.output();
        // Besides the bound, a slice has the line that reached it, and its chunk's frame.
        assert!(output.len() < SLICE_BYTES + 1024, "{}", output.len());
        // Until the socket has taken all of the slice, there is no other.
        response.push_str(std::str::from_utf8(output).unwrap());
        if let Some(most) = output.len().checked_sub(1) {
            connection.advance(most);
            assert!(!connection.turn(Phase::Serving(&figures)));
            connection.advance(1);
        }
    }
    let body = body(&response);
    assert!(turns >= TUBES / snapshot::TUBES_PER_SLICE + body.len() / (SLICE_BYTES + 1024));
    for number in [1, TUBES / 2, TUBES - 1] {
        let line = format!("beanstalkd_tube_current_watching{{tube=\"tube-{number}\"}} 1\n");
        assert_eq!(body.matches(&line).count(), 1);
    }
    assert!(body.contains("beanstalkd_metrics_tubes_omitted 0\n"));
}

#[test]
fn a_tube_that_is_made_again_during_a_scrape_appears_once() {
    const TUBES: usize = 3 * snapshot::TUBES_PER_SLICE;
    let mut figures = Figures { max_tubes: 2 * TUBES, ..Figures::default() };
    let client = figures.queue.connect();
    for number in 0..TUBES {
        figures.queue.watch(client, &format!("tube-{number}"));
    }
    let mut connection = Connection::default();
    connection.feed(b"GET /metrics HTTP/1.0\r\n\r\n");
    for _ in 0..3 {
        // The request, its head, and the first slice of tubes.
        assert!(connection.turn(Phase::Serving(&figures)));
        connection.advance(connection.output().len());
    }
    figures.queue.ignore(client, "tube-0");
    figures.queue.watch(client, "tube-0");
    let text = drive(&mut connection, Phase::Serving(&figures));
    let lines = text.lines().filter(|line| line.contains("current_watching{tube=\"tube-0\"}"));
    assert_eq!(lines.count(), 1);
}

#[test]
fn series_of_tubes_are_capped_and_the_page_has_the_fullest() {
    let mut figures = Figures { max_tubes: 2, ..Figures::default() };
    let client = figures.queue.connect();
    for number in 0..1500 {
        figures.queue.watch(client, &format!("tube-{number}"));
    }
    figures.queue.use_tube(client, "tube-1400");
    let id = figures.queue.take_id();
    let priority = crate::job::Priority(0);
    let job = crate::queue::NewJob { id, priority, delay_s: 0, ttr_s: 1 };
    let job_body = crate::job::Body::copy_of(b"").unwrap();
    figures.queue.put(client, job, job_body, Timestamp(1));
    let metrics = body(&answer(&figures, "GET /metrics HTTP/1.1\r\n\r\n"));
    assert_eq!(metrics.matches("beanstalkd_tube_jobs_total{").count(), 2);
    assert!(metrics.contains("beanstalkd_metrics_tubes_omitted 1499\n"));
    figures.max_tubes = 0;
    let metrics = body(&answer(&figures, "GET /metrics HTTP/1.1\r\n\r\n"));
    assert!(!metrics.contains("beanstalkd_tube_"));
    let data = body(&answer(&figures, "GET /page.json HTTP/1.1\r\n\r\n"));
    assert!(
        data.contains("\"tubes_omitted\":1001,\"tubes\":[{\"name\":\"tube-1400\",\"current-jobs-urgent\":1")
    );
    assert_eq!(data.matches("{\"name\":").count(), 500);
}
