//! The words of the cluster about itself.

use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::examine::{ClockDifference, Examination, FindingLevel, FindingSubject};
use emmer_store_keyvalue::{Fault, security};
use scylla::value::CqlValue;
use tokio::time::Instant;

use crate::client::{Client, Level};
use crate::read::{one, one_text};
use crate::store::Cassandra;
use crate::values::text;

/// Beginning of the versions that this store was run against.
const TRIED: &str = "5.0.";
/// The authenticator that looks at no password.
const ANYBODY: &str = "AllowAllAuthenticator";

/// The whole report. What this user may not ask is left out.
pub(crate) async fn examine(store: &Cassandra) -> Result<Examination, Fault> {
    let (client, deadline) = (store.client(), store.client().deadline());
    let version = ("SELECT release_version FROM system.local".to_owned(), Vec::new());
    let version = one_text(client, version, Level::Majority, deadline).await?.unwrap_or_default();
    let mut found = Examination::of("Cassandra", version);
    if !found.version.starts_with(TRIED) {
        let words = format!("this store was run against Cassandra {TRIED}x only");
        found.add(FindingLevel::Note, FindingSubject::Setup, words);
    }
    found.clock = clock(client, deadline).await;
    let cql = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
    let statement = (cql.to_owned(), vec![text(client.address.keyspace())]);
    let replication = one(client, statement, Level::Majority, deadline).await?;
    let sync = setting(client, "commitlog_sync", deadline).await.ok().flatten();
    let syncs_later = sync.is_some_and(|how| how != "batch" && how != "group");
    let copies = match replication {
        Some(CqlValue::Map(replication)) => copies(&replication),
        // As it will be made.
        _ => vec![client.address.replication],
    };
    note_copies(&mut found, &copies, syncs_later);
    let address = &client.address;
    if address.place.user.is_some()
        && setting(client, "authenticator", deadline).await.is_ok_and(lets_in_anybody)
    {
        security::note_ignored(
            &mut found,
            "user and password",
            "its authenticator is AllowAllAuthenticator",
        );
    }
    let names_no = address.place.user.is_none().then_some("user");
    security::note(&mut found, names_no, (!address.tls).then_some("add ?tls=true"));
    Ok(found)
}

/// A setting of the node that answers; none where nothing was set. An error where this user may not
/// know.
async fn setting(client: &Client, name: &str, deadline: Instant) -> Result<Option<String>, Fault> {
    let cql = "SELECT value FROM system_views.settings WHERE name = ?".to_owned();
    one_text(client, (cql, vec![text(name)]), Level::Majority, deadline).await
}

/// Returns true if a server with this authenticator looks at no password. One where nothing was set
/// does not.
fn lets_in_anybody(authenticator: Option<String>) -> bool {
    authenticator.is_none_or(|class| class.contains(ANYBODY))
}

async fn clock(client: &Client, deadline: Instant) -> Option<ClockDifference> {
    let cql = || "SELECT toTimestamp(now()) FROM system.local".to_owned();
    // Prepared once before: that is not part of the question.
    one(client, (cql(), Vec::new()), Level::Majority, deadline).await.ok()?;
    let asked = SystemTime::now();
    let Some(CqlValue::Timestamp(server)) =
        one(client, (cql(), Vec::new()), Level::Majority, deadline).await.ok()?
    else {
        return None;
    };
    let server = Timestamp::from_millis(server.0);
    Some(ClockDifference::measured(asked, server, SystemTime::now(), Duration::from_millis(1)))
}

/// Number of copies of a row in each data centre; one entry where there are none.
fn copies(replication: &[(CqlValue, CqlValue)]) -> Vec<usize> {
    let number = |(key, value): &(CqlValue, CqlValue)| match (key, value) {
        (CqlValue::Text(key), CqlValue::Text(value)) if key != "class" => value.parse().ok(),
        _ => None,
    };
    replication.iter().filter_map(number).collect()
}

/// Notes the facts about the copies of a row.
fn note_copies(found: &mut Examination, copies: &[usize], syncs_later: bool) {
    match copies.iter().sum() {
        0 => {}
        1 if syncs_later => found.may_lose_writes(
            "the keyspace has one copy of each row, on a node that acknowledges before it writes \
             to its disk (commitlog_sync): a node that is killed or loses its power loses the \
             last commits it acknowledged; give the keyspace three copies, or set \
             commitlog_sync: batch",
        ),
        1 => found.add(
            FindingLevel::Note,
            FindingSubject::Durability,
            "the keyspace has one copy of each row: a disk is the only copy of the cluster's \
             tables",
        ),
        2 => found.add(
            FindingLevel::Note,
            FindingSubject::Durability,
            "the keyspace has two copies of each row: both must answer, so no node may be away; \
             three are better",
        ),
        _ => {}
    }
    if copies.len() > 1 {
        found.add(
            FindingLevel::Note,
            FindingSubject::Setup,
            "the keyspace has copies in several data centres: each request waits for a majority of \
             all copies",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(replication: &[(&str, &str)], syncs_later: bool) -> Examination {
        let text = |text: &str| CqlValue::Text(text.to_owned());
        let map: Vec<_> = replication.iter().map(|(key, value)| (text(key), text(value))).collect();
        let mut found = Examination::of("Cassandra", "5.0.5");
        note_copies(&mut found, &copies(&map), syncs_later);
        found
    }

    #[test]
    fn copies_are_counted() {
        let class = ("class", "org.apache.cassandra.locator.NetworkTopologyStrategy");
        assert!(of(&[class, ("dc1", "1")], true).warns_of_lost_writes());
        assert!(!of(&[class, ("dc1", "1")], false).warns_of_lost_writes());
        assert!(of(&[class, ("dc1", "3")], true).findings.is_empty());
        assert_eq!(of(&[class, ("dc1", "1"), ("dc2", "1")], true).findings.len(), 2);
        assert_eq!(of(&[class, ("dc1", "3"), ("dc2", "3")], true).findings.len(), 1);
    }
}
