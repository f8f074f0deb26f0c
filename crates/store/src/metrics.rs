//! Silo metrics and client metrics (table description): one row for each silo and each client,
//! updated in place.
//!
//! `CPU` is a percentage, `MemoryUsage` bytes, `Time` the writer's wall clock; queues and messages
//! are counts. `SendQueue` counts frames that wait to be written, `ReceiveQueue` turns that wait
//! for their grain, `RequestQueue` calls of others under way.

use std::sync::Arc;

use emmer_core::{ClusterId, Timestamp};

use crate::contract::{CommitOutcome, Mutation, Result, StoreError, StoreErrorKind, SystemStore};
use crate::keys;
use crate::table::{Column, ColumnType, Row, TableDecl, Value};

/// The declaration of the silo metrics table.
pub static SILO_METRICS: TableDecl = TableDecl {
    name: "silo_metrics",
    partition_key: "PartitionKey",
    row_key: "RowKey",
    columns: &[
        Column::new("DeploymentId", ColumnType::Text),
        Column::new("Address", ColumnType::Text),
        Column::new("SiloName", ColumnType::Text),
        Column::new("GatewayAddress", ColumnType::Text),
        Column::new("HostName", ColumnType::Text),
        Column::new("CPU", ColumnType::Int),
        Column::new("MemoryUsage", ColumnType::Int),
        Column::new("Activations", ColumnType::Int),
        Column::new("RecentlyUsedActivations", ColumnType::Int),
        Column::new("SendQueue", ColumnType::Int),
        Column::new("ReceiveQueue", ColumnType::Int),
        Column::new("RequestQueue", ColumnType::Int),
        Column::new("SentMessages", ColumnType::Int),
        Column::new("ReceivedMessages", ColumnType::Int),
        Column::new("LoadShedding", ColumnType::Int),
        Column::new("Clients", ColumnType::Int),
        Column::new("Time", ColumnType::Time),
    ],
    schema_version: 1,
    one_moment: false,
};

/// The declaration of the client metrics table.
pub static CLIENT_METRICS: TableDecl = TableDecl {
    name: "client_metrics",
    partition_key: "PartitionKey",
    row_key: "RowKey",
    columns: &[
        Column::new("DeploymentId", ColumnType::Text),
        Column::new("Address", ColumnType::Text),
        Column::new("ClientId", ColumnType::Text),
        Column::new("HostName", ColumnType::Text),
        Column::new("CPU", ColumnType::Int),
        Column::new("MemoryUsage", ColumnType::Int),
        Column::new("SendQueue", ColumnType::Int),
        Column::new("ReceiveQueue", ColumnType::Int),
        Column::new("SentMessages", ColumnType::Int),
        Column::new("ReceivedMessages", ColumnType::Int),
        Column::new("ConnectedGatewayCount", ColumnType::Int),
        Column::new("Time", ColumnType::Time),
    ],
    schema_version: 1,
    one_moment: false,
};

/// The figures that silos and clients both have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// `ip:port:epoch` of a silo, `ip:port` of a client.
    pub address: Arc<str>,
    /// The host's name.
    pub host: Arc<str>,
    /// The use of the processors in percent, if it is known.
    pub cpu_percent: Option<u8>,
    /// The memory of the process in bytes, if it is known.
    pub memory_bytes: Option<u64>,
    /// Messages that wait to be sent.
    pub send_queue: u64,
    /// Messages that arrived and wait.
    pub receive_queue: u64,
    /// Messages sent since the start.
    pub sent: u64,
    /// Messages received since the start.
    pub received: u64,
    /// The time, by the writer's wall clock.
    pub at: Timestamp,
}

/// The metrics of a silo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiloMetrics {
    /// The figures that a client has as well.
    pub shared: Shared,
    /// The silo's name: the row key.
    pub name: Arc<str>,
    /// The address for clients, if it takes any.
    pub gateway: Option<Arc<str>>,
    /// Activations in memory.
    pub activations: u64,
    /// Number of activations that were called within ten minutes.
    pub recently_used: u64,
    /// Calls of others that are under way.
    pub request_queue: u64,
    /// True while the silo refuses calls of clients because it has too much to do.
    pub load_shedding: bool,
    /// Connected clients.
    pub clients: u64,
}

/// The metrics of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientMetrics {
    /// The figures that a silo has as well.
    pub shared: Shared,
    /// The client's number, as gateways know it.
    pub client: Arc<str>,
    /// The gateways that it is connected to.
    pub gateways: u64,
}

/// Both tables of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct MetricsTable {
    store: Arc<dyn SystemStore>,
    cluster: ClusterId,
}

impl std::fmt::Debug for MetricsTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MetricsTable({} in {})", self.cluster, self.store.describe())
    }
}

impl MetricsTable {
    /// The metrics of `cluster` in `store`.
    pub fn new(store: Arc<dyn SystemStore>, cluster: ClusterId) -> Self {
        Self { store, cluster }
    }

    /// Creates the tables that are missing.
    ///
    /// # Errors
    /// As [`SystemStore::ensure_tables`].
    pub async fn ensure(&self) -> Result<()> {
        self.store.ensure_tables(&[&SILO_METRICS, &CLIENT_METRICS]).await
    }

    /// Writes the row of a silo.
    ///
    /// # Errors
    /// As the store; also where it is not known whether the row was written.
    pub async fn write_silo(&self, told: &SiloMetrics) -> Result<()> {
        let mut row = self.row(keys::escape(&told.name), &told.shared);
        row.set("SiloName", Value::Text(keys::escape(&told.name).into()));
        if let Some(gateway) = &told.gateway {
            row.set("GatewayAddress", Value::Text(gateway.clone()));
        }
        for (column, number) in [
            ("Activations", told.activations),
            ("RecentlyUsedActivations", told.recently_used),
            ("RequestQueue", told.request_queue),
            ("LoadShedding", u64::from(told.load_shedding)),
            ("Clients", told.clients),
        ] {
            row.set(column, count(number));
        }
        self.upsert(&SILO_METRICS, row).await
    }

    /// Writes the row of a client.
    ///
    /// # Errors
    /// As [`write_silo`](Self::write_silo).
    pub async fn write_client(&self, told: &ClientMetrics) -> Result<()> {
        let mut row = self.row(told.shared.address.to_string(), &told.shared);
        row.set("ClientId", Value::Text(told.client.clone()));
        row.set("ConnectedGatewayCount", count(told.gateways));
        self.upsert(&CLIENT_METRICS, row).await
    }

    async fn upsert(&self, table: &'static TableDecl, row: Row) -> Result<()> {
        let partition = self.cluster.as_str();
        match self.store.commit(table, partition, vec![Mutation::Upsert { row }]).await? {
            CommitOutcome::Unknown(error) => Err(error),
            CommitOutcome::Committed(_) | CommitOutcome::Conflict(_) => Ok(()),
        }
    }

    fn row(&self, key: String, shared: &Shared) -> Row {
        let mut row = Row::new(key)
            .with("DeploymentId", Value::Text(self.cluster.as_str().into()))
            .with("Address", Value::Text(shared.address.clone()))
            .with("HostName", Value::Text(keys::escape(&shared.host).into()))
            .with("SendQueue", count(shared.send_queue))
            .with("ReceiveQueue", count(shared.receive_queue))
            .with("SentMessages", count(shared.sent))
            .with("ReceivedMessages", count(shared.received))
            .with("Time", Value::Time(shared.at));
        if let Some(cpu) = shared.cpu_percent {
            row.set("CPU", Value::Int(i64::from(cpu)));
        }
        if let Some(bytes) = shared.memory_bytes {
            row.set("MemoryUsage", count(bytes));
        }
        row
    }

    /// The rows of all silos, by name.
    ///
    /// # Errors
    /// As the store; `Corrupt` when a row cannot be understood.
    pub async fn silos(&self) -> Result<Vec<SiloMetrics>> {
        self.read(&SILO_METRICS, |fields| {
            Ok(SiloMetrics {
                shared: shared(fields)?,
                name: fields.text("SiloName")?,
                gateway: fields.text("GatewayAddress").ok(),
                activations: fields.count("Activations")?,
                recently_used: fields.count("RecentlyUsedActivations")?,
                request_queue: fields.count("RequestQueue")?,
                load_shedding: fields.count("LoadShedding")? > 0,
                clients: fields.count("Clients")?,
            })
        })
        .await
    }

    /// The rows of all clients, by address.
    ///
    /// # Errors
    /// As [`silos`](Self::silos).
    pub async fn clients(&self) -> Result<Vec<ClientMetrics>> {
        self.read(&CLIENT_METRICS, |fields| {
            Ok(ClientMetrics {
                shared: shared(fields)?,
                client: fields.text("ClientId")?,
                gateways: fields.count("ConnectedGatewayCount")?,
            })
        })
        .await
    }

    async fn read<T>(
        &self,
        table: &'static TableDecl,
        understand: impl Fn(&Fields<'_>) -> std::result::Result<T, String>,
    ) -> Result<Vec<T>> {
        let rows = self.store.read_partition(table, self.cluster.as_str()).await?;
        let understood = rows.iter().map(|row| {
            understand(&Fields(&row.row)).map_err(|why| {
                let operation = format!("read {}/{}/{}", table.name, self.cluster, row.row.key());
                StoreError::new(StoreErrorKind::Corrupt, self.store.describe(), operation, why)
            })
        });
        understood.collect()
    }

    /// Deletes rows that were not written since `cutoff`, of silos and clients that are gone.
    ///
    /// # Errors
    /// As the store.
    pub async fn clean(&self, cutoff: Timestamp) -> Result<u64> {
        let mut deleted = 0;
        for table in [&SILO_METRICS, &CLIENT_METRICS] {
            let partition = self.cluster.as_str();
            deleted += self.store.delete_older_than(table, partition, "Time", cutoff).await?;
        }
        Ok(deleted)
    }
}

fn count(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn shared(fields: &Fields<'_>) -> std::result::Result<Shared, String> {
    Ok(Shared {
        address: fields.text("Address")?,
        host: fields.text("HostName")?,
        cpu_percent: fields.count("CPU").ok().and_then(|cpu| u8::try_from(cpu).ok()),
        memory_bytes: fields.count("MemoryUsage").ok(),
        send_queue: fields.count("SendQueue")?,
        receive_queue: fields.count("ReceiveQueue")?,
        sent: fields.count("SentMessages")?,
        received: fields.count("ReceivedMessages")?,
        at: fields.time("Time")?,
    })
}

/// The columns of a row, by their types.
pub(crate) struct Fields<'a>(pub(crate) &'a Row);

impl Fields<'_> {
    /// A text, as it was before [`keys::escape`].
    pub(crate) fn text(&self, column: &str) -> std::result::Result<Arc<str>, String> {
        match self.0.get(column) {
            Some(Value::Text(text)) => {
                let text = keys::unescape(text);
                text.map(Into::into).ok_or_else(|| format!("{column} is badly escaped"))
            }
            _ => Err(format!("{column} is null")),
        }
    }

    pub(crate) fn count(&self, column: &str) -> std::result::Result<u64, String> {
        match self.0.get(column) {
            Some(Value::Int(n)) => {
                u64::try_from(*n).map_err(|_| format!("{column} is {n}, a count is expected"))
            }
            _ => Err(format!("{column} is null")),
        }
    }

    pub(crate) fn time(&self, column: &str) -> std::result::Result<Timestamp, String> {
        match self.0.get(column) {
            Some(Value::Time(time)) => Ok(*time),
            _ => Err(format!("{column} is null")),
        }
    }

    pub(crate) fn list(&self, column: &str) -> Vec<Arc<str>> {
        match self.0.get(column) {
            Some(Value::List(list)) => list.clone(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{CLIENT_STATISTICS, SILO_STATISTICS};

    /// The columns of the table description, in its order; keys are no columns here.
    const DESCRIBED: [(&TableDecl, &[&str]); 4] = [
        (
            &SILO_METRICS,
            &[
                "DeploymentId",
                "Address",
                "SiloName",
                "GatewayAddress",
                "HostName",
                "CPU",
                "MemoryUsage",
                "Activations",
                "RecentlyUsedActivations",
                "SendQueue",
                "ReceiveQueue",
                "RequestQueue",
                "SentMessages",
                "ReceivedMessages",
                "LoadShedding",
                "Clients",
            ],
        ),
        (
            &CLIENT_METRICS,
            &[
                "DeploymentId",
                "Address",
                "ClientId",
                "HostName",
                "CPU",
                "MemoryUsage",
                "SendQueue",
                "ReceiveQueue",
                "SentMessages",
                "ReceivedMessages",
                "ConnectedGatewayCount",
            ],
        ),
        (
            &SILO_STATISTICS,
            &[
                "DeploymentId",
                "Time",
                "Address",
                "Name",
                "HostName",
                "Statistic",
                "StatValue",
                "IsDelta",
            ],
        ),
        (
            &CLIENT_STATISTICS,
            &[
                "DeploymentId",
                "Time",
                "Address",
                "Name",
                "HostName",
                "Statistic",
                "StatValue",
                "IsDelta",
            ],
        ),
    ];

    #[test]
    fn the_tables_have_the_columns_of_the_table_description() {
        for (table, described) in DESCRIBED {
            let columns: Vec<_> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(&columns[..described.len()], described, "{}", table.name);
            assert_eq!((table.partition_key, table.row_key), ("PartitionKey", "RowKey"));
        }
    }
}
