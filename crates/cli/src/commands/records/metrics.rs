//! `emmer metrics`: the last key figures of each silo, or of each client.

use std::fmt::Write;
use std::time::Duration;

use emmer::store::{ClientMetrics, MetricsTable, SharedMetrics, SiloMetrics};
use emmer::tables::Timestamp;
use serde::Serialize;

use super::super::output::show;
use super::{Common, Place};
use crate::exit::Result;
use crate::process::now;
use crate::text;

/// The flags of `emmer metrics`.
#[derive(clap::Args)]
pub struct Args {
    /// Show clients, not silos (those that write their metrics)
    #[arg(long)]
    clients: bool,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: Args, log: Option<String>) -> Result<()> {
    let wants_clients = args.clients;
    let (place, format, (silos, clients)) =
        super::read(args.common, log, |store, cluster| async move {
            let table = MetricsTable::new(store, cluster);
            Ok(match wants_clients {
                true => (Vec::new(), table.clients().await?),
                false => (table.silos().await?, Vec::new()),
            })
        })?;
    let document = Document::of(&place, &silos, &clients);
    let what = if wants_clients { "clients" } else { "silos" };
    show(format, || table(&place, what, &silos, &clients, now()), &document)
}

fn age(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", text::span(now.saturating_since(at)))
}

/// The cells that silos and clients have alike.
fn cells(shared: &SharedMetrics, now: Timestamp) -> Vec<String> {
    let unknown = || "-".to_owned();
    vec![
        shared.cpu_percent.map_or_else(unknown, |cpu| format!("{cpu}%")),
        shared
            .memory_bytes
            .map_or_else(unknown, |bytes| format!("{} MiB", text::grouped(bytes >> 20))),
        text::grouped(shared.sent),
        text::grouped(shared.received),
        format!("{}/{}", shared.send_queue, shared.receive_queue),
        age(shared.at, now),
    ]
}

const CELLS: [&str; 6] = ["CPU", "MEMORY", "SENT", "RECEIVED", "QUEUES", "WRITTEN"];

fn table(
    place: &Place,
    what: &str,
    silos: &[SiloMetrics],
    clients: &[ClientMetrics],
    now: Timestamp,
) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let header = |first: &[&str]| -> Vec<String> {
        first.iter().chain(&CELLS).map(|cell| (*cell).to_owned()).collect()
    };
    for silo in silos {
        let SiloMetrics { shared, name, activations, recently_used, clients, .. } = silo;
        let own = [
            name.to_string(),
            shared.address.to_string(),
            format!("{} ({})", text::grouped(*activations), text::grouped(*recently_used)),
            text::grouped(*clients),
        ];
        rows.push(own.into_iter().chain(cells(shared, now)).collect());
    }
    for client in clients {
        let own = [client.shared.address.to_string(), client.gateways.to_string()];
        rows.push(own.into_iter().chain(cells(&client.shared, now)).collect());
    }
    let Place { cluster, store } = place;
    let mut out = format!("cluster {cluster} in {store}: {} {what} have written\n", rows.len());
    if !rows.is_empty() {
        rows.insert(
            0,
            match what {
                "silos" => header(&["NAME", "SILO", "ACTIVATIONS (RECENT)", "CLIENTS"]),
                _ => header(&["CLIENT", "GATEWAYS"]),
            },
        );
        out.push('\n');
        for line in text::columns(&rows) {
            let _ = writeln!(out, "{line}");
        }
    }
    let late = |at: Timestamp| now.saturating_since(at) > Duration::from_secs(90);
    if silos.iter().any(|silo| late(silo.shared.at)) {
        out.push_str("\nA row that was written long ago is of a silo that is gone.\n");
    }
    out
}

#[derive(Serialize)]
struct Document {
    cluster_id: String,
    store: String,
    silos: Vec<Silo>,
    clients: Vec<Client>,
}

#[derive(Serialize)]
struct Silo {
    name: String,
    gateway: Option<String>,
    activations: u64,
    recently_used_activations: u64,
    request_queue: u64,
    load_shedding: bool,
    clients: u64,
    #[serde(flatten)]
    shared: Both,
}

#[derive(Serialize)]
struct Client {
    client_id: String,
    connected_gateways: u64,
    #[serde(flatten)]
    shared: Both,
}

#[derive(Serialize)]
struct Both {
    address: String,
    host_name: String,
    cpu_percent: Option<u8>,
    memory_bytes: Option<u64>,
    send_queue: u64,
    receive_queue: u64,
    sent_messages: u64,
    received_messages: u64,
    written_at: String,
}

impl Document {
    fn of(place: &Place, silos: &[SiloMetrics], clients: &[ClientMetrics]) -> Self {
        let both = |shared: &SharedMetrics| Both {
            address: shared.address.to_string(),
            host_name: shared.host.to_string(),
            cpu_percent: shared.cpu_percent,
            memory_bytes: shared.memory_bytes,
            send_queue: shared.send_queue,
            receive_queue: shared.receive_queue,
            sent_messages: shared.sent,
            received_messages: shared.received,
            written_at: shared.at.to_string(),
        };
        let silo = |silo: &SiloMetrics| Silo {
            name: silo.name.to_string(),
            gateway: silo.gateway.as_ref().map(ToString::to_string),
            activations: silo.activations,
            recently_used_activations: silo.recently_used,
            request_queue: silo.request_queue,
            load_shedding: silo.load_shedding,
            clients: silo.clients,
            shared: both(&silo.shared),
        };
        let client = |client: &ClientMetrics| Client {
            client_id: client.client.to_string(),
            connected_gateways: client.gateways,
            shared: both(&client.shared),
        };
        Self {
            cluster_id: place.cluster.to_string(),
            store: place.store.clone(),
            silos: silos.iter().map(silo).collect(),
            clients: clients.iter().map(client).collect(),
        }
    }
}
