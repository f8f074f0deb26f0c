//! The words of `#[placement(..)]`: a strategy, and the needs of a class.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, Ident, LitInt, LitStr, Token, parenthesized, token};

/// Placement of activations.
#[derive(Debug)]
pub(crate) struct Placement {
    /// None: by the silo's default strategy.
    strategy: Option<Strategy>,
    filters: Vec<Filter>,
}

#[derive(Debug)]
enum Strategy {
    /// One of [`BUILT_IN`]: the name of the variant.
    BuiltIn(&'static str),
    /// Silos of a role.
    Role(LitStr),
    /// On the silo that the call comes from, at most this many on each; 0: one for each processor.
    Workers(u16),
    /// The name that its director is registered under, and data for that.
    Custom(LitStr, Option<Box<Expr>>),
}

/// Need of a class that silos have to meet.
#[derive(Debug)]
struct Filter {
    preferred: bool,
    key: LitStr,
    /// None: the value of the placing silo.
    value: Option<LitStr>,
}

/// A call checks each of them while others of its grain wait.
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
    /// Number of activations that a silo may have of a grain that may have several.
    pub(crate) const fn workers_max(&self) -> Option<u16> {
        match &self.strategy {
            Some(Strategy::Workers(max)) => Some(*max),
            _ => None,
        }
    }

    /// The method of the class that says it.
    pub(crate) fn method(&self) -> TokenStream {
        let strategy = match &self.strategy {
            Some(strategy) => {
                let strategy = strategy.expression();
                quote!(::core::option::Option::Some(#strategy))
            }
            None => quote!(::core::option::Option::None),
        };
        let filters = self.filters.iter().map(Filter::expression);
        quote! {
            fn placement() -> ::core::result::Result<
                ::emmer::__rt::Placement,
                ::emmer::__rt::DataError,
            > {
                ::core::result::Result::Ok(::emmer::__rt::Placement {
                    strategy: #strategy,
                    filters: ::std::vec![#(#filters),*],
                })
            }
        }
    }
}

impl Strategy {
    /// The strategy as the placement crate names it.
    fn expression(&self) -> TokenStream {
        match self {
            Self::BuiltIn(variant) => {
                let variant = Ident::new(variant, Span::call_site());
                quote!(::emmer::__rt::Strategy::#variant)
            }
            Self::Workers(_) => quote!(::emmer::__rt::Strategy::PreferLocal),
            Self::Role(role) => quote!(::emmer::__rt::Strategy::silo_role(#role)),
            Self::Custom(name, None) => quote!(::emmer::__rt::Strategy::custom(#name)),
            Self::Custom(name, Some(data)) => {
                let span = data.span().resolved_at(Span::call_site());
                quote_spanned!(span=> ::emmer::__rt::Strategy::custom_with(#name, &(#data))?)
            }
        }
    }
}

impl Filter {
    fn expression(&self) -> TokenStream {
        let Self { preferred, key, value } = self;
        let filter = match value {
            Some(value) => quote!(::emmer::__rt::SiloFilter::require(#key, #value)),
            None => quote!(::emmer::__rt::SiloFilter::require_same(#key)),
        };
        if *preferred { quote!(#filter.preferred()) } else { filter }
    }
}

/// Words that may stand in the attribute.
fn known() -> String {
    let built_in = BUILT_IN.map(|(name, _)| format!("`#[placement({name})]`")).join(", ");
    format!(
        "{built_in}, `#[placement(silo_role = \"role\")]`, `#[placement(stateless_worker)]`, or \
         `#[placement(\"name\")]` for a director of your own"
    )
}

pub(super) fn not_one(span: Span) -> syn::Error {
    syn::Error::new(span, format!("name one placement strategy: {}", known()))
}

impl Parse for Placement {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if is_filter(input) {
            let mut filters = Vec::new();
            filter(input, &mut filters)?;
            return rest(input, filters, None, not_one);
        }
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
        if let Some((_, variant)) = BUILT_IN.iter().find(|(text, _)| name == text) {
            return rest(input, Vec::new(), Some(Strategy::BuiltIn(variant)), not_one);
        }
        if ["require", "prefer"].iter().any(|filter| name == filter) {
            return Err(syn::Error::new(name.span(), FILTERS));
        }
        let message = format!("there is no placement strategy `{name}`: write {}", known());
        Err(syn::Error::new_spanned(name, message))
    }
}

const FILTERS: &str = "write `require(\"disk\" = \"ssd\")` for a value of the silo's metadata, \
                       `require(\"zone\")` for the placing silo's value, and `prefer(..)` for a \
                       wish";

fn is_filter(input: ParseStream<'_>) -> bool {
    let named = |ident: Ident| ident == "require" || ident == "prefer";
    input.peek2(token::Paren) && input.fork().parse::<Ident>().is_ok_and(named)
}

fn filter(input: ParseStream<'_>, filters: &mut Vec<Filter>) -> syn::Result<()> {
    let say = |error: syn::Error| syn::Error::new(error.span(), FILTERS);
    let preferred = input.parse::<Ident>()? == "prefer";
    let inside;
    parenthesized!(inside in input);
    let all = Punctuated::<_, Token![,]>::parse_terminated_with(&inside, wanted).map_err(say)?;
    if let Some(empty) = all.iter().find(|(key, _)| key.value().is_empty()) {
        return Err(syn::Error::new(empty.0.span(), FILTERS));
    }
    if all.is_empty() {
        return Err(syn::Error::new(inside.span(), FILTERS));
    }
    filters.extend(all.into_iter().map(|(key, value)| Filter { preferred, key, value }));
    Ok(())
}

/// A key, and the value that it is to have.
fn wanted(input: ParseStream<'_>) -> syn::Result<(LitStr, Option<LitStr>)> {
    let key = input.parse()?;
    let value = match input.parse::<Option<Token![=]>>()? {
        Some(_) => Some(input.parse()?),
        None => None,
    };
    Ok((key, value))
}

/// The filters behind a strategy; `wrong`: the message for anything else.
fn rest(
    input: ParseStream<'_>,
    mut filters: Vec<Filter>,
    strategy: Option<Strategy>,
    wrong: impl Fn(Span) -> syn::Error,
) -> syn::Result<Placement> {
    while !input.is_empty() {
        input.parse::<Token![,]>().map_err(|error| wrong(error.span()))?;
        if !is_filter(input) {
            return Err(wrong(input.span()));
        }
        filter(input, &mut filters)?;
    }
    Ok(Placement { strategy, filters })
}

fn role(input: ParseStream<'_>) -> syn::Result<Placement> {
    const HOW: &str = "say which role a silo needs: `#[placement(silo_role = \"front\")]`";
    let say = |error: syn::Error| syn::Error::new(error.span(), HOW);
    input.parse::<Token![=]>().map_err(say)?;
    let role: LitStr = input.parse().map_err(say)?;
    if role.value().is_empty() {
        return Err(syn::Error::new(role.span(), HOW));
    }
    let wrong = |span| syn::Error::new(span, HOW);
    rest(input, Vec::new(), Some(Strategy::Role(role)), wrong)
}

fn workers(input: ParseStream<'_>) -> syn::Result<Placement> {
    const HOW: &str = "say how many workers of a grain a silo may have, from 1 to 1024: \
        `#[placement(stateless_worker = 8)]`";
    let wrong = |span| syn::Error::new(span, HOW);
    if input.is_empty() || input.peek(Token![,]) {
        return rest(input, Vec::new(), Some(Strategy::Workers(0)), wrong);
    }
    let say = |error: syn::Error| wrong(error.span());
    input.parse::<Token![=]>().map_err(say)?;
    let literal: LitInt = input.parse().map_err(say)?;
    match literal.base10_parse::<u16>() {
        Ok(max) if (1..=WORKERS_MAX).contains(&max) => {
            rest(input, Vec::new(), Some(Strategy::Workers(max)), wrong)
        }
        _ => Err(wrong(literal.span())),
    }
}

fn custom(input: ParseStream<'_>) -> syn::Result<Placement> {
    const HOW: &str = "a director of your own is named, and told one value if you like: \
        `#[placement(\"name\", value)]`";
    let wrong = |span| syn::Error::new(span, HOW);
    let name: LitStr = input.parse()?;
    if name.value().is_empty() {
        return Err(wrong(name.span()));
    }
    let mut data = None;
    let ahead = input.fork();
    if ahead.parse::<Token![,]>().is_ok() && !is_filter(&ahead) {
        input.parse::<Token![,]>()?;
        data = Some(input.parse().map_err(|error: syn::Error| wrong(error.span()))?);
    }
    rest(input, Vec::new(), Some(Strategy::Custom(name, data)), wrong)
}
