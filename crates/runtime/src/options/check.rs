//! Checks before anything begins: text that rows can hold, and numbers that work.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use emmer_core::limits::{Limits, NAME_BYTES_MAX};
use emmer_membership::humantime;

use super::{ClientOptions, RecordOptions, ReminderOptions, SheddingOptions, SiloOptions};

/// The shortest time that can be set: clocks tick every five milliseconds.
const TIME_LEAST: Duration = Duration::from_millis(10);

/// More points for each silo do not make a ring more even, only larger.
const POINTS_PER_SILO_MAX: u32 = 1_024;

/// The most silos that are drawn for one activation.
const CHOICES_MAX: usize = 64;

/// The most calls that wait for a gateway.
const CALLS_WAITING_MAX: usize = 1_000_000;

/// The most gateways that a client stays connected to.
const GATEWAYS_MAX: usize = 1_024;

/// An option cannot be worked with. Nothing was started, and nothing is left behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {reason}")]
pub struct OptionError {
    /// The option to change, as configuration files name it: `name`, `limits.frame_bytes_max`.
    pub option: String,
    /// Fault of the option: its value, and the expected one.
    pub reason: String,
}

type Checked = Result<(), OptionError>;

fn refuse(option: &str, reason: String) -> Checked {
    Err(OptionError { option: option.to_owned(), reason })
}

impl SiloOptions {
    /// Checks everything that can be checked without the store;
    /// [`SiloBuilder::start`](crate::SiloBuilder::start) does so first. The membership options have
    /// [a check of their own](emmer_membership::Config::validate).
    ///
    /// # Errors
    /// The first option that cannot be worked with.
    pub fn check(&self) -> Result<(), OptionError> {
        let names = [("name", &self.name), ("role", &self.role)];
        names.into_iter().try_for_each(|(option, name)| self::name(option, name.as_deref()))?;
        self.ports()?;
        emmer_placement::check_metadata(&self.metadata)
            .or_else(|reason| refuse("metadata", reason))?;
        let times = [
            ("response_timeout", self.response_timeout),
            ("collection_age", self.collection_age),
            ("collection_quantum", self.collection_quantum.unwrap_or(TIME_LEAST)),
            ("load_period", self.load_period),
            ("activation_timeout", self.activation_timeout),
            ("deactivation_timeout", self.deactivation_timeout),
            ("shutdown_timeout", self.shutdown_timeout),
            ("liveness_timeout", self.liveness_timeout),
            ("connect_timeout", self.connect_timeout),
        ];
        times.into_iter().try_for_each(|(option, time)| self::time(option, time))?;
        let choices = self.activation_count_choices;
        number("activation_count_choices", choices, 1, CHOICES_MAX)?;
        directory(&self.directory)?;
        shedding(&self.load_shedding)?;
        records(&self.records)?;
        reminders(&self.reminders)?;
        limits(&self.limits)
    }

    /// Silos and clients connect to two ports, and the table has one host for both.
    fn ports(&self) -> Checked {
        let addresses = [
            ("listen", Some(self.listen)),
            ("advertise", self.advertise),
            ("gateway", self.gateway),
            ("advertise_gateway", self.advertise_gateway),
        ];
        for (option, address) in addresses {
            let Some(address) = address else { continue };
            let is_broadcast = matches!(address.ip(), IpAddr::V4(ip) if ip.is_broadcast());
            if address.ip().is_multicast() || is_broadcast {
                let why = "a multicast or broadcast address cannot be connected to";
                return refuse(option, format!("is {address}: {why}"));
            }
        }
        let Some(gateway) = self.gateway else {
            return match self.advertise_gateway {
                None => Ok(()),
                Some(_) => refuse("advertise_gateway", "is set, and gateway is not".to_owned()),
            };
        };
        let (listens, told) = (self.listen.ip(), self.advertise.unwrap_or(self.listen).ip());
        let overlap =
            listens == gateway.ip() || listens.is_unspecified() || gateway.ip().is_unspecified();
        if gateway.port() != 0 && gateway.port() == self.listen.port() && overlap {
            let why = format!("is {gateway}, where silos connect (listen); expected another port");
            return refuse("gateway", why);
        }
        match self.advertise_gateway {
            Some(address) if address.port() == 0 => {
                refuse("advertise_gateway", format!("is {address}: its port is missing"))
            }
            Some(address) if address.ip() != told => {
                let why = format!(
                    "is {address}, and other silos are told {told}: the table has one host for \
                     both; expected {}",
                    SocketAddr::new(told, address.port())
                );
                refuse("advertise_gateway", why)
            }
            Some(_) => Ok(()),
            None if reaches(gateway.ip(), listens, told) => Ok(()),
            None => {
                let why = format!(
                    "is {gateway}, and clients would be told {}, where nothing listens: the table \
                     has one host for a silo and its gateway; expected {}",
                    SocketAddr::new(told, gateway.port()),
                    SocketAddr::new(told, gateway.port()),
                );
                refuse("gateway", why)
            }
        }
    }
}

/// Returns true if a client that connects to `told` may reach a gateway that listens on `gateway`,
/// where the silo itself listens on `listens`.
fn reaches(gateway: IpAddr, listens: IpAddr, told: IpAddr) -> bool {
    let is_any = match gateway {
        // It takes connections of both families.
        IpAddr::V6(any) if any.is_unspecified() => true,
        IpAddr::V4(any) => any.is_unspecified() && told.is_ipv4(),
        IpAddr::V6(_) => false,
    };
    // A wildcard that is advertised is refused for itself. What translates the silo's address
    // translates its gateway's.
    is_any || told.is_unspecified() || gateway == told || gateway == listens
}

impl ClientOptions {
    /// Checks everything that can be checked without the store;
    /// [`ClientBuilder::connect`](crate::ClientBuilder::connect) does so first.
    ///
    /// # Errors
    /// The first option that cannot be worked with.
    pub fn check(&self) -> Result<(), OptionError> {
        let times = [
            ("response_timeout", self.response_timeout),
            ("gateway_list_refresh_period", self.gateway_list_refresh_period),
            ("connect_timeout", self.connect_timeout),
        ];
        times.into_iter().try_for_each(|(option, time)| self::time(option, time))?;
        number("gateways_max", self.gateways_max, 1, GATEWAYS_MAX)?;
        number("calls_waiting_max", self.calls_waiting_max, 1, CALLS_WAITING_MAX)?;
        records(&self.records)?;
        limits(&self.limits)
    }
}

/// A name is for people, in tables and logs, and stands in a row of every store.
fn name(option: &str, name: Option<&str>) -> Checked {
    let Some(name) = name else { return Ok(()) };
    let fault = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("has {} bytes", name.len())
    } else if name.chars().any(char::is_control) {
        format!("{name:?} has a control character")
    } else {
        return Ok(());
    };
    refuse(
        option,
        format!("{fault}: expected 1 to {NAME_BYTES_MAX} bytes without control characters"),
    )
}

fn time(option: &str, time: Duration) -> Checked {
    if time < TIME_LEAST {
        let (is, least) = (humantime::print(time), humantime::print(TIME_LEAST));
        return refuse(option, format!("is {is}: it must be at least {least}"));
    }
    Ok(())
}

fn number(option: &str, value: usize, least: usize, most: usize) -> Checked {
    if value < least {
        refuse(option, format!("is {value}: it must be at least {least}"))
    } else if value > most {
        refuse(option, format!("is {value}: it must be at most {most}"))
    } else {
        Ok(())
    }
}

fn directory(config: &emmer_directory::Config) -> Checked {
    let usize = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let points = usize(config.points_per_silo);
    number("directory.points_per_silo", points, 1, usize(POINTS_PER_SILO_MAX))?;
    for (option, value) in [
        ("directory.pending_max", config.pending_max),
        ("directory.entries_max", config.entries_max),
        ("directory.questions_max", config.questions_max),
        ("directory.report_batch_max", config.report_batch_max),
    ] {
        number(option, value, 1, usize::MAX)?;
    }
    time("directory.op_timeout", config.op_timeout)
}

fn shedding(options: &SheddingOptions) -> Checked {
    let percent = |option, value: u8| number(option, usize::from(value), 1, 100);
    percent("load_shedding.cpu_percent", options.cpu_percent)?;
    percent("load_shedding.memory_percent", options.memory_percent)?;
    let least = options.cpu_percent.min(options.memory_percent);
    let hysteresis = usize::from(options.hysteresis_percent);
    number("load_shedding.hysteresis_percent", hysteresis, 0, usize::from(least))?;
    number("load_shedding.queue", options.queue, 1, usize::MAX)
}

fn records(options: &RecordOptions) -> Checked {
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3_600));
    for (option, time, least) in [
        ("records.metrics_period", options.metrics_period, second),
        ("records.statistics_period", options.statistics_period, second),
        ("records.statistics_retention", options.statistics_retention, hour),
        ("records.history_retention", options.history_retention, hour),
    ] {
        if !time.is_zero() && time < least {
            let reason = format!("is {time:?}: it must be 0 or at least {least:?}");
            return refuse(option, reason);
        }
    }
    Ok(())
}

fn reminders(options: &ReminderOptions) -> Checked {
    // A window is read twice in its time, in as many parts as the ring has.
    let window_least = Duration::from_secs(10);
    if options.window < window_least {
        let reason = format!("is {:?}: it must be at least {window_least:?}", options.window);
        return refuse("reminders.window", reason);
    }
    time("reminders.late_after", options.late_after)?;
    time("reminders.period_min", options.period_min)?;
    number("reminders.per_grain_max", options.per_grain_max, 1, usize::MAX)?;
    number("reminders.ticks_max", options.ticks_max, 1, usize::MAX)
}

fn limits(limits: &Limits) -> Checked {
    limits.check().map_err(|small| OptionError {
        option: format!("limits.{}", small.limit),
        reason: format!("is {}: it must be at least {}", small.value, small.least),
    })
}
