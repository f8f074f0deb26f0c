//! Mechanical mutants: small edits that a slip of the hand makes, found by syntax.
//!
//! Every possible edit has a name that does not depend on the rest of the file: crate and file,
//! function, kind of edit, and its number among those of one kind in the function. A sample is
//! drawn by the hash of the name, so that an edit elsewhere leaves it as it is.

use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::sites::{self, Function, range};
use super::{Ground, Mutant};

/// Whether mutants are generated in the file at `path`.
pub(crate) fn is_mutated(ground: Ground, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let left_out = |out: &str| if out.starts_with('/') { path.contains(out) } else { name == out };
    ground.crates().iter().any(|(folder, _)| path.starts_with(&format!("{folder}/src/")))
        && name.ends_with(".rs")
        && !name.ends_with("_tests.rs")
        && name != "tests.rs"
        && !path.contains("/tests/")
        && !ground.left_out().iter().any(|out| left_out(out))
}

/// Words of statements and conditions that only count, tell, or plant bugs.
const NO_DECISION: &[&str] =
    &["counters", "Event::", "Bug::", "with_capacity", "shrink_to", "capacity()"];

/// Calls that only take one value for another of its kind.
const SWAPPED_METHODS: &[(&str, &str)] = &[
    ("min", "max"),
    ("max", "min"),
    ("any", "all"),
    ("all", "any"),
    ("is_some_and", "is_none_or"),
    ("is_none_or", "is_some_and"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("set", "set_no_later"),
    ("set_no_later", "set"),
    ("first", "last"),
    ("last", "first"),
];

/// Constants that are easily taken for one another.
const SWAPPED_STATUS: &[(&str, &str)] = &[
    ("Active", "Joining"),
    ("Joining", "Active"),
    ("Dead", "Stopping"),
    ("ShuttingDown", "Stopping"),
    ("Stopping", "Dead"),
];

/// Every mechanical mutant of the file at `path`.
pub(crate) fn all(path: &str, text: &str) -> Result<Vec<Mutant>, String> {
    let file = syn::parse_file(text).map_err(|e| format!("{path}: {e}"))?;
    let functions = sites::functions(text).map_err(|e| format!("{path}: {e}"))?;
    let usable = functions.into_iter().filter(|f| !f.plain && !f.opaque).collect();
    let mut edits = Edits { text, functions: usable, found: Vec::new() };
    edits.visit_file(&file);
    let mut numbers: BTreeMap<(String, &str), u32> = BTreeMap::new();
    let short = path.trim_start_matches("crates/").replace("/src/", "/");
    let mutants = edits.found.into_iter().map(|(function, kind, at, replacement)| {
        let number = numbers.entry((function.clone(), kind)).or_default();
        *number += 1;
        let name = format!("{short}:{function}:{kind}:{number}");
        Mutant::generated(name, path, at, text, replacement)
    });
    Ok(mutants.collect())
}

/// `count` of `mutants`, chosen by `seed`, in the order of the draw.
pub(crate) fn sample(mutants: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    let mut drawn: Vec<(u64, Mutant)> = mutants
        .into_iter()
        .map(|mutant| (xxh3_64_with_seed(mutant.name.as_bytes(), seed), mutant))
        .collect();
    drawn.sort_by_key(|(key, _)| *key);
    drawn.into_iter().take(count).map(|(_, mutant)| mutant).collect()
}

struct Edits<'a> {
    text: &'a str,
    functions: Vec<Function>,
    /// Function, kind, place, replacement.
    found: Vec<(String, &'static str, Range<usize>, String)>,
}

impl Edits<'_> {
    fn add(&mut self, kind: &'static str, at: Range<usize>, replacement: impl Into<String>) {
        let within = |f: &&Function| f.body.start < at.start && at.end < f.body.end;
        let Some(function) = self.functions.iter().find(within) else { return };
        self.found.push((function.name.clone(), kind, at, replacement.into()));
    }

    fn of(&self, span: proc_macro2::Span) -> &str {
        self.text.get(range(span)).unwrap_or("")
    }

    fn decides_nothing(&self, span: proc_macro2::Span) -> bool {
        let text = self.of(span);
        NO_DECISION.iter().any(|word| text.contains(word))
    }
}

/// The other operators that may stand here by mistake.
const fn operator(op: &syn::BinOp) -> Option<(&'static str, &'static str)> {
    Some(match op {
        syn::BinOp::Lt(_) => ("lt-to-le", "<="),
        syn::BinOp::Le(_) => ("le-to-lt", "<"),
        syn::BinOp::Gt(_) => ("gt-to-ge", ">="),
        syn::BinOp::Ge(_) => ("ge-to-gt", ">"),
        syn::BinOp::Eq(_) => ("eq-to-ne", "!="),
        syn::BinOp::Ne(_) => ("ne-to-eq", "=="),
        syn::BinOp::And(_) => ("and-to-or", "||"),
        syn::BinOp::Or(_) => ("or-to-and", "&&"),
        syn::BinOp::Add(_) => ("plus-to-minus", "-"),
        syn::BinOp::Sub(_) => ("minus-to-plus", "+"),
        _ => return None,
    })
}

/// Whether a block does nothing but leave.
fn leaves(block: &syn::Block) -> bool {
    matches!(
        block.stmts.last(),
        Some(syn::Stmt::Expr(
            syn::Expr::Return(_) | syn::Expr::Continue(_) | syn::Expr::Break(_),
            _
        ))
    )
}

impl<'ast> Visit<'ast> for Edits<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !sites::is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_stmt(&mut self, stmt: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(expr, semicolon) = stmt {
            if self.decides_nothing(expr.span())
                && !matches!(expr, syn::Expr::If(_) | syn::Expr::Match(_) | syn::Expr::ForLoop(_))
            {
                return;
            }
            match expr {
                syn::Expr::MethodCall(_) | syn::Expr::Call(_) if semicolon.is_some() => {
                    self.add("drop-call", range(stmt.span()), "");
                }
                syn::Expr::Assign(_) => self.add("drop-assignment", range(stmt.span()), ""),
                syn::Expr::If(branch)
                    if branch.else_branch.is_none()
                        && leaves(&branch.then_branch)
                        && !has_let(&branch.cond)
                        && !self.decides_nothing(branch.span()) =>
                {
                    self.add("drop-guard", range(stmt.span()), "");
                }
                _ => {}
            }
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        if !has_let(&expr.cond) && !self.decides_nothing(expr.cond.span()) {
            let negated = format!("!({})", self.of(expr.cond.span()));
            self.add("negate-condition", range(expr.cond.span()), negated);
        }
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        if !self.decides_nothing(expr.span())
            && let Some((kind, other)) = operator(&expr.op)
        {
            self.add(kind, range(expr.op.span()), other);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if let syn::UnOp::Not(not) = expr.op
            && !self.decides_nothing(expr.span())
        {
            self.add("drop-not", range(not.span()), "");
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        if let Some((_, other)) = SWAPPED_METHODS.iter().find(|(method, _)| *method == name)
            && !self.decides_nothing(call.span())
        {
            self.add("swap-method", range(call.method.span()), *other);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_lit(&mut self, literal: &'ast syn::ExprLit) {
        match &literal.lit {
            syn::Lit::Int(number) => {
                if let Ok(value) = number.base10_parse::<u64>()
                    && value < u64::from(u32::MAX)
                {
                    self.add(
                        "next-number",
                        range(literal.span()),
                        format!("{}{}", value + 1, number.suffix()),
                    );
                }
            }
            syn::Lit::Bool(word) => {
                self.add(
                    "flip-bool",
                    range(literal.span()),
                    if word.value { "false" } else { "true" },
                );
            }
            _ => {}
        }
        visit::visit_expr_lit(self, literal);
    }

    fn visit_expr_path(&mut self, expr: &'ast syn::ExprPath) {
        let segments = &expr.path.segments;
        if segments.len() == 2
            && segments[0].ident == "SiloStatus"
            && let Some((_, other)) =
                SWAPPED_STATUS.iter().find(|(name, _)| segments[1].ident == name)
        {
            self.add("other-status", range(segments[1].ident.span()), *other);
        }
        visit::visit_expr_path(self, expr);
    }
}

fn has_let(expr: &syn::Expr) -> bool {
    struct Looks(bool);
    impl<'ast> Visit<'ast> for Looks {
        fn visit_expr_let(&mut self, _: &'ast syn::ExprLet) {
            self.0 = true;
        }
    }
    let mut looks = Looks(false);
    looks.visit_expr(expr);
    looks.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "impl A {\n fn f(&mut self, a: u8) -> bool {\n  if a < 3 { return false; \
                        }\n  self.g();\n  self.counters.x += 1;\n  a.min(2) == 1 && !self.h\n \
                        }\n}\n";

    #[test]
    fn each_kind_of_edit_is_found_where_it_is() {
        let found = all("crates/membership/src/a.rs", TEXT).unwrap();
        let names: Vec<&str> =
            found.iter().map(|m| m.name.trim_start_matches("membership/a.rs:f:")).collect();
        let expected = [
            "drop-guard:1",
            "negate-condition:1",
            "lt-to-le:1",
            "next-number:1",
            "flip-bool:1",
            "drop-call:1",
            "and-to-or:1",
            "eq-to-ne:1",
            "swap-method:1",
            "next-number:2",
            "next-number:3",
            "drop-not:1",
        ];
        assert_eq!(names, expected);
        assert_eq!((found[2].before.as_str(), found[2].after.as_str()), ("<", "<="));
        assert_eq!(found[2].line, 3);
    }

    #[test]
    fn a_sample_does_not_change_with_what_was_not_drawn() {
        let few =
            |mutants: Vec<Mutant>| -> Vec<String> { mutants.into_iter().map(|m| m.name).collect() };
        let found = all("crates/membership/src/a.rs", TEXT).unwrap();
        let drawn = few(sample(found.clone(), 4, 7));
        let without = found.into_iter().filter(|m| drawn.contains(&m.name)).collect();
        assert_eq!(few(sample(without, 4, 7)), drawn);
    }

    #[test]
    fn only_decisions_are_mutated() {
        assert!(
            is_mutated(Ground::Protocol, "crates/membership/src/fence.rs")
                && is_mutated(Ground::Protocol, "crates/directory/src/ranges.rs")
                && is_mutated(Ground::Runtime, "crates/runtime/src/hosting/gate/line.rs")
        );
        assert!(!is_mutated(Ground::Protocol, "crates/membership/src/config.rs"));
        assert!(!is_mutated(Ground::Protocol, "lab/sim/src/run.rs"));
        assert!(!is_mutated(Ground::Runtime, "crates/runtime/src/world/mod.rs"));
    }
}
