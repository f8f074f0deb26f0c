//! Files that name each other in a circle. The table of circles in `ARCHITECTURE.md` says how many
//! files of a package may be in one circle; a newcomer can read the others from the ground up.
//!
//! A file names another by a path in its code: from the crate's root, from a module above, or from
//! a module that it declares. A re-exported name stands for the file that defines it. A declaration
//! alone does not count, and tests do not.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::{PAGE, names, rows};
use super::rooms::paths;
use super::scan::has_word;
use super::{Finding, Tree};

/// A package of the table: its folder, and how many files may be in one circle.
struct Limit {
    folder: String,
    most: usize,
}

/// No package has a larger circle than the table allows.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let limit = |cells: Vec<&str>| {
        let most = cells.get(1)?.parse().ok()?;
        Some(Limit { folder: names(cells.first()?).pop()?, most })
    };
    let check_row = |cells: Vec<&str>| {
        let row = cells.join(" | ");
        let Some(limit) = limit(cells) else {
            let text = format!("`{row}` is no row of circles: expected a folder and a number");
            return Some(Finding::fail(PAGE, 0, text));
        };
        check_package(tree, &limit)
    };
    Ok(rows(tree, "circles").into_iter().filter_map(check_row).collect())
}

fn check_package(tree: &Tree, limit: &Limit) -> Option<Finding> {
    let package = Package::read(tree, &limit.folder);
    if package.files.is_empty() {
        let text = format!("`{}` of the table of circles has no sources", limit.folder);
        return Some(Finding::fail(PAGE, 0, text));
    }
    let circles = circles(&package);
    let largest = circles.iter().max_by_key(|files| files.len())?;
    (largest.len() > limit.most).then(|| {
        let (found, most, files) = (largest.len(), limit.most, largest.join(", "));
        let text = format!("{found} files in one circle, {most} at most by {PAGE}: {files}");
        Finding::fail(&limit.folder, 0, text)
    })
}

/// The files of a package that ship, by module, with their code.
pub(super) struct Package {
    files: BTreeMap<Vec<String>, Module>,
}

/// A module that is a file.
struct Module {
    path: String,
    code: String,
    /// The re-exported names, with their paths from the crate's root.
    handed_on: BTreeMap<String, Vec<String>>,
}

impl Package {
    /// Reads the package in `folder`, without its tests.
    pub(super) fn read(tree: &Tree, folder: &str) -> Self {
        let root = format!("{folder}/src/");
        let of_package = tree.rust.iter().filter_map(|rust| {
            let within = rust.file.path.strip_prefix(&root)?;
            let code = without_tests(&rust.split.code);
            let file = Module { path: within.to_owned(), code: code.0, handed_on: BTreeMap::new() };
            Some((module(within), file, code.1))
        });
        let (mut files, mut tests) = (BTreeMap::new(), BTreeSet::new());
        for (name, file, declared) in of_package {
            tests.extend(declared.into_iter().map(|test| [name.clone(), vec![test]].concat()));
            files.insert(name, file);
        }
        files.retain(|name, _| !tests.iter().any(|test| name.starts_with(test)));
        let mut package = Self { files };
        let modules: Vec<Vec<String>> = package.files.keys().cloned().collect();
        for module in modules {
            let children: Vec<String> =
                package.children(&module).into_iter().map(str::to_owned).collect();
            package.hand_on(&module, &children);
        }
        package
    }

    /// Removes re-exports from the code of `module`'s file.
    fn hand_on(&mut self, module: &[String], children: &[String]) {
        let Some(file) = self.files.get_mut(module) else { return };
        let children: Vec<&str> = children.iter().map(String::as_str).collect();
        let mut from = 0;
        while let Some(statement) = next_use(&file.code, from) {
            from = statement.end;
            let named = paths_in(&file.code[statement.clone()], module, &children);
            let without = format!("{}{}", &file.code[..statement.start], &file.code[from..]);
            let used =
                |path: &Vec<String>| path.last().is_some_and(|name| has_word(&without, name));
            if !named.iter().any(used) {
                let blank: String = file.code[statement.clone()]
                    .chars()
                    .map(|c| if c == '\n' { c } else { ' ' })
                    .collect();
                file.code.replace_range(statement, &blank);
            }
            let names = named.into_iter().filter_map(|path| Some((path.last()?.clone(), path)));
            file.handed_on.extend(names);
        }
    }

    /// Each file, with its module and its code.
    pub(super) fn files(&self) -> impl Iterator<Item = (&[String], &str, &str)> {
        let files = self.files.iter();
        files.map(|(module, file)| (module.as_slice(), file.path.as_str(), file.code.as_str()))
    }

    /// The modules that the file of `module` names, itself aside.
    pub(super) fn named_by(&self, module: &[String]) -> BTreeSet<&[String]> {
        let Some(file) = self.files.get(module) else { return BTreeSet::new() };
        let named = paths_in(&file.code, module, &self.children(module));
        let found = named.iter().filter_map(|path| self.file_of(path));
        found.filter(|other| *other != module).collect()
    }

    /// The modules that the file of `module` declares.
    fn children(&self, module: &[String]) -> Vec<&str> {
        let below = self
            .files
            .keys()
            .filter(|other| other.len() == module.len() + 1 && other.starts_with(module));
        below.filter_map(|other| other.last()).map(String::as_str).collect()
    }

    /// The file that defines the name in `path`: its deepest module, or the one from which that
    /// module re-exports the name. None for names of the crate's root.
    fn file_of(&self, path: &[String]) -> Option<&[String]> {
        let mut path = path.to_vec();
        // A name is re-exported a few times at most.
        for _ in 0..8 {
            let deepest = (0..=path.len()).rev().find(|end| self.files.contains_key(&path[..*end]));
            let (module, file) = self.files.get_key_value(&path[..deepest?])?;
            match path.get(module.len()).and_then(|name| file.handed_on.get(name)) {
                Some(other) if *other != path => path = other.clone(),
                _ if module.is_empty() => return None,
                _ => return Some(module.as_slice()),
            }
        }
        None
    }
}

/// The module of a file, from the crate's root; none of the names are `lib` or `mod`.
fn module(within: &str) -> Vec<String> {
    let module = within.trim_end_matches(".rs").trim_end_matches("/mod");
    let names = module.split('/').filter(|name| !matches!(*name, "lib" | "main"));
    names.map(str::to_owned).collect()
}

/// The code without test-only code, and the test modules that it declares.
fn without_tests(code: &str) -> (String, Vec<String>) {
    const MARK: &str = "#[cfg(test)]";
    let (mut kept, mut declared, mut rest) = (String::new(), Vec::new(), code);
    while let Some((before, after)) = rest.split_once(MARK) {
        kept += before;
        let item = after.find(['{', ';']).unwrap_or(after.len());
        let is_declared = after[item..].starts_with(';');
        if let Some((_, name)) = after[..item].split_once("mod ").filter(|_| is_declared) {
            declared.push(name.trim().to_owned());
        }
        rest = if is_declared { &after[item + 1..] } else { after_block(&after[item..]) };
    }
    kept += rest;
    (kept, declared)
}

/// Code behind the block in braces that `code` begins with.
fn after_block(code: &str) -> &str {
    let mut deep = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => deep += 1,
            '}' if deep <= 1 => return &code[at + 1..],
            '}' => deep -= 1,
            _ => {}
        }
    }
    ""
}

/// Where the next statement of `code` is that hands names on, from `from` on.
fn next_use(code: &str, from: usize) -> Option<std::ops::Range<usize>> {
    let begins = ["pub use ", "pub(crate) use ", "pub(super) use "];
    let found = begins.iter().filter_map(|begin| code[from..].find(begin)).min()? + from;
    let end = code[found..].find(';')? + found + 1;
    Some(found..end)
}

/// Every path of `code`, the file of `module` with these `children`, from the crate's root.
fn paths_in(code: &str, module: &[String], children: &[&str]) -> Vec<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let begins = children.iter().copied().chain(["crate", "super", "self"]);
    for begin in begins {
        for (at, _) in code.match_indices(&format!("{begin}::")) {
            // Part of a longer path, or of a longer word.
            let before = &code[..at];
            if before.ends_with(is_word) || before.ends_with("::") {
                continue;
            }
            let mut base = module.to_vec();
            let mut rest = &code[at..];
            while let Some(above) = rest.strip_prefix("super::") {
                base.pop();
                rest = above;
            }
            if let Some(own) = rest.strip_prefix("self::") {
                rest = own;
            } else if let Some(root) = rest.strip_prefix("crate::") {
                (base, rest) = (Vec::new(), root);
            }
            found.extend(whole_paths(rest).into_iter().map(|path| {
                let names = path.split("::").map(str::to_owned);
                base.iter().cloned().chain(names).collect()
            }));
        }
    }
    found
}

/// The paths at the start of `code`: one, or those of the group in braces at its end.
fn whole_paths(code: &str) -> Vec<String> {
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let (head, rest) = code.split_at(end.unwrap_or(code.len()));
    if head.ends_with("::") && rest.starts_with('{') {
        return paths(rest).into_iter().map(|path| format!("{head}{path}")).collect();
    }
    paths(code)
}

/// The circles of a package, each as its files.
fn circles(package: &Package) -> Vec<Vec<String>> {
    // The crate's root declares and re-exports.
    let modules: Vec<&[String]> =
        package.files().map(|(module, ..)| module).filter(|module| !module.is_empty()).collect();
    let named: Vec<Vec<usize>> = modules
        .iter()
        .map(|module| {
            let named = package.named_by(module);
            (0..modules.len()).filter(|other| named.contains(modules[*other])).collect()
        })
        .collect();
    let reached: Vec<BTreeSet<usize>> = (0..modules.len()).map(|at| reach(&named, at)).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    let mut seen = BTreeSet::new();
    for at in 0..modules.len() {
        if !reached[at].contains(&at) || !seen.insert(at) {
            continue;
        }
        let together = reached[at].iter().filter(|other| reached[**other].contains(&at));
        let together: Vec<usize> = together.copied().collect();
        seen.extend(together.iter().copied());
        let path = |at: &usize| package.files[modules[*at]].path.clone();
        circles.push(together.iter().map(path).collect());
    }
    circles
}

/// Everything that is named from `at` on.
fn reach(named: &[Vec<usize>], at: usize) -> BTreeSet<usize> {
    let (mut reached, mut open) = (BTreeSet::new(), named[at].clone());
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(&named[next]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    fn found(most: usize, files: &[(&str, &str)]) -> Vec<String> {
        found_by(&format!("| `crates/a` | {most} |"), files)
    }

    fn found_by(row: &str, files: &[(&str, &str)]) -> Vec<String> {
        let page = format!("<!-- circles: begin -->\n{row}\n<!-- circles: end -->\n");
        let paths: Vec<String> =
            files.iter().map(|(within, _)| format!("crates/a/src/{within}")).collect();
        let mut all: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, code))| (path.as_str(), *code)).collect();
        all.push((PAGE, &page));
        check(&tree(&[], &all)).unwrap().into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn files_that_name_each_other_are_found_however_they_are_written() {
        let circles: [&[(&str, &str)]; 6] = [
            &[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "use super::a;")],
            &[("a/mod.rs", "mod b; use self::b::B;"), ("a/b.rs", "use super::A;")],
            &[
                ("a/mod.rs", "mod b; pub(crate) use b::B; fn f(_: B) {}"),
                ("a/b.rs", "fn f(_: super::A) {}"),
            ],
            &[
                ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
                ("a.rs", "use crate::B;"),
                ("b.rs", "use crate::A;"),
            ],
            &[("a.rs", "use crate::{b::{B, C}};"), ("b.rs", "fn f() { crate::a::f(); }")],
            &[("a/x.rs", "use crate::b::B;"), ("b/mod.rs", ""), ("b.rs", "use super::a::x::X;")],
        ];
        for files in circles {
            let found = found(0, files);
            assert_eq!(found.len(), 1, "{files:?}");
            assert!(found[0].starts_with("2 files in one circle, 0 at most"), "{found:?}");
        }
        assert_eq!(found(2, circles[0]), [""; 0], "as large as the table allows");
    }

    #[test]
    fn a_row_that_checks_nothing_fails() {
        let files = [("a.rs", "fn a() {}")];
        assert!(found_by("| `crates/a` | few |", &files).concat().contains("no row of circles"));
        assert!(found_by("| `crates/b` | 0 |", &files).concat().contains("has no sources"));
    }

    #[test]
    fn declarations_tests_comments_and_names_handed_on_are_no_names() {
        let none: [&[(&str, &str)]; 6] = [
            &[("lib.rs", "mod a; pub use a::A;"), ("a.rs", "use crate::b::B;"), ("b.rs", "")],
            &[
                ("a/mod.rs", "mod b; mod c; pub(crate) use self::b::B; pub use c::{C, D};"),
                ("a/b.rs", ""),
                ("a/c.rs", "use super::B;"),
            ],
            &[("a/mod.rs", "mod b;"), ("a/b.rs", "use super::A;")],
            &[
                ("a.rs", "use crate::b::B;"),
                ("b.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
            ],
            &[
                ("lib.rs", "mod a;\n#[cfg(test)]\nmod b;"),
                ("a.rs", "fn a() {}"),
                ("b.rs", "use crate::a::a; mod c;"),
                ("a/x.rs", "use crate::a::a;"),
            ],
            &[("a.rs", "// crate::b\nuse other::b::B;"), ("b.rs", "use crate::a::A;")],
        ];
        for files in none {
            assert_eq!(found(0, files), [""; 0], "{files:?}");
        }
    }
}
