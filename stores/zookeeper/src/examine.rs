//! Report of the server about itself: the word `srvr`, which servers answer by default.

use std::time::Duration;

use emmer_store::{Examination, FindingLevel, FindingSubject};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::place::Place;

/// Time for which one server is given to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 8 * 1024;

/// The servers of the URL, in their own words.
pub(crate) async fn examine(place: &Place) -> Examination {
    let mut found = Examination::of("ZooKeeper", "");
    if place.tls {
        found.add(
            FindingLevel::Note,
            FindingSubject::Setup,
            "the version is not known: it is asked for over plain connections only",
        );
    } else {
        ask_all(place, &mut found).await;
    }
    if place.credentials.is_none() {
        found.add(
            FindingLevel::Note,
            FindingSubject::Security,
            "no user is named: every process that reaches the servers can read and change the \
             nodes; name one for a node that is new, as in zookeeper://user:password@host/emmer",
        );
    } else if !place.tls {
        found.add(
            FindingLevel::Note,
            FindingSubject::Security,
            "the password travels in the clear: use tls=true, or a private network",
        );
    }
    found
}

async fn ask_all(place: &Place, found: &mut Examination) {
    for (host, port) in place.hosts() {
        let answer = timeout(ANSWER_LIMIT, srvr(host, port)).await;
        let why = match answer {
            Ok(Ok(answer)) => match said(&answer) {
                Some((version, mode)) => {
                    if found.version.is_empty() {
                        found.version = version;
                    }
                    if mode == "standalone" {
                        found.add(
                            FindingLevel::Note,
                            FindingSubject::Durability,
                            "a single server: while it is away nothing can be written, and with \
                             its disk everything is gone; three servers survive the loss of one",
                        );
                    }
                    continue;
                }
                None => "it does not answer the word srvr (4lw.commands.whitelist)".to_owned(),
            },
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {ANSWER_LIMIT:?}"),
        };
        // Another host of the ensemble may be up: the cluster works then.
        found.add(
            FindingLevel::Warning,
            FindingSubject::Setup,
            format!("{host}:{port} does not describe itself: {why}"),
        );
    }
}

async fn srvr(host: &str, port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(b"srvr").await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Version and mode.
fn said(answer: &str) -> Option<(String, String)> {
    let after =
        |start: &str| answer.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
    let version = after("Zookeeper version:")?.split(['-', ',', ' ']).next()?.to_owned();
    Some((version, after("Mode:")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found() {
        let answer = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on \
            2022-02-25 08:49 UTC\n\
                      Latency min/avg/max: 0/0.0/0\nZxid: 0x0\nMode: standalone\nNode count: 5\n";
        assert_eq!(said(answer), Some(("3.8.0".to_owned(), "standalone".to_owned())));
        assert_eq!(said("srvr is not executed because it is not in the whitelist.\n"), None);
    }
}
