//! One line for each system store in the table of `cargo xtask test`: which server it was run
//! against, and how far.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::libtest::Group;
use crate::report::{Counts, Row, Verdict};

/// A store: its name here, its package, the URL schemes it opens, and the server of
/// `cargo xtask services` it needs.
pub(crate) struct Store {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    schemes: &'static [&'static str],
    pub(crate) server: Option<&'static str>,
    /// The feature of the CLI that brings it; none for what is always there.
    pub(crate) feature: Option<&'static str>,
    /// The variable that names a server where no package has one; without it the store is not run.
    variable: Option<&'static str>,
}

const fn store(
    name: &'static str,
    package: &'static str,
    schemes: &'static [&'static str],
) -> Store {
    Store { name, package, schemes, server: Some(name), feature: Some(name), variable: None }
}

/// All of them, in the order of the book.
pub(crate) const STORES: &[Store] = &[
    Store { server: None, feature: None, ..store("sqlite", "emmer-store-sqlite", &["sqlite"]) },
    store("postgres", "emmer-store-postgres", &["postgres"]),
    Store {
        feature: Some("mysql"),
        ..store("mariadb", "emmer-store-mysql", &["mariadb", "mysql"])
    },
    store("redis", "emmer-store-redis", &["redis"]),
    store("zookeeper", "emmer-store-zookeeper", &["zookeeper"]),
    store("consul", "emmer-store-consul", &["consul"]),
    store("etcd", "emmer-store-etcd", &["etcd"]),
    store("azure", "emmer-store-azure", &["azure-table"]),
    store("dynamodb", "emmer-store-dynamodb", &["dynamodb"]),
    store("cassandra", "emmer-store-cassandra", &["cassandra"]),
    store("mongodb", "emmer-store-mongodb", &["mongodb"]),
    Store {
        server: None,
        feature: Some("mssql"),
        variable: Some("TEST_MSSQL_URL"),
        ..store("sqlserver", "emmer-store-mssql", &["mssql", "sqlserver"])
    },
    Store {
        server: None,
        variable: Some("TEST_ORACLE_URL"),
        ..store("oracle", "emmer-store-oracle", &["oracle"])
    },
];

/// The store called `name`.
pub(crate) fn named(name: &str) -> Option<&'static Store> {
    STORES.iter().find(|store| store.name == name)
}

/// What the tests told of themselves.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// By scheme: the server's name and version, and how many conformance cases passed on it.
    conformed: BTreeMap<String, (String, usize)>,
    /// Tests that were skipped, with the reason.
    pub(crate) skipped: Vec<(String, String)>,
}

impl Told {
    /// Reads the file that tests wrote lines to.
    pub(crate) fn read(path: &Path) -> Self {
        // No file: nobody told anything.
        Self::parse(&std::fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut told = Self::default();
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>().as_slice() {
                ["conformed", scheme, version, cases] => {
                    let cases = cases.parse().unwrap_or(0);
                    told.conformed.insert((*scheme).to_owned(), ((*version).to_owned(), cases));
                }
                ["skipped", test, why] => {
                    told.skipped.push(((*test).to_owned(), (*why).to_owned()));
                }
                _ => {}
            }
        }
        told
    }
}

/// The lines of the table, for the stores whose packages were tested; of a `whole` run all of them.
pub(crate) fn rows(told: &Told, groups: &[Group], ci: bool, whole: bool) -> Vec<Row> {
    STORES.iter().filter_map(|store| row(store, told, groups, ci, whole)).collect()
}

fn row(store: &Store, told: &Told, groups: &[Group], ci: bool, whole: bool) -> Option<Row> {
    let krate = store.package.replace('-', "_");
    let groups: Vec<&Group> = groups.iter().filter(|group| group.krate == krate).collect();
    if groups.is_empty() && !whole {
        return None;
    }
    let sum = |of: fn(&Group) -> usize| groups.iter().map(|group| of(group)).sum::<usize>();
    let (passed, failed) = (sum(|g| g.passed), sum(|g| g.failed));
    let took: Duration = groups.iter().map(|group| group.took).sum();
    let found = store.schemes.iter().find_map(|scheme| told.conformed.get(*scheme));
    let (verdict, note) = match (found, store.variable) {
        _ if failed > 0 => {
            (Verdict::Failed(format!("{failed} of {} tests", passed + failed)), String::new())
        }
        (Some((version, cases)), _) => {
            (Verdict::Passed, format!("{version}: {cases} conformance cases, {passed} tests"))
        }
        (None, Some(variable)) if std::env::var_os(variable).is_none() => {
            let why = format!(
                "not run: no package has a server, and {variable} is not set; {passed} tests \
                 without one"
            );
            (Verdict::Skipped(why), String::new())
        }
        (None, _) => {
            let why = "the conformance suite did not run".to_owned();
            (if ci { Verdict::Failed(why) } else { Verdict::Skipped(why) }, String::new())
        }
    };
    // The tests are counted with their crates; only what no test shows counts here.
    let own = usize::from(matches!(verdict, Verdict::Failed(_)) && failed == 0);
    let skipped = usize::from(matches!(verdict, Verdict::Skipped(_)));
    let counts = Counts { failed: own, skipped, ..Counts::default() };
    Some(
        Row { counts, ..Row::check(&format!("  store {}", store.name), verdict, took) }.noted(note),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libtest::Kind;

    fn group(krate: &str, failed: usize) -> Group {
        let took = Duration::from_secs(1);
        Group {
            krate: krate.to_owned(),
            kind: Kind::Integration,
            passed: 7,
            failed,
            ignored: 0,
            took,
        }
    }

    #[test]
    fn a_store_is_shown_with_its_server_and_one_without_fails_in_ci() {
        let told = Told::parse(
            "conformed\tredis\tRedis 7.0.15\t42\nskipped\tit_conforms\tetcd is not \
             installed\nstrange\n",
        );
        assert_eq!(told.skipped.len(), 1);
        let groups =
            [group("emmer_store_redis", 0), group("emmer_store_etcd", 0), group("emmer_core", 0)];
        let rows = rows(&told, &groups, true, false);
        let shown: Vec<_> = rows.iter().map(|row| (row.name.trim(), row.counts.failed)).collect();
        assert_eq!(shown, [("store redis", 0), ("store etcd", 1)]);
        assert_eq!(rows[0].note, "Redis 7.0.15: 42 conformance cases, 7 tests");
        assert_eq!(super::rows(&told, &groups, false, true).len(), STORES.len());
        let not_run = &super::rows(&told, &groups, false, false)[1];
        assert!(matches!(not_run.verdict, Verdict::Skipped(_)) && not_run.counts.skipped == 1);
    }

    #[test]
    fn failed_tests_are_counted_with_their_crates_only() {
        let rows = rows(
            &Told::parse("conformed\tredis\tRedis 7\t42\n"),
            &[group("emmer_store_redis", 2)],
            true,
            false,
        );
        assert_eq!(
            (rows[0].counts.failed, &rows[0].verdict),
            (0, &Verdict::Failed("2 of 9 tests".to_owned()))
        );
    }

    #[test]
    fn names_are_those_of_the_services() {
        let servers = crate::services::names();
        assert!(STORES.iter().filter_map(|store| store.server).all(|name| servers.contains(&name)));
        assert!(named("mariadb").is_some() && named("mysql").is_none());
    }
}
