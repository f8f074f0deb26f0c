//! Splits Rust source into code, comments and strings, so that each rule reads only what it is
//! about.
//!
//! A rule against `Instant::now` must not trip over the comment that explains the rule, and a rule
//! against a word in comments must not read string literals. This is a lexer for exactly that
//! question, not a parser.

/// One source text split by kind; every part keeps the line structure of the original (the rest is
/// blanked out).
#[derive(Debug)]
pub(crate) struct Split {
    /// Code only: comments are blank, and literals keep their quotes but lose their content.
    pub(crate) code: String,
    /// Comments only, their markers included.
    pub(crate) comments: String,
}

/// Place of the lexer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// Block comments nest in Rust; the number is the depth.
    BlockComment(usize),
    Str,
    /// A raw string and the number of `#` that close it.
    RawStr(usize),
}

/// Splits `source`; unterminated comments and strings run to the end of the text.
pub(crate) fn split(source: &str) -> Split {
    let chars: Vec<char> = source.chars().collect();
    let mut out = Splitter { code: String::new(), comments: String::new() };
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        let (next, width) = step(&chars, at, state);
        let kind = if state == State::Code { next } else { state };
        for &c in &chars[at..at + width] {
            out.push(kind, c, state == State::Code || next == State::Code);
        }
        at += width;
        state = next;
    }
    Split { code: out.code, comments: out.comments }
}

struct Splitter {
    code: String,
    comments: String,
}

impl Splitter {
    /// `delimiter` says that the character opens or closes its literal, and is kept in the code.
    fn push(&mut self, kind: State, c: char, delimiter: bool) {
        let blank = if c == '\n' { '\n' } else { ' ' };
        let (code, comment) = match kind {
            State::Code => (c, blank),
            State::LineComment | State::BlockComment(_) => (blank, c),
            State::Str | State::RawStr(_) => (if delimiter { c } else { blank }, blank),
        };
        self.code.push(code);
        self.comments.push(comment);
    }
}

/// The state after the token at `at`, and how many characters that token has.
fn step(chars: &[char], at: usize, state: State) -> (State, usize) {
    let here = chars[at];
    let next = chars.get(at + 1).copied();
    match state {
        State::Code => step_code(chars, at, here, next),
        State::LineComment if here == '\n' => (State::Code, 1),
        State::LineComment => (state, 1),
        State::BlockComment(depth) => match (here, next) {
            ('/', Some('*')) => (State::BlockComment(depth + 1), 2),
            ('*', Some('/')) if depth == 1 => (State::Code, 2),
            ('*', Some('/')) => (State::BlockComment(depth - 1), 2),
            _ => (state, 1),
        },
        State::Str => match (here, next) {
            ('\\', Some(_)) => (state, 2),
            ('"', _) => (State::Code, 1),
            _ => (state, 1),
        },
        State::RawStr(hashes) => {
            let closes = here == '"' && (1..=hashes).all(|n| chars.get(at + n) == Some(&'#'));
            if closes { (State::Code, 1 + hashes) } else { (state, 1) }
        }
    }
}

fn step_code(chars: &[char], at: usize, here: char, next: Option<char>) -> (State, usize) {
    match (here, next) {
        ('/', Some('/')) => (State::LineComment, 2),
        ('/', Some('*')) => (State::BlockComment(1), 2),
        ('"', _) => (State::Str, 1),
        ('r', Some('"' | '#')) if !after_word(chars, at) => {
            let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
            // `r#type` is a raw identifier, not a raw string.
            if chars.get(at + 1 + hashes) == Some(&'"') {
                (State::RawStr(hashes), 2 + hashes)
            } else {
                (State::Code, 1)
            }
        }
        ('\'', _) => (State::Code, char_literal_len(chars, at)),
        _ => (State::Code, 1),
    }
}

/// Returns true if the character before `at` continues an identifier (then an `r` here is part of a
/// name). A `b` or `c` prefix of a raw string is not such a name.
fn after_word(chars: &[char], at: usize) -> bool {
    let word = |i: usize| chars.get(i).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    match at.checked_sub(1) {
        None => false,
        Some(before) if matches!(chars[before], 'b' | 'c') => {
            before.checked_sub(1).is_some_and(word)
        }
        Some(before) => word(before),
    }
}

/// The length of the character literal at `at`, or 1 when the quote starts a lifetime.
fn char_literal_len(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => {
            let close = chars.iter().skip(at + 3).take(12).position(|c| *c == '\'');
            close.map_or(1, |offset| offset + 4)
        }
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}

/// The 1-based lines of `text` that hold `word` with no identifier character on either side.
pub(crate) fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| has_word(line, word))
        .map(|(index, _)| index + 1)
        .collect()
}

/// Returns true if `line` holds `word` with no identifier character on either side.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let starts_as_word = word.chars().next().is_some_and(is_word);
    let ends_as_word = word.chars().next_back().is_some_and(is_word);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_word);
        let after = line[at + word.len()..].chars().next().is_some_and(is_word);
        let runs_on = (starts_as_word && before) || (ends_as_word && after);
        !runs_on
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_leave_the_code_and_keep_their_line() {
        let parts = split("let a = 1; // Instant::now\n/* one /* two */ three */ let b = 2;\n");
        assert!(!parts.code.contains("Instant") && !parts.code.contains("three"));
        assert!(parts.code.contains("let b = 2;"));
        assert_eq!(lines_with_word(&parts.comments, "Instant::now"), [1]);
        assert_eq!(lines_with_word(&parts.comments, "three"), [2]);
        assert_eq!(parts.code.lines().count(), 2);
    }

    #[test]
    fn string_content_is_neither_code_nor_comment() {
        let source = "let s = \"HashMap // not a comment \\\" still\"; use x;\nlet r = \
            r#\"HashSet \" /* \"#; y";
        let parts = split(source);
        assert!(!parts.code.contains("HashMap") && !parts.code.contains("HashSet"));
        assert!(!parts.comments.contains("comment"));
        assert!(parts.code.contains("use x;") && parts.code.ends_with("; y"));
    }

    #[test]
    fn lifetimes_and_char_literals_do_not_open_strings() {
        let parts = split(
            "fn f<'a>(x: &'a str) -> char { '\"' } // end\nlet q = '\\''; let u = '\\u{1F600}'; \
             HashMap",
        );
        assert!(parts.code.contains("HashMap"));
        assert!(parts.comments.contains("end"));
        assert!(!parts.code.contains("end"));
    }

    #[test]
    fn raw_identifiers_and_names_ending_in_r_are_code() {
        let parts = split("let r#type = var\"x\"; let b = br\"TcpStream\"; HashSet");
        assert!(parts.code.contains("r#type"));
        assert!(parts.code.contains("HashSet"));
        assert!(!parts.code.contains("TcpStream"));
    }

    #[test]
    fn an_unterminated_comment_runs_to_the_end() {
        assert_eq!(split("/* open\nHashMap").code.trim(), "");
    }

    #[test]
    fn words_have_borders() {
        assert!(has_word("a HashMap<u8>", "HashMap"));
        assert!(!has_word("MyHashMap", "HashMap"));
        assert!(!has_word("HashMapped", "HashMap"));
        assert!(!has_word("std::net::TcpStream", "std::net::Tcp"));
        assert!(has_word("x = #[ignore]", "#[ignore]"));
    }
}
