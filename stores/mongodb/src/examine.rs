//! The server's description of itself.

use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::examine::{ClockDifference, Examination, FindingLevel, FindingSubject};
use emmer_store_keyvalue::{Fault, security};
use mongodb::bson::{Document, doc};

use crate::store::MongoDb;

/// The whole report.
pub(crate) async fn examine(store: &MongoDb) -> Result<Examination, Fault> {
    let (client, deadline) = (store.client(), store.client().deadline());
    let database = client.database();
    let build_info = || async { database.run_command(doc! { "buildInfo": 1 }).await };
    let built = client.send(deadline, build_info).await?;
    let mut found = server(&built);
    let asked = SystemTime::now();
    let hello = || async { database.run_command(doc! { "hello": 1 }).await };
    let hello = client.send(deadline, hello).await?;
    if let Ok(server) = hello.get_datetime("localTime") {
        let server = Timestamp::from_millis(server.timestamp_millis());
        let resolution = Duration::from_millis(1);
        found.clock = Some(ClockDifference::measured(asked, server, SystemTime::now(), resolution));
    }
    note_members(&mut found, &hello);
    let address = &client.address;
    let names_no = address.place.user.is_none().then_some("user");
    security::note(&mut found, names_no, (!address.tls).then_some("add ?tls=true"));
    Ok(found)
}

/// The kind of the server: another than mongod names itself as well as the version of MongoDB that
/// it is like.
fn server(built: &Document) -> Examination {
    let (name, version, text) = match (built.get_str("secantusVersion"), built.get_str("version")) {
        (Ok(own), _) => (
            "SecantusDB",
            own,
            "this server is not mongod: it speaks MongoDB's protocol, and is for tests",
        ),
        (_, version) => (
            "MongoDB",
            version.unwrap_or_default(),
            "this store was run against the compatible server SecantusDB, never against mongod \
             itself",
        ),
    };
    let mut found = Examination::of(name, version);
    found.add(FindingLevel::Note, FindingSubject::Setup, text);
    found
}

/// The findings about the members of the replica set.
fn note_members(found: &mut Examination, hello: &Document) {
    let members = hello.get_array("hosts").map_or(0, Vec::len);
    let text = match members {
        1 => "the replica set has one member: a disk is the only copy of the cluster's tables",
        2 => {
            "the replica set has two members: both must answer, so none may be away; three are \
             better"
        }
        _ => return,
    };
    found.add(FindingLevel::Note, FindingSubject::Durability, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compatible_server_is_named() {
        let found = server(&doc! { "version": "8.2.11", "secantusVersion": "0.7.0b3" });
        assert_eq!((found.server.as_str(), found.version.as_str()), ("SecantusDB", "0.7.0b3"));
        let found = server(&doc! { "version": "8.0.4" });
        assert_eq!((found.server.as_str(), found.version.as_str()), ("MongoDB", "8.0.4"));
        assert!(found.findings[0].text.contains("never against mongod"));
    }

    #[test]
    fn members_are_counted() {
        let of = |hosts: &[&str]| {
            let mut found = Examination::of("MongoDB", "8");
            note_members(
                &mut found,
                &doc! { "hosts": hosts.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>() },
            );
            found.findings.len()
        };
        assert_eq!([of(&["a"]), of(&["a", "b"]), of(&["a", "b", "c"])], [1, 1, 0]);
    }
}
