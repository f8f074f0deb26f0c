//! What stands above the struct: `#[placement(..)]` and `#[grain(..)]`.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Ident, LitInt, LitStr, Meta, Token};

use super::idle;
use crate::errors::Errors;
use crate::names;

/// Where activations go.
#[derive(Clone, Debug)]
pub(crate) enum Placement {
    /// One of [`BUILT_IN`]: the name of the variant.
    BuiltIn(&'static str),
    /// Silos of a role.
    Role(LitStr),
    /// Where the call comes from, as many on a silo as there may be; 0: as it has processors.
    Workers(u16),
    /// The name that its director is registered under, and data for that.
    Custom(LitStr, Option<LitStr>),
}

/// A call looks at each of them while others of its grain wait.
const WORKERS_MAX: u16 = 1_024;

/// The built-in strategies, as attribute and as variant.
const BUILT_IN: [(&str, &str); 5] = [
    ("random", "Random"),
    ("prefer_local", "PreferLocal"),
    ("hash_based", "HashBased"),
    ("activation_count", "ActivationCount"),
    ("resource_optimized", "ResourceOptimized"),
];

impl Placement {
    /// How many activations a silo may have of a grain that may have several.
    pub(crate) const fn workers_max(&self) -> Option<u16> {
        match self {
            Self::Workers(max) => Some(*max),
            _ => None,
        }
    }

    /// The strategy as the placement crate names it.
    pub(crate) fn strategy(&self) -> TokenStream {
        match self {
            Self::BuiltIn(variant) => {
                let variant = Ident::new(variant, Span::call_site());
                quote!(::emmer::__rt::Strategy::#variant)
            }
            Self::Workers(_) => quote!(::emmer::__rt::Strategy::PreferLocal),
            Self::Role(role) => quote!(::emmer::__rt::Strategy::silo_role(#role)),
            Self::Custom(name, data) => {
                let data = data.as_ref().map_or_else(String::new, LitStr::value);
                quote!(::emmer::__rt::Strategy::custom(#name, #data))
            }
        }
    }
}

/// What may stand in the attribute.
fn known() -> String {
    let built_in = BUILT_IN.map(|(name, _)| format!("`#[placement({name})]`")).join(", ");
    format!(
        "{built_in}, `#[placement(silo_role = \"role\")]`, `#[placement(stateless_worker)]`, or \
         `#[placement(\"name\")]` for a director of your own"
    )
}

impl Parse for Placement {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(LitStr) {
            return custom(input);
        }
        let name: Ident = input.parse().map_err(|error| not_one(error.span()))?;
        if name == "silo_role" {
            return role(input);
        }
        if name == "stateless_worker" {
            return workers(input);
        }
        if !input.is_empty() {
            return Err(not_one(input.span()));
        }
        let found = BUILT_IN.iter().find(|(text, _)| name == text);
        found.map(|(_, variant)| Self::BuiltIn(variant)).ok_or_else(|| {
            let message = format!("there is no placement strategy `{name}`: write {}", known());
            syn::Error::new_spanned(name, message)
        })
    }
}

fn not_one(span: Span) -> syn::Error {
    syn::Error::new(span, format!("name one placement strategy: {}", known()))
}

fn role(input: ParseStream<'_>) -> syn::Result<Placement> {
    const HOW: &str = "say which role a silo needs: `#[placement(silo_role = \"front\")]`";
    let say = |error: syn::Error| syn::Error::new(error.span(), HOW);
    input.parse::<Token![=]>().map_err(say)?;
    let role: LitStr = input.parse().map_err(say)?;
    if role.value().is_empty() || !input.is_empty() {
        return Err(syn::Error::new(role.span(), HOW));
    }
    Ok(Placement::Role(role))
}

fn workers(input: ParseStream<'_>) -> syn::Result<Placement> {
    const HOW: &str = "say how many workers of a grain a silo may have, from 1 to 1024: \
        `#[placement(stateless_worker = 8)]`";
    if input.is_empty() {
        return Ok(Placement::Workers(0));
    }
    let say = |error: syn::Error| syn::Error::new(error.span(), HOW);
    input.parse::<Token![=]>().map_err(say)?;
    let literal: LitInt = input.parse().map_err(say)?;
    match literal.base10_parse::<u16>() {
        Ok(max) if (1..=WORKERS_MAX).contains(&max) && input.is_empty() => {
            Ok(Placement::Workers(max))
        }
        _ => Err(syn::Error::new(literal.span(), HOW)),
    }
}

fn custom(input: ParseStream<'_>) -> syn::Result<Placement> {
    const HOW: &str = "a director of your own is named, and told a text if you like: \
        `#[placement(\"name\", \"text\")]`";
    let name: LitStr = input.parse()?;
    if name.value().is_empty() {
        return Err(syn::Error::new(name.span(), HOW));
    }
    let say = |error: syn::Error| syn::Error::new(error.span(), HOW);
    let data = match input.is_empty() {
        true => None,
        false => {
            input.parse::<Token![,]>().map_err(say)?;
            Some(input.parse().map_err(say)?)
        }
    };
    if input.is_empty() {
        Ok(Placement::Custom(name, data))
    } else {
        Err(syn::Error::new(input.span(), HOW))
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
        } else if ["state", "service", "context"].iter().any(|name| path.is_ident(name)) {
            errors.at(attribute, "this belongs on a field of the struct");
        }
    }
    found.placement = placement;
    found
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
    let known = "`idle = \"10m\"`, `lifecycle`, `reentrant`, `call_chain_reentrancy`, \
                 `name = \"gift\"` and `constructor`";
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
