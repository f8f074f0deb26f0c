//! Rust files stay short enough to read in one sitting.

use super::{Finding, Tree};

/// Above this many lines a file is named as a warning: it is time to split it.
const WARN_LINES: usize = 500;

/// Above this many lines the check fails.
const MAX_LINES: usize = 600;

/// Above this many lines a function is named as a warning.
const WARN_FUNCTION_LINES: usize = 70;

/// Counts the lines of every Rust file, tests included, and of every function.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for rust in &tree.rust {
        findings.extend(check_file(&rust.file.path, rust.file.text.lines().count()));
        findings.extend(check_functions(&rust.file.path, &rust.split.code));
    }
    Ok(findings)
}

fn check_file(path: &str, lines: usize) -> Option<Finding> {
    if lines > MAX_LINES {
        Some(Finding::fail(
            path,
            0,
            format!("{lines} lines, {MAX_LINES} at most: one subject per module"),
        ))
    } else if lines > WARN_LINES {
        Some(Finding::warn(
            path,
            0,
            format!("{lines} lines; split it before it passes {MAX_LINES}"),
        ))
    } else {
        None
    }
}

/// Names the functions that are longer than they should be. Closures and nested items count for the
/// outer function.
fn check_functions(path: &str, code: &str) -> Vec<Finding> {
    let lines: Vec<&str> = code.lines().collect();
    let mut findings = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let length = body_length(&lines[start..]);
        if length > WARN_FUNCTION_LINES {
            let text =
                format!("fn {name} has {length} lines; {WARN_FUNCTION_LINES} is long enough");
            findings.push(Finding::warn(path, start + 1, text));
        }
    }
    findings
}

/// The name when `line` starts a function item.
fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let qualifiers = ["const", "async", "unsafe", "extern", "\"\"", "default"];
    let keyword = words
        .find(|word| !word.starts_with("pub") && *word != "in" && !qualifiers.contains(word))?;
    let name = words.next().filter(|_| keyword == "fn")?;
    name.split(['(', '<']).next()
}

/// The lines from the first to the closing brace of the first block that opens; 0 for a declaration
/// without a body.
fn body_length(lines: &[&str]) -> usize {
    let mut depth = 0_usize;
    for (index, line) in lines.iter().enumerate() {
        for c in line.chars() {
            match c {
                ';' if depth == 0 => return 0,
                '{' | '(' | '[' => depth += 1,
                '}' | ')' | ']' => {
                    depth = depth.saturating_sub(1);
                    if c == '}' && depth == 0 {
                        return index + 1;
                    }
                }
                _ => {}
            }
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn the_two_limits() {
        let level = |lines| check_file("x.rs", lines).map(|f| f.level);
        assert_eq!(level(500), None);
        assert_eq!(level(501), Some(Level::Warn));
        assert_eq!(level(600), Some(Level::Warn));
        assert_eq!(level(601), Some(Level::Fail));
    }

    #[test]
    fn a_long_function_is_named_and_a_declaration_is_not() {
        let body = "    x(|a| { a });\n".repeat(70);
        let long = format!(
            "trait T {{\n    fn short(a: [u8; 3]) -> u8;\n}}\npub(crate) async fn long<T>() \
             {{\n{body}}}\nfn ok() {{}}\n"
        );
        let findings = check_functions("x.rs", &long);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].line, findings[0].level), (4, Level::Warn));
        assert!(findings[0].text.starts_with("fn long has 72 lines"), "{}", findings[0].text);
    }
}
