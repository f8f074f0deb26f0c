//! The arguments of `#[grain_interface(..)]`.

use proc_macro2::{Span, TokenStream};
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{LitStr, Type};

use crate::names;

const NEEDS_KEY: &str = "which keys do the grains have? Write `#[grain_interface(key = String)]`, or `u64`, `i64` or \
                         `Uuid` instead of `String`";

/// What `#[grain_interface(..)]` says.
pub(crate) struct InterfaceArgs {
    /// The type of the keys.
    pub(crate) key: Type,
    /// The grain type's name, when it is not the trait's.
    pub(crate) grain: Option<String>,
}

pub(crate) fn parse(args: TokenStream) -> syn::Result<InterfaceArgs> {
    let mut key = None;
    let mut grain = None;
    let parser = syn::meta::parser(|meta| argument(&meta, &mut key, &mut grain));
    parser.parse2(args)?;
    let key = key.ok_or_else(|| syn::Error::new(Span::call_site(), NEEDS_KEY))?;
    Ok(InterfaceArgs { key, grain })
}

fn argument(
    meta: &ParseNestedMeta<'_>,
    key: &mut Option<Type>,
    grain: &mut Option<String>,
) -> syn::Result<()> {
    if meta.path.is_ident("key") {
        let value = meta.value().map_err(|_| meta.error(NEEDS_KEY))?;
        if value.peek(LitStr) {
            return Err(value.error("the key is a type, without quotes: `key = String`"));
        }
        return set(key, value.parse()?, meta);
    }
    if meta.path.is_ident("grain") {
        let literal: LitStr = meta.value().and_then(|value| value.parse()).map_err(|_| {
            meta.error("write the grain type's name as a text: `grain = \"counter\"`")
        })?;
        return set(grain, names::stored_name(&literal, "a grain type's")?, meta);
    }
    Err(meta.error("#[grain_interface] knows `key = Type` and `grain = \"name\"`"))
}

fn set<T>(slot: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    if slot.replace(value).is_some() {
        return Err(meta.error("this is said twice"));
    }
    Ok(())
}
