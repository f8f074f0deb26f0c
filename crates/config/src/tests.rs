//! Precedence, places and refusals.

use std::path::Path;

use super::*;

const FILE: &str = "\
# A cluster
store = \"sqlite://from-file.db\"
cluster_id = \"file\"
listen = \"127.0.0.1:1\"

[membership]
probe_period = \"7s\"
fan_out = 4
";

fn load(file: &str, variables: &[(&str, &str)], set: &[&str]) -> Result<Settings> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("emmer.toml");
    std::fs::write(&path, file).unwrap();
    let args =
        ConfigArgs { config: Some(path), set: set.iter().map(|s| (*s).to_owned()).collect() };
    let variables =
        variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::load(
        &args,
        variables,
        vec![("listen", Some("127.0.0.1:3".into()), "--listen"), ("name", None, "--name")],
    )
}

#[test]
fn flags_win_over_variables_and_those_over_the_file() {
    let variables = [
        ("EMMER_CLUSTER_ID", "env"),
        ("EMMER_LISTEN", "127.0.0.1:2"),
        ("EMMER_MEMBERSHIP_FAN_OUT", "5"),
        ("PATH", "x"),
    ];
    let options =
        load(FILE, &variables, &["membership.delta_log_max=9"]).unwrap().silo_options().unwrap();
    assert_eq!(options.cluster_id.as_str(), "env");
    assert_eq!(options.listen.port(), 3);
    assert_eq!((options.membership.fan_out, options.membership.delta_log_max), (5, 9));
    assert_eq!(options.membership.probe_period, std::time::Duration::from_secs(7));
    assert_eq!((options.name, options.role), (None, None));
    assert_eq!(options.activation_count_choices, 2);
    let set = ["role=front", "activation_count_choices=3"];
    let named = load(FILE, &[("EMMER_NAME", "a")], &set).unwrap();
    let options = named.silo_options().unwrap();
    assert_eq!((options.name.as_deref(), options.role.as_deref()), (Some("a"), Some("front")));
    assert_eq!(options.activation_count_choices, 3);
    let variables = [("EMMER_METADATA", "zone=a, disk = ssd,"), ("EMMER_FAULT_ZONE", "-3")];
    let options = load(FILE, &variables, &["update_zone=4"]).unwrap().silo_options().unwrap();
    assert_eq!((options.update_zone, options.fault_zone), (4, -3));
    let metadata = [("disk", "ssd"), ("zone", "a")];
    assert!(options.metadata.iter().map(|(key, value)| (&**key, &**value)).eq(metadata));
    let settings = load(FILE, &[], &[]).unwrap();
    assert_eq!(settings.get("store").unwrap().text, "sqlite://from-file.db");
}

#[test]
fn a_profile_is_what_the_keys_change() {
    let variables = [("EMMER_MEMBERSHIP_PROFILE", "classic")];
    let options =
        load(FILE, &variables, &["membership.num_probed_silos=4"]).unwrap().silo_options().unwrap();
    let classic = emmer_membership::Config::classic();
    assert_eq!(options.membership.num_missed_probes_limit, classic.num_missed_probes_limit);
    assert_eq!((options.membership.num_probed_silos, options.membership.fan_out), (4, 4));
}

/// Loads and builds, and returns the mistakes.
fn refusal(file: &str, variables: &[(&str, &str)], set: &[&str]) -> String {
    load(file, variables, set).and_then(|settings| settings.silo_options()).unwrap_err().to_string()
}

#[test]
fn errors_name_key_and_place() {
    for (line, says) in [
        (
            "fan_ot = 3",
            [
                "emmer.toml:9: unknown key \"membership.fan_ot\"",
                "did you mean \"membership.fan_out\"",
            ],
        ),
        ("[membershp]\nfan_out = 1", ["emmer.toml:9: unknown table", "[membership]"]),
        ("[limits]\nprobe_period = \"1s\"", ["emmer.toml:10:", "\"membership.probe_period\""]),
        ("[limits]\nforwards_max = 300", ["emmer.toml:10: limits.forwards_max", "300"]),
        ("[limits]\nforwards_max = [1]", ["emmer.toml:10: limits.forwards_max", "array"]),
        ("vote_hold = 5", ["emmer.toml:9: membership.vote_hold", "duration"]),
        ("probe_timeout = \"1h\"", ["emmer.toml:9: membership.probe_timeout", "max_probe_timeout"]),
        (
            "delta_views = \"maybe\"",
            ["emmer.toml:9: membership.delta_views", "neither true nor false"],
        ),
        ("profile = \"clasic\"", ["emmer.toml:9: membership.profile", "did you mean \"classic\""]),
        ("= 1", ["emmer.toml:9:", ""]),
    ] {
        let found = refusal(&format!("{FILE}{line}\n"), &[], &[]);
        assert!(says.iter().all(|part| found.contains(part)), "{line}: {found}");
    }
    let found = refusal(FILE, &[("EMMER_LISTE", "x")], &[]);
    assert!(found.contains("EMMER_LISTE") && found.contains("EMMER_LISTEN"), "{found}");
    let found = refusal(FILE, &[("EMMER_METADATA", "zone")], &[]);
    assert!(
        found.starts_with("environment variable EMMER_METADATA: metadata: \"zone\""),
        "{found}"
    );
    assert!(refusal(FILE, &[], &["metadata=a=1,a=2"]).contains("\"a\" is there twice"));
    assert!(refusal(FILE, &[], &["metadata==x"]).contains("--set: metadata: the key \"\""));
    let found = refusal(FILE, &[("EMMER_GATEWAY", "here")], &[]);
    assert!(found.starts_with("environment variable EMMER_GATEWAY: gateway:"), "{found}");
    let found = refusal(FILE, &[("EMMER_CLUSTER_ID", "two words")], &[]);
    assert!(found.contains("EMMER_CLUSTER_ID: cluster_id: \"two words\""), "{found}");
    assert!(refusal(FILE, &[], &["fan_out"]).contains("KEY=VALUE"));
    assert!(refusal(FILE, &[], &["fanout=1"]).contains("--set: unknown key \"fanout\""));
}

#[test]
fn a_number_may_have_a_fraction() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("emmer.toml");
    std::fs::write(&path, "traces = 0.25").unwrap();
    let args = ConfigArgs { config: Some(path), set: Vec::new() };
    let settings = Settings::load(&args, [], Vec::new()).unwrap();
    assert_eq!(settings.parsed::<f64>("traces"), Ok(Some(0.25)));
}

#[test]
fn a_file_that_is_missing_is_an_error() {
    let args =
        ConfigArgs { config: Some(Path::new("no/such/emmer.toml").to_owned()), set: Vec::new() };
    let found = Settings::load(&args, [], Vec::new()).unwrap_err();
    assert!(found.to_string().contains("no/such/emmer.toml"), "{found}");
}

/// The rows of the page by table (empty for the first), each the cells of a key, a default and
/// more.
fn rows() -> Vec<(String, Vec<String>)> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let page = |name: &str| std::fs::read_to_string(format!("{docs}/{name}")).unwrap();
    let page = page("settings.md") + &page("settings-cluster.md");
    let mut table = String::new();
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some((name, _)) = line.strip_prefix("`[").and_then(|rest| rest.split_once("]`")) {
            table = format!("{name}.");
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
        rows.push((format!("{table}{}", cells[0].trim_end_matches('`')), cells));
    }
    rows
}

/// The page is what an operator reads: it has every key, in its table, and no others.
#[test]
fn the_page_lists_every_key_and_no_other() {
    let mut told: Vec<_> = rows().into_iter().map(|(key, _)| key).collect();
    let mut known: Vec<_> = keys::all().into_iter().collect();
    told.sort();
    known.sort();
    assert_eq!(told, known);
}

/// Each default on the page is the true one, with its unit.
#[test]
fn the_page_tells_the_true_defaults() {
    let defaults = Settings::default().effective().unwrap();
    let mut compared = 0;
    for (key, cells) in rows() {
        let default = defaults.iter().find(|one| one.key == key).unwrap();
        match &default.value {
            Some(value) => {
                assert_eq!(&cells[1].trim_matches('`'), value, "{key}");
                compared += 1;
            }
            // In words: none, or a value that is made when a silo starts.
            None => {
                let is_a_value = cells[1].matches('`').count() == 2 && cells[1].ends_with('`');
                assert!(!is_a_value || cells[1] == "`listen`", "{key}: {}", cells[1]);
            }
        }
    }
    assert!(compared > 90, "{compared}");
}

/// Each least value on the page is the least that a silo takes.
#[test]
fn the_page_tells_the_true_least_limits() {
    let least = toml::Table::try_from(emmer_core::limits::Limits::LEAST).unwrap();
    let limits = rows().into_iter().filter_map(|(key, cells)| {
        Some((key.strip_prefix("limits.")?.to_owned(), cells[2].trim_matches('`').to_owned()))
    });
    let limits: Vec<_> = limits.collect();
    assert_eq!(limits.len(), least.len());
    for (key, told) in limits {
        assert_eq!(told, effective::plain(&least[&key]), "{key}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_place() {
    let file = format!("{FILE}fan_ot = 1\n\n[limit]\nx = 1\n\n[reminders]\nlease = [1]\n");
    let error = load(&file, &[("EMMER_LISTE", "x")], &["nonsense", "rol=x"]).unwrap_err();
    let wanted = [
        "EMMER_LISTE",
        "emmer.toml:9: unknown key \"membership.fan_ot\"",
        "emmer.toml:11: unknown table [limit]; did you mean [limits]?",
        "emmer.toml:15:",
        "--set nonsense: expected KEY=VALUE",
        "--set: unknown key \"rol\"; did you mean \"role\"?",
    ];
    assert_eq!(error.mistakes().len(), wanted.len(), "{error}");
    for (mistake, wanted) in error.mistakes().iter().zip(wanted) {
        assert!(mistake.contains(wanted), "{mistake}: {wanted}");
    }
    let wrong = ["listen=here", "collection_age=soon", "limits.forwards_max=300", "limits.x_max=1"];
    let settings = load(FILE, &[], &wrong[..3]).unwrap();
    let error = settings.silo_options().unwrap_err();
    // A flag wins over the first of them.
    for wanted in ["collection_age", "limits.forwards_max"] {
        assert!(error.mistakes().iter().any(|mistake| mistake.contains(wanted)), "{error}");
    }
    assert_eq!(error.mistakes().len(), 2, "{error}");
}

#[test]
fn every_setting_is_shown_with_its_place_and_without_secrets() {
    let variables = [("EMMER_STORE", "postgres://me:hush@db/emmer?sslpassword=hush")];
    let settings = load(FILE, &variables, &["limits.forwards_max=9"]).unwrap();
    let all = settings.effective().unwrap();
    assert_eq!(all.len(), keys::all().len());
    let of = |key: &str| all.iter().find(|one| one.key == key).unwrap();
    assert_eq!(of("store").place, Some(Place::Variable("EMMER_STORE".to_owned())));
    assert!(!of("store").value.as_deref().unwrap().contains("hush"), "{:?}", of("store"));
    assert_eq!(of("limits.forwards_max").value.as_deref(), Some("9"));
    assert_eq!(of("limits.forwards_max").place, Some(Place::Flag("--set")));
    assert_eq!(of("membership.probe_period").value.as_deref(), Some("7s"));
    assert!(matches!(of("membership.probe_period").place, Some(Place::File { line: 7, .. })));
    assert_eq!(
        (of("response_timeout").value.as_deref(), &of("response_timeout").place),
        (Some("30s"), &None)
    );
    assert_eq!(of("gateway").value, None);
}

#[cfg(feature = "tls")]
#[test]
fn tls_is_a_certificate_or_a_secret() {
    use emmer_runtime::{Tls, TlsRollout};
    let tls = |set: &[&str]| load(FILE, &[], set).unwrap().tls();
    assert_eq!(tls(&[]), Ok(None));
    let files = ["tls.authority=a.pem", "tls.certificate=s.pem", "tls.key=s.key"];
    assert_eq!(tls(&files), Ok(Some(Tls::new("a.pem", "s.pem", "s.key"))));
    assert_eq!(tls(&["tls.secret=/run/secret"]), Ok(Some(Tls::secret("/run/secret"))));
    assert_eq!(tls(&["tls.secret=env:SHOP"]), Ok(Some(Tls::secret_in_variable("SHOP"))));
    let more = ["tls.rollout=prefer", "tls.overlap=5m", "tls.anonymous_clients=true"];
    let wanted = Tls::new("a.pem", "s.pem", "s.key").rollout(TlsRollout::Prefer);
    let wanted = wanted.overlap(std::time::Duration::from_secs(300)).anonymous_clients();
    assert_eq!(tls(&[&files[..], &more].concat()), Ok(Some(wanted)));
    // A secret in the place of its file's name is shown nowhere.
    let secret = "tls.secret=Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFy";
    let mistaken = load(FILE, &[], &[secret]).unwrap();
    let shown = format!("{} {:?}", mistaken.told(), mistaken.effective().unwrap());
    assert!(!shown.contains("Zm9v") && shown.contains("***"), "{shown}");
    for (set, says) in [
        (&["tls.key=s.key"][..], "--set: tls.key: a silo with TLS needs"),
        (&["tls.rollout=accept"], "tls.rollout: a silo with TLS needs"),
        (&["tls.secret=x", "tls.key=k"], "tls.secret: a silo has a secret or a certificate"),
        (&["tls.secret=x", "tls.rollout=off"], "\"off\" is not one of accept, prefer and require"),
        (&["tls.secret=x", "tls.overlap=long"], "tls.overlap"),
        (&["tls.secret=x", "tls.anonymous_clients=yes"], "neither true nor false"),
    ] {
        let told = tls(set).unwrap_err().to_string();
        assert!(told.contains(says), "{set:?}: {told}");
    }
}

/// A program's help is its own text and the flags: nothing of the documentation for programmers.
#[cfg(feature = "clap")]
#[test]
fn flags_leave_the_help_to_their_program() {
    let bare = <SiloFlags as clap::Args>::augment_args(clap::Command::new("shop"));
    assert!(bare.get_about().is_none() && bare.get_long_about().is_none());
    let mut shop = <SiloFlags as clap::Args>::augment_args(clap::Command::new("shop").about("Tea"));
    let help = shop.render_long_help().to_string();
    assert!(help.starts_with("Tea\n"), "{help}");
    assert!(!help.contains("```") && !help.contains(".md"), "{help}");
}

/// Each flag on the page is one of a program that has the flags of a silo, and sets the key.
#[cfg(all(feature = "clap", feature = "log"))]
#[test]
fn the_page_names_flags_that_there_are() {
    use clap::FromArgMatches as _;

    let mut seen = 0;
    for (key, cells) in rows() {
        let Some((_, flag)) = cells[2].split_once("; flag `--") else { continue };
        let (flag, rest) = flag.split_once('`').unwrap();
        if rest == " of `emmer silo`" {
            continue;
        }
        assert_eq!(rest, "", "{key}");
        let value = if key == "insecure" { None } else { Some("true") };
        let line = ["shop".to_owned(), format!("--{flag}")];
        let line = line.into_iter().chain(value.map(str::to_owned));
        let command = <SiloFlags as clap::Args>::augment_args(clap::Command::new("shop"));
        let matches = command.try_get_matches_from(line).unwrap();
        let (args, flags) = SiloFlags::from_arg_matches(&matches).unwrap().flags();
        let settings = Settings::load(&args, [], flags).unwrap();
        assert_eq!(settings.get(&key).unwrap().text, "true", "{key}");
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn a_token_is_read_from_its_place_and_shown_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = dir.path().join(format!("token of {} bytes", text.len()));
        std::fs::write(&path, text).unwrap();
        format!("telemetry_token={}", path.display())
    };
    let token = |place: &str, more: &[&str]| {
        let set: Vec<&str> = [place].iter().chain(more).copied().collect();
        load(FILE, &[], &set).unwrap().telemetry_token()
    };
    let port = &["telemetry=127.0.0.1:9464"][..];
    let good = "0123456789abcdef";
    assert_eq!(token(&file(&format!("{good}\n")), port), Ok(Some(good.to_owned())));
    for (place, more, why) in [
        (file("0123456789abcde"), port, "16 to 8192 visible ASCII characters"),
        (file("0123456789 abcdef"), port, "16 to 8192 visible ASCII characters"),
        (file(good), &[][..], "set telemetry too"),
        ("telemetry_token=/no/such/token".to_owned(), port, "cannot be read"),
        ("telemetry_token=env:NO_SUCH_TOKEN".to_owned(), port, "no variable \"NO_SUCH_TOKEN\""),
    ] {
        let error = token(&place, more).unwrap_err().to_string();
        assert!(error.contains("telemetry_token") && error.contains(why), "{error}");
        assert!(!error.contains("0123456789"), "{error}");
    }
    // A token in the place of its file's name.
    let mistaken = load(FILE, &[], &[&format!("telemetry_token={good}")]).unwrap();
    assert!(!mistaken.told().contains(good), "{}", mistaken.told());
    let shown = format!("{:?}", mistaken.effective().unwrap());
    assert!(!shown.contains(good), "{shown}");
}
