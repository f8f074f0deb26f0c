//! Microsoft's emulator of Cosmos DB, a part of the SDK's driver, as a server of its own.
//!
//! The emulator lives in memory, and the tests kill servers. So there are two processes. Clients
//! connect to the *door*, which a test kills, freezes and starts again; it passes bytes on. The
//! *memory* holds the emulator, as the service's own replicas hold the data when a gateway dies. It
//! ends when its folder is gone, or after a quarter of an hour without requests.
//!
//! ```text
//! cosmos-emulator PORT FOLDER      the door
//! cosmos-emulator memory FOLDER    the memory, started by the first door
//! ```

#![allow(clippy::print_stderr, reason = "a program")]

#[path = "../tests/it/emulator.rs"]
mod emulator;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The longest time without a request that the memory waits for another door.
const IDLE_LIMIT: Duration = Duration::from_secs(900);
/// Pause between two checks of the memory's use.
const LOOK: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder] = arguments.as_slice() else {
        eprintln!("usage: cosmos-emulator PORT FOLDER");
        return ExitCode::from(2);
    };
    let folder = PathBuf::from(folder);
    let runtime = tokio::runtime::Runtime::new();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| {
        runtime.block_on(async {
            match what.as_str() {
                "memory" => memory(&folder).await,
                port => door(port.parse()?, &folder).await,
            }
        })
    });
    if let Err(failure) = ended {
        eprintln!("cosmos-emulator: {failure}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The file that tells the port of the memory.
fn port_file(folder: &Path) -> PathBuf {
    folder.join("memory")
}

async fn memory(folder: &Path) -> Result<(), Failure> {
    let running = emulator::Emulator::start(&["East US"]).await?;
    let port = running.ports().first().copied().ok_or("no port")?;
    // Whole at once: the door reads it.
    std::fs::write(folder.join("memory.new"), port.to_string())?;
    std::fs::rename(folder.join("memory.new"), port_file(folder))?;
    while port_file(folder).exists() && running.idle() < IDLE_LIMIT {
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// The port of the memory that holds the folder's data, if it is there.
async fn running(folder: &Path) -> Option<u16> {
    let port = std::fs::read_to_string(port_file(folder)).ok()?.trim().parse().ok()?;
    TcpStream::connect(("127.0.0.1", port)).await.ok().map(|_| port)
}

async fn door(port: u16, folder: &Path) -> Result<(), Failure> {
    if running(folder).await.is_none() {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("memory")
            .arg(folder)
            .stdin(Stdio::null())
            .spawn()?;
        while running(folder).await.is_none() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("the memory ended: {status}").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let memory = running(folder).await.ok_or("the memory is gone")?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (mut client, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", memory)).await?;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut client, &mut server).await
        });
    }
}
