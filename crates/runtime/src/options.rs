//! The options of an operator.

mod admin;
mod check;
mod records;
mod reminders;
mod setting;
mod shedding;
mod shown;

use std::net::SocketAddr;
use std::time::Duration;

use emmer_core::ClusterId;
use emmer_core::limits::{GRAIN_KEY_BYTES_MAX, Limits};
use emmer_placement::hosted::VersionSelector;
use emmer_placement::{ActivationCountDirector, Metadata};

pub use self::admin::AdminOptions;
pub use self::check::OptionError;
pub use self::records::RecordOptions;
pub use self::reminders::ReminderOptions;
pub use self::setting::Setting;
pub(crate) use self::setting::Wrong;
pub use self::shedding::SheddingOptions;
pub use self::shown::SettingLook;

/// Maximum bytes of a registration on the wire: the longest key, and the names of its type, silo
/// and activation.
const REGISTRATION_BYTES_MAX: usize = GRAIN_KEY_BYTES_MAX + 128;

/// The settings of one silo.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SiloOptions {
    /// The cluster to join. Default `dev`.
    pub cluster_id: ClusterId,
    /// The name under which grain state is stored. Clusters with one service id share their grains'
    /// state (a blue and a green deployment). Default: the cluster id.
    pub service_id: Option<ClusterId>,
    /// Address where other silos connect to. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// The address other silos connect to, if it differs from the one listened on (behind a
    /// wildcard or an address translation).
    pub advertise: Option<SocketAddr>,
    /// Address where clients connect to; no gateway when none. Default none.
    pub gateway: Option<SocketAddr>,
    /// The address that clients connect to, if it differs from the one listened on (behind an
    /// address translation). Its host is that of `advertise`, because the table has one host for
    /// both. Default none.
    pub advertise_gateway: Option<SocketAddr>,
    /// The silo's name, for people: 1 to 256 bytes without control characters. Default: the host's
    /// name and the port.
    pub name: Option<String>,
    /// Role of the silo, as `#[placement(silo_role = "front")]` asks for it: 1 to 256 bytes without
    /// control characters. Default: the name of the program.
    pub role: Option<String>,
    /// The silo's update zone: silos of one zone are updated together. Directors see it. Default 0.
    pub update_zone: i32,
    /// The silo's fault zone: silos of one zone fail together, because they share a rack or a
    /// power line. Directors see it. Default 0.
    pub fault_zone: i32,
    /// Facts about the silo, for placement: at most 32 entries, with keys of 1 to 64 bytes
    /// and values of at most 256, without control characters. Default none.
    pub metadata: Metadata,
    /// The membership protocol's parameters.
    pub membership: emmer_membership::Config,
    /// The directory's parameters; `points_per_silo` must be the same on every silo.
    pub directory: emmer_directory::Config,
    /// Time that a call waits for its answer if neither the call nor its caller has a deadline.
    /// Default 30 s.
    pub response_timeout: Duration,
    /// Time after which an idle activation is deactivated, for classes that do not say. Default 15
    /// min.
    pub collection_age: Duration,
    /// Time between two looks for idle activations. Default: a quarter of `collection_age`, 1 s to
    /// 1 min.
    pub collection_quantum: Option<Duration>,
    /// Share of the machine's memory, or of the container's limit, in percent. From it on the silo
    /// ends grains that were idle for a minute, the least recently used first, in small steps. When
    /// there are none, it takes no further grains. Default 0: never.
    pub memory_max: u8,
    /// True if the silo gives recently used grains to silos of its kind that have fewer: when it
    /// has a fifth more than the mean, and down to a twentieth. Default false.
    pub balance: bool,
    /// Part of its grains, in percent, that a silo gives away so in a minute at most. Default 10.
    pub balance_share: u8,
    /// True if grains move to silos with whose grains they talk much: once a minute a silo
    /// exchanges some with another one, `balance_share` percent at most, so that both keep about
    /// the mean. Default false.
    pub repartition: bool,
    /// Time between two load reports of a silo. The shortest time of a silo counts for all. With
    /// more than some 200 silos it is longer, and a silo that becomes Active reports at once.
    /// Default 1 s.
    pub load_period: Duration,
    /// Of how many silos, drawn at random, `#[placement(activation_count)]` takes the best: 1 to
    /// 64. Default 2.
    pub activation_count_choices: usize,
    /// Selector of the silos that get new activations where several versions of a class can serve a
    /// call. Default [`VersionSelector::Any`].
    pub version_selector: VersionSelector,
    /// The longest an activation may take: registration, reading the state, the hook. Default 30 s.
    pub activation_timeout: Duration,
    /// The longest a deactivate hook may take. Default 30 s.
    pub deactivation_timeout: Duration,
    /// The longest a graceful stop may take in all. Default 60 s.
    pub shutdown_timeout: Duration,
    /// Time without turns after which a silo is reported as stuck, if calls wait and the store
    /// answers: [`Readiness::Stuck`](crate::Readiness::Stuck), and 503 at `/healthz`, so that a
    /// supervisor restarts it. Default 30 s.
    pub liveness_timeout: Duration,
    /// The longest a connection may take to be made. Default 5 s.
    pub connect_timeout: Duration,
    /// Without TLS a silo listens on addresses of its own host only, unless this is true: then
    /// every process that reaches a port of it is believed. Default false.
    pub insecure: bool,
    /// A client that calls a type or a method that no silo has hears which types there are: for
    /// development. The log of its gateway says it always. Default false.
    pub list_types_to_clients: bool,
    /// The settings as operators see them, without secrets: the options that the program itself
    /// sets are added. Default none.
    pub settings: Vec<SettingLook>,
    /// The settings of the admin interface.
    pub admin: AdminOptions,
    /// The settings of load shedding.
    pub load_shedding: SheddingOptions,
    /// The settings of the records in the store.
    pub records: RecordOptions,
    /// The settings of reminders.
    pub reminders: ReminderOptions,
    /// Maxima of queues, frames and lists.
    pub limits: Limits,
}

impl Default for SiloOptions {
    fn default() -> Self {
        Self {
            cluster_id: default_cluster(),
            service_id: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            advertise_gateway: None,
            gateway: None,
            name: None,
            role: None,
            update_zone: 0,
            fault_zone: 0,
            metadata: Metadata::new(),
            membership: emmer_membership::Config::default(),
            directory: emmer_directory::Config::default(),
            response_timeout: Duration::from_secs(30),
            collection_age: Duration::from_secs(15 * 60),
            collection_quantum: None,
            memory_max: 0,
            balance: false,
            balance_share: 10,
            repartition: false,
            load_period: Duration::from_secs(1),
            activation_count_choices: ActivationCountDirector::CHOICES,
            version_selector: VersionSelector::Any,
            activation_timeout: Duration::from_secs(30),
            deactivation_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(60),
            liveness_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            insecure: false,
            list_types_to_clients: false,
            settings: Vec::new(),
            admin: AdminOptions::default(),
            load_shedding: SheddingOptions::default(),
            records: RecordOptions::default(),
            reminders: ReminderOptions::default(),
            limits: Limits::default(),
        }
    }
}

impl SiloOptions {
    /// Time between two looks for idle activations.
    pub(crate) fn quantum(&self) -> Duration {
        let by_age =
            (self.collection_age / 4).clamp(Duration::from_secs(1), Duration::from_secs(60));
        self.collection_quantum.unwrap_or(by_age)
    }

    /// The directory's parameters: its lists travel in batches that fit a frame.
    pub(crate) fn directory_config(&self) -> emmer_directory::Config {
        let fit = self.limits.frame_bytes_max as usize / REGISTRATION_BYTES_MAX;
        let report_batch_max = self.directory.report_batch_max.min(fit.max(1));
        emmer_directory::Config { report_batch_max, ..self.directory.clone() }
    }

    /// A digest of the options that must be the same on every silo of a cluster. Never 0.
    pub(crate) fn digest(&self) -> u64 {
        let Self { membership: m, directory, .. } = self;
        let times = [
            m.fence_timeout,
            m.fence_table_timeout,
            m.patience(),
            m.death_vote_expiration_timeout,
            m.table_timeout,
            m.i_am_alive_table_publish_timeout,
            m.min_i_am_alive_publish_timeout,
        ];
        let numbers = [
            m.num_votes_for_death_declaration,
            m.num_probe_rings,
            m.num_probed_silos,
            m.num_missed_table_i_am_alive_limit,
            u32::from(m.liveness_enabled),
            u32::from(m.serve_without_store),
            directory.points_per_silo,
        ];
        let times = times.into_iter().flat_map(|time| time.as_nanos().to_le_bytes());
        let bytes: Vec<u8> = times.chain(numbers.into_iter().flat_map(u32::to_le_bytes)).collect();
        emmer_core::hash::stable64(&bytes).max(1)
    }

    /// The name under which grain state is stored.
    pub fn service(&self) -> &ClusterId {
        self.service_id.as_ref().unwrap_or(&self.cluster_id)
    }
}

/// The settings of one client outside the cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The cluster to call. Default `dev`.
    pub cluster_id: ClusterId,
    /// Time that a call waits for its answer when it does not say. Default 30 s.
    pub response_timeout: Duration,
    /// Time between two reads of the list of gateways from the store. Default 10 s; a lost
    /// connection reads it at once.
    pub gateway_list_refresh_period: Duration,
    /// The longest a connection may take to be made. Default 5 s.
    pub connect_timeout: Duration,
    /// Number of gateways to stay connected to. Default 4.
    pub gateways_max: usize,
    /// The time after which connecting begins no further try to reach a gateway, or a store that is
    /// away. Zero: it tries once. Default 30 s.
    pub gateway_wait: Duration,
    /// The most calls that wait while no gateway is connected; one more is `Overloaded`. Default
    /// 10,000.
    pub calls_waiting_max: usize,
    /// The settings of the client's records in the store: its metrics and its statistics. Default
    /// nothing: a client needs to read the store only.
    pub records: RecordOptions,
    /// Maxima of queues, frames and lists.
    pub limits: Limits,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            cluster_id: default_cluster(),
            response_timeout: Duration::from_secs(30),
            gateway_list_refresh_period: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            gateways_max: 4,
            gateway_wait: Duration::from_secs(30),
            calls_waiting_max: 10_000,
            records: RecordOptions::OFF,
            limits: Limits::default(),
        }
    }
}

#[expect(clippy::expect_used, reason = "a constant that a test checks")]
fn default_cluster() -> ClusterId {
    ClusterId::new("dev").expect("dev is a cluster id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_tells_options_apart_that_must_agree_and_no_others() {
        type Change = fn(&mut SiloOptions);
        let own = SiloOptions::default().digest();
        let digest = |change: Change| {
            let mut options = SiloOptions::default();
            change(&mut options);
            options.digest()
        };
        let must: [Change; 9] = [
            |o| o.membership.serve_without_store = false,
            |o| o.membership.fence_timeout = Duration::from_secs(3),
            |o| o.membership.fence_table_timeout = Duration::from_millis(400),
            |o| o.membership.num_votes_for_death_declaration = 2,
            |o| o.membership.num_missed_probes_limit = 5,
            |o| o.membership.num_probe_rings = 3,
            |o| o.membership.num_probed_silos = 9,
            |o| o.membership.table_timeout = Duration::from_secs(9),
            |o| o.directory.points_per_silo = 31,
        ];
        for (at, change) in must.into_iter().enumerate() {
            assert_ne!(digest(change), own, "option {at}");
        }
        let may: [Change; 3] = [
            |o| o.response_timeout = Duration::from_secs(1),
            |o| o.membership.fan_out = 9,
            |o| o.name = Some("other".to_owned()),
        ];
        for (at, change) in may.into_iter().enumerate() {
            assert_eq!(digest(change), own, "option {at}");
        }
    }

    #[test]
    fn defaults_are_made_without_trouble() {
        assert_eq!(SiloOptions::default().service().as_str(), "dev");
        assert_eq!(ClientOptions::default().cluster_id.as_str(), "dev");
        assert_eq!(SiloOptions::default().quantum(), Duration::from_secs(60));
    }
}
