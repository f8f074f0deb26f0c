//! The methods that cannot suspend: their body waits for nothing.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ImplItemFn;
use syn::ext::IdentExt;

/// Macros that certainly hide no `.await`: those of the standard library and of `tracing`.
const KNOWN_MACROS: [&str; 30] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "concat",
    "debug",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "dbg",
    "env",
    "eprint",
    "eprintln",
    "error",
    "file",
    "format",
    "format_args",
    "info",
    "line",
    "matches",
    "panic",
    "print",
    "println",
    "stringify",
    "trace",
    "unreachable",
    "vec",
    "warn",
    "write",
    "writeln",
    "include_str",
];

/// Words that may stand before `!(..)` without making it a macro.
const KEYWORDS: [&str; 8] = ["break", "else", "if", "in", "match", "move", "return", "while"];

/// Returns true if the method is an `async fn` whose body has no `.await`, not even in a closure or
/// in an unknown macro.
pub(crate) fn is_instant(function: &ImplItemFn) -> bool {
    function.sig.asyncness.is_some() && waits_for_nothing(function.block.to_token_stream())
}

fn waits_for_nothing(tokens: TokenStream) -> bool {
    // The last two tokens: a macro is a name, `!`, and a group.
    let (mut before, mut last) = (None, None);
    for token in tokens {
        match &token {
            TokenTree::Ident(ident) if ident == "await" => return false,
            TokenTree::Group(group)
                if is_unknown_macro(before.as_ref(), last.as_ref(), group.delimiter())
                    || !waits_for_nothing(group.stream()) =>
            {
                return false;
            }
            _ => {}
        }
        before = last.replace(token);
    }
    true
}

fn is_unknown_macro(
    name: Option<&TokenTree>,
    bang: Option<&TokenTree>,
    delimiter: Delimiter,
) -> bool {
    let (Some(TokenTree::Ident(name)), Some(TokenTree::Punct(bang))) = (name, bang) else {
        return false;
    };
    let name = name.unraw().to_string();
    bang.as_char() == '!'
        && delimiter != Delimiter::None
        && !KEYWORDS.contains(&name.as_str())
        && !KNOWN_MACROS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn instant(method: TokenStream) -> bool {
        is_instant(&syn::parse2(method).unwrap())
    }

    #[test]
    fn a_body_without_a_wait_is_instant() {
        assert!(instant(quote!(
            async fn add(&mut self, n: u64) -> u64 {
                assert!(n != 3, "{n}");
                if !(n == 1) {
                    tracing::info!(n, "one");
                }
                self.peer.tell(n).send().ok();
                self.total += n;
                self.total
            }
        )));
    }

    #[test]
    fn one_that_may_wait_is_not() {
        assert!(!instant(quote!(
            async fn add(&mut self) {
                self.write().await;
            }
        )));
        assert!(!instant(quote!(
            async fn add(&mut self) {
                let _ = async { self.write().await };
            }
        )));
        assert!(!instant(quote!(
            async fn add(&mut self) {
                tokio::join!(self.a(), self.b());
            }
        )));
        assert!(!instant(quote!(
            async fn add(&mut self) {
                format!("{}", self.read().await);
            }
        )));
        assert!(!instant(quote!(
            fn add(&self) -> impl Future<Output = ()> + Send {
                std::future::ready(())
            }
        )));
    }
}
