//! A proxy that keeps a batch back and delivers it later, as a node does that stood still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// The largest message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Where a message says what it is, and what a batch says.
const OPCODE_AT: usize = 4;
const BATCH: u8 = 13;

/// A batch, and the connection to the server that it is for.
type Kept = Arc<Mutex<Option<(TcpStream, Vec<u8>)>>>;

/// The proxy. It ends with the runtime.
pub(crate) struct Late {
    port: u16,
    is_armed: Arc<AtomicBool>,
    kept: Kept,
}

impl Late {
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_armed, kept) = (Arc::new(AtomicBool::new(false)), Kept::default());
        let made = Self { port, is_armed: is_armed.clone(), kept: kept.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
                tokio::spawn(both_ways(client, server, is_armed.clone(), kept.clone()));
            }
        });
        made
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Keeps the next batch back, and cuts its client's connection.
    pub(crate) fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    /// Delivers what was kept, and waits for the answer.
    pub(crate) async fn deliver(&self) {
        let (mut server, batch) = self.kept.lock().await.take().unwrap();
        server.write_all(&batch).await.unwrap();
        let mut answer = vec![0; MESSAGE_BYTES_MAX];
        assert!(server.read(&mut answer).await.unwrap() > 0, "no answer");
    }
}

async fn both_ways(
    mut client: TcpStream,
    mut server: TcpStream,
    is_armed: Arc<AtomicBool>,
    kept: Kept,
) {
    let (mut up, mut down) = (vec![0; MESSAGE_BYTES_MAX], vec![0; MESSAGE_BYTES_MAX]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(count @ 1..) = read else { return };
                if up[OPCODE_AT] == BATCH && is_armed.swap(false, Ordering::SeqCst) {
                    *kept.lock().await = Some((server, up[..count].to_vec()));
                    return;
                }
                if server.write_all(&up[..count]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&down[..count]).await.is_err() { return }
            }
        }
    }
}
