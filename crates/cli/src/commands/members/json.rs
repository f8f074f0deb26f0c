//! The table for programs. Field names are stable: docs/operations.md lists them, and a test holds
//! both together.

use serde::Serialize;

use super::super::ports;
use super::Reading;

/// One reading of the table.
#[derive(Serialize)]
pub(super) struct Document {
    cluster_id: String,
    store: String,
    version: u64,
    read_at: String,
    silos: Vec<Silo>,
}

#[derive(Serialize)]
struct Silo {
    status: &'static str,
    duty: &'static str,
    address: String,
    ip: String,
    port: u16,
    epoch: u64,
    name: String,
    host_name: String,
    role: String,
    update_zone: i32,
    fault_zone: i32,
    gateway: Option<String>,
    security: Option<&'static str>,
    suspicions: Vec<Suspicion>,
    start_time: String,
    i_am_alive_time: String,
    i_am_alive_age_ms: i64,
}

#[derive(Serialize)]
struct Suspicion {
    voter: String,
    at: String,
}

impl Document {
    pub(super) fn of(reading: &Reading) -> Self {
        let ports = reading.ports.iter().flatten().copied().chain(std::iter::repeat(None));
        let silo =
            |(s, security): (&emmer::tables::SiloEntry, Option<emmer::access::PortSecurity>)| {
                Silo {
                    security: security.map(ports::word),
                    status: s.status.name(),
                    duty: s.duty.name(),
                    address: s.address.to_string(),
                    ip: s.address.ip().to_string(),
                    port: s.address.port(),
                    epoch: s.address.epoch(),
                    name: s.instance_name.to_string(),
                    host_name: s.host_name.to_string(),
                    role: s.role_name.to_string(),
                    update_zone: s.update_zone,
                    fault_zone: s.fault_zone,
                    gateway: Some(s.proxy_port)
                        .filter(|port| *port != 0)
                        .map(|port| std::net::SocketAddr::new(s.address.ip(), port).to_string()),
                    suspicions: s
                        .votes
                        .iter()
                        .map(|v| Suspicion { voter: v.voter.to_string(), at: v.at.to_string() })
                        .collect(),
                    start_time: s.start_time.to_string(),
                    i_am_alive_time: s.i_am_alive_time.to_string(),
                    i_am_alive_age_ms: reading
                        .at
                        .as_millis()
                        .saturating_sub(s.i_am_alive_time.as_millis()),
                }
            };
        Self {
            cluster_id: reading.cluster.clone(),
            store: reading.store.clone(),
            version: reading.version.number,
            read_at: reading.at.to_string(),
            silos: reading.silos.iter().zip(ports).map(silo).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn fields_are_those_of_the_operations_page() {
        let value = serde_json::to_value(Document::of(&fixture::reading())).unwrap();
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
        let page = std::fs::read_to_string(page).unwrap();
        let silo = &value["silos"][1];
        let suspicion = &silo["suspicions"][0];
        for object in [&value, silo, suspicion] {
            for name in object.as_object().unwrap().keys() {
                assert!(page.contains(&format!("| `{name}` |")), "{name}");
            }
        }
        assert_eq!((silo["status"].as_str(), silo["gateway"].as_str()), (Some("Dead"), None));
        assert_eq!(suspicion["voter"], "127.0.0.1:11111:7");
        assert_eq!(value["silos"][0]["i_am_alive_age_ms"], 5_000);
        assert_eq!(value["silos"][0]["gateway"], "127.0.0.1:30000");
    }
}
