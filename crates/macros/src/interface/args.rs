//! The arguments of `#[grain_interface(..)]`.

use proc_macro2::{Span, TokenStream};
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{LitInt, LitStr, Type};

use crate::names;

const NEEDS_KEY: &str = "which keys do the grains have? Write `#[grain_interface(key = String)]`, or an integer type or \
                         `Uuid` instead of `String`";

/// Words of `#[grain_interface(..)]`.
pub(crate) struct InterfaceArgs {
    /// The type of the keys.
    pub(crate) key: Type,
    /// The grain type's name, when it is not the trait's.
    pub(crate) grain: Option<String>,
    /// The version; 1 when nothing is said.
    pub(crate) version: u32,
    /// Callers that a class of this version serves.
    pub(crate) compatible: Compatible,
    /// It cannot be called from outside the cluster.
    pub(crate) internal: bool,
}

/// Callers that a class of an interface serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compatible {
    /// Callers of its version and of older ones.
    #[default]
    Backward,
    /// Callers of its version.
    Strict,
    /// Callers of any version.
    All,
}

/// The last version that an interface can have: each method has a number for each version.
const VERSION_MAX: u32 = 100;

impl InterfaceArgs {
    /// The versions whose callers a class serves: each method has a number for each version. 1
    /// stands for a number without a version.
    pub(crate) fn older_versions(&self) -> std::ops::Range<u32> {
        match self.compatible {
            Compatible::Backward => 1..self.version,
            Compatible::Strict | Compatible::All => 0..0,
        }
    }

    /// The version in the numbers of methods; 1 where it does not count.
    pub(crate) const fn version_of_calls(&self) -> u32 {
        match self.compatible {
            Compatible::Backward | Compatible::Strict => self.version,
            Compatible::All => 1,
        }
    }
}

#[derive(Default)]
struct Given {
    key: Option<Type>,
    grain: Option<String>,
    version: Option<u32>,
    compatible: Option<Compatible>,
    internal: Option<()>,
}

pub(crate) fn parse(args: TokenStream) -> syn::Result<InterfaceArgs> {
    let mut given = Given::default();
    let parser = syn::meta::parser(|meta| argument(&meta, &mut given));
    parser.parse2(args)?;
    let Given { key, grain, version, compatible, internal } = given;
    let key = key.ok_or_else(|| syn::Error::new(Span::call_site(), NEEDS_KEY))?;
    let (version, compatible) = (version.unwrap_or(1), compatible.unwrap_or_default());
    Ok(InterfaceArgs { key, grain, version, compatible, internal: internal.is_some() })
}

fn argument(meta: &ParseNestedMeta<'_>, given: &mut Given) -> syn::Result<()> {
    if meta.path.is_ident("key") {
        let value = meta.value().map_err(|_| meta.error(NEEDS_KEY))?;
        if value.peek(LitStr) {
            return Err(value.error("the key is a type, without quotes: `key = String`"));
        }
        return set(&mut given.key, value.parse()?, meta);
    }
    if meta.path.is_ident("grain") {
        let literal: LitStr = meta.value().and_then(|value| value.parse()).map_err(|_| {
            meta.error("write the grain type's name as a text: `grain = \"counter\"`")
        })?;
        return set(&mut given.grain, names::stored_name(&literal, "a grain type's")?, meta);
    }
    if meta.path.is_ident("version") {
        let wrong =
            || format!("a version is a whole number from 1 to {VERSION_MAX}: `version = 2`");
        let literal: LitInt =
            meta.value().and_then(|value| value.parse()).map_err(|_| meta.error(wrong()))?;
        let version = literal.base10_parse().ok().filter(|n| (1..=VERSION_MAX).contains(n));
        let version = version.ok_or_else(|| syn::Error::new(literal.span(), wrong()))?;
        return set(&mut given.version, version, meta);
    }
    if meta.path.is_ident("compatible") {
        const WRONG: &str = "which callers does a class of this version serve? Write `compatible = \
                             \"backward\"` (of this version and older ones, as without it), \
                             `\"strict\"` (of this version) or `\"all\"` (of any version)";
        let literal: LitStr =
            meta.value().and_then(|value| value.parse()).map_err(|_| meta.error(WRONG))?;
        let compatible = match literal.value().as_str() {
            "backward" => Compatible::Backward,
            "strict" => Compatible::Strict,
            "all" => Compatible::All,
            _ => return Err(syn::Error::new(literal.span(), WRONG)),
        };
        return set(&mut given.compatible, compatible, meta);
    }
    if meta.path.is_ident("internal") {
        if meta.input.peek(syn::Token![=]) || meta.input.peek(syn::token::Paren) {
            return Err(meta.error("`internal` has no value: it stands alone"));
        }
        return set(&mut given.internal, (), meta);
    }
    Err(meta.error(
        "#[grain_interface] knows `key = Type`, `grain = \"name\"`, `version = 2`, \
         `compatible = \"backward\"` and `internal`",
    ))
}

fn set<T>(slot: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    if slot.replace(value).is_some() {
        return Err(meta.error("this is said twice"));
    }
    Ok(())
}
