//! The attributes above the struct: `#[placement(..)]` and `#[grain(..)]`.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, LitInt, LitStr, Meta};

use super::field::MARKS;
use super::idle;
use super::placement::{Placement, not_one};
use crate::errors::Errors;
use crate::names;

/// Attributes of the class.
#[derive(Debug, Default)]
pub(crate) struct ClassAttributes {
    /// None: the silo's default strategy.
    pub(crate) placement: Option<Placement>,
    /// None: as the silo says.
    pub(crate) idle: Option<Duration>,
    /// True if `&self` methods go past those that wait.
    pub(crate) reentrant: bool,
    /// True if they do so in a call that comes back.
    pub(crate) call_chain_reentrancy: bool,
    /// Activations on a silo, at most.
    pub(crate) active_max: Option<u64>,
    /// True if its grains never move.
    pub(crate) stays: bool,
    /// The class's name among several of its interface.
    pub(crate) name: Option<String>,
    /// True if a constructor of the application makes it.
    pub(crate) constructor: bool,
}

pub(crate) fn parse(attributes: &[Attribute], errors: &mut Errors) -> ClassAttributes {
    let mut found = ClassAttributes::default();
    let mut placement = None;
    for attribute in attributes {
        let path = attribute.path();
        if path.is_ident("placement") {
            let parsed = match attribute.meta {
                Meta::List(_) => attribute.parse_args(),
                _ => Err(not_one(attribute.span())),
            };
            if let Some(value) = errors.take(parsed)
                && placement.replace(value).is_some()
            {
                errors.at(attribute, "a class has one placement: remove this one or the one above");
            }
        } else if path.is_ident("grain") {
            errors.take(attribute.parse_nested_meta(|meta| parse_grain(&meta, &mut found)));
        } else if MARKS.iter().any(|mark| path.is_ident(mark)) {
            errors.at(attribute, "this belongs on a field of the struct");
        }
    }
    found.placement = placement;
    found
}

fn parse_grain(meta: &ParseNestedMeta<'_>, found: &mut ClassAttributes) -> syn::Result<()> {
    if meta.path.is_ident("lifecycle") {
        return Err(meta.error("`impl Lifecycle for` the class is enough: remove this"));
    }
    if meta.path.is_ident("reentrant") {
        found.reentrant = true;
        return Ok(());
    }
    if meta.path.is_ident("call_chain_reentrancy") {
        found.call_chain_reentrancy = true;
        return Ok(());
    }
    if meta.path.is_ident("active_max") {
        const HOW: &str = "write the most activations on a silo as a whole number from 1: \
            `active_max = 10_000`";
        let literal = meta.value().and_then(|value| value.parse::<LitInt>());
        let max = literal.ok().and_then(|literal| literal.base10_parse::<u64>().ok());
        let max = max.filter(|max| *max > 0).ok_or_else(|| meta.error(HOW))?;
        if found.active_max.replace(max).is_some() {
            return Err(meta.error("the number is said twice"));
        }
        return Ok(());
    }
    if meta.path.is_ident("stays") {
        found.stays = true;
        return Ok(());
    }
    if meta.path.is_ident("constructor") {
        found.constructor = true;
        return Ok(());
    }
    if meta.path.is_ident("name") {
        let literal: LitStr = meta
            .value()
            .and_then(|value| value.parse())
            .map_err(|_| meta.error("write the class's name as a text: `name = \"gift\"`"))?;
        if found.name.replace(names::stored_name(&literal, "a class's")?).is_some() {
            return Err(meta.error("the name is said twice"));
        }
        return Ok(());
    }
    if meta.path.is_ident("idle") {
        let literal: LitStr = meta
            .value()
            .and_then(|value| value.parse())
            .map_err(|_| meta.error(idle::HOW_TO_WRITE))?;
        if found.idle.replace(idle::parse(&literal)?).is_some() {
            return Err(meta.error("the idle time is said twice"));
        }
        return Ok(());
    }
    let known = "`idle = \"10m\"`, `reentrant`, `call_chain_reentrancy`, `stays`, \
                 `active_max = 10_000`, `name = \"gift\"` and `constructor`";
    Err(meta.error(format!("on a class, #[grain] knows {known}")))
}

/// The attributes of this derive that cannot stand on a field.
pub(crate) fn refuse_on_field(attribute: &Attribute, errors: &mut Errors) {
    if attribute.path().is_ident("placement") || attribute.path().is_ident("grain") {
        errors.at(attribute, "this belongs above the struct, below #[derive(Grain)]");
    }
}

/// The duration as an expression.
pub(crate) fn duration(duration: Duration) -> TokenStream {
    // The parser refuses what does not fit.
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let millis = proc_macro2::Literal::u64_suffixed(millis);
    quote!(::core::time::Duration::from_millis(#millis))
}
