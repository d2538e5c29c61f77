//! Servers with TLS and access rules, for both drivers.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use beanstalk_client::{
    Address, Client, Connector, Error, JobState, Pool, PutOptions, Reconnect, Refusal, Tls, Token,
};
use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::server::free_address;
use beanstalkd_testkit::tls::Authority;
use beanstalkd_testkit::tls_server::TlsServer;
use beanstalkd_testkit::{TOKEN, TOKEN_HASH};

mod support;

use support::on_one_thread;

/// A server with TLS, its address, and a connector that trusts it.
fn with_tls(flags: &[&str]) -> (TlsServer, Address, Connector) {
    let server = TlsServer::start(flags);
    let address = format!("localhost:{}", server.address.port()).parse().unwrap();
    let connector = Connector::new().tls(Tls::new(Some(&server.file("ca.pem")), None).unwrap());
    (server, address, connector)
}

/// The error of a connect with each driver.
fn errors(connector: &Connector, address: &Address) -> [Error; 2] {
    let with_tokio = on_one_thread(connector.connect_async(address)).unwrap_err();
    [connector.connect(address).unwrap_err(), with_tokio]
}

#[test]
fn a_server_is_reached_with_its_authority_and_a_token_and_never_without() {
    let plain = free_address().unwrap().to_string();
    let access =
        format!("[identities.mailer]\ntokens = [\"{TOKEN_HASH}\"]\nproduce = [\"*\"]\nwork = [\"*\"]\n");
    let server = TlsServer::start_with(&[("access", &access)], &["--listen", &plain]);
    let (ca, other) = (server.file("ca.pem"), server.file("other"));
    std::fs::write(&other, Authority::new("other").pem()).unwrap();
    let address: Address = server.address.to_string().parse().unwrap();
    let settings = |ca| Tls::new(Some(ca), None).unwrap();
    let token = |text| Token::parse(text).unwrap();
    // A wrong certificate or token is not tried again.
    let connector = Connector::new().reconnect(Reconnect::forever()).timeout(Some(Duration::from_secs(20)));
    let good = connector.clone().tls(settings(&ca)).token(token(TOKEN));
    let mut client = good.connect(&address).unwrap();
    client.put(b"x", &PutOptions::new()).unwrap();
    client.closer().unwrap().close();
    assert_eq!(client.list_tube_used().unwrap(), "default", "it has connected and logged in again");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = good.connect_async(&address).await.unwrap();
        let body = vec![b'x'; 60_000];
        client.use_tube(&"large".parse().unwrap()).await.unwrap();
        let id = client.put(&body, &PutOptions::new()).await.unwrap().id;
        assert_eq!(client.reserve_job(id).await.unwrap().body, body);
    });
    for error in errors(&good.clone().tls(settings(&other)), &address) {
        assert!(matches!(error, Error::Connect { .. }), "{error}");
    }
    for error in errors(&good.clone().token(token("somebody-else")), &address) {
        assert!(matches!(error, Error::Refused(Refusal::Unauthorized)), "{error}");
    }
    for error in errors(&good, &plain.parse().unwrap()) {
        assert!(matches!(error, Error::SpeaksNoTls { .. }), "{error}");
        assert!(!error.to_string().contains("--"), "{error}: options are those of a program");
    }
    let [error, other_error] = errors(&connector.clone().token(token(TOKEN)), &address);
    assert!(matches!((&error, &other_error), (Error::SpeaksTls, Error::SpeaksTls)), "{error}, {other_error}");
}

#[test]
fn a_server_that_is_silent_is_a_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca");
    std::fs::write(&ca, Authority::new("authority").pem()).unwrap();
    let connector = Connector::new().timeout(Some(Duration::from_millis(50)));
    for error in errors(&connector.tls(Tls::new(Some(&ca), None).unwrap()), &address) {
        assert!(matches!(error, Error::Connect { .. }), "{error}");
    }
}

#[test]
fn a_server_that_sends_the_handshake_byte_by_byte_is_given_up() {
    const TIMEOUT: Duration = Duration::from_millis(1_500);
    let pace = Pace::watch().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca");
    std::fs::write(&ca, Authority::new("authority").pem()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                // A record of 4,096 bytes with a part of the handshake.
                for byte in [22, 3, 3, 16, 0, 2, 0, 15, 252].into_iter().chain([3; 100]) {
                    std::thread::sleep(Duration::from_millis(100));
                    let _ = stream.write_all(&[byte]);
                }
            });
        }
    });
    let connector = Connector::new().timeout(Some(TIMEOUT)).tls(Tls::new(Some(&ca), None).unwrap());
    let opened: [&dyn Fn() -> Error; 2] = [&|| connector.connect(&address).unwrap_err(), &|| {
        on_one_thread(connector.connect_async(&address)).unwrap_err()
    }];
    for error in opened {
        let began = Instant::now();
        let error = error();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        assert!(began.elapsed() >= TIMEOUT);
        pace.assert_within(TIMEOUT * 3, began, || error.to_string());
    }
}

#[test]
fn a_server_that_ends_in_the_handshake_is_tried_again_with_tls() {
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca");
    std::fs::write(&ca, Authority::new("authority").pem()).unwrap();
    for is_async in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.unwrap().read(&mut [0; 4096]);
            }
        });
        let pauses = Reconnect::new().pauses(Duration::from_millis(1), Duration::from_millis(1));
        let connector = Connector::new().reconnect(pauses.give_up_after(Duration::from_millis(5)));
        let connector = connector.tls(Tls::new(Some(&ca), None).unwrap());
        let error = if is_async {
            on_one_thread(connector.connect_async(&address)).unwrap_err()
        } else {
            connector.connect(&address).unwrap_err()
        };
        assert!(!error.to_string().contains("without TLS"), "{error}");
        assert!(accepted.load(Ordering::SeqCst) > 5, "a connect, and another one after each pause");
    }
}

#[test]
fn a_pool_lends_a_connection_with_tls_again_also_if_nobody_has_used_it() {
    let (server, address, connector) = with_tls(&[]);
    let count = |client: &mut Client| client.stats().unwrap().number("total-connections").unwrap();
    let mut observer = connector.connect(&address).unwrap();
    let before = count(&mut observer);
    let pool = Pool::new(connector.clone(), address.clone(), 1);
    for _ in 0..5 {
        drop(pool.get().unwrap());
        // The server's tickets arrive before this reply.
        observer.stats().unwrap();
    }
    on_one_thread(async {
        let pool = beanstalk_client::asynchronous::Pool::new(connector.clone(), address.clone(), 1);
        for _ in 0..5 {
            drop(pool.get().await.unwrap());
            observer.stats().unwrap();
        }
    });
    assert_eq!(count(&mut observer) - before, 2);
    // A connection that the server has closed is not lent.
    drop(server);
    assert!(pool.get().is_err());
}

#[test]
fn bytes_that_tls_has_taken_are_not_written_again_after_a_time_out() {
    let (server, address, connector) = with_tls(&["-z", "100m"]);
    let kill = |signal: &str| {
        let pid = server.server.usage().0.to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    };
    // More than the kernel's buffers take, and each part of it is a command.
    let (body, short) = (b"use wrong\r\n".repeat(2_000_000), Some(Duration::from_millis(100)));

    let mut client = connector.connect(&address).unwrap();
    client.use_tube(&"a".parse().unwrap()).unwrap();
    client.set_timeout(short);
    kill("-STOP");
    let late = client.put(&body, &PutOptions::new());
    kill("-CONT");
    assert!(matches!(late, Err(Error::TimedOut)), "{late:?}");
    client.set_timeout(Some(Duration::from_secs(60)));
    assert_eq!(client.list_tube_used().unwrap(), "a");
    assert!(client.peek_next(JobState::Ready).unwrap().body == body, "another body");
    assert_eq!(client.stats().unwrap().number("malformed-commands"), Some(0));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = connector.connect_async(&address).await.unwrap();
        client.use_tube(&"b".parse().unwrap()).await.unwrap();
        client.set_timeout(short);
        kill("-STOP");
        let late = client.put(&body, &PutOptions::new()).await;
        kill("-CONT");
        assert!(matches!(late, Err(Error::TimedOut)), "{late:?}");
        client.set_timeout(Some(Duration::from_secs(60)));
        assert_eq!(client.list_tube_used().await.unwrap(), "b");
        assert!(client.peek_next(JobState::Ready).await.unwrap().body == body, "another body");
        assert_eq!(client.stats().await.unwrap().number("malformed-commands"), Some(0));
    });
}
