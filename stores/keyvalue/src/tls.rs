//! Certificates, and servers that speak no TLS.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use emmer_store::StoreErrorKind;

use emmer_store::Fault;

/// The largest file of certificates, in bytes.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;

/// Makes `aws-lc-rs` the cryptography of this process, unless one was chosen before. If the
/// application compiles another one in, rustls chooses none by itself.
pub fn install_provider() {
    // An error says that there is one: as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// The certificates of the authorities in a PEM file an operator named.
///
/// # Errors
/// `Invalid`: it cannot be read, or is far too large.
pub fn read_certificates(file: &str) -> Result<Vec<u8>, Fault> {
    let invalid =
        |detail: String| Fault::new(StoreErrorKind::Invalid, format!("ca_file {file}: {detail}"));
    let size = std::fs::metadata(file).map_err(|e| invalid(e.to_string()))?.len();
    if size > CERTIFICATES_BYTES_MAX {
        return Err(invalid(format!("{size} bytes, at most {CERTIFICATES_BYTES_MAX} are allowed")));
    }
    std::fs::read(file).map_err(|e| invalid(e.to_string()))
}

/// The time for each step of a question that is not encrypted.
const PLAIN_TIME: Duration = Duration::from_secs(1);

/// Returns true if the server at `host:port` answers `question` in plain text, although it was to
/// speak TLS. Blocks for three seconds at most. The question must hold no secret.
pub fn answers_plainly(host: &str, port: u16, question: &[u8]) -> bool {
    let ask = || {
        let address = (host.trim_matches(['[', ']']), port).to_socket_addrs()?.next();
        let address = address.ok_or(std::io::ErrorKind::NotFound)?;
        let mut stream = TcpStream::connect_timeout(&address, PLAIN_TIME)?;
        stream.set_read_timeout(Some(PLAIN_TIME))?;
        stream.set_write_timeout(Some(PLAIN_TIME))?;
        stream.write_all(question)?;
        let mut begin = [0; 5];
        stream.read_exact(&mut begin)?;
        // A record of TLS begins with the number of its kind, which is no letter.
        std::io::Result::Ok(begin.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' '))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_text_is_a_plain_answer() {
        for (answer, is_plain) in
            [(&b"+PONG\r\n"[..], true), (b"\x15\x03\x03\x00\x02\x02\x46", false), (b"", false)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; 6]).unwrap();
                stream.write_all(answer).unwrap();
            });
            assert_eq!(answers_plainly("127.0.0.1", port, b"PING\r\n"), is_plain, "{answer:?}");
            server.join().unwrap();
        }
    }
}
