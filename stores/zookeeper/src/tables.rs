//! Making tables and partitions.

use emmer_store::{TableDecl, document};
use serde_json::Value as Json;
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError};

use crate::fault::Fault;
use crate::paths::{self, PartitionPaths, TablePaths};

/// Creates a node unless it is there.
async fn make(client: &Client, path: &str, data: &[u8], acls: Acls<'_>) -> Result<(), Fault> {
    match client.create(path, data, &CreateMode::Persistent.with_acls(acls)).await {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates missing parts of a table, in any order with others who do the same. The declaration's
/// node comes last: an existing table is whole.
pub(crate) async fn ensure(
    client: &Client,
    root: &str,
    decl: &'static TableDecl,
    acls: Acls<'_>,
) -> Result<(), Fault> {
    for (at, _) in root.match_indices('/').skip(1) {
        make(client, root.get(..at).unwrap_or_default(), b"", acls).await?;
    }
    if !root.is_empty() {
        make(client, root, b"", acls).await?;
    }
    make(client, &paths::meta(root), b"", acls).await?;
    let nodes = TablePaths::new(root, decl);
    make(client, &nodes.deletions, b"", acls).await?;
    let wanted = document::declaration(decl);
    make(client, &nodes.table, wanted.as_bytes(), acls).await?;
    let (found, _) = client.get_data(&nodes.table).await?;
    let same = |found: &[u8]| -> Option<bool> {
        let found: Json = serde_json::from_slice(found).ok()?;
        Some(found == serde_json::from_str::<Json>(&wanted).ok()?)
    };
    if same(&found) != Some(true) {
        let shown: String = String::from_utf8_lossy(&found).chars().take(400).collect();
        let detail = format!("the table {} is there with another shape: {shown}", decl.name);
        return Err(Fault::corrupt(detail));
    }
    Ok(())
}

/// Creates a partition's nodes, together.
///
/// They stay when the last row is gone: their counts must not begin again.
pub(crate) async fn make_partition(
    client: &Client,
    nodes: &PartitionPaths,
    acls: Acls<'_>,
) -> Result<(), Fault> {
    let options = CreateMode::Persistent.with_acls(acls);
    let mut writer = client.new_multi_writer();
    writer.add_create(&nodes.deletions, b"", &options)?;
    writer.add_create(&nodes.partition, b"", &options)?;
    match writer.commit().await {
        Ok(_) | Err(MultiWriteError::OperationFailed { source: Error::NodeExists, .. }) => Ok(()),
        Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => {
            Err(Fault::no_table())
        }
        Err(error) => Err(Error::from(error).into()),
    }
}
