//! Tests of the steps of a connection.

use super::*;
use crate::core::Reconnect;
use crate::core::put::PutOptions;

/// An engine that is open and greeted.
fn open(connector: Connector) -> Engine {
    let mut engine = Engine::new(connector).unwrap();
    assert_eq!(engine.step(Goal::Greeting).unwrap(), EngineStep::Open);
    engine.opened();
    assert_eq!(engine.step(Goal::Greeting).unwrap(), EngineStep::Done);
    engine
}

fn send(engine: &mut Engine, request: &Request<'_>) {
    engine.begin().unwrap();
    engine.exchange.push(request);
    assert_eq!(engine.step(Goal::Reply).unwrap(), EngineStep::Write);
    let bytes = engine.exchange.unsent().len();
    engine.exchange.sent(bytes);
    assert!(matches!(engine.step(Goal::Reply).unwrap(), EngineStep::Read(_)));
}

fn receive(engine: &mut Engine, bytes: &[u8]) {
    engine.exchange.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
    engine.exchange.received(bytes.len());
}

#[test]
fn a_peer_that_has_vanished_is_left_after_one_time_out() {
    let late = || Error::TimedOut;
    let mut engine = open(Connector::new().reconnect(Reconnect::new()));
    send(&mut engine, &Command::Stats.into());
    assert!(matches!(engine.failed(late(), Instant::now()), Err(Error::TimedOut)));
    assert!(engine.is_open(), "the caller may wait for the reply");
    engine.begin().unwrap();
    engine.exchange.push(&Command::Stats.into());
    assert_eq!(engine.step(Goal::Reply).unwrap(), EngineStep::Open);
    // A reply shows that the server is alive.
    let mut engine = open(Connector::new().reconnect(Reconnect::new()));
    send(&mut engine, &Command::Stats.into());
    assert!(engine.failed(late(), Instant::now()).is_err());
    receive(&mut engine, b"OK 0\r\n\r\n");
    assert_eq!(engine.step(Goal::Reply).unwrap(), EngineStep::Done);
    engine.reply().unwrap();
    send(&mut engine, &Command::Stats.into());
    // Without a second connection, the first one must be used.
    let mut engine = open(Connector::new());
    send(&mut engine, &Command::Stats.into());
    assert!(engine.failed(late(), Instant::now()).is_err());
    send(&mut engine, &Command::Stats.into());
}

#[test]
fn bytes_that_are_no_reply_end_the_connection_and_not_the_client() {
    let mut engine = open(Connector::new().reconnect(Reconnect::new()));
    send(&mut engine, &Command::Stats.into());
    receive(&mut engine, b"HTTP/1.1 200 OK\r\n");
    let error = engine.step(Goal::Reply).unwrap_err();
    assert!(matches!(engine.failed(error, Instant::now()), Err(Error::Malformed(_))));
    assert!(!engine.is_open());
    engine.begin().unwrap();
    engine.exchange.push(&Command::Stats.into());
    assert_eq!(engine.step(Goal::Reply).unwrap(), EngineStep::Open);
}

#[test]
fn a_borrower_keeps_the_extensions_that_the_server_has_reported() {
    let mut engine = open(Connector::new());
    engine.set_extensions(Extensions::default());
    engine.opened();
    send(&mut engine, &Command::Stats.into());
    receive(&mut engine, b"OK 9\r\n---\nx: 1\n\r\n");
    engine.step(Goal::Reply).unwrap();
    engine.handle_answer(Preliminary::Extensions).unwrap();
    engine.lend(None);
    assert!(engine.extensions().is_some());
}

#[test]
fn a_pipeline_that_waits_for_an_earlier_reserve_has_a_beginning_of_its_own() {
    let mut engine = open(Connector::new());
    let (start, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
    send(&mut engine, &Command::Reserve.into());
    engine.begin_steps(Goal::Reply, || start);
    engine.begin().unwrap();
    engine.begin_as(Preliminary::EarlierReserve(None)).unwrap();
    engine.begin_steps(Goal::EarlierReserve, || later);
    assert_eq!(engine.began, Some(later));
}

#[test]
fn a_connection_that_takes_no_more_bytes_is_read_to_its_end() {
    let mut engine = open(Connector::new());
    engine.begin().unwrap();
    engine.exchange.push(&Request::Put(&PutOptions::default(), b"x"));
    engine.exchange.close_for_writes();
    assert!(matches!(engine.step(Goal::Reply).unwrap(), EngineStep::Read(_)));
    receive(&mut engine, b"TOO_MANY_CONNECTIONS\r\n");
    assert_eq!(engine.step(Goal::Reply).unwrap(), EngineStep::Done);
}
