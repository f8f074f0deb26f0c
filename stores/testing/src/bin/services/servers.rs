//! The known servers, each as one entry: its needs, its start and its end.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use emmer_test_servers::{
    Starter, Trouble, azurite, cassandra, consul, cosmos, dynamodb, etcd, mariadb, mongodb,
    postgres, process, redis, zookeeper,
};

use super::state::Running;

/// A server that was started, and its URL.
type Started = Result<(Child, String), Trouble>;

/// One server.
pub(super) struct Server {
    /// Name on the command line; also the store's name.
    pub(super) name: &'static str,
    /// The packages apt-get installs when its programs are missing; none for one that is fetched
    /// otherwise.
    pub(super) packages: &'static [&'static str],
    /// Finds its programs, or fetches them where that is how it is had.
    pub(super) find: fn() -> Result<(), Trouble>,
    /// Starts it in a folder, new or of last time.
    start: fn(&Path, u16) -> Started,
    /// The signal it ends with in good order, clients or not.
    pub(super) end_signal: &'static str,
}

/// All of them, in the order of the book.
pub(super) const SERVERS: &[Server] = &[
    Server {
        name: "postgres",
        packages: &[postgres::PACKAGE, postgres::POOLER_PACKAGE],
        find: || {
            postgres::pooler()?;
            postgres::Programs::find().map(drop)
        },
        start: start_postgres,
        // TERM would wait for every client to go.
        end_signal: "INT",
    },
    Server {
        name: "mariadb",
        packages: &[mariadb::PACKAGE],
        find: || mariadb::Programs::find().map(drop),
        start: start_mariadb,
        end_signal: "TERM",
    },
    Server {
        name: "redis",
        packages: &[redis::PACKAGE],
        find: || redis::Programs::find().map(drop),
        start: |folder, port| start(&redis::Programs::find()?, folder, port),
        end_signal: "TERM",
    },
    Server {
        name: "zookeeper",
        packages: &[zookeeper::PACKAGE],
        find: || zookeeper::Programs::find().and_then(|programs| programs.cli()).map(drop),
        start: |folder, port| start(&zookeeper::Programs::find()?, folder, port),
        end_signal: "TERM",
    },
    Server {
        name: "consul",
        packages: &[],
        find: || consul::Programs::find().map(drop),
        start: |folder, port| start(&consul::Programs::find()?, folder, port),
        end_signal: "TERM",
    },
    Server {
        name: "etcd",
        packages: &[etcd::PACKAGE, etcd::CLIENT_PACKAGE],
        find: find_etcd,
        start: |folder, port| start(&etcd::Programs::find()?, folder, port),
        end_signal: "TERM",
    },
    Server {
        name: "azure",
        packages: &[azurite::PACKAGE],
        find: || azurite::Programs::find().map(drop),
        start: |folder, port| start(&azurite::Programs::find()?, folder, port),
        // It writes its data when it ends so.
        end_signal: "INT",
    },
    // A part of the SDK, compiled with the tests of the store.
    Server {
        name: "cosmos",
        packages: &[],
        find: || Ok(()),
        start: |folder, port| {
            let programs = cosmos::Programs::find().or_else(|_| cosmos::Programs::compiled())?;
            start(&programs, folder, port)
        },
        end_signal: "TERM",
    },
    Server {
        name: "dynamodb",
        packages: &[dynamodb::PACKAGE, dynamodb::JAVA_PACKAGE],
        find: || dynamodb::Programs::find().map(drop),
        start: |folder, port| start(&dynamodb::Programs::find()?, folder, port),
        end_signal: "TERM",
    },
    Server {
        name: "cassandra",
        packages: &[cassandra::PACKAGE, cassandra::JAVA_PACKAGE, cassandra::PIP_PACKAGE],
        find: || cassandra::Programs::find().and_then(|_| cassandra::cqlsh()).map(drop),
        start: |folder, port| start(&cassandra::Programs::find()?, folder, port),
        end_signal: "TERM",
    },
    // A compatible server: SecantusDB, not mongod.
    Server {
        name: "mongodb",
        packages: &[mongodb::PACKAGE, mongodb::PIP_PACKAGE],
        find: || mongodb::Programs::find().map(drop),
        start: |folder, port| {
            let programs = mongodb::Programs::find()?.with(&[mongodb::SYNC]);
            start(&programs, folder, port)
        },
        end_signal: "TERM",
    },
];

impl Server {
    /// Starts a server that outlives this task, on the data and, if it is still free, the port of
    /// last time.
    pub(super) fn start(&self, folder: &Path) -> Result<Running, Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
        fs::create_dir_all(folder).map_err(failed)?;
        let note = folder.with_extension("port");
        let port = match fs::read_to_string(&note).ok().and_then(|text| text.trim().parse().ok()) {
            Some(port) if TcpListener::bind(("127.0.0.1", port)).is_ok() => port,
            _ => process::free_port()?,
        };
        fs::write(&note, port.to_string()).map_err(failed)?;
        let (child, url) = (self.start)(folder, port)?;
        Ok(Running { pid: child.id(), url })
    }
}

/// Starts a server that is one process.
fn start<S: Starter>(programs: &S, folder: &Path, port: u16) -> Started {
    let child = spawn(programs.server(folder, port)?)?;
    ready(child, S::url(port), |child| programs.wait_until_ready(child, folder, port))
}

fn find_etcd() -> Result<(), Trouble> {
    etcd::Programs::find()?;
    let missing =
        || Trouble::Missing { program: "etcdctl".to_owned(), package: etcd::CLIENT_PACKAGE };
    process::find("etcdctl", &[]).map(drop).ok_or_else(missing)
}

fn start_postgres(folder: &Path, port: u16) -> Started {
    let programs = postgres::Programs::find()?;
    if !folder.join("data").join("PG_VERSION").is_file() {
        programs.initialize(folder)?;
    }
    let child = spawn(programs.server(folder, port)?)?;
    ready(child, postgres::url(port, "postgres"), |child| {
        programs.wait_until_ready(child, folder, port)
    })
}

fn start_mariadb(folder: &Path, port: u16) -> Started {
    let programs = mariadb::Programs::find()?;
    if !folder.join("data").join("mysql").is_dir() {
        programs.initialize(folder)?;
    }
    let child = spawn(programs.server(folder, port)?)?;
    ready(child, mariadb::url(port, mariadb::DATABASE), |child| {
        programs.wait_until_ready(child, folder, port)
    })
}

fn spawn(mut command: Command) -> Result<Child, Trouble> {
    let program = command.get_program().to_string_lossy().into_owned();
    // A group of its own: Ctrl-C in this terminal is not for it.
    command.process_group(0).spawn().map_err(|e| Trouble::Failed(format!("{program}: {e}")))
}

fn ready(
    mut child: Child,
    url: String,
    wait: impl FnOnce(&mut Child) -> Result<(), Trouble>,
) -> Started {
    match wait(&mut child) {
        Ok(()) => Ok((child, url)),
        Err(trouble) => {
            process::end(&mut child, "TERM");
            Err(trouble)
        }
    }
}
