//! Requests for the API, over bytes.

use super::*;
use crate::clock::NS_PER_S;
use crate::http::api::ROUTES;
use crate::http::exchange::ServerRequest;
use crate::orders::Order;
use crate::token::TokenHash;

const MARK: &str = "X-Beanstalkd-Admin: 1\r\nContent-Type: application/json\r\n";

/// Sends the requests in pieces of this many bytes, to a server without jobs. Returns the responses and the orders.
fn talk(access: Access, requests: &[u8], piece: usize) -> (String, Vec<Order>, HttpExchange) {
    talk_to(&FigureSources::default(), access, requests, piece)
}

/// A server with one job.
fn with_a_job() -> FigureSources {
    let mut figures = FigureSources::default();
    let client = figures.queue.connect();
    figures.put(client);
    figures
}

fn talk_to(
    figures: &FigureSources,
    access: Access,
    requests: &[u8],
    piece: usize,
) -> (String, Vec<Order>, HttpExchange) {
    let sources = Sources { site: &Site::Admin(access), ..figures.sources() };
    let (mut exchange, mut sent, mut orders) = (HttpExchange::default(), Vec::new(), Vec::new());
    let mut rest = requests;
    loop {
        let count = exchange.room().min(piece).min(rest.len());
        exchange.feed(&rest[..count]);
        rest = &rest[count..];
        if rest.is_empty() {
            exchange.end();
        }
        let mut worked = count > 0;
        while exchange.turn(ServerPhase::Serving(&sources)) || !exchange.output().is_empty() {
            sent.extend_from_slice(exchange.output());
            exchange.advance(exchange.output().len());
            worked = true;
        }
        if let Some(ServerRequest::Order(order)) = exchange.take_request() {
            orders.push(order);
            exchange.refuse_order();
            sent.extend_from_slice(exchange.output());
            exchange.advance(exchange.output().len());
            worked = true;
        }
        if !worked {
            return (String::from_utf8_lossy(&sent).into_owned(), orders, exchange);
        }
    }
}

fn statuses(text: &str) -> Vec<&str> {
    text.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect()
}

fn post(path: &str, headers: &str, body: &str) -> String {
    let host = if headers.contains("Host: ") { "" } else { "Host: localhost\r\n" };
    format!("POST {path} HTTP/1.1\r\n{host}{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Whether the API has this path, and accepts this method there.
fn is_there(method: &str, path: &str) -> bool {
    let request = match method {
        "post" => post(path, MARK, "{}"),
        _ => format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    };
    let (text, ..) = talk(Access::default(), request.as_bytes(), 10_000);
    statuses(&text)[0] != "405" && !text.contains("there is nothing here")
}

#[test]
fn the_api_has_its_routes_and_no_others() {
    let routes = ROUTES.iter().map(|(method, path, _)| (format!("{method:?}").to_lowercase(), *path));
    let routes: Vec<_> = routes.collect();
    let is_any = |segment: &str| segment.starts_with('{');
    for (method, path) in &routes {
        let sample: Vec<_> = path.split('/').map(|part| if is_any(part) { "1" } else { part }).collect();
        assert!(is_there(method, &format!("/api/v1/{}", sample.join("/"))), "{method} {path}");
    }
    let words = routes.iter().flat_map(|(_, path)| path.split('/')).filter(|word| !is_any(word));
    let words: BTreeSet<&str> = words.chain(["1"]).collect();
    let mut paths = vec![Vec::new()];
    for _ in 0..4 {
        paths =
            paths.iter().flat_map(|path| words.iter().map(|&word| [path, &[word][..]].concat())).collect();
        for (path, method) in paths.iter().flat_map(|path| [(path, "get"), (path, "post")]) {
            let is_route = routes.iter().any(|(of, route)| {
                of == method
                    && route.split('/').count() == path.len()
                    && route.split('/').zip(path).all(|(part, word)| is_any(part) || part == *word)
            });
            assert!(
                is_route || !is_there(method, &format!("/api/v1/{}", path.join("/"))),
                "{method} {path:?}"
            );
        }
    }
}

#[test]
fn bodies_may_come_in_pieces_and_be_followed_by_requests() {
    let drain = post("/api/v1/server/actions", MARK, "{\"action\":\"drain\"}");
    let put = post("/api/v1/tubes/t/jobs", MARK, "{\"body\":\"x\"}");
    let requests = format!("{drain}{put}GET /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n{drain}");
    for piece in [1, 2, 7, 50, 10_000] {
        let (text, orders, exchange) = talk(Access::default(), requests.as_bytes(), piece);
        assert_eq!(statuses(&text), ["429", "429", "200", "429"], "{piece}: {text}");
        assert!(matches!(orders[..], [Order::Drain(true), Order::Put(_), Order::Drain(true)]));
        assert!(exchange.is_finished());
    }
}

#[test]
fn a_parameter_that_is_unknown_or_given_twice_is_refused_at_every_path() {
    let figures = with_a_job();
    let ask = |request: &str| {
        let (text, orders, _) = talk_to(&figures, Access::default(), request.as_bytes(), 10_000);
        (statuses(&text)[0].to_owned(), text, orders)
    };
    for path in [
        "server",
        "tubes",
        "tubes/default",
        "tubes/default/jobs?state=ready",
        "tubes/default/jobs/count?state=ready",
        "jobs/1",
        "jobs/1/body",
        "clients",
        "tasks",
    ] {
        let get = |path: &str| ask(&format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(get(path).0, "200", "{path}");
        let separator = if path.contains('?') { '&' } else { '?' };
        let (status, text, _) = get(&format!("{path}{separator}nothing=1"));
        assert_eq!(status, "400", "{path}");
        assert!(text.contains("nothing"), "{text}");
    }
    let twice = "GET /api/v1/jobs/1?wait=1&wait=2 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(ask(twice).0, "400");
    let (status, _, orders) = ask(&post("/api/v1/server/actions?now=1", MARK, "{\"action\":\"drain\"}"));
    assert_eq!((&*status, orders.len()), ("400", 0));
}

#[test]
fn a_request_behind_one_that_waits_for_the_end_of_a_job_is_no_incomplete_one() {
    let figures = with_a_job();
    let sources = Sources { site: &Site::Admin(Access::default()), ..figures.sources() };
    let request = |path: &str| format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut exchange = HttpExchange::default();
    exchange.feed((request("jobs/1?wait=20") + &request("server")).as_bytes());
    assert!(exchange.turn(ServerPhase::Serving(&sources)));
    while exchange.room() > 0 {
        assert!(exchange.follows_until().is_some() && exchange.is_idle() && !exchange.is_answering());
        exchange.feed(&request("tasks").as_bytes()[..exchange.room().min(40)]);
    }
    assert!(exchange.is_idle() && !exchange.is_answering(), "not even if no more fits");
    exchange.check_job(&figures.queue, Timestamp(20 * NS_PER_S));
    assert!(exchange.is_answering());
    let text = drive(&mut exchange, ServerPhase::Serving(&sources));
    assert_eq!(statuses(&text)[..2], ["200", "200"]);
}

#[test]
fn a_body_is_bounded_and_its_length_is_announced_once() {
    let path = "POST /api/v1/server/actions HTTP/1.1\r\nHost: localhost\r\nX-Beanstalkd-Admin: 1\r\n";
    for (request, expected) in [
        (format!("{path}Content-Length: 262145\r\n\r\n"), "413"),
        (format!("{path}Content-Length: 99999999999999999999\r\n\r\n"), "400"),
        (format!("{path}Content-Length: -1\r\n\r\n"), "400"),
        (format!("{path}Content-Length: +1\r\n\r\nx"), "400"),
        (format!("{path}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"), "400"),
        (format!("{path}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx"), "400"),
        (format!("{path}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "411"),
        (format!("{path}Content-Length: 2\r\n\r\n{{}}"), "415"),
        (
            "POST /api/v1/server/actions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 262144\r\n\r\n"
                .to_owned(),
            "403",
        ),
    ] {
        let request = format!("{request}GET /api/v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (text, orders, _) = talk(Access::default(), request.as_bytes(), 10_000);
        assert_eq!(statuses(&text)[0], expected, "{request}: {text}");
        let goes_on = expected == "415";
        assert_eq!(
            statuses(&text).len(),
            1 + usize::from(goes_on),
            "nothing behind a body that was not read"
        );
        assert!(orders.is_empty());
    }
    // A client that disconnects in the middle of its body gets no answer.
    let half = format!("{path}Content-Length: 100\r\n\r\n{{");
    let (text, _, exchange) = talk(Access::default(), half.as_bytes(), 10_000);
    assert_eq!(text, "");
    assert!(exchange.is_finished());
}

#[test]
fn a_client_that_sends_too_long_a_body_can_finish_and_read_the_answer() {
    let figures = FigureSources::default();
    let sources = Sources { site: &Site::Admin(Access::default()), ..figures.sources() };
    let request = "POST /api/v1/tubes/t/jobs HTTP/1.1\r\nHost: localhost\r\nX-Beanstalkd-Admin: 1\r\n\
                   Content-Length: 300000\r\n\r\n{";
    for sent in [299_999, 1000] {
        let mut exchange = HttpExchange::default();
        exchange.feed(request.as_bytes());
        let text = drive(&mut exchange, ServerPhase::Serving(&sources));
        assert_eq!(statuses(&text), ["413"]);
        for _ in 0..sent {
            assert!(!exchange.is_finished() && exchange.room() > 0);
            exchange.feed(b"x");
        }
        exchange.end();
        assert!(exchange.is_finished() && !exchange.has_work());
    }
}

#[test]
fn expect_continue_is_answered_only_if_access_rules_allow_the_request() {
    let access = Access { is_read_only: true, ..Access::default() };
    let head = "POST /api/v1/server/actions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\
                Expect: 100-continue\r\n";
    let request = format!("{head}{MARK}\r\n{{\"action\":\"drain\"}}");
    for (access, expected) in [(Access::default(), vec!["100", "429"]), (access, vec!["403"])] {
        let (text, ..) = talk(access, request.as_bytes(), head.len() + MARK.len() + 2);
        assert_eq!(statuses(&text), expected);
    }
}

#[test]
fn only_this_servers_own_pages_and_programs_may_change_anything() {
    let token = || TokenHash::of_text(b"0123456789abcdef0123456789abcdef", 200).ok();
    let open = || Access::default();
    let closed = || Access { token: token(), is_read_only: false };
    let watched = || Access { token: token(), is_read_only: true };
    let bearer = "Authorization: bearer 0123456789abcdef0123456789abcdef\r\n";
    for (access, headers, expected) in [
        (open(), "", "403"),
        (open(), "X-Beanstalkd-Admin: 1\r\n", "429"),
        (open(), "X-Beanstalkd-Admin: 1\r\nHost: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:1\r\n", "429"),
        (open(), "X-Beanstalkd-Admin: 1\r\nHost: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:2\r\n", "403"),
        (open(), "X-Beanstalkd-Admin: 1\r\nHost: 127.0.0.1:1\r\nOrigin: null\r\n", "403"),
        (open(), "X-Beanstalkd-Admin: 1\r\nOrigin: http://127.0.0.1:1\r\n", "403"),
        (open(), "X-Beanstalkd-Admin: 1\r\nSec-Fetch-Site: same-site\r\n", "403"),
        (open(), "X-Beanstalkd-Admin: 1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n", "421"),
        (open(), "X-Beanstalkd-Admin: 1\r\nHost: localhost\r\nHost: evil.example\r\n", "400"),
        (closed(), "X-Beanstalkd-Admin: 1\r\n", "401"),
        (closed(), "Authorization: Bearer x\r\n", "401"),
        (closed(), "Authorization: Bearer\r\n", "401"),
        (closed(), bearer, "429"),
        (closed(), &format!("{bearer}{bearer}"), "401"),
        (watched(), bearer, "403"),
        (watched(), "", "401"),
    ] {
        let headers = format!("{headers}Content-Type: application/json\r\n");
        let request = post("/api/v1/server/actions", &headers, "{\"action\":\"drain\"}");
        let (text, orders, _) = talk(access, request.as_bytes(), 10_000);
        assert_eq!(statuses(&text), [expected], "{headers}");
        assert_eq!(orders.len(), usize::from(expected == "429"), "{headers}");
    }
}

#[test]
fn the_pages_files_and_nothing_of_the_metrics_are_at_this_site() {
    for (path, expected) in [
        ("/", "200"),
        ("/main.js", "200"),
        ("/base.css", "200"),
        ("/style.css", "200"),
        ("/metrics", "404"),
        ("/page.json", "404"),
    ] {
        let (text, ..) = talk(
            Access::default(),
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes(),
            10_000,
        );
        assert_eq!(statuses(&text), [expected], "{path}");
        assert_eq!(text.contains("script-src 'self'"), expected == "200");
    }
    // The metrics' site has the data of its page, and no other part of the API.
    let figures = FigureSources::default();
    for (path, expected) in [
        ("server", "200 OK"),
        ("tubes", "200 OK"),
        ("tubes/default", "404 Not Found"),
        ("tasks", "404 Not Found"),
    ] {
        let request = format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(status(&answer(&figures, &request)), expected, "{path}");
    }
    for path in ["server", "tubes"] {
        let change = post(&format!("/api/v1/{path}"), MARK, "{}");
        assert_eq!(status(&answer(&figures, &change)), "403 Forbidden");
    }
    let change = post("/api/v1/server/actions", MARK, "{\"action\":\"drain\"}");
    assert_eq!(status(&answer(&figures, &change)), "405 Method Not Allowed");
}
