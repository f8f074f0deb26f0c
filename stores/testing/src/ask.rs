//! One question to a server that speaks HTTP, without a library: for waiting until it is ready.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time that an answer may take.
const LIMIT: Duration = Duration::from_secs(2);
/// Maximum bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// The status of `GET path` at a port of 127.0.0.1, and the whole answer; None without an answer in
/// time.
pub(crate) fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    stream.set_write_timeout(Some(LIMIT)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, answer))
}
