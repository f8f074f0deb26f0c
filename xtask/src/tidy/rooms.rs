//! The rooms of the runtime: its modules. The table of rooms in `ARCHITECTURE.md` says which of
//! them each may name; within one crate the compiler forbids nothing.

use super::layers::{PAGE, names, rows};
use super::{Finding, RustFile, Tree};

/// A module of the runtime at its crate's root.
struct Room {
    name: String,
    /// The other rooms it may name; `room::module` allows that module alone.
    may_use: Vec<String>,
}

/// Any room may use these.
const FOR_ALL: &[&str] = &["trace"];

/// Where the rooms are.
const SOURCES: &str = "crates/runtime/src/";

/// No room names one that it may not use, each is in the table, and the table is an order.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let room = |cells: Vec<&str>| {
        let name = names(cells.first()?).pop()?;
        Some(Room { name, may_use: names(cells.get(1)?) })
    };
    let rooms: Vec<Room> = rows(tree, "rooms").into_iter().filter_map(room).collect();
    let files = tree.rust.iter().filter_map(|rust| {
        let within = rust.file.path.strip_prefix(SOURCES)?;
        (within != "lib.rs").then_some((within, rust))
    });
    let in_files = files.flat_map(|(within, rust)| check_file(&rooms, within, rust));
    Ok(check_order(&rooms).into_iter().chain(in_files).collect())
}

/// Each row names earlier rows alone: then no rooms name each other in a circle.
fn check_order(rooms: &[Room]) -> Vec<Finding> {
    let of_room = |(at, room): (usize, &Room)| {
        let earlier: Vec<&str> = rooms[..at].iter().map(|room| room.name.as_str()).collect();
        let is_later = |used: &&String| !earlier.contains(&base(used));
        let finding = |used: &String| {
            let text = format!("`{}` may not use `{used}`, which is no earlier row", room.name);
            Finding::fail(PAGE, 0, text)
        };
        room.may_use.iter().filter(is_later).map(finding).collect::<Vec<_>>()
    };
    rooms.iter().enumerate().flat_map(of_room).collect()
}

/// The room of a path.
fn base(path: &str) -> &str {
    path.split("::").next().unwrap_or_default()
}

fn check_file(rooms: &[Room], within: &str, rust: &RustFile) -> Vec<Finding> {
    let path = &rust.file.path;
    let own = within.split(['/', '.']).next().unwrap_or_default();
    let Some(room) = rooms.iter().find(|room| room.name == own) else {
        let text = format!("the room `{own}` has no place: add it to the table in {PAGE}");
        return vec![Finding::fail(path, 0, text)];
    };
    let code = &rust.split.code;
    let forbidden = named_from_root(code, depth(within)).into_iter().filter(|(_, named)| {
        let other = base(named);
        let may = |allowed: &String| named == allowed || named.starts_with(&format!("{allowed}::"));
        let free = other == own || FOR_ALL.contains(&other);
        !free && rooms.iter().any(|room| room.name == other) && !room.may_use.iter().any(may)
    });
    let finding = |(at, named): (usize, String)| {
        let line = code[..at].matches('\n').count() + 1;
        let may = room.may_use.join(", ");
        Finding::fail(path, line, format!("`{own}` may not use `{named}`; it may use: {may}"))
    };
    forbidden.map(finding).collect()
}

/// Number of modules that a file is deep in its crate.
fn depth(within: &str) -> usize {
    let module = within.trim_end_matches(".rs").trim_end_matches("/mod");
    module.split('/').count()
}

/// Every path that begins at the crate's root, as `crate::` or as `super::` repeated, without that
/// beginning; and where.
fn named_from_root(code: &str, depth: usize) -> Vec<(usize, String)> {
    let to_root = format!("{}super::", "super::".repeat(depth.saturating_sub(1)));
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut named = Vec::new();
    for root in ["crate::", &to_root] {
        let begins = code.match_indices(root).filter(|(at, _)| {
            let before = &code[..*at];
            !before.ends_with(is_word) && (root == "crate::" || !before.ends_with("super::"))
        });
        for (at, _) in begins {
            // A module within the file takes one more step to the root.
            let rest = code[at + root.len()..].trim_start_matches("super::");
            named.extend(paths(rest).into_iter().map(|path| (at, path)));
        }
    }
    named
}

/// The path that `code` begins with, or those of the group in braces that it begins with.
pub(super) fn paths(code: &str) -> Vec<String> {
    let Some(group) = code.strip_prefix('{') else {
        let end = code
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
            .unwrap_or(code.len());
        return vec![code[..end].trim_end_matches(':').to_owned()];
    };
    let mut deep = 0_usize;
    let mut items = vec![String::new()];
    for c in group.chars() {
        match c {
            '}' if deep == 0 => break,
            ',' if deep == 0 => items.push(String::new()),
            _ => {
                deep = if c == '{' { deep + 1 } else { deep - usize::from(c == '}') };
                items.last_mut().into_iter().for_each(|item| item.push(c));
            }
        }
    }
    items.iter().flat_map(|item| members(item)).collect()
}

/// The paths of one item of a group: one, or those of its own group.
fn members(item: &str) -> Vec<String> {
    let item = item.trim();
    match item.split_once('{') {
        None => paths(item),
        Some((before, _)) => {
            let inner = paths(&item[before.len()..]);
            inner.iter().map(|path| format!("{}{path}", before.trim())).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    fn found(within: &str, code: &str) -> Vec<Finding> {
        let path = format!("{SOURCES}{within}");
        check(&tree(&[], &[(&path, code), (PAGE, include_str!("../../../ARCHITECTURE.md"))]))
            .unwrap()
    }

    fn findings(within: &str, code: &str) -> Vec<String> {
        found(within, code).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_room_names_only_what_it_may_however_it_is_written() {
        let bad = [
            ("hosting/turn.rs", "use crate::silo::SiloCore;"),
            ("hosting/gate/mod.rs", "fn f(silo: &crate::silo::Silo) {}"),
            (
                "cluster/mod.rs",
                "use crate::{\n    wheel::Wheel,\n    hosting::{Host, RunActivation},\n};",
            ),
            ("cluster/fence.rs", "use super::super::hosting::Host;"),
            ("wheel.rs", "pub(in crate::cluster) fn f() {}"),
            ("metrics/mod.rs", "use super::cluster::Fence;"),
            ("metrics/mod.rs", "mod tests {\n    use super::super::cluster::Fence;\n}"),
            ("hosting/turn.rs", "use crate::calls::path::Path;"),
            ("hosting/turn.rs", "use crate::{waits::Waits, calls::{path::Path}};"),
            ("hosting/turn.rs", "use crate::calls::{self, path};"),
        ];
        for (within, code) in bad {
            assert!(!findings(within, code).is_empty(), "{within}: {code}");
        }
        let good = [
            ("hosting/turn.rs", "use crate::waits::Waits;"),
            ("hosting/turn.rs", "use crate::{waits::{graph::Graph}, cluster::Fence};"),
            (
                "hosting/turn.rs",
                "// crate::silo\nfn f() { print(\"crate::silo\"); mycrate::silo(); }",
            ),
            ("hosting/turn.rs", "use super::silo;"),
            ("hosting/gate/mod.rs", "use super::super::hosting;"),
            ("silo/core.rs", "use crate::{calls::Calls, hosting::Host, cluster::Cluster};"),
            ("lib.rs", "pub use crate::silo::Silo;"),
        ];
        for (within, code) in good {
            assert_eq!(findings(within, code), [""; 0], "{within}: {code}");
        }
    }

    #[test]
    fn a_finding_says_where_and_what_is_allowed() {
        let path = "crates/runtime/src/cluster/mod.rs";
        let found = found("cluster/mod.rs", "//! X\n\nuse crate::silo::SiloCore;\n");
        assert_eq!((found.len(), found[0].path.as_str(), found[0].line), (1, path, 3));
        assert!(
            found[0]
                .text
                .starts_with("`cluster` may not use `silo::SiloCore`; it may use: metrics"),
            "{}",
            found[0].text
        );
    }

    #[test]
    fn a_row_that_names_a_later_one_fails() {
        let found = |rows: &str| {
            let page = format!("<!-- rooms: begin -->\n{rows}\n<!-- rooms: end -->\n");
            let found = check(&tree(&[], &[(PAGE, &page)])).unwrap();
            found.into_iter().map(|finding| finding.text).collect::<Vec<_>>()
        };
        let up = found("| `a` | `b` |\n| `b` | `a` |");
        assert_eq!(up, ["`a` may not use `b`, which is no earlier row"]);
        assert_eq!(found("| `a` | `a::x` |").len(), 1, "itself");
        assert_eq!(found("| `a` | no other room |\n| `b` | `a::x` |"), [""; 0]);
    }

    #[test]
    fn a_room_without_a_place_fails() {
        assert!(findings("attic/mod.rs", "").concat().contains("has no place"));
        assert!(findings("attic.rs", "").concat().contains("has no place"));
    }
}
