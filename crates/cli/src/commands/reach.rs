//! The way of commands to a running cluster: by its store, or by its gateways alone.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use emmer::Client;
use emmer::admin::{Admin, AdminError};
use emmer::config::Settings;
use emmer::console::ask_silos;
use emmer::errors::ConnectError;
use emmer::options::ClientBuilder;
use emmer::tables::{SiloAddress, SiloEntry, SiloStatus};

use super::duty::secured;
use super::store;
use crate::exit::{Code, Failure, Result};

/// Time after which no further try to reach a gateway begins. A busy gateway answers late.
const GATEWAY_WAIT: Duration = Duration::from_secs(5);

/// Number of silos that are asked at once.
const ASKED_AT_ONCE: usize = 64;

/// The largest file with a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 8_192;

/// The flags that lead to a running cluster.
#[derive(clap::Args)]
pub(super) struct ReachArgs {
    #[command(flatten)]
    cluster: store::ClusterArgs,
    /// A gateway to ask instead of those in the store; can be given several times
    #[arg(long, value_name = "HOST:PORT")]
    gateway: Vec<String>,
    /// A file with the token that the gateways want to see
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A cluster that answers.
pub(super) struct Reached {
    pub(super) client: Client,
    pub(super) admin: Admin,
    /// The members that the gateway knows, those that are dead included.
    pub(super) members: Vec<SiloEntry>,
}

impl ReachArgs {
    /// Reads the settings of the process and starts its log.
    pub(super) fn settle(self, log: Option<String>) -> Result<Way> {
        let settings = self.cluster.settle(log)?;
        if self.gateway.is_empty() && settings.required("store", "--store").is_err() {
            return Err(Failure::usage(
                "expected --store, the store that the silos share, or --gateway, the address of a \
                 gateway",
            ));
        }
        let token =
            self.token_file.as_deref().map(|file| read_token("--token-file", file)).transpose()?;
        Ok(Way { settings, gateways: self.gateway, token })
    }
}

/// The way to a cluster.
pub(super) struct Way {
    settings: Settings,
    gateways: Vec<String>,
    token: Option<String>,
}

impl Way {
    /// The settings of the process.
    #[cfg(all(feature = "console", feature = "tls"))]
    pub(super) const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Connects, and asks who is there.
    pub(super) async fn reach(&self) -> Result<Reached> {
        let client = self.connect().await?;
        let admin = client.admin();
        let members = admin.members(None).await.map_err(failed)?;
        Ok(Reached { client, admin, members })
    }

    async fn connect(&self) -> Result<Client> {
        let cluster = self.settings.cluster()?;
        let client = Client::builder().cluster_id(cluster);
        let client = if self.gateways.is_empty() {
            let table = store::table(&self.settings).await?;
            store::check_cluster(table.store(), table.cluster()).await?;
            client.store(table.store().clone())
        } else {
            client.gateways(self.gateways.clone())
        };
        let client = secured(client.wait_for_gateway(GATEWAY_WAIT), &self.settings)?;
        let connected = self.shown(client).connect().await;
        connected.map_err(|error| match error {
            ConnectError::Store(error) => Failure::store(error),
            error => Failure::other(error),
        })
    }

    fn shown(&self, client: ClientBuilder) -> ClientBuilder {
        match &self.token {
            None => client,
            Some(token) => {
                let token = token.clone();
                client.token(move || {
                    let token = token.clone();
                    async move { Ok(token) }
                })
            }
        }
    }
}

/// Reads the file with a token that `flag` names.
pub(super) fn read_token(flag: &str, file: &Path) -> Result<String> {
    let wrong = |why: String| Failure::usage(format!("{flag} {}: {why}", file.display()));
    let bytes = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?.len();
    if bytes > TOKEN_BYTES_MAX {
        return Err(wrong(format!("expected a token of at most {TOKEN_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    match text.trim() {
        "" => Err(wrong("expected a token, and the file is empty".to_owned())),
        token => Ok(token.to_owned()),
    }
}

/// The failure of a command that asked.
pub(super) fn failed(error: AdminError) -> Failure {
    Failure::other(error)
}

impl Reached {
    /// The silos that can be asked.
    pub(super) fn active(&self) -> impl Iterator<Item = &SiloEntry> {
        self.members.iter().filter(|silo| silo.status == SiloStatus::Active)
    }

    /// The name of a silo, or its address if it has none.
    pub(super) fn name_of(&self, silo: &SiloAddress) -> String {
        let row = self.members.iter().find(|row| row.address == *silo);
        let name = row.map(|row| row.instance_name.to_string()).filter(|name| !name.is_empty());
        name.unwrap_or_else(|| silo.to_string())
    }

    /// Asks every active silo, and all at once. Returns the answers, and the silos without one.
    pub(super) async fn ask_all<A, F>(
        &self,
        ask: impl Fn(Admin, SiloAddress) -> F,
    ) -> Result<(BTreeMap<SiloAddress, A>, Vec<Silent>)>
    where
        A: Send + 'static,
        F: Future<Output = std::result::Result<A, AdminError>> + Send + 'static,
    {
        let silos = self.active().map(|silo| silo.address).collect();
        let asked = |silo| ask(self.admin.clone(), silo);
        let (answers, unanswered) = ask_silos(silos, ASKED_AT_ONCE, asked).await;
        let mut silent = Vec::new();
        for (silo, error) in unanswered {
            if matches!(error, AdminError::Refused(_) | AdminError::NoType(_)) {
                return Err(failed(error));
            }
            silent.push(Silent { silo, why: error.to_string() });
        }
        if answers.is_empty() {
            let why = silent.first().map_or("no silo is active", |silent| silent.why.as_str());
            return Err(Failure::new(Code::Failed, format!("no silo has answered: {why}")));
        }
        Ok((answers, silent))
    }
}

/// A silo that has not answered.
pub(super) struct Silent {
    pub(super) silo: SiloAddress,
    pub(super) why: String,
}

/// Tells about silos that have not answered.
pub(super) fn tell_silent(silent: &[Silent]) {
    for Silent { silo, why } in silent {
        eprintln!("silo {silo} is left out: {why}");
    }
}
