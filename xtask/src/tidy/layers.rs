//! Dependencies point down only: which package may use which is the table of layers in
//! `ARCHITECTURE.md`, bottom to top.

use super::{Finding, Tree};
use crate::workspace::{EdgeKind, Member};

/// The page that has the tables.
pub(super) const PAGE: &str = "ARCHITECTURE.md";

/// Packages of the workspace that one package may depend on.
pub(super) struct Layer {
    /// The package; a trailing `*` stands for any ending.
    package: String,
    /// Sans-IO: no socket, clock, thread or OS randomness, in its source or below it.
    pub(super) sans_io: bool,
    /// The packages it may use in what ships.
    may_use: Vec<String>,
    /// The packages that its tests, examples and benches may use besides.
    tests_may_use: Vec<String>,
}

/// The rows of a table between two marks of the page, each as its cells; none without the marks.
pub(super) fn rows<'a>(tree: &'a Tree, name: &str) -> Vec<Vec<&'a str>> {
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let shown = tree.text(PAGE).and_then(|text| text.split_once(&begin)?.1.split(&end).next());
    let rows = shown.unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The names in a cell, each in backquotes.
pub(super) fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// All layers of the page.
pub(super) fn layers(tree: &Tree) -> Vec<Layer> {
    let layer = |cells: Vec<&str>| {
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let package = names(cell(0)).pop()?;
        let (may_use, tests_may_use) = (names(cell(2)), names(cell(3)));
        Some(Layer { package, sans_io: cell(1) == "yes", may_use, tests_may_use })
    };
    rows(tree, "layers").into_iter().filter_map(layer).collect()
}

/// The layer of the package called `name`: an exact entry wins over one with a `*`.
pub(super) fn layer_of<'a>(layers: &'a [Layer], name: &str) -> Option<&'a Layer> {
    let exact = layers.iter().find(|layer| layer.package == name);
    exact.or_else(|| layers.iter().find(|layer| matches(&layer.package, name)))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.len() > prefix.len() && name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Every edge between members must be in the table, every member must have a layer, and the table
/// itself must point down.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let layers = layers(tree);
    let members = tree.workspace.members.iter();
    let mut findings: Vec<_> = members.flat_map(|member| check_member(&layers, member)).collect();
    findings.extend(check_order(&layers));
    Ok(findings)
}

fn check_member(layers: &[Layer], member: &Member) -> Vec<Finding> {
    let manifest = format!("{}/Cargo.toml", member.folder);
    let Some(layer) = layer_of(layers, &member.name) else {
        let text = format!("{} has no layer: add it to the table in {PAGE}", member.name);
        return vec![Finding::fail(&manifest, 0, text)];
    };
    let allowed = |list: &[String], target: &str| list.iter().any(|one| matches(one, target));
    let forbidden = member.internal.iter().filter(|(target, kinds)| {
        let only_tests = kinds.iter().all(|kind| *kind == EdgeKind::Dev);
        **target != member.name
            && !allowed(&layer.may_use, target)
            && !(only_tests && allowed(&layer.tests_may_use, target))
    });
    let say = |(target, _): (&String, &Vec<EdgeKind>)| {
        let may = [layer.may_use.join(", "), layer.tests_may_use.join(", ")];
        let text = format!(
            "{} may not use {target}; it may use: {}; in tests also: {}",
            member.name, may[0], may[1]
        );
        Finding::fail(&manifest, 0, text)
    };
    forbidden.map(say).collect()
}

/// Checks the table itself: a layer uses only layers above it, and a sans-IO layer only sans-IO
/// ones.
fn check_order(layers: &[Layer]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        for target in &layer.may_use {
            let is =
                |below: &&Layer| matches(target, &below.package) || matches(&below.package, target);
            let text = match layers[..at].iter().find(is) {
                None => format!("{} uses {target}, which is not above it", layer.package),
                Some(below) if layer.sans_io && !below.sans_io => {
                    format!("{} is sans-IO and {target} is not", layer.package)
                }
                Some(_) => continue,
            };
            findings.push(Finding::fail(PAGE, 0, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    const TABLE: &str = "<!-- layers: begin -->\n| package | sans-IO | may use | tests |\n|---|\n\
        | `emmer-core` | yes | nothing |  |\n\
        | `emmer-store` |  | `emmer-core` |  |\n\
        | `emmer-store-*` |  | `emmer-core`, `emmer-store` | `emmer` |\n\
        <!-- layers: end -->\n";

    fn findings(name: &str, uses: &[&str], kind: EdgeKind) -> Vec<String> {
        let mut tree = tree(&[(name, "stores/x", uses)], &[(PAGE, TABLE)]);
        tree.workspace.members[0].internal.values_mut().for_each(|kinds| *kinds = vec![kind]);
        check(&tree).unwrap().into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn an_edge_that_the_table_lacks_fails_and_names_what_is_allowed() {
        assert!(findings("emmer-store-x", &["emmer-core"], EdgeKind::Normal).is_empty());
        let found = findings("emmer-store-x", &["emmer-runtime"], EdgeKind::Normal);
        assert!(
            found[0].contains("may not use emmer-runtime; it may use: emmer-core, emmer-store")
        );
        assert_eq!(findings("emmer-store", &["emmer-store-x"], EdgeKind::Normal).len(), 1);
        assert_eq!(findings("emmer-store-x", &["emmer"], EdgeKind::Normal).len(), 1);
        assert!(findings("emmer-store-x", &["emmer"], EdgeKind::Dev).is_empty());
    }

    #[test]
    fn a_package_without_a_layer_fails_and_a_star_needs_an_ending() {
        assert!(findings("emmer-extras", &[], EdgeKind::Normal)[0].contains("has no layer"));
        assert!(!matches("emmer-store-*", "emmer-store-"));
    }

    #[test]
    fn the_table_points_down_and_sans_io_stands_on_sans_io() {
        let order = |from: &str, to: &str| {
            check_order(&layers(&tree(&[], &[(PAGE, &TABLE.replace(from, to))]))).len()
        };
        assert_eq!(order("", ""), 0);
        assert_eq!(
            order("| `emmer-core` | yes | nothing", "| `emmer-core` | yes | `emmer-store`"),
            1
        );
        assert_eq!(order("| `emmer-store-*` |  |", "| `emmer-store-*` | yes |"), 1);
    }
}
