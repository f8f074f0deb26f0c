//! The flags of a silo, for a program that has a command line of its own.

use super::{ConfigArgs, Result, Settings};

// clap makes the program's own help of a doc comment, but not of an expression.
#[doc = concat!(
    "The flags of a silo. A program flattens them into its own, and its help lists them:\n\n",
    "```ignore (needs clap's derive in the program)\n",
    "/// A silo of the shop\n",
    "#[derive(clap::Parser)]\n",
    "struct Args {\n",
    "    #[command(flatten)]\n",
    "    silo: emmer::config::SiloFlags,\n",
    "}\n",
    "```\n\n",
    "`--log` and `--log-format` come with the feature `log`. The help shows `--telemetry` with the ",
    "feature `telemetry`."
)]
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct SiloFlags {
    /// The system store that all silos of the cluster share, as in sqlite://cluster.db
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// The cluster to join
    #[arg(long, value_name = "ID")]
    pub cluster_id: Option<String>,
    /// Address where other silos connect to; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// The address other silos dial, when it is not the one listened on
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,
    /// Address where clients connect to; port 0 takes a free one [default: not a gateway]
    #[arg(long, value_name = "ADDR")]
    pub gateway: Option<String>,
    /// The address clients dial, when it is not the one listened on
    #[arg(long, value_name = "ADDR")]
    pub advertise_gateway: Option<String>,
    /// A name for people [default: host name and port]
    #[arg(long)]
    pub name: Option<String>,
    /// Its role; grains may ask for silos of a role [default: the program's name]
    #[arg(long)]
    pub role: Option<String>,
    /// The membership options to start from: default, classic (the original's published ones),
    /// fast, orleans-2026
    #[arg(long)]
    pub profile: Option<String>,
    /// Placement of grains whose class does not say it: random, prefer_local, hash_based,
    /// activation_count, resource_optimized
    #[arg(long, value_name = "NAME")]
    pub placement: Option<String>,
    /// Listen without TLS where other hosts reach it: every peer that reaches a port is believed
    #[arg(long)]
    pub insecure: bool,
    /// Address where /metrics, /healthz and /readyz are served over HTTP, as in 127.0.0.1:9464
    /// [default: nowhere]
    // A program without the feature says how to build one.
    #[arg(long, value_name = "ADDR", hide = cfg!(not(feature = "telemetry")))]
    pub telemetry: Option<String>,
    /// The log on stderr: off, error, warn, info, debug, trace, or a list such as
    /// `warn,emmer_runtime=debug` [environment: EMMER_LOG] [default: warn]
    #[cfg(feature = "log")]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
    /// The form of the log on stderr: text, or json for one object a line [default: text]
    #[cfg(feature = "log")]
    #[arg(long, value_name = "FORM")]
    pub log_format: Option<String>,
    /// File and single keys.
    #[command(flatten)]
    pub config: ConfigArgs,
}

/// Key, value if given, and name of a flag.
type Flag = (&'static str, Option<String>, &'static str);

impl SiloFlags {
    /// The settings: the file, over it the environment, over that these flags and `more` of the
    /// program's own.
    ///
    /// # Errors
    /// [`ConfigError`](super::ConfigError), with all that is wrong.
    pub fn settings(self, more: Vec<Flag>) -> Result<Settings> {
        let (config, mut flags) = self.flags();
        flags.extend(more);
        Settings::of_process(&config, flags)
    }

    /// The flags that name a file and single keys, and the others.
    pub(super) fn flags(self) -> (ConfigArgs, Vec<Flag>) {
        let mut flags = vec![
            ("store", self.store, "--store"),
            ("cluster_id", self.cluster_id, "--cluster-id"),
            ("listen", self.listen, "--listen"),
            ("advertise", self.advertise, "--advertise"),
            ("gateway", self.gateway, "--gateway"),
            ("advertise_gateway", self.advertise_gateway, "--advertise-gateway"),
            ("name", self.name, "--name"),
            ("role", self.role, "--role"),
            ("membership.profile", self.profile, "--profile"),
            ("placement", self.placement, "--placement"),
            ("telemetry", self.telemetry, "--telemetry"),
        ];
        flags.push(("insecure", self.insecure.then(|| "true".to_owned()), "--insecure"));
        #[cfg(feature = "log")]
        flags.extend([("log", self.log, "--log"), ("log_format", self.log_format, "--log-format")]);
        (self.config, flags)
    }
}
