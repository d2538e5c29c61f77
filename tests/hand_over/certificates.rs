//! Certificates and TLS connections during a hand-over: a replaced certificate, a handshake and a record of which only
//! half has arrived, replies that are read slowly or not at all.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use beanstalkd_testkit::pace::Pace;
use beanstalkd_testkit::panicking::wait_until;
use beanstalkd_testkit::system::SmallDisk;
use beanstalkd_testkit::tls::{self, Identity, Leaf, authority, server_identity, usual_client};
use beanstalkd_testkit::{PATIENCE, copy_built_server};
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, StreamOwned};

use super::service::{BROKEN_AFTER_TRIAL, Service};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// The flags of a server with a listener for TLS, whose files `prepare` makes.
pub const FLAGS: [&str; 6] =
    ["--listen", "tls://127.0.0.1:0", "--tls-cert", "{dir}/cert.pem", "--tls-key", "{dir}/key.pem"];

pub fn prepare(directory: &Path) {
    server_identity().write(directory).unwrap();
}

/// Another certificate for the same server.
pub fn renewed() -> Identity {
    authority().issue(Leaf { serial: 2, ..Leaf::of("localhost") })
}

/// Where the server listens for TLS.
pub fn address(service: &Service) -> SocketAddr {
    let log = service.log();
    let (_, address) = log.rsplit_once("listening on tls://").expect("it says where");
    address.lines().next().unwrap().parse().unwrap()
}

fn socket(service: &Service) -> TcpStream {
    let socket = TcpStream::connect(address(service)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub fn connect(service: &Service) -> io::Result<Stream> {
    let socket = socket(service);
    Ok(StreamOwned::new(tls::handshake(&socket, usual_client())?, socket))
}

/// The certificate that the server shows to a new client. Tries again if the server closes the connection before that.
pub fn shown(service: &Service) -> CertificateDer<'static> {
    loop {
        if let Ok(stream) = connect(service) {
            return stream.conn.peer_certificates().unwrap()[0].clone().into_owned();
        }
    }
}

pub fn ask(stream: &mut Stream, command: &str, reply: &str) {
    stream.write_all(command.as_bytes()).unwrap();
    let mut read = vec![0; reply.len()];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(String::from_utf8_lossy(&read), reply);
}

/// The rest of the bytes, until the server closes or resets the connection.
fn rest(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn the_next_program_has_the_certificate_that_is_there_then() {
    let service = Service::prepared(&FLAGS, prepare);
    let mut before = connect(&service).unwrap();
    ask(&mut before, "session w 60\r\nput 0 0 600 1\r\nx\r\n", "SESSION 0\r\nINSERTED 1\r\n");
    ask(&mut before, "reserve\r\n", "RESERVED 1 1\r\nx\r\n");
    let renewed = renewed();
    renewed.write(service.directory()).unwrap();
    assert_eq!(shown(&service), server_identity().certificate, "nothing changes before the signal");
    service.hand_over();
    assert_eq!(shown(&service), renewed.certificate);
    assert_eq!(rest(before), b"", "and a client that was there is closed");
    let mut again = connect(&service).unwrap();
    ask(&mut again, "session w 60\r\ndelete 1\r\n", "SESSION 1\r\nDELETED\r\n");
}

#[test]
fn a_certificate_without_its_key_keeps_the_program_the_certificate_and_the_clients() {
    let service = Service::prepared(&FLAGS, prepare);
    let mut client = connect(&service).unwrap();
    let renewed = renewed();
    fs::write(service.directory().join("cert.pem"), renewed.certificate_pem()).unwrap();
    service.replace();
    service.signal(Signal::HUP);
    service.await_refusal("not the key of the first certificate");
    assert_eq!(shown(&service), server_identity().certificate);
    ask(&mut client, "use some\r\n", "USING some\r\n");
    fs::write(service.directory().join("key.pem"), renewed.key_pem()).unwrap();
    service.signal(Signal::HUP);
    service.await_hand_over();
    assert_eq!(shown(&service), renewed.certificate);
    assert_eq!(rest(client), b"");
}

/// No client gets a reply to another command, no partial command is executed, and no other client waits for long.
#[test]
fn half_a_handshake_and_half_a_record_end_and_replies_that_are_due_come_whole() {
    const BIG: usize = 6_000_000;
    let service = Service::prepared(&[&FLAGS[..], &["-z", "8000000"]].concat(), prepare);
    let mut plain = service.connect();
    plain.put(0, 600, &vec![b'x'; BIG]);
    let silent = socket(&service);
    let mut begun = socket(&service);
    let name = "localhost".try_into().unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(Arc::clone(usual_client()), name).unwrap().write_tls(&mut hello).unwrap();
    begun.write_all(&hello[..hello.len() / 2]).unwrap();
    // This client has sent a whole command, and a record without its end.
    let mut half = connect(&service).unwrap();
    ask(&mut half, "use half\r\n", "USING half\r\n");
    half.conn.writer().write_all(b"put 0 0 60 1\r\nx\r\n").unwrap();
    let mut record = Vec::new();
    half.conn.write_tls(&mut record).unwrap();
    half.sock.write_all(&record[..record.len() - 1]).unwrap();
    // Both have requested more than the system buffers for them; one reads it, the other does not.
    let [mut reader, mut idler] = [(); 2].map(|()| connect(&service).unwrap());
    for stream in [&mut reader, &mut idler] {
        stream.write_all(b"use asked\r\npeek 1\r\nuse more\r\n").unwrap();
    }
    wait_until("both peeks are executed", || plain.data("stats")["cmd-peek"] == "2");
    let (pace, start) = (Pace::watch().unwrap(), Instant::now());
    let reading = thread::spawn(move || {
        let mut bytes = Vec::new();
        (reader.read_to_end(&mut bytes), bytes)
    });
    service.hand_over();
    let (end, bytes) = reading.join().unwrap();
    let expected = format!("USING asked\r\nFOUND 1 {BIG}\r\n{}\r\n", "x".repeat(BIG));
    if end.is_err() && !pace.was_kept_since(start) {
        // The reader has missed the time that it has.
        let all = expected + "USING more\r\n";
        assert!(all.as_bytes().starts_with(&bytes), "not one byte is wrong");
    } else {
        end.expect("the server says that this is the end");
        assert!(bytes.starts_with(expected.as_bytes()), "not one byte is missing or twice");
        assert!([&b""[..], b"USING more\r\n"].contains(&&bytes[expected.len()..]));
    }
    assert!(rest(&silent).is_empty());
    assert!(rest(&begun).len() < 100, "no more than an alert");
    assert_eq!(rest(half), b"");
    assert!(rest(idler).len() < BIG, "the server does not wait for a client that does not read");
    assert_eq!(plain.ask("stats-tube half"), "NOT_FOUND", "half a record is no command");
    assert_eq!(plain.data("stats")["total-jobs"], "1");
    ask(&mut connect(&service).unwrap(), "list-tube-used\r\n", "USING default\r\n");
}

/// The server waits for a TLS client that does not read its replies, but other clients do not.
#[test]
fn others_are_served_while_a_client_with_tls_does_not_read() {
    let service = Service::prepared(&FLAGS, prepare);
    let mut plain = service.connect();
    plain.put(0, 600, &[b'x'; 60_000]);
    let is_served = || {
        let (mut idler, silent) = (connect(&service).unwrap(), socket(&service));
        idler.write_all(&b"peek 1\r\n".repeat(200)).unwrap();
        let mut other = service.connect();
        service.replace();
        service.signal(Signal::HUP);
        // Now the connections with TLS end.
        assert_eq!(rest(&silent), b"");
        other.ask("list-tube-used");
        let was_before = service.next_message().is_none_or(|message| !message.contains("READY=1"));
        if was_before {
            service.await_hand_over();
        }
        was_before
    };
    assert!((0..5).any(|_| is_served()), "no client was served before the hand-over");
}

/// Clients that connect at any time either get a reply or are closed before they have one.
#[test]
fn clients_that_come_meanwhile_are_served_or_closed() {
    let service = Service::prepared(&FLAGS, prepare);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let come = || {
            let (mut served, mut closed, mut is_last) = (0, 0, false);
            while !is_last {
                // The last hand-over disturbs nobody who comes after it.
                is_last = is_over.load(std::sync::atomic::Ordering::Relaxed);
                let serve = || -> io::Result<()> {
                    let mut stream = connect(&service)?;
                    stream.write_all(b"list-tube-used\r\n")?;
                    let mut reply = [0; 15];
                    stream.read_exact(&mut reply)?;
                    assert_eq!(&reply, b"USING default\r\n");
                    Ok(())
                };
                match serve() {
                    Ok(()) => served += 1,
                    Err(error) => {
                        assert_ne!(error.kind(), io::ErrorKind::InvalidData, "what comes is TLS: {error}");
                        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "no client waits forever");
                        closed += 1;
                    }
                }
            }
            assert!(served > 0, "{closed} were closed");
        };
        let clients = [(); 3].map(|()| scope.spawn(come));
        for _ in 0..4 {
            service.hand_over();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

/// On a full disk the log lacks changes of reservations, so no program could take over. No client is disconnected for a
/// hand-over that cannot succeed.
#[test]
fn clients_stay_while_the_full_disk_has_no_room_for_all_changes() {
    let Some(disk) = SmallDisk::mount(1_000 << 10) else { return };
    let log = ["-b", disk.path().to_str().unwrap(), "-f", "0", "-s", "65536"];
    let service = Service::prepared(&[&FLAGS[..], &log].concat(), prepare);
    let mut encrypted = connect(&service).unwrap();
    let mut worker = service.connect();
    assert_eq!(worker.ask("session w 600"), "SESSION 0");
    worker.put(0, 600, b"x");
    worker.reserve("reserve");
    let ballast = disk.path().join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    for bytes in [9_000, 1_000, 100, 10] {
        let put = format!("put 0 0 600 {bytes}\r\n{}", "y".repeat(bytes));
        while worker.ask(&put).starts_with("INSERTED ") {}
    }
    for seconds in 0..1_500 {
        assert_eq!(worker.ask(&format!("touch 1 {}", 1_000 + seconds)), "TOUCHED");
    }
    service.replace();
    service.signal(Signal::HUP);
    // The status may say before that the disk is full.
    service.await_refusal("no room for all changes");
    ask(&mut encrypted, "use some\r\n", "USING some\r\n");
    drop(file);
    fs::remove_file(ballast).unwrap();
    service.signal(Signal::HUP);
    // The status says that the disk was full, until the log has got its room.
    service.await_hand_over();
    assert_eq!(rest(encrypted), b"");
    assert_eq!(worker.ask("delete 1"), "DELETED");
}

/// The program is replaced again during its trial, by one that cannot take over.
#[test]
fn clients_stay_if_another_program_must_be_tried() {
    let service = Service::prepared(&FLAGS, prepare);
    copy_built_server(&service.directory().join("real")).unwrap();
    let mut client = connect(&service).unwrap();
    service.replace_with_script(BROKEN_AFTER_TRIAL);
    service.signal(Signal::HUP);
    service.await_refusal("this one is broken");
    ask(&mut client, "use some\r\n", "USING some\r\n");
    service.hand_over();
    assert_eq!(rest(client), b"");
}
