//! `emmer console`: pages about a cluster for a browser.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use emmer::console::{Console, ConsoleOptions, Serving};

use super::reach::{ReachArgs, read_token};
use crate::exit::{Code, Failure, Result};
use crate::process::runtime;

/// Number of connections at once. The process has nothing else to do.
const CONNECTIONS_MAX: usize = 2_048;

/// The flags of `emmer console`.
#[derive(clap::Args)]
pub struct Args {
    /// Address to listen on. Beyond this host it needs a token, and --https or --plain
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8800", value_parser = address)]
    listen: SocketAddr,
    /// Let visitors give orders too, in the name of this process; with tokens those that show the
    /// operators' one
    #[arg(long)]
    acts: bool,
    /// A file with the token of visitors that may look, of 16 bytes at least [default: programs on
    /// this host need none]
    #[arg(long, value_name = "FILE")]
    visitor_token_file: Option<PathBuf>,
    /// A file with the token of visitors that may look and give orders
    #[arg(long, value_name = "FILE")]
    operator_token_file: Option<PathBuf>,
    /// Another name by which browsers reach it, as behind a proxy; can be given several times
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Encrypt with the certificate of the settings in [tls]; browsers with the certificate of a
    /// client of the cluster are let in
    #[cfg(feature = "tls")]
    #[arg(long)]
    https: bool,
    /// Allow plain HTTP beyond this host, where something else encrypts
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    reach: ReachArgs,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let token = |flag, file: &Option<PathBuf>| -> Result<Option<String>> {
        file.as_deref().map(|file: &Path| read_token(flag, file)).transpose()
    };
    let mut options = ConsoleOptions::default();
    options.address = args.listen;
    options.token = token("--visitor-token-file", &args.visitor_token_file)?;
    options.act_token = token("--operator-token-file", &args.operator_token_file)?;
    options.acts = args.acts;
    options.names = args.name;
    options.plain = args.plain;
    options.connections_max = CONNECTIONS_MAX;
    let way = args.reach.settle(log)?;
    #[cfg(feature = "tls")]
    if args.https {
        let why = "--https: expected tls.authority, tls.certificate and tls.key in the settings";
        let settings = way.settings();
        let tls = settings.tls()?.ok_or_else(|| Failure::usage(why))?;
        options.tls = Some((tls, settings.cluster()?));
    }
    #[cfg(feature = "tls")]
    let scheme = if args.https { "https" } else { "http" };
    #[cfg(not(feature = "tls"))]
    let scheme = "http";
    runtime()?.block_on(async {
        // A wrong address is reported before the cluster is asked.
        let console = Console::bind(options).await.map_err(failed)?;
        let address = console.address();
        let reached = way.reach().await?;
        let _serving: Serving = console.serve(reached.admin.clone());
        let line = format!("the console of the cluster is at {scheme}://{address}/\n");
        // The reader of the line may be gone; the console serves all the same.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        drop(out);
        let ended = tokio::signal::ctrl_c().await;
        reached.client.close().await;
        ended.map_err(|error| Failure::other(format!("signals cannot be watched: {error}")))
    })
}

fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected ip:port, as in 127.0.0.1:8800".to_owned())
}

/// The failure of a console that does not start.
pub(super) fn failed(error: emmer::console::ConsoleError) -> Failure {
    use emmer::console::ConsoleError::{Listen, Open, Plain};
    let flags = match error {
        Listen { .. } => return Failure::new(Code::Listen, error),
        Open(_) => " (--visitor-token-file, --operator-token-file)",
        Plain(_) => " (--https, --plain)",
        _ => "",
    };
    Failure::usage(format!("{error}{flags}"))
}
