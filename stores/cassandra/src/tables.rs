//! The keyspace, a table for each declaration, and one that keeps the declarations.

use std::sync::Arc;
use std::time::Duration;

use emmer_store::document::declaration;
use emmer_store::{StoreErrorKind, TableDecl};
use emmer_store_keyvalue::{Answered, Fault, Patience, Tables};
use scylla::cluster::Node;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::unprepared::Statement;
use tokio::time::Instant;

use crate::address::Address;
use crate::client::{Client, Connected, Level};
use crate::cql::{Cql, META};
use crate::failure::{Ended, understood};
use crate::read::one_text;
use crate::store::Cassandra;
use crate::values::text;

/// Longest time for the nodes to agree on a definition. Usually it takes part of a second.
const MAKE_LIMIT: Duration = Duration::from_secs(30);

/// Makes a keyspace.
pub(crate) fn keyspace(name: &str, replication: usize) -> String {
    format!(
        "CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replication}}}"
    )
}

/// Makes the table of declarations.
pub(crate) fn meta(keyspace: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{META} (name text PRIMARY KEY, declaration text)"
    )
}

/// Sends a definition to one node, the same for all silos that see the same nodes: two nodes that
/// define one table at once may define it twice.
async fn define(connected: Arc<Connected>, cql: String) -> Result<(), Ended> {
    let state = connected.session.get_cluster_state();
    let nodes = state.get_nodes_info().iter().filter(|node| node.is_connected());
    let first: Option<&Arc<Node>> = nodes.min_by_key(|node| node.host_id);
    let mut statement = Statement::new(cql);
    statement.set_load_balancing_policy(first.map(|node| {
        SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(node.clone()), None)
    }));
    connected
        .session
        .query_unpaged(statement, ())
        .await
        .map(drop)
        .map_err(|error| understood(&error))
}

impl Cassandra {
    fn keyspace(&self) -> &str {
        self.client().address.keyspace()
    }

    /// Sends a definition, again where its outcome is unknown: it changes nothing twice.
    async fn define(&self, cql: String) -> Result<(), Fault> {
        let (client, deadline) = (self.client(), Instant::now() + MAKE_LIMIT);
        let mut patience = Patience::default();
        loop {
            let request = |connected| define(connected, cql.clone());
            match client.once_within(deadline, MAKE_LIMIT, request).await {
                Ok(()) => return Ok(()),
                Err(Ended::Busy(_) | Ended::Uncertain(_))
                    if patience.wait(None, deadline).await => {}
                Err(ended) => return Err(ended.fault()),
            }
        }
    }

    /// Returns true if a table is there, as the node that is asked knows.
    async fn has_table(&self, name: &str, deadline: Instant) -> Result<bool, Fault> {
        let cql = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND \
            table_name = ?";
        let values = vec![text(self.keyspace()), text(name)];
        Ok(one_text(self.client(), (cql.to_owned(), values), Level::Majority, deadline)
            .await?
            .is_some())
    }

    async fn make_keyspace(&self, deadline: Instant) -> Result<(), Fault> {
        let cql = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let values = vec![text(self.keyspace())];
        if one_text(self.client(), (cql.to_owned(), values), Level::Majority, deadline)
            .await?
            .is_some()
        {
            return Ok(());
        }
        let copies = self.client().address.replication;
        let count = |connected: Arc<Connected>| async move {
            Ok(connected.session.get_cluster_state().get_nodes_info().len())
        };
        let nodes = self.client().send(deadline, count).await?;
        if nodes < copies {
            let detail = format!(
                "the keyspace {} is missing and is to have {copies} copies of each row, but there \
                 are {nodes} nodes: say how many by replication=, or make the keyspace",
                self.keyspace()
            );
            return Err(Fault::new(StoreErrorKind::Invalid, detail));
        }
        self.define(keyspace(self.keyspace(), copies)).await
    }
}

/// The script that makes the keyspace and these tables, for administrators who let no application
/// make tables; nothing is connected to.
///
/// # Errors
/// `Invalid`: the URL cannot be understood.
pub fn script(url: &str, tables: &[&'static TableDecl]) -> emmer_store::Result<String> {
    let address = Address::parse(url)?;
    let name = address.keyspace();
    let mut statements = vec![keyspace(name, address.replication), meta(name)];
    statements.extend(tables.iter().map(|decl| Cql { keyspace: name, decl }.create()));
    for decl in tables {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let (table, declaration) = (quoted(decl.name), quoted(&declaration(decl)));
        statements.push(format!(
            "INSERT INTO {name}.{META} (name, declaration) VALUES ({table}, {declaration}) IF NOT \
             EXISTS"
        ));
    }
    Ok(statements.into_iter().map(|statement| format!("{statement};\n")).collect())
}

impl Tables for Cassandra {
    async fn make(&self, decl: &'static TableDecl, deadline: Instant) -> Answered<()> {
        let is_declared = self.shape(decl, deadline).await?.is_some();
        if !self.has_table(META, deadline).await? {
            self.make_keyspace(deadline).await?;
            self.define(meta(self.keyspace())).await?;
        }
        if !self.has_table(decl.name, self.client().deadline()).await? {
            self.define(self.client().cql(decl).create()).await?;
        }
        if is_declared {
            return Ok(());
        }
        // The second process finds the table of the first one, which is then compared.
        let cql = format!(
            "INSERT INTO {}.{META} (name, declaration) VALUES (?, ?) IF NOT EXISTS",
            self.keyspace()
        );
        let declare = (cql, vec![text(decl.name), text(&declaration(decl))]);
        let client = self.client();
        let sent = client
            .send(client.deadline(), |connected| Client::conditional(connected, declare.clone()));
        sent.await.map(drop)
    }

    async fn shape(
        &self,
        decl: &'static TableDecl,
        deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        let cql = format!("SELECT declaration FROM {}.{META} WHERE name = ?", self.keyspace());
        match one_text(self.client(), (cql, vec![text(decl.name)]), Level::Majority, deadline).await
        {
            Ok(found) => Ok(found.map(String::into_bytes)),
            Err(fault) if fault.kind == StoreErrorKind::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}
