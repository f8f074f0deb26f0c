//! `emmer certs`: an authority and certificates, or a secret, for a development cluster.

#[cfg(feature = "tls")]
mod make;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;

#[cfg(feature = "tls")]
pub(super) use self::make::{both, run};
use super::output::Format;

/// The flags of `emmer certs`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder, which is made if it is missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The cluster that the certificates are for
    #[arg(long, value_name = "ID")]
    cluster_id: String,
    /// Make the certificate of a silo, in NAME.pem and NAME.key [default: a silo `silo` and a
    /// client `client`]
    #[arg(long, value_name = "NAME")]
    silo: Option<String>,
    /// An address of the silo: it may say to be at these only. May be repeated [default: any]
    #[arg(long, value_name = "IP", conflicts_with = "secret")]
    address: Vec<IpAddr>,
    /// Make the certificate of a client, in NAME.pem and NAME.key, that says this name
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// The days for which certificates are good
    #[arg(long, default_value_t = 365, value_parser = RangedU64ValueParser::<u32>::new().range(1..=3650))]
    days: u32,
    /// Make a secret for silos, in cluster.secret, and the key of clients that is made of it, in
    /// client-key.pem, instead of certificates
    #[arg(long, conflicts_with_all = ["silo", "client", "days"])]
    secret: bool,
    /// Replace certificates, or the key of clients, that are there; the authority and the secret
    /// stay
    #[arg(long)]
    renew: bool,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// This program has no TLS.
#[cfg(not(feature = "tls"))]
pub(super) fn run(args: &Args) -> crate::exit::Result<()> {
    let Args { folder, cluster_id, silo, address, client, days, secret, renew, format } = args;
    let _ = (cluster_id, silo, address, client, days, secret, renew, format);
    Err(crate::exit::Failure::usage(format!(
        "nothing is made in {}: this program was built without TLS: build it with --features tls",
        folder.display()
    )))
}
