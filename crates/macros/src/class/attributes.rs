//! What stands above the struct: `#[placement(..)]` and `#[grain(..)]`.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Ident, LitStr};

use super::idle;
use crate::errors::Errors;

/// Where activations go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    Random,
    PreferLocal,
}

impl Placement {
    const ALL: [(&'static str, Self); 2] = [("random", Self::Random), ("prefer_local", Self::PreferLocal)];

    /// The strategy as the placement crate names it.
    pub(crate) fn strategy(self) -> TokenStream {
        match self {
            Self::Random => quote!(::emmer::__rt::Strategy::Random),
            Self::PreferLocal => quote!(::emmer::__rt::Strategy::PreferLocal),
        }
    }
}

/// What the attributes say.
#[derive(Debug, Default)]
pub(crate) struct ClassAttributes {
    /// None: the silo's default strategy.
    pub(crate) placement: Option<Placement>,
    /// None: as the silo says.
    pub(crate) idle: Option<Duration>,
    /// Whether the user implements `Lifecycle`.
    pub(crate) lifecycle: bool,
    /// Whether `&self` methods go past those that wait.
    pub(crate) reentrant: bool,
    /// Whether they do so in a call that comes back.
    pub(crate) call_chain_reentrancy: bool,
}

pub(crate) fn parse(attributes: &[Attribute], errors: &mut Errors) -> ClassAttributes {
    let mut found = ClassAttributes::default();
    let mut placement = None;
    for attribute in attributes {
        let path = attribute.path();
        if path.is_ident("placement") {
            if let Some((name, value)) = errors.take(parse_placement(attribute))
                && placement.replace(value).is_some()
            {
                errors.at(&name, "a class has one placement: remove this one or the one above");
            }
        } else if path.is_ident("grain") {
            errors.take(attribute.parse_nested_meta(|meta| parse_grain(&meta, &mut found)));
        } else if path.is_ident("state") || path.is_ident("context") {
            errors.at(attribute, "this belongs on a field of the struct");
        }
    }
    found.placement = placement;
    found
}

fn parse_placement(attribute: &Attribute) -> syn::Result<(Ident, Placement)> {
    let known = Placement::ALL.map(|(name, _)| format!("`#[placement({name})]`")).join(" or ");
    let name: Ident = attribute
        .parse_args()
        .map_err(|error| syn::Error::new(error.span(), format!("name one placement strategy: {known}")))?;
    match Placement::ALL.iter().find(|(text, _)| name == text) {
        Some((_, placement)) => Ok((name, *placement)),
        None => {
            let message = format!("there is no placement strategy `{name}`: write {known}");
            Err(syn::Error::new_spanned(name, message))
        }
    }
}

fn parse_grain(meta: &ParseNestedMeta<'_>, found: &mut ClassAttributes) -> syn::Result<()> {
    if meta.path.is_ident("lifecycle") {
        found.lifecycle = true;
        return Ok(());
    }
    if meta.path.is_ident("reentrant") {
        found.reentrant = true;
        return Ok(());
    }
    if meta.path.is_ident("call_chain_reentrancy") {
        found.call_chain_reentrancy = true;
        return Ok(());
    }
    if meta.path.is_ident("idle") {
        let literal: LitStr =
            meta.value().and_then(|value| value.parse()).map_err(|_| meta.error(idle::HOW_TO_WRITE))?;
        if found.idle.replace(idle::parse(&literal)?).is_some() {
            return Err(meta.error("the idle time is said twice"));
        }
        return Ok(());
    }
    let known = "`idle = \"10m\"`, `lifecycle`, `reentrant` and `call_chain_reentrancy`";
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
