//! `#[grain_interface]`: a trait in, an interface out.

mod args;
mod expand;
mod method;

use proc_macro2::TokenStream;
use syn::{Ident, ItemTrait, Lifetime, TraitItem, TypeParamBound};

use self::args::InterfaceArgs;
use self::method::InterfaceMethod;
pub(crate) use self::method::{Turn, check_not_generic, check_receiver};
use crate::errors::Errors;
use crate::names;

/// A trait that was found to be an interface.
pub(crate) struct Interface {
    args: InterfaceArgs,
    item: ItemTrait,
    methods: Vec<InterfaceMethod>,
}

impl Interface {
    /// The name of the reference type.
    fn reference(&self) -> Ident {
        quote::format_ident!("{}Ref", self.item.ident)
    }

    /// The trait's name for people.
    fn name(&self) -> String {
        syn::ext::IdentExt::unraw(&self.item.ident).to_string()
    }

    /// The grain type's name.
    fn grain_type(&self) -> String {
        self.args.grain.clone().unwrap_or_else(|| names::kebab(&self.name()))
    }
}

/// The expansion, or every mistake in it.
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    parse(args, item).map(|interface| expand::interface(&interface))
}

fn parse(args: TokenStream, item: TokenStream) -> syn::Result<Interface> {
    let item: ItemTrait = syn::parse2(item).map_err(|error| {
        syn::Error::new(error.span(), format!("#[grain_interface] belongs on a trait: {error}"))
    })?;
    let mut errors = Errors::default();
    let args = errors.take(args::parse(args));
    check_trait(&item, &mut errors);
    let mut methods: Vec<InterfaceMethod> = Vec::new();
    for trait_item in &item.items {
        let TraitItem::Fn(function) = trait_item else {
            errors.at(
                trait_item,
                "a grain interface has only async methods: move this out of the trait",
            );
            continue;
        };
        if let Some(method) = method::parse(function, &item.ident, &mut errors) {
            check_distinct(&methods, &method, &mut errors);
            methods.push(method);
        }
    }
    errors.finish()?;
    // Without a complaint there are arguments.
    let args = args.ok_or_else(|| {
        syn::Error::new_spanned(&item.ident, "the attribute's arguments are missing")
    })?;
    Ok(Interface { args, item, methods })
}

fn check_trait(item: &ItemTrait, errors: &mut Errors) {
    if !item.generics.params.is_empty() {
        let message = "a grain interface cannot be generic: its methods and their types are fixed \
                       on the wire. Write one interface per type";
        errors.at(&item.generics, message);
    }
    if let Some(clause) = &item.generics.where_clause {
        errors.at(
            clause,
            "a grain interface has no where clause: every class that implements it hosts it",
        );
    }
    if let Some(unsafety) = &item.unsafety {
        errors.at(unsafety, "a grain interface is a safe trait: remove `unsafe`");
    }
    for supertrait in item.supertraits.iter().filter(|bound| !is_harmless(bound)) {
        let message = "a grain interface has no supertraits besides `Send`, `Sync` and `'static`: \
                       declare the other methods here, or in an interface of their own";
        errors.at(supertrait, message);
    }
}

/// Returns true if every grain class keeps this bound anyway.
fn is_harmless(bound: &TypeParamBound) -> bool {
    match bound {
        TypeParamBound::Lifetime(Lifetime { ident, .. }) => ident == "static",
        TypeParamBound::Trait(bound) => {
            bound.maybe.is_none()
                && bound
                    .path
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == "Send" || last.ident == "Sync")
        }
        _ => false,
    }
}

fn check_distinct(earlier: &[InterfaceMethod], method: &InterfaceMethod, errors: &mut Errors) {
    if let Some(other) = earlier.iter().find(|other| other.args_type == method.args_type) {
        let message = format!(
            "the methods `{}` and `{}` differ too little: both would be called `{}` where their \
             arguments travel",
            other.ident, method.ident, method.args_type
        );
        errors.at(&method.ident, message);
    }
}

#[cfg(test)]
mod tests;
