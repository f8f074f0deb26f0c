//! Microsoft's emulator of Cosmos DB, a part of the SDK's driver, as a server of its own.
//!
//! The emulator lives in memory, and the tests kill servers. So there are two processes. The *door*
//! is the one that clients connect to, and that a test kills, freezes and starts again; it passes
//! bytes on. The *memory* holds the emulator, as the service's own replicas hold the data when a
//! gateway dies. It ends when the door is told to end, or when its folder is gone.
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

/// How often the memory looks whether anybody needs it.
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
    while port_file(folder).exists() {
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

async fn door(port: u16, folder: &Path) -> Result<(), Failure> {
    if !port_file(folder).exists() {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("memory")
            .arg(folder)
            .stdin(Stdio::null())
            .spawn()?;
        while !port_file(folder).exists() {
            if let Some(status) = child.try_wait()? {
                return Err(format!("the memory ended: {status}").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let memory: u16 = std::fs::read_to_string(port_file(folder))?.trim().parse()?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = term.recv() => break,
            accepted = listener.accept() => {
                let (mut client, _) = accepted?;
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", memory)).await?;
                    client.set_nodelay(true)?;
                    server.set_nodelay(true)?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        }
    }
    // The memory sees that it is gone.
    std::fs::remove_file(port_file(folder))?;
    Ok(())
}
