//! The parts of a state machine: folders that do not know each other, as the table of parts in
//! `ARCHITECTURE.md` names them. The machine alone knows them all, and no file touches another
//! one's fields.

use super::circles::Package;
use super::layers::{PAGE, names, rows};
use super::{Finding, Tree};

/// The parts of one package.
struct Parts {
    folder: String,
    parts: Vec<String>,
    /// The module that knows them all.
    machine: String,
}

/// No part names another, and no field is visible beyond its module.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let parts = |cells: Vec<&str>| {
        let [folder, parts, machine] = cells[..] else { return None };
        let (folder, machine) = (names(folder).pop()?, names(machine).pop()?);
        Some(Parts { folder, parts: names(parts), machine })
    };
    let check_row = |cells: Vec<&str>| {
        let row = cells.join(" | ");
        let Some(parts) = parts(cells) else {
            let text = format!("`{row}` is no row of parts: expected a folder, parts, a machine");
            return vec![Finding::fail(PAGE, 0, text)];
        };
        check_package(tree, &parts)
    };
    Ok(rows(tree, "parts").into_iter().flat_map(check_row).collect())
}

fn check_package(tree: &Tree, parts: &Parts) -> Vec<Finding> {
    let package = Package::read(tree, &parts.folder);
    let mut findings = Vec::new();
    for name in parts.parts.iter().chain([&parts.machine]) {
        if !package.files().any(|(module, ..)| module.first() == Some(name)) {
            let text = format!("{} has no module `{name}`, which {PAGE} names", parts.folder);
            findings.push(Finding::fail(PAGE, 0, text));
        }
    }
    for (module, within, code) in package.files() {
        let path = format!("{}/src/{within}", parts.folder);
        let own = module.first();
        for (at, line) in code.lines().enumerate() {
            if is_open_field(line) {
                let text = "a field that other files can touch: give it a method instead";
                findings.push(Finding::fail(&path, at + 1, text));
            }
        }
        // The crate's root hands names on.
        let Some(own) = own.filter(|own| **own != parts.machine) else { continue };
        let named = package.named_by(module).into_iter().filter_map(|named| named.first());
        let foreign = named.filter(|other| *other != own && parts.parts.contains(*other));
        findings.extend(foreign.map(|other| {
            let text = format!("`{own}` may not know the part `{other}`: ask through the machine");
            Finding::fail(&path, 0, text)
        }));
    }
    findings
}

/// Returns true for `pub(crate) name: Type`, and the like.
fn is_open_field(line: &str) -> bool {
    let line = line.trim_start();
    let Some(rest) = line.strip_prefix("pub(").and_then(|rest| rest.split_once(')')) else {
        return false;
    };
    let name = rest.1.trim_start();
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
    end > 0 && name[end..].starts_with(':') && !name[end..].starts_with("::")
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    const TABLE: &str =
        "<!-- parts: begin -->\n| `crates/a` | `x`, `y` | `machine` |\n<!-- parts: end -->\n";

    fn found(x: &str, machine: &str) -> Vec<String> {
        let files = [
            ("crates/a/src/lib.rs", "mod x; mod y; mod machine; pub use x::X;"),
            ("crates/a/src/x/mod.rs", x),
            ("crates/a/src/y.rs", "pub(crate) struct Y { n: u8 }"),
            ("crates/a/src/machine.rs", machine),
            (PAGE, TABLE),
        ];
        check(&tree(&[], &files)).unwrap().into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_part_that_names_another_fails_and_the_machine_may() {
        assert_eq!(found("", "use crate::{x::X, y::Y};"), [""; 0]);
        let text = found("use crate::y::Y;", "").concat();
        assert!(text.contains("`x` may not know the part `y`"), "{text}");
        let in_tests = "#[cfg(test)]\nmod tests {\n    use crate::y::Y;\n}";
        assert_eq!(found(in_tests, ""), [""; 0]);
    }

    #[test]
    fn a_field_that_others_can_touch_fails() {
        for open in ["pub(crate) n: u8,", "    pub(super) n: Vec<u8>,", "pub(in crate::x) n: u8"] {
            assert!(is_open_field(open), "{open}");
        }
        for closed in ["n: u8,", "pub n: u8,", "pub(crate) fn f(a: u8)", "pub(crate) use x::Y;"] {
            assert!(!is_open_field(closed), "{closed}");
        }
        assert!(found("struct X {\n    pub(crate) n: u8,\n}", "").concat().contains("a field"));
    }
}
