//! The way to the store's server for processes in other network namespaces: a port on an address
//! that they reach.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use emmer_cli::exit::{Failure, Result};

/// The URL by which processes in namespaces reach the store at `url`, through a port on `address`.
/// A store that is a file needs none.
pub(super) async fn store(url: &str, address: Ipv4Addr) -> Result<String> {
    if url.starts_with("sqlite://") {
        return Ok(url.to_owned());
    }
    let (before, server, after) = split(url).ok_or_else(|| {
        Failure::usage(
            "the store's URL must name one host and its port, for the way to it out of network \
             namespaces",
        )
    })?;
    let listener = TcpListener::bind((address, 0)).await;
    let listener =
        listener.map_err(|e| Failure::other(format!("no port on {address} for the store: {e}")))?;
    let port = listener.local_addr().map_err(Failure::other)?.port();
    tokio::spawn(forward(listener, server.to_owned()));
    Ok(format!("{before}{}{after}", SocketAddr::from((address, port))))
}

/// The parts of a URL: before host and port, these, and behind them.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let begin = url.find("://")? + 3;
    let end = url[begin..].find(['/', '?']).map_or(url.len(), |at| begin + at);
    let host = url[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    let server = &url[host..end];
    let (name, port) = server.rsplit_once(':')?;
    let whole = !name.is_empty() && !name.contains(',') && port.parse::<u16>().is_ok();
    whole.then(|| (&url[..host], server, &url[end..]))
}

/// Ends with the runtime. The server has its own limit of connections.
async fn forward(listener: TcpListener, server: String) {
    while let Ok((mut near, _)) = listener.accept().await {
        let server = server.clone();
        tokio::spawn(async move {
            let Ok(mut far) = TcpStream::connect(&server).await else { return };
            // Without it small messages would wait. A failure changes nothing else.
            let _ = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
            // Ends when either side does.
            let _ = copy_bidirectional(&mut near, &mut far).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_urls() {
        for (url, parts) in [
            ("postgres://u:p%2F@h:5432/db?x=1", Some(("postgres://u:p%2F@", "h:5432", "/db?x=1"))),
            ("redis://127.0.0.1:6379", Some(("redis://", "127.0.0.1:6379", ""))),
            ("redis://[::1]:6379?a=b", Some(("redis://", "[::1]:6379", "?a=b"))),
            ("postgres://u@a:1,b:2/db", None),
            ("postgres://u@host/db", None),
            ("nothing", None),
        ] {
            assert_eq!(split(url), parts, "{url}");
        }
    }
}
