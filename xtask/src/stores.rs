//! The third tier, `cargo xtask test --stores`: the suites of all system stores except SQLite, each
//! against its real server, at the same time where they mostly wait; and one line for each store,
//! with its server. The build machine runs the conformance suite of each store, and the other tests
//! of stores that a change may have touched.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use clap::builder::PossibleValuesParser;

use crate::report::{Counts, Row, Verdict};
use crate::run::Context;
use crate::tests::{self, Group, Run};
use crate::workspace;

/// The program that installs, starts and ends servers, as cargo runs it.
pub(crate) const SERVICES: &[&str] =
    &["emmer-test-servers", "--features", "services", "--bin", "services"];

/// The suites of stores run this many tests at a time. A test mostly waits, but its server computes
/// meanwhile: six tests at a time took as long on two cores, and some ran into their time limits.
const THREADS: u32 = 2;

/// Servers whose tests share one, because it takes seconds to start, by the name of the service.
/// Their tests find it by the variable.
const SHARED: &[(&str, &str)] =
    &[("cassandra", "EMMER_SHARED_CASSANDRA"), ("mongodb", "EMMER_SHARED_MONGODB")];

/// The stores whose server here is a program that stands for a service in the cloud, or for another
/// program; the same as in `.config/nextest.toml`.
const STAND_INS: [&str; 4] = ["azure", "cosmos", "dynamodb", "mongodb"];

/// The store whose server is an example of its package. The tests' own build has no examples.
const COMPILED: (&str, &str) = ("cosmos", "cosmos-emulator");

/// Packages of this tier that are no store; the servers with all that they have.
const COMMON: &[&str] =
    &["emmer-store-keyvalue", "emmer-store-relational", "emmer-stores", "emmer-test-servers"];

/// Files whose change may touch every store: the contract, what the stores share, their servers.
const SHARED_BY_ALL: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "crates/core/",
    "crates/store/",
    "stores/keyvalue/",
    "stores/open/",
    "stores/relational/",
    "stores/testing/",
];

/// The variable that names the commit which a change began at.
const BASE: &str = "EMMER_BASE";

/// The tests that run of a store that no change has touched.
const CONFORMANCE: &str = "test(conforms)";
const FEATURES: &[&str] = &[
    "emmer-stores/consul",
    "emmer-stores/etcd",
    "emmer-stores/mysql",
    "emmer-stores/postgres",
    "emmer-stores/redis",
    "emmer-test-servers/services",
    "emmer-test-servers/tsql",
];

/// Number of departures that the demo replays on a store.
const DEMO_ROWS: &str = "20000";
/// Time for which the server is away.
const AWAY: &str = "5s";

/// A store: its name here, its package, the URL schemes it opens, and the server of
/// `cargo xtask services` it needs.
#[derive(Clone, Copy)]
pub(crate) struct Store {
    pub(crate) name: &'static str,
    package: &'static str,
    schemes: &'static [&'static str],
    server: Option<&'static str>,
    /// The feature of the CLI that brings it; None for stores that are always there.
    feature: Option<&'static str>,
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
    store("cosmos", "emmer-store-cosmos", &["cosmos"]),
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

/// The names of the stores, for the command line.
pub(crate) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STORES.iter().map(|store| store.name))
}

/// Returns true if the first tier tests a store.
fn is_first(store: &Store) -> bool {
    store.name == "sqlite"
}

/// The packages of this tier.
pub(crate) fn packages() -> Vec<&'static str> {
    let stores = STORES.iter().filter(|store| !is_first(store)).map(|store| store.package);
    COMMON.iter().copied().chain(stores).collect()
}

/// The whole tier.
pub(crate) fn rows(context: &Context) -> Result<Vec<Row>, String> {
    let chosen: Vec<&Store> = STORES.iter().filter(|store| !is_first(store)).collect();
    suites(context, &chosen, &packages(), "default", 300)
}

/// The tier as the build machine runs it.
pub(crate) fn changed(context: &Context) -> Result<Vec<Row>, String> {
    let mut rows = vec![install(context, "servers", &[])?];
    let (names, why) = match changes(context) {
        Ok(files) => (touched(&files), format!("changed since {BASE}")),
        Err(why) => (STORES.iter().map(|store| store.name).collect(), why),
    };
    println!("--> beyond conformance: {} ({why})", names.join(", "));
    let whole: Vec<String> = STORES
        .iter()
        .filter(|store| names.contains(&store.name))
        .map(|store| format!("package({})", store.package))
        .chain(COMMON.iter().map(|package| format!("package({package})")))
        .collect();
    let filter = format!("{CONFORMANCE} or {}", whole.join(" or "));
    let chosen: Vec<&Store> = STORES.iter().filter(|store| !is_first(store)).collect();
    let run = Run { filter: Some(filter), stated: 600, ..Run::default() };
    rows.extend(suites_of(context, &chosen, &packages(), &run)?);
    Ok(rows)
}

/// The files that differ from the commit which the environment names.
///
/// # Errors
/// Why that is not known.
fn changes(context: &Context) -> Result<Vec<String>, String> {
    let base = std::env::var(BASE).ok().filter(|base| !base.is_empty());
    let base = base.ok_or_else(|| format!("{BASE} names no commit"))?;
    let mut git = Command::new("git");
    git.current_dir(&context.root).args(["diff", "--name-only", &base, "HEAD", "--"]);
    let out = git.output().map_err(|e| format!("git: {e}"))?;
    if !out.status.success() {
        return Err(format!("{BASE}: git knows no commit {base:?}"));
    }
    Ok(String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect())
}

/// The stores that a change of these files may touch.
fn touched(files: &[String]) -> Vec<&'static str> {
    let is_shared = |file: &String| SHARED_BY_ALL.iter().any(|path| file.starts_with(path));
    let all = files.iter().any(is_shared);
    let is_touched = |store: &&Store| {
        let folder = format!("stores/{}/", store.package.trim_start_matches("emmer-store-"));
        all || files.iter().any(|file| file.starts_with(&folder))
    };
    STORES.iter().filter(is_touched).map(|store| store.name).collect()
}

/// The suites of the stores whose server is a stand-in, with the bulk of rows that the second tier
/// leaves out.
pub(crate) fn bulk(context: &Context) -> Result<Vec<Row>, String> {
    let chosen: Vec<&Store> =
        STORES.iter().filter(|store| STAND_INS.contains(&store.name)).collect();
    let packages: Vec<&str> = chosen.iter().map(|store| store.package).collect();
    suites(context, &chosen, &packages, "nightly", 900)
}

/// One store: its suite, and the program `emmer` on its server.
pub(crate) fn one(context: &Context, name: &str) -> Result<Vec<Row>, String> {
    let Some(store) = STORES.iter().find(|store| store.name == name) else {
        return Err(format!("there is no store {name}"));
    };
    let mut rows = suites(context, &[store], &[store.package], "default", 300)?;
    rows.extend(live(context, store)?);
    Ok(rows)
}

/// Runs the tests of some stores: a row for the run, one for each store, one for each further
/// package.
fn suites(
    context: &Context,
    stores: &[&Store],
    packages: &[&str],
    profile: &str,
    stated: u64,
) -> Result<Vec<Row>, String> {
    suites_of(context, stores, packages, &Run { profile, stated, ..Run::default() })
}

/// Runs these suites in one way.
fn suites_of(
    context: &Context,
    stores: &[&Store],
    packages: &[&str],
    how: &Run<'_>,
) -> Result<Vec<Row>, String> {
    let told = context.logs.join(tests::TOLD);
    // A file of an earlier run would be misleading.
    let _ = std::fs::remove_file(&told);
    let mut env = Vec::new();
    for (server, variable) in SHARED {
        if stores.iter().any(|store| store.server == Some(server)) {
            // One that does not start fails the tests that need it, by name.
            if let Ok(url) = started(context, server, &["--fresh"]) {
                env.extend(port_of(&url).map(|port| ((*variable).to_owned(), port)));
            }
        }
    }
    let name = match stores {
        [one] => format!("test {}", one.name),
        _ => "test stores".to_owned(),
    };
    let features = if packages.contains(&"emmer-test-servers") { FEATURES } else { &[] };
    let threads = Some(THREADS);
    let mut rows = Vec::new();
    if stores.iter().any(|store| store.name == COMPILED.0) {
        // With the packages, targets and features of the tests, so that nothing is compiled twice.
        let mut build = context.cargo("build");
        tests::select(&mut build, packages, features);
        build.args(["--lib", "--bins", "--tests", "--example", COMPILED.1]);
        if context.ci {
            build.env("CARGO_INCREMENTAL", "0");
        }
        rows.push(context.step(&format!("compile {}", COMPILED.1), 200, build)?);
    }
    let run = Run { name: &name, packages, features, env: &env, threads, ..how.clone() };
    let ran = tests::grouped(context, &run);
    for (server, _) in SHARED.iter().filter(|(_, v)| env.iter().any(|(name, _)| name == v)) {
        // Not worth a failure: it was started with data of its own, on a port of its own.
        let _ = services(context, "down", &[server]).output();
    }
    let (ran, mut groups) = ran?;
    rows.extend(ran);
    let told = Told::read(&told);
    for (test, why) in &told.skipped {
        println!("    skipped: {test}: {why}");
    }
    for store in stores {
        let group = groups.remove(store.package).unwrap_or_default();
        rows.push(row(store, &told, &group, context.ci));
    }
    rows.extend(groups.iter().map(|(package, group)| group.row(&format!("  {package}"))));
    Ok(rows)
}

/// Installs some servers, all when none is named. What cannot be installed fails the tests that
/// need it, by name.
pub(crate) fn install(context: &Context, step: &str, servers: &[&str]) -> Result<Row, String> {
    context.step(step, 60, services(context, "install", servers))
}

/// A call of the program of servers.
fn services(context: &Context, action: &str, servers: &[&str]) -> Command {
    let mut command = workspace::cargo(&context.root);
    command.args(["run", "--quiet", "--package"]).args(SERVICES);
    command.args(["--", action]).args(servers);
    command
}

/// The address of a server that is started now, or ran already.
fn started(context: &Context, server: &str, how: &[&str]) -> Result<String, String> {
    let out = services(context, "up", &[&[server], how].concat())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let prefix = format!("{server}: ");
    let url = said.lines().rev().find_map(|line| line.strip_prefix(&prefix));
    let url = url.filter(|url| out.status.success() && url.contains("://"));
    url.map(str::to_owned).ok_or_else(|| format!("{server} does not start: {}", said.trim()))
}

/// `cassandra://127.0.0.1:17123/emmer?x=1` gives `17123`.
fn port_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("127.0.0.1:")?;
    Some(rest.chars().take_while(char::is_ascii_digit).collect())
}

/// The program on a store's real server: the doctor, the demo, and a cluster that outlives a
/// restart of the server. A store without a server of its own here has no rows.
pub(crate) fn live(context: &Context, store: &Store) -> Result<Vec<Row>, String> {
    let Some(server) = store.server else { return Ok(Vec::new()) };
    let name = |what: &str| format!("{what} on {server}");
    let url = match started(context, server, &[]) {
        Ok(url) => url,
        Err(why) => return Ok(vec![context.missing(&name("server"), why)]),
    };
    let mut rows = Vec::new();
    let doctor = release(context, store, "emmer-cli", &["doctor", "--store", &url]);
    rows.push(context.step(&name("doctor"), 120, doctor)?);
    let demo = ["demo", "--quick", DEMO_ROWS, "--store", &url];
    rows.push(context.step(&name("demo"), 60, release(context, store, "emmer-cli", &demo))?);
    let turn = |action: &str| {
        format!("cd '{}' && cargo xtask services {action} {server}", context.root.display())
    };
    let (stop, start) = (turn("down"), turn("up"));
    let outage = ["bench", "membership", "outage", "--store", &url, "--for", AWAY];
    let outage = [&outage[..], &["--stop", &stop, "--start", &start]].concat();
    let restart = name("restart");
    let row = context.step(&restart, 120, release(context, store, "emmer-lab", &outage))?;
    rows.push(met(row, &context.log(&restart)));
    // The next call starts it again, should it not end.
    let _ = services(context, "down", &[server]).output();
    Ok(rows)
}

/// The row of a command that prints a table of goals: each one missed is a failure.
fn met(row: Row, log: &Path) -> Row {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let missed: Vec<&str> = text.lines().filter(|l| l.contains("MISSED")).map(str::trim).collect();
    if row.verdict != Verdict::Passed || missed.is_empty() {
        return row;
    }
    Row::check(&row.name, Verdict::Failed(missed.join("; ")), row.took)
}

/// A program with this store's feature, compiled as it is shipped.
fn release(context: &Context, store: &Store, package: &str, arguments: &[&str]) -> Command {
    let mut command = workspace::cargo(&context.root);
    command.args(["run", "--release", "--quiet", "--package", package]);
    if let Some(feature) = store.feature {
        let feature = if package == "emmer-cli" {
            feature.to_owned()
        } else {
            format!("emmer-cli/{feature}")
        };
        command.args(["--features", &feature]);
    }
    command.arg("--").args(arguments);
    command
}

/// Reports of the tests.
#[derive(Debug, Default)]
struct Told {
    /// By scheme: the server's name and version, and how many conformance cases passed on it.
    conformed: BTreeMap<String, (String, usize)>,
    /// Tests that were skipped, with the reason.
    skipped: Vec<(String, String)>,
}

impl Told {
    /// Reads the file that tests wrote lines to.
    fn read(path: &Path) -> Self {
        // No file: the tests reported nothing.
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

/// A store's line.
fn row(store: &Store, told: &Told, group: &Group, ci: bool) -> Row {
    let Counts { passed, failed, .. } = group.counts;
    let found = store.schemes.iter().find_map(|scheme| told.conformed.get(*scheme));
    let ran = found.map(|(version, cases)| {
        format!("{version}: {cases} conformance cases, {passed} of {} tests", passed + failed)
    });
    let name = format!("  store {}", store.name);
    let no_suite = "the conformance suite did not run".to_owned();
    let verdict = match (&ran, store.variable) {
        _ if failed > 0 => Verdict::Failed(format!(
            "{}: {}",
            ran.as_ref().unwrap_or(&no_suite),
            group.failed.join(", ")
        )),
        (Some(_), _) => Verdict::Passed,
        (None, Some(variable)) if std::env::var_os(variable).is_none() => {
            Verdict::Skipped(format!(
                "no package has a server, and {variable} is not set; {passed} tests without one passed"
            ))
        }
        (None, _) if ci => Verdict::Failed(no_suite),
        (None, _) => Verdict::Skipped(no_suite),
    };
    // A failure that no test shows counts by itself.
    let own = usize::from(matches!(verdict, Verdict::Failed(_)) && failed == 0);
    let skipped = usize::from(matches!(verdict, Verdict::Skipped(_)));
    let counts = Counts { passed, failed: failed + own, skipped };
    Row { counts, ..Row::check(&name, verdict, group.took) }.noted(ran.unwrap_or_default())
}

#[cfg(test)]
mod test {
    use std::time::Duration;

    use super::*;

    fn group(failed: &[&str]) -> Group {
        let counts = Counts { passed: 7, failed: failed.len(), skipped: 0 };
        let failed = failed.iter().map(|name| (*name).to_owned()).collect();
        Group { counts, took: Duration::from_secs(1), failed }
    }

    fn named(name: &str) -> &'static Store {
        STORES.iter().find(|store| store.name == name).unwrap()
    }

    #[test]
    fn a_store_is_shown_with_its_server_and_one_without_fails_in_ci() {
        let told = Told::parse(
            "conformed\tredis\tRedis 7.0.15\t42\nskipped\tit_conforms\tetcd is not \
             installed\nstrange\n",
        );
        assert_eq!(told.skipped.len(), 1);
        let redis = row(named("redis"), &told, &group(&[]), true);
        assert_eq!(redis.note, "Redis 7.0.15: 42 conformance cases, 7 of 7 tests");
        assert_eq!(row(named("etcd"), &told, &group(&[]), true).counts.failed, 1);
        let not_run = row(named("etcd"), &told, &group(&[]), false);
        assert!(matches!(not_run.verdict, Verdict::Skipped(_)) && not_run.counts.skipped == 1);
    }

    #[test]
    fn a_store_that_fails_still_shows_its_count_of_cases() {
        let told = Told::parse("conformed\tredis\tRedis 7\t42\n");
        let redis = row(named("redis"), &told, &group(&["suite::a"]), true);
        let shown = "Redis 7: 42 conformance cases, 7 of 8 tests: suite::a".to_owned();
        assert_eq!((redis.counts.failed, redis.verdict), (1, Verdict::Failed(shown)));
    }

    #[test]
    fn a_change_touches_its_store_and_one_of_what_they_share_all() {
        let of = |files: &[&str]| {
            touched(&files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["stores/mysql/src/lib.rs", "docs/store.md"]), ["mariadb"]);
        assert_eq!(of(&["stores/redis/src/url.rs", "stores/etcd/Cargo.toml"]), ["redis", "etcd"]);
        assert_eq!(of(&["crates/runtime/src/lib.rs"]), <[&str; 0]>::default());
        for file in ["crates/store/src/contract.rs", "Cargo.lock", "stores/testing/src/lib.rs"] {
            assert_eq!(of(&[file]).len(), STORES.len(), "{file}");
        }
    }

    #[test]
    fn the_port_of_a_server_is_in_its_url() {
        assert_eq!(port_of("cassandra://127.0.0.1:17123/emmer?x=1").as_deref(), Some("17123"));
        assert_eq!(port_of("sqlite://x"), None);
    }
}
