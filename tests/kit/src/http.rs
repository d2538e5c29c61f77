//! A client of the metrics, the health checks and the API: one request for each connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Asks for `path`, and returns the head and the body of the response. In HTTP/1.0 the body ends with the connection.
pub fn get(mut stream: impl Read + Write, path: &str) -> io::Result<(String, String)> {
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let parts = response.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

/// The status of `/readyz`; 0 if there is no response within a second.
pub fn readiness(address: SocketAddr) -> u16 {
    let time = Duration::from_secs(1);
    let ask = || {
        let stream = TcpStream::connect_timeout(&address, time)?;
        stream.set_read_timeout(Some(time))?;
        get(stream, "/readyz")
    };
    let head = ask().map_or_else(|_| String::new(), |(head, _)| head);
    head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}
