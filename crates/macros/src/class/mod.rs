//! `#[derive(Grain)]`: a struct in, a grain class out.

mod attributes;
mod expand;
mod field;
mod idle;
mod placement;

use proc_macro2::TokenStream;
use syn::spanned::Spanned;
use syn::{
    Data, DataStruct, DeriveInput, Fields, GenericParam, Generics, TypeParam, TypeParamBound,
    WherePredicate,
};

use self::attributes::ClassAttributes;
use self::field::{ClassField, Make};
use crate::errors::Errors;

/// A struct that was found to be a grain class.
pub(crate) struct Class {
    input: DeriveInput,
    attributes: ClassAttributes,
    fields: Vec<ClassField>,
}

/// The expansion, or every mistake in it.
pub(crate) fn expand(item: TokenStream) -> syn::Result<TokenStream> {
    parse(item).map(|class| expand::class(&class))
}

fn parse(item: TokenStream) -> syn::Result<Class> {
    let input: DeriveInput = syn::parse2(item)?;
    let mut errors = Errors::default();
    let attributes = attributes::parse(&input.attrs, &mut errors);
    check_generics(&input.generics, &mut errors);
    let fields = fields(&input, &mut errors);
    check_workers(&attributes, &input, &fields, &mut errors);
    errors.finish()?;
    Ok(Class { input, attributes, fields })
}

fn fields(input: &DeriveInput, errors: &mut Errors) -> Vec<ClassField> {
    const NAMED: &str = "a grain class is a struct with named fields";
    match &input.data {
        Data::Struct(DataStruct { fields: Fields::Named(named), .. }) => {
            field::parse(named, errors)
        }
        Data::Struct(DataStruct { fields: Fields::Unit, .. }) => Vec::new(),
        Data::Struct(DataStruct { fields: Fields::Unnamed(unnamed), .. }) => {
            errors.at(unnamed, format!("{NAMED}: give these names"));
            Vec::new()
        }
        Data::Enum(data) => {
            errors.at_span(
                data.enum_token.span(),
                format!("{NAMED}: put the enum into a field of it"),
            );
            Vec::new()
        }
        Data::Union(data) => {
            errors.at_span(data.union_token.span(), format!("{NAMED}, not a union"));
            Vec::new()
        }
    }
}

/// The activations of one stateless worker would overwrite each other's state.
fn check_workers(
    attributes: &ClassAttributes,
    input: &DeriveInput,
    fields: &[ClassField],
    errors: &mut Errors,
) {
    let is_worker = attributes.placement.as_ref().is_some_and(|p| p.workers_max().is_some());
    if is_worker && (attributes.reentrant || attributes.call_chain_reentrancy) {
        let message = "a stateless worker runs one call at a time: `reentrant` and \
            `call_chain_reentrancy` are for other grains";
        errors.at(&input.ident, message);
    }
    if is_worker && attributes.active_max.is_some() {
        let message = "`active_max` bounds grains by key: a stateless worker has its number in \
            `#[placement(stateless_worker = 8)]`";
        errors.at(&input.ident, message);
    }
    let states = fields.iter().filter(|field| field.make.stored().is_some());
    for field in fields.iter().filter(|field| field.make == Make::Carry) {
        if is_worker || attributes.stays {
            let message = "grains of this class never move: a field of theirs is not carried";
            errors.at(&field.ident, message);
        }
    }
    for field in states.filter(|_| is_worker) {
        let message = "a stateless worker has no state in the store: its activations would \
            overwrite each other's";
        errors.at(&field.ident, message);
    }
}

/// An activation outlives its maker, so everything in it is owned.
fn check_generics(generics: &Generics, errors: &mut Errors) {
    for param in &generics.params {
        match param {
            GenericParam::Lifetime(lifetime) => {
                errors.at(lifetime, "a grain owns what it holds: use types without lifetimes");
            }
            GenericParam::Type(param) if !is_static(param, generics) => {
                let name = &param.ident;
                errors.at(
                    param,
                    format!("a grain owns what it holds: write `{name}: Send + Sync + 'static`"),
                );
            }
            _ => {}
        }
    }
}

fn is_static(param: &TypeParam, generics: &Generics) -> bool {
    let predicates = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let in_where = predicates.filter_map(|predicate| match predicate {
        WherePredicate::Type(predicate) => Some(predicate),
        _ => None,
    });
    let in_where = in_where
        .filter(|predicate| matches!(&predicate.bounded_ty, syn::Type::Path(path) if path.path.is_ident(&param.ident)))
        .flat_map(|predicate| &predicate.bounds);
    param.bounds.iter().chain(in_where).any(
        |bound| matches!(bound, TypeParamBound::Lifetime(lifetime) if lifetime.ident == "static"),
    )
}

#[cfg(test)]
mod tests;
