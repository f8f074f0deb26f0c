//! The command line.

use std::time::Duration;

use crate::mutants;
use crate::services::{self, Action};
use crate::stores::STORES;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Help,
    Test(Options),
    Tidy,
    Layers,
    /// Count instructions; and write the baseline.
    Guard {
        renew: bool,
    },
    /// Put bugs into the protocol and see who finds them.
    Mutants(mutants::Options),
    /// Run a program with these arguments for so long at most.
    Limited(Duration, String, Vec<String>),
    /// What to do with which servers; with all when none is named.
    Services(Action, Vec<String>),
}

/// What `test` and `ci` run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// As the build machine does: the lock file is binding and cargo-deny is installed when it is
    /// missing.
    pub(crate) ci: bool,
    /// Leave out what is slow to compile: clippy, mutants, doc, deny, guard.
    pub(crate) quick: bool,
    /// Only these steps; all when empty.
    pub(crate) only: Vec<String>,
    /// Compile and test these packages only; the whole workspace when empty.
    pub(crate) packages: Vec<String>,
    /// Check the advisory database too; it is fetched from the network.
    pub(crate) advisories: bool,
    /// Everything for this system store, and nothing else.
    pub(crate) store: Option<String>,
}

/// The steps of `test`, in the order they run.
pub(crate) const STEPS: &[&str] =
    &["fmt", "tidy", "clippy", "test", "mutants", "doc", "deny", "guard", "traces"];

/// The most mutants that are hunted at a time.
const JOBS_MAX: usize = 64;

/// What `help` prints.
pub(crate) const HELP: &str = "\
Project tasks. Usage: cargo xtask TASK [OPTIONS]

  test     run every check and every test, and print a table of what ran
             --quick        leave out clippy, mutants, doc, deny, guard and traces
             --only A,B     run these steps only: fmt, tidy, clippy, test, mutants,
                            doc, deny, guard, traces
             --package NAME compile and test this package only (may be given more than once)
             --advisories   let deny fetch and check the advisory database too
             --store NAME   everything for one system store, against its real server: its tests,
                            the demo, and a cluster that outlives a restart of the server
                            (sqlite, postgres, mariadb, redis, zookeeper, consul, etcd, azure,
                            dynamodb, cassandra, mongodb (a compatible server), and sqlserver and
                            oracle where TEST_MSSQL_URL and TEST_ORACLE_URL are set);
             with the tests of sqlserver Microsoft's T-SQL parser is installed into target/tools
             (pip, 46 MB, once), and reads the statements of that store
  ci       the same as the build machine runs it: Cargo.lock is binding, and cargo-deny and
           gungraun-runner are compiled into target/tools when they are missing (minutes, once)
  tidy     check the house rules: layers, sans-IO purity, file size, words, documents
  layers   print the tables of layers and rooms as ARCHITECTURE.md shows them
  guard    count the instructions of the hot paths and compare them with benches/guard.json
             --renew        write that file from what was counted
  mutants  put small bugs into the protocol's sources (in a copy) and see whether the simulator or
           a unit test finds each; a survivor without an explanation is a failure (docs/mutants.md)
             --only NAME    those whose name begins so (may be given more than once)
             --skip NAME    all but those
             --smoke        the small set that `test` runs
             --runtime      mutants of the runtime, hunted by its swarm, instead of the protocol's
             --generated N  draw N mechanical ones (60), by --seed S (1)
             --cpu SECS     CPU time of the swarm for each (60)
             --jobs N       how many the swarm hunts at a time, 1 to 64 (1)
             --list         print them; --build compile only; --fresh forget what is known
             --format json  a report for programs
  services up|down|status|install [NAME]
           real servers to try things with (postgres, mariadb, redis, zookeeper, consul, etcd,
           azure, dynamodb, cassandra, mongodb), on private ports and in temporary folders; up and
           install use apt-get, npm for azure and dynamodb, Maven for cassandra, and pip for
           mongodb, for what is missing; tests start servers of their own
  limited SECONDS PROGRAM [ARGUMENTS]
           run a program, and end it with exit code 124 when it takes longer; `test` runs its test
           programs so
  help     print this

`test` behaves as `ci` where the environment says CI=true. Where EMMER_TOOLS names a folder,
the tools are kept there instead of in target/tools. Logs are in target/xtask.

Exit codes: 0 everything passed; 1 something failed; 2 the command line is wrong;
3 the checks could not be run (no workspace, no cargo, no disk).
";

/// Reads the arguments after the program's name. The error is for the user, without the help.
pub(crate) fn parse(args: &[String]) -> Result<Task, String> {
    let (task, rest) = match args.split_first() {
        None => return Ok(Task::Help),
        Some((task, rest)) => (task.as_str(), rest),
    };
    let plain = |task: Task| match rest.first() {
        None => Ok(task),
        Some(extra) => Err(format!("`{}` takes no `{extra}`", args[0])),
    };
    match task {
        "help" | "--help" | "-h" => Ok(Task::Help),
        "tidy" => plain(Task::Tidy),
        "layers" => plain(Task::Layers),
        "test" => options(rest, false).map(Task::Test),
        "ci" => options(rest, true).map(Task::Test),
        "guard" => match rest {
            [] => Ok(Task::Guard { renew: false }),
            [only] if only == "--renew" => Ok(Task::Guard { renew: true }),
            _ => Err("`guard` takes nothing but `--renew`".to_owned()),
        },
        "services" => services_task(rest),
        "limited" => match rest {
            [seconds, program, arguments @ ..] => {
                let seconds =
                    seconds.parse().map_err(|_| format!("`{seconds}` is no number of seconds"))?;
                Ok(Task::Limited(Duration::from_secs(seconds), program.clone(), arguments.to_vec()))
            }
            _ => Err("`limited` needs a number of seconds and a program".to_owned()),
        },
        "mutants" => mutants_task(rest).map(Task::Mutants),
        other => Err(format!(
            "there is no task `{other}`; the tasks are test, ci, tidy, layers, guard, mutants, \
             services, limited, help"
        )),
    }
}

fn mutants_task(args: &[String]) -> Result<mutants::Options, String> {
    fn number<T: std::str::FromStr>(option: &str, word: Option<&String>) -> Result<T, String> {
        word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("`{option}` needs a number"))
    }
    let mut options = mutants::Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => options.only.push(args.next().ok_or("`--only` needs a name")?.to_owned()),
            "--skip" => options.skip.push(args.next().ok_or("`--skip` needs a name")?.to_owned()),
            "--smoke" => options.smoke = true,
            "--runtime" => options.ground = mutants::Ground::Runtime,
            "--generated" => options.generated = number(arg, args.next())?,
            "--seed" => options.seed = number(arg, args.next())?,
            "--cpu" => options.cpu = number(arg, args.next())?,
            "--jobs" => {
                options.jobs = number(arg, args.next())?;
                if !(1..=JOBS_MAX).contains(&options.jobs) {
                    return Err(format!("`--jobs` is between 1 and {JOBS_MAX}"));
                }
            }
            "--list" => options.list = true,
            "--build" => options.build_only = true,
            "--fresh" => options.fresh = true,
            "--format" => match args.next().map(String::as_str) {
                Some("json") => options.json = true,
                Some("text") => options.json = false,
                _ => return Err("`--format` is json or text".to_owned()),
            },
            other => return Err(format!("there is no option `{other}`; see `cargo xtask help`")),
        }
    }
    Ok(options)
}

fn services_task(args: &[String]) -> Result<Task, String> {
    let (action, names) =
        args.split_first().ok_or("`services` needs up, down, status or install")?;
    let action = match action.as_str() {
        "up" => Action::Up,
        "down" => Action::Down,
        "status" => Action::Status,
        "install" => Action::Install,
        other => return Err(format!("`services` can up, down, status and install, not `{other}`")),
    };
    let known = services::names();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => {
            Err(format!("there is no server `{unknown}`; there are {}", known.join(", ")))
        }
        None => Ok(Task::Services(action, names.to_vec())),
    }
}

fn options(args: &[String], ci: bool) -> Result<Options, String> {
    let mut options = Options { ci, ..Options::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => options.quick = true,
            "--advisories" => options.advisories = true,
            "--only" => {
                let names = args.next().ok_or("`--only` needs the names of steps")?;
                options.only.extend(names.split(',').map(str::trim).map(str::to_owned));
            }
            "--package" | "-p" => {
                options.packages.push(args.next().ok_or("`--package` needs a name")?.to_owned());
            }
            "--store" => options.store = Some(store(args.next())?),
            other => return Err(format!("there is no option `{other}`; see `cargo xtask help`")),
        }
    }
    if let Some(unknown) = options.only.iter().find(|name| !STEPS.contains(&name.as_str())) {
        return Err(format!("there is no step `{unknown}`; the steps are {}", STEPS.join(", ")));
    }
    Ok(options)
}

fn store(name: Option<&String>) -> Result<String, String> {
    let known: Vec<&str> = STORES.iter().map(|store| store.name).collect();
    match name {
        Some(name) if known.contains(&name.as_str()) => Ok(name.clone()),
        Some(name) => Err(format!("there is no store `{name}`; there are {}", known.join(", "))),
        None => Err("`--store` needs the name of a store".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Task, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn tasks_and_options() {
        assert_eq!(parse_words(""), Ok(Task::Help));
        assert_eq!(parse_words("tidy"), Ok(Task::Tidy));
        assert_eq!(parse_words("ci"), Ok(Task::Test(Options { ci: true, ..Options::default() })));
        let only = vec!["fmt".to_owned(), "doc".to_owned()];
        let expected = Options { quick: true, only, ..Options::default() };
        assert_eq!(parse_words("test --quick --only fmt,doc"), Ok(Task::Test(expected)));
        let packages = vec!["emmer-core".to_owned(), "emmer-wire".to_owned()];
        let expected = Options { packages, ..Options::default() };
        assert_eq!(
            parse_words("test -p emmer-core --package emmer-wire"),
            Ok(Task::Test(expected))
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse_words("tets").unwrap_err().contains("`tets`"));
        assert!(parse_words("test --fast").unwrap_err().contains("--fast"));
        assert!(parse_words("test --only lint").unwrap_err().contains("fmt, tidy"));
        assert!(parse_words("test --only").is_err());
        assert!(parse_words("test --package").is_err());
        assert!(parse_words("tidy now").is_err());
        assert!(parse_words("services").is_err() && parse_words("services up oracle").is_err());
        assert!(parse_words("test --store redit").unwrap_err().contains("zookeeper"));
        let expected = Options { store: Some("redis".to_owned()), ..Options::default() };
        assert_eq!(parse_words("test --store redis"), Ok(Task::Test(expected)));
        assert_eq!(parse_words("services up"), Ok(Task::Services(Action::Up, vec![])));
    }

    #[test]
    fn mutants_take_options() {
        let expected = mutants::Options {
            smoke: true,
            json: true,
            seed: 9,
            jobs: 2,
            ..mutants::Options::default()
        };
        assert_eq!(
            parse_words("mutants --smoke --seed 9 --format json --jobs 2"),
            Ok(Task::Mutants(expected))
        );
        assert!(
            parse_words("mutants --jobs 0").is_err() && parse_words("mutants --cpu x").is_err()
        );
    }

    #[test]
    fn the_help_names_every_step() {
        assert!(STEPS.iter().all(|step| HELP.contains(step)));
    }
}
