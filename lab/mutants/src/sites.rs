//! The functions of a source file, by syntax: where a mutant may be, and the code to be repeated
//! for it.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// One function with a body. Functions inside functions belong to the outer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The block, braces included.
    pub(crate) body: Range<usize>,
    /// The word `const`, where there is one.
    pub(crate) constness: Option<Range<usize>>,
    /// It returns `impl Trait`, so that two bodies would be of two types.
    pub(crate) opaque: bool,
    /// It only shows, compares or encodes: no decision of the protocol is made here.
    pub(crate) plain: bool,
}

/// Traits whose implementations decide nothing.
const PLAIN_TRAITS: &[&str] = &[
    "Debug",
    "Display",
    "Hash",
    "PartialEq",
    "Serialize",
    "Deserialize",
    "Error",
    "Default",
    "Hasher",
];

/// The functions of `text` outside tests, in order.
pub(crate) fn functions(text: &str) -> Result<Vec<Function>, String> {
    let file = syn::parse_file(text).map_err(|e| format!("line {}: {e}", e.span().start().line))?;
    let mut finder = Finder { found: Vec::new(), plain: false };
    finder.visit_file(&file);
    Ok(finder.found)
}

/// Where `span` lies in the text that was parsed.
pub(crate) fn range(span: Span) -> Range<usize> {
    span.byte_range()
}

/// Returns true if the attributes say that this is compiled for tests only.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let says_test = |list: &syn::MetaList| list.tokens.to_string().starts_with("test");
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(says_test))
    })
}

struct Finder {
    found: Vec<Function>,
    plain: bool,
}

impl Finder {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let opaque = match &signature.output {
            syn::ReturnType::Default => false,
            syn::ReturnType::Type(_, kind) => has_impl(kind),
        };
        self.found.push(Function {
            name: signature.ident.to_string(),
            body: range(block.span()),
            constness: signature.constness.map(|word| range(word.span())),
            opaque,
            plain: self.plain,
        });
    }
}

fn has_impl(kind: &syn::Type) -> bool {
    struct Looks(bool);
    impl<'ast> Visit<'ast> for Looks {
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut looks = Looks(false);
    looks.visit_type(kind);
    looks.0
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = item
            .trait_
            .as_ref()
            .and_then(|(path, _)| path.segments.last().map(|s| s.ident.to_string()));
        let before = self.plain;
        self.plain = name.is_some_and(|name| PLAIN_TRAITS.contains(&name.as_str()));
        visit::visit_item_impl(self, item);
        self.plain = before;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.add(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.add(&item.sig, &item.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_functions_with_their_bodies_and_leaves_tests_out() {
        let text = "const fn a() -> u8 { 1 }\nimpl X { fn b(&self) -> impl Iterator<Item = u8> { \
            c() } }\n\
                    #[cfg(test)] mod tests { fn d() {} }\nimpl fmt::Debug for X { fn fmt(&self) { \
                    e() } }";
        let found = functions(text).unwrap();
        let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "fmt"]);
        assert_eq!(&text[found[0].body.clone()], "{ 1 }");
        assert_eq!(&text[found[0].constness.clone().unwrap()], "const");
        assert!(found[1].opaque && !found[0].opaque);
        assert!(found[2].plain && !found[1].plain);
    }

    #[test]
    fn bytes_are_counted_from_the_beginning_of_each_text_and_not_in_characters() {
        for _ in 0..2 {
            let text = "// ä\nfn a() { \"ö\" }";
            assert_eq!(&text[functions(text).unwrap()[0].body.clone()], "{ \"ö\" }");
        }
    }
}
