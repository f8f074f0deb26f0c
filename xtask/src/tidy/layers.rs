//! Dependencies point down only: who may know whom, as one table that `ARCHITECTURE.md` shows too.

use super::{Finding, Tree};
use crate::workspace::{EdgeKind, Member};

/// What one package may depend on among the workspace's own packages.
pub(crate) struct Layer {
    /// The package; a trailing `*` stands for any ending.
    pub(crate) package: &'static str,
    /// Whether it is sans-IO: no socket, clock, thread or OS randomness, in its source or below it.
    pub(crate) sans_io: bool,
    /// The packages it may use in what ships.
    pub(crate) may_use: &'static [&'static str],
    /// The packages that its tests, examples and benches may use besides.
    pub(crate) tests_may_use: &'static [&'static str],
}

/// The whole architecture, bottom to top. A package that is missing here may not exist.
pub(crate) const LAYERS: &[Layer] = &[
    Layer { package: "emmer-core", sans_io: true, may_use: &[], tests_may_use: &[] },
    Layer { package: "emmer-macros", sans_io: false, may_use: &[], tests_may_use: &["emmer"] },
    Layer { package: "emmer-wire", sans_io: true, may_use: &["emmer-core"], tests_may_use: &[] },
    Layer {
        package: "emmer-store",
        sans_io: false,
        may_use: &["emmer-core"],
        tests_may_use: &["emmer-test-servers"],
    },
    Layer {
        package: "emmer-membership",
        sans_io: true,
        may_use: &["emmer-core"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-directory",
        sans_io: true,
        may_use: &["emmer-core"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-placement",
        sans_io: true,
        may_use: &["emmer-core"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-reminders",
        sans_io: true,
        may_use: &["emmer-core"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-test-servers",
        sans_io: false,
        may_use: &["emmer-core", "emmer-store"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-store-relational",
        sans_io: false,
        may_use: &["emmer-core", "emmer-store"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-store-keyvalue",
        sans_io: false,
        may_use: &["emmer-core", "emmer-store"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-store-*",
        sans_io: false,
        may_use: &["emmer-core", "emmer-store", "emmer-store-relational", "emmer-store-keyvalue"],
        tests_may_use: &["emmer-test-servers"],
    },
    Layer {
        package: "emmer-stores",
        sans_io: false,
        may_use: &["emmer-core", "emmer-store", "emmer-store-*"],
        tests_may_use: &["emmer-test-servers"],
    },
    Layer { package: "emmer-report", sans_io: false, may_use: &[], tests_may_use: &[] },
    Layer { package: "emmer-models", sans_io: false, may_use: &[], tests_may_use: &[] },
    Layer { package: "emmer-mutants", sans_io: false, may_use: &[], tests_may_use: &[] },
    Layer {
        package: "emmer-sim",
        sans_io: false,
        may_use: &[
            "emmer-core",
            "emmer-store",
            "emmer-membership",
            "emmer-directory",
            "emmer-placement",
            "emmer-report",
        ],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-virtual",
        sans_io: false,
        may_use: &["emmer-core"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-runtime",
        sans_io: false,
        may_use: &[
            "emmer-core",
            "emmer-virtual",
            "emmer-wire",
            "emmer-store",
            "emmer-stores",
            "emmer-membership",
            "emmer-directory",
            "emmer-placement",
            "emmer-reminders",
        ],
        tests_may_use: &["emmer", "emmer-store-*"],
    },
    Layer {
        package: "emmer-telemetry",
        sans_io: false,
        may_use: &["emmer-runtime"],
        tests_may_use: &["emmer"],
    },
    Layer {
        package: "emmer-config",
        sans_io: false,
        may_use: &[
            "emmer-core",
            "emmer-membership",
            "emmer-placement",
            "emmer-runtime",
            "emmer-store",
        ],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-testkit",
        sans_io: false,
        may_use: &[
            "emmer-core",
            "emmer-membership",
            "emmer-runtime",
            "emmer-store",
            "emmer-virtual",
            "emmer-wire",
        ],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer",
        sans_io: false,
        may_use: &[
            "emmer-config",
            "emmer-core",
            "emmer-macros",
            "emmer-store",
            "emmer-stores",
            "emmer-telemetry",
            "emmer-testkit",
            "emmer-membership",
            "emmer-placement",
            "emmer-runtime",
        ],
        tests_may_use: &["emmer-wire"],
    },
    Layer {
        package: "emmer-swarm",
        sans_io: false,
        may_use: &["emmer", "emmer-core"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-example-shop-api",
        sans_io: false,
        may_use: &["emmer"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-example-*",
        sans_io: false,
        may_use: &["emmer", "emmer-example-shop-api"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-book",
        sans_io: false,
        may_use: &["emmer", "emmer-example-*"],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-benches",
        sans_io: false,
        may_use: &[
            "emmer",
            "emmer-core",
            "emmer-directory",
            "emmer-membership",
            "emmer-report",
            "emmer-store",
            "emmer-test-servers",
            "emmer-wire",
        ],
        tests_may_use: &[],
    },
    Layer {
        package: "emmer-guard",
        sans_io: false,
        may_use: &[],
        tests_may_use: &["emmer-benches"],
    },
    Layer {
        package: "emmer-cli",
        sans_io: false,
        may_use: &["emmer", "emmer-example-*"],
        tests_may_use: &["emmer-core", "emmer-wire"],
    },
    Layer {
        package: "emmer-lab",
        sans_io: false,
        may_use: &[
            "emmer",
            "emmer-benches",
            "emmer-cli",
            "emmer-report",
            "emmer-sim",
            "emmer-test-servers",
        ],
        tests_may_use: &[],
    },
    Layer { package: "xtask", sans_io: false, may_use: &[], tests_may_use: &[] },
];

/// The layer of the package called `name`: an exact entry wins over one with a `*`.
pub(crate) fn layer_of(name: &str) -> Option<&'static Layer> {
    let exact = LAYERS.iter().find(|layer| layer.package == name);
    exact.or_else(|| LAYERS.iter().find(|layer| matches(layer.package, name)))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.len() > prefix.len() && name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Every edge between members must be in the table, and every member must have a layer.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings: Vec<_> = tree.workspace.members.iter().flat_map(check_member).collect();
    findings.extend(check_shown(tree));
    Ok(findings)
}

fn check_member(member: &Member) -> Vec<Finding> {
    let manifest = format!("{}/Cargo.toml", member.folder);
    let Some(layer) = layer_of(&member.name) else {
        let text =
            format!("{} has no layer: add it to LAYERS in xtask/src/tidy/layers.rs", member.name);
        return vec![Finding::fail(&manifest, 0, text)];
    };
    let allowed = |list: &[&str], target: &str| list.iter().any(|pattern| matches(pattern, target));
    let mut findings = Vec::new();
    for (target, kinds) in &member.internal {
        if allowed(layer.may_use, target) || *target == member.name {
            continue;
        }
        if kinds.iter().all(|kind| *kind == EdgeKind::Dev) {
            if !allowed(layer.tests_may_use, target) {
                let text = format!(
                    "the tests of {} may not use {target} (dependencies point down)",
                    member.name
                );
                findings.push(Finding::fail(&manifest, 0, text));
            }
        } else {
            let text = format!(
                "{} may not depend on {target}; it may use: {}",
                member.name,
                if layer.may_use.is_empty() {
                    "no package of the workspace".to_owned()
                } else {
                    layer.may_use.join(", ")
                }
            );
            findings.push(Finding::fail(&manifest, 0, text));
        }
    }
    findings
}

/// The line before the table in `ARCHITECTURE.md`, and the one after it.
const SHOWN_BEGIN: &str = "<!-- layers: begin, printed by `cargo xtask layers` -->";
const SHOWN_END: &str = "<!-- layers: end -->";

/// Where `ARCHITECTURE.md` shows the table, it must show this one.
fn check_shown(tree: &Tree) -> Option<Finding> {
    let path = "ARCHITECTURE.md";
    let shown = tree.text(path)?.split_once(SHOWN_BEGIN)?.1.split(SHOWN_END).next()?;
    let wrong = shown.trim() != table().trim();
    wrong.then(|| {
        Finding::fail(
            path,
            0,
            "its table of layers is out of date: paste the output of `cargo xtask layers`",
        )
    })
}

/// The table as Markdown, as `cargo xtask layers` prints it (the markers are in it for pasting).
pub(crate) fn markdown() -> String {
    format!("{SHOWN_BEGIN}\n{}{SHOWN_END}\n", table())
}

fn table() -> String {
    let list = |names: &[&str]| match names {
        [] => "nothing".to_owned(),
        names => names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
    };
    let mut text =
        "| package | sans-IO | may use | its tests may also use |\n|---|---|---|---|\n".to_owned();
    for layer in LAYERS {
        let sans_io = if layer.sans_io { "yes" } else { "" };
        let tests =
            if layer.tests_may_use.is_empty() { String::new() } else { list(layer.tests_may_use) };
        text +=
            &format!("| `{}` | {sans_io} | {} | {tests} |\n", layer.package, list(layer.may_use));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    #[test]
    fn an_upward_edge_fails_and_names_what_is_allowed() {
        let tree = tree(
            &[
                ("emmer-runtime", "crates/runtime", &[]),
                ("emmer-sim", "lab/sim", &["emmer-runtime"]),
            ],
            &[],
        );
        let findings = check(&tree).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "lab/sim/Cargo.toml");
        assert!(
            findings[0]
                .text
                .contains("emmer-sim may not depend on emmer-runtime; it may use: emmer-core")
        );
    }

    #[test]
    fn a_store_knows_the_contract_and_nothing_above() {
        let good: &[&str] = &["emmer-core", "emmer-store"];
        assert!(
            check(&tree(&[("emmer-store-redis", "stores/redis", good)], &[])).unwrap().is_empty()
        );
        for above in ["emmer-membership", "emmer-store-sqlite"] {
            let bad: &[&str] = &[above];
            assert_eq!(
                check(&tree(&[("emmer-store-redis", "stores/redis", bad)], &[])).unwrap().len(),
                1
            );
        }
    }

    #[test]
    fn a_test_edge_is_judged_by_its_own_list() {
        let mut tree = tree(&[("emmer-macros", "crates/macros", &["emmer"])], &[]);
        assert_eq!(check(&tree).unwrap().len(), 1, "macros may not ship on top of the facade");
        tree.workspace.members[0].internal.insert("emmer".to_owned(), vec![EdgeKind::Dev]);
        assert!(check(&tree).unwrap().is_empty(), "its compile-fail tests may use it");
        tree.workspace.members[0].internal.insert("emmer-runtime".to_owned(), vec![EdgeKind::Dev]);
        assert_eq!(check(&tree).unwrap().len(), 1);
    }

    #[test]
    fn a_package_without_a_layer_fails() {
        let findings = check(&tree(&[("emmer-extras", "crates/extras", &[])], &[])).unwrap();
        assert!(findings[0].text.contains("has no layer"));
    }

    #[test]
    fn a_star_needs_an_ending() {
        assert!(matches("emmer-store-*", "emmer-store-sqlite"));
        assert!(!matches("emmer-store-*", "emmer-store-"));
        assert_eq!(layer_of("emmer-store").map(|l| l.package), Some("emmer-store"));
    }

    #[test]
    fn the_table_has_no_cycle_and_sans_io_stands_on_sans_io() {
        for (index, layer) in LAYERS.iter().enumerate() {
            for target in layer.may_use {
                let below = LAYERS[..index]
                    .iter()
                    .find(|l| l.package == *target || matches(target, l.package));
                let below =
                    below.or_else(|| LAYERS[..index].iter().find(|l| matches(l.package, target)));
                let below = below.unwrap_or_else(|| {
                    panic!("{} uses {target}, which is not below it", layer.package)
                });
                assert!(
                    !layer.sans_io || below.sans_io,
                    "{} is sans-IO and {target} is not",
                    layer.package
                );
            }
        }
    }

    #[test]
    fn a_shown_table_must_be_this_one() {
        let current = format!("# A\n{}\n", markdown());
        assert!(check(&tree(&[], &[("ARCHITECTURE.md", &current)])).unwrap().is_empty());
        let stale = current.replace("`emmer-sim`", "`emmer-old`");
        assert_eq!(check(&tree(&[], &[("ARCHITECTURE.md", &stale)])).unwrap().len(), 1);
    }
}
