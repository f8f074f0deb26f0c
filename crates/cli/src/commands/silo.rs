//! `emmer silo`: one silo in this process.

use std::io::{Read, Write};
use std::process;
use std::time::{Duration, Instant};

use emmer::errors::{StartError, TerminateReason};
use emmer::{Silo, SiloBuilder};
use emmer_example_flights::{Aircraft, AircraftGrain, Airport, AirportGrain};
use tokio::sync::mpsc;

use super::store;
use super::telemetry::Telemetry;
use crate::exit::{Code, Failure, Result};
use crate::logging;
use crate::process::runtime;
use emmer::config::{Settings, SiloFlags};

/// Signals that come closer together are one request: GNU `timeout` sends its own to the process,
/// and once more to its group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// The flags of `emmer silo`.
// No group of its own: another program has these flags and more.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    silo: SiloFlags,
    /// The collector that gets metrics and traces by OTLP over HTTP, as in http://127.0.0.1:4318
    /// [default: none]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// The share of this silo's own calls, reminders and timers that begin a trace, from 0 to 1
    /// [default: 0.01 where there is a collector]
    #[arg(long, value_name = "SHARE")]
    traces: Option<String>,
    /// Stop in good order when the standard input ends: for programs that start silos as children
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// Runs a silo until it is asked to stop. It hosts the example's grains, and what `host` adds.
///
/// # Errors
/// The command line, the store, an address or the cluster: each has its exit code.
pub fn run(args: Args, host: fn(SiloBuilder) -> SiloBuilder) -> Result<()> {
    let flags = vec![("otlp", args.otlp, "--otlp"), ("traces", args.traces, "--traces")];
    let settings = args.silo.settings(flags)?;
    let runtime = runtime()?;
    let telemetry = {
        let _on_runtime = runtime.enter();
        Telemetry::begin(&settings)?
    };
    logging::start_with(&settings, telemetry.layer())?;
    tracing::info!("set: {}", settings.told());
    let options = settings.silo_options()?;
    let url = settings.required("store", "--store")?.text.clone();
    if store::is_memory(&url) {
        tracing::warn!(
            "memory:// is the memory of this process: no other silo can join, no client finds it, \
             and nothing outlives it"
        );
    }
    let placement = settings.placement()?;
    // Settings that contradict each other are reported now; the files are read when the silo
    // starts.
    let builder = emmer::config::secured(&settings, Silo::builder().options(options))
        .map_err(Failure::usage)?;
    let builder = builder.default_placement(placement);
    let ended = runtime.block_on(async {
        let mut requests = stop_requests(args.until_stdin_ends)?;
        let ended = tokio::select! {
            silo = start(&url, builder, &settings, &telemetry, host) => match silo {
                Ok(silo) => serve(silo, &mut requests).await,
                Err(failure) => Err(failure),
            },
            _ = requests.recv() => Err(Failure::new(Code::Interrupted, "stopped before the silo \
                was Active")),
        };
        tokio::select! {
            () = telemetry.end() => {}
            // A second request does not wait for a collector that is away.
            _ = requests.recv() => {}
        }
        ended
    });
    // Threads that still wait for something (the standard input, a slow store) must not hold the
    // process.
    runtime.shutdown_background();
    ended
}

async fn start(
    url: &str,
    builder: SiloBuilder,
    settings: &Settings,
    telemetry: &Telemetry,
    host: fn(SiloBuilder) -> SiloBuilder,
) -> Result<Silo> {
    let store = store::open(url).await?;
    let builder = emmer::notify_systemd(builder)
        .store(store)
        .host::<dyn Airport, AirportGrain>()
        .host::<dyn Aircraft, AircraftGrain>();
    let (builder, telemetry) = telemetry.observe(builder).await?;
    let silo = host(builder)
        // `serve` waits for it, and decides what to do then.
        .on_terminate(|_| {})
        .start()
        .await
        .map_err(failure)?;
    let cluster = settings.cluster()?;
    let gateway =
        silo.gateway().map_or_else(|| "no gateway".to_owned(), |g| format!("gateway {g}"));
    let telemetry = telemetry.map_or_else(String::new, |t| format!(", telemetry http://{t}"));
    let address = silo.address();
    let line = format!("silo {address} is active in cluster {cluster}, {gateway}{telemetry}\n");
    let mut out = std::io::stdout().lock();
    // The reader of the line may be gone; the silo runs all the same.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    Ok(silo)
}

fn failure(error: StartError) -> Failure {
    let code = [Code::Usage, Code::Store, Code::Listen, Code::NotJoined]
        .into_iter()
        .find(|code| *code as u8 == error.exit_code())
        .unwrap_or(Code::Failed);
    Failure::new(code, error)
}

async fn serve(silo: Silo, requests: &mut mpsc::Receiver<()>) -> Result<()> {
    tokio::select! {
        reason = silo.terminated() => return ended(&silo, &reason),
        _ = requests.recv() => tracing::info!("stopping"),
    }
    tokio::select! {
        stopped = silo.stop() => stopped.map_err(Failure::other),
        _ = requests.recv() => Err(Failure::new(Code::Interrupted, "stopped at once, without \
            leaving the cluster")),
    }
}

fn ended(silo: &Silo, reason: &TerminateReason) -> Result<()> {
    match reason {
        TerminateReason::Left => Ok(()),
        TerminateReason::TableWentBack
        | TerminateReason::TableReplaced
        | TerminateReason::TableGone => {
            let cause = match reason {
                TerminateReason::TableWentBack => {
                    "The store was restored from a backup, or failed over to a server that lacked \
                     the commit. Every silo that saw the commit ends like this one"
                }
                TerminateReason::TableReplaced => {
                    "The store's address leads to another store now, or its tables were deleted \
                     and made again. Every silo of the first table ends like this one"
                }
                _ => {
                    "Its tables were deleted, or its server came back empty. Every silo ends like \
                     this one"
                }
            };
            let silo = silo.address();
            let message = format!(
                "silo {silo} stopped itself: {reason}. {cause}; silos that start now join a new one"
            );
            Err(Failure::new(Code::TableWentBack, message))
        }
        reason => {
            let message = format!("silo {} stopped itself: {reason}", silo.address());
            Err(Failure::new(Code::DeclaredDead, message))
        }
    }
}

/// One message for each request to stop: Ctrl-C, SIGTERM, the end of the standard input.
fn stop_requests(stdin: bool) -> Result<mpsc::Receiver<()>> {
    let (ask, requests) = mpsc::channel(4);
    let failed =
        |error: std::io::Error| Failure::other(format!("signals cannot be watched: {error}"));
    let (signalled, mut signals) = mpsc::channel(4);
    let interrupted = signalled.clone();
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && interrupted.send(()).await.is_ok() {}
    });
    #[cfg(unix)]
    {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
                .map_err(failed)?;
        tokio::spawn(async move {
            while terminate.recv().await.is_some() && signalled.send(()).await.is_ok() {}
        });
    }
    #[cfg(not(unix))]
    let _ = (failed, signalled);
    let asked = ask.clone();
    tokio::spawn(async move {
        let mut last: Option<Instant> = None;
        while signals.recv().await.is_some() {
            if last.is_some_and(|last| last.elapsed() < ONE_REQUEST) {
                continue;
            }
            last = Some(Instant::now());
            if asked.send(()).await.is_err() {
                return;
            }
        }
    });
    if stdin {
        let watch = move || {
            let mut nowhere = [0; 256];
            while matches!(std::io::stdin().lock().read(&mut nowhere), Ok(1..)) {}
            if ask.blocking_send(()).is_err() {
                process::exit(i32::from(Code::Interrupted as u8));
            }
        };
        let thread = std::thread::Builder::new().name("emmer-stdin".to_owned()).spawn(watch);
        thread.map_err(|error| {
            Failure::other(format!("no thread to watch the standard input: {error}"))
        })?;
    } else {
        drop(ask);
    }
    Ok(requests)
}
