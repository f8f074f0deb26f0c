//! Names made of names.

use syn::LitStr;

/// The longest name of a grain type or of a state, in bytes: they are parts of keys in every store.
const NAME_BYTES_MAX: usize = 100;

/// `FlightBoard` as `flight-board`, `HTTPServer` as `http-server`.
pub(crate) fn kebab(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::with_capacity(name.len() + 4);
    for (i, letter) in letters.iter().enumerate() {
        if *letter == '_' {
            push_dash(&mut out);
            continue;
        }
        let before = i.checked_sub(1).and_then(|i| letters.get(i));
        let after = letters.get(i + 1);
        let word_begins = letter.is_uppercase()
            && (before.is_some_and(|b| !b.is_uppercase())
                || after.is_some_and(|a| a.is_lowercase()));
        if word_begins {
            push_dash(&mut out);
        }
        out.extend(letter.to_lowercase());
    }
    out
}

fn push_dash(out: &mut String) {
    if !out.is_empty() && !out.ends_with('-') {
        out.push('-');
    }
}

/// `total_miles` as `TotalMiles`.
pub(crate) fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for word in name.split('_') {
        let mut letters = word.chars();
        out.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        out.push_str(letters.as_str());
    }
    out
}

/// The text of a name that becomes part of keys in a store: short, of letters, digits, `-`, `_` and
/// `.`, so that an administrator can read and quote it anywhere.
pub(crate) fn stored_name(literal: &LitStr, whose: &str) -> syn::Result<String> {
    let name = literal.value();
    let good = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        return Err(syn::Error::new_spanned(literal, format!("{whose} name is empty")));
    }
    if name.len() > NAME_BYTES_MAX {
        let message =
            format!("{whose} name has {} bytes, the limit is {NAME_BYTES_MAX}", name.len());
        return Err(syn::Error::new_spanned(literal, message));
    }
    if let Some(bad) = name.chars().find(|c| !good(*c)) {
        let message = format!(
            "{whose} name consists of letters, digits, `-`, `_` and `.`; it cannot hold {bad:?}"
        );
        return Err(syn::Error::new_spanned(literal, message));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    #[test]
    fn traits_become_kebab_case() {
        let pairs = [
            ("Counter", "counter"),
            ("FlightBoard", "flight-board"),
            ("HTTPServer", "http-server"),
            ("Route66Board", "route66-board"),
            ("A", "a"),
            ("Snake_Case", "snake-case"),
            ("ABTest", "ab-test"),
        ];
        for (name, kebab_name) in pairs {
            assert_eq!(kebab(name), kebab_name);
        }
    }

    #[test]
    fn methods_become_camel_case() {
        let pairs = [
            ("add", "Add"),
            ("total_miles", "TotalMiles"),
            ("_odd__name", "OddName"),
            ("x2", "X2"),
        ];
        for (name, camel_name) in pairs {
            assert_eq!(camel(name), camel_name);
        }
    }

    #[test]
    fn stored_names_are_readable_anywhere() {
        let check = |text: &str| stored_name(&LitStr::new(text, Span::call_site()), "a state's");
        assert_eq!(check("total_2.v-1").unwrap(), "total_2.v-1");
        assert_eq!(check("").unwrap_err().to_string(), "a state's name is empty");
        assert!(check("a/b").unwrap_err().to_string().ends_with("it cannot hold '/'"));
        assert!(check("a b").is_err());
        assert!(check(&"x".repeat(NAME_BYTES_MAX)).is_ok());
        assert!(check(&"x".repeat(NAME_BYTES_MAX + 1)).is_err());
    }
}
