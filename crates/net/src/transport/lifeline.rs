//! Lifelines: connections that carry nothing, and end when the process at the other end does.

use std::time::Duration;

use bytes::BytesMut;
use emmer_core::SiloAddress;
use emmer_membership::ConnectionEvent;
use emmer_wire::{FrameKind, HANDSHAKE_BYTES_MAX, decode_frame};
use tokio::io::AsyncReadExt;

use super::handshake::{Greeting, greet};
use crate::world::TcpStream;

/// The pause before a lifeline that ended, or was not taken, is made again; doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest of them. A lifeline that lasted for longer begins with the shortest one.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Keeps a lifeline to `silo` until it is dropped, and reports each time that one ends. One that is
/// not taken is no news.
pub async fn keep_lifeline(
    silo: SiloAddress,
    greeting: &Greeting,
    report: impl Fn(ConnectionEvent),
) {
    let mut pause = PAUSE_MIN;
    loop {
        if let Ok((stream, _, input)) = greet(silo.endpoint(), Some(silo), greeting).await {
            let since = tokio::time::Instant::now();
            if let Some(event) = ended(stream, input).await {
                report(event);
            }
            if since.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Waits for the end of the stream, and tells it. Returns none if the acceptor sent what no
/// acceptor sends.
async fn ended(mut stream: TcpStream, mut input: BytesMut) -> Option<ConnectionEvent> {
    loop {
        match decode_frame(&mut input, HANDSHAKE_BYTES_MAX) {
            Ok(Some(frame)) if frame.kind == FrameKind::Goodbye => {
                return Some(ConnectionEvent::Goodbye);
            }
            // It tells every peer that it serves no further calls.
            Ok(Some(frame)) if frame.kind == FrameKind::System => continue,
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return None,
        }
        match stream.read_buf(&mut input).await {
            // Half a goodbye does not count.
            Ok(0) => return Some(ConnectionEvent::Closed),
            Ok(_) => {}
            Err(_) => return Some(ConnectionEvent::Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::SiloAddress;
    use emmer_wire::{GoodbyeCode, PeerKind};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;
    use crate::transport::Lost;
    use crate::transport::Port;
    use crate::transport::handshake::{Verdict, accept, dial};
    use crate::transport::tests::{FROM, Told, call, driven, greeting, silo};

    /// Each lifeline is made again, and the reason of its end is reported.
    #[tokio::test]
    async fn a_lifeline_tells_each_of_its_ends_and_is_made_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let me = SiloAddress::new(listener.local_addr().unwrap(), 2);
        let watcher = silo("127.0.0.1:1:1");
        let dialing = Greeting { me: PeerKind::Watch(watcher), ..greeting(watcher) };
        let (tell, mut told) = mpsc::channel(8);
        let kept = tokio::spawn(async move {
            let report = |event| tell.try_send(event).unwrap();
            keep_lifeline(me, &dialing, report).await;
        });
        let accepting = greeting(me);
        for end in [ConnectionEvent::Closed, ConnectionEvent::Broken, ConnectionEvent::Goodbye] {
            let (stream, _) = listener.accept().await.unwrap();
            let accepted =
                accept((stream.into(), FROM), Port::Silo, me, &accepting, |_| Verdict::Accept)
                    .await;
            let (connection, _) = accepted.unwrap();
            assert_eq!(connection.peer, PeerKind::Watch(watcher));
            let (connection, _told) = driven(connection);
            match end {
                ConnectionEvent::Closed => connection.lose(Lost::Closed),
                ConnectionEvent::Broken => connection.reset(Lost::Closed),
                _ => connection.goodbye(GoodbyeCode::Stopping, "this silo is stopping"),
            }
            assert_eq!(told.recv().await, Some(end));
        }
        kept.abort();
    }

    #[tokio::test]
    async fn whoever_speaks_on_a_lifeline_loses_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let me = SiloAddress::new(listener.local_addr().unwrap(), 2);
        let watcher = silo("127.0.0.1:1:1");
        let (dialing, accepting) =
            (Greeting { me: PeerKind::Watch(watcher), ..greeting(watcher) }, greeting(me));
        let accepted = async {
            let (stream, _) = listener.accept().await.unwrap();
            accept((stream.into(), FROM), Port::Silo, me, &accepting, |_| Verdict::Accept)
                .await
                .unwrap()
                .0
        };
        let (dialed, accepted) = tokio::join!(dial(me.endpoint(), None, &dialing), accepted);
        let (_accepted, mut at_the_silo) = driven(accepted);
        let (dialed, _told) = driven(dialed.unwrap().0);
        call(&dialed).unwrap();
        // No call is heard before.
        let end = at_the_silo.recv().await;
        assert!(matches!(end, Some(Told::Lost(Lost::Protocol(_)))), "{end:?}");
    }
}
