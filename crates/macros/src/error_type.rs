//! `#[derive(GrainError)]`: an enum as the error of methods, into which `?` turns the failures of
//! calls, states and reminders.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Field, Fields, Ident, Type, Variant};

/// The conversions of the enum.
pub(crate) fn expand(item: TokenStream) -> syn::Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let Data::Enum(data) = &input.data else {
        let message = "the error of a grain's methods is an enum, with a variant for each failure";
        return Err(syn::Error::new_spanned(&input.ident, message));
    };
    if !input.generics.params.is_empty() {
        let message = "the error of a grain's methods has no generic parameters";
        return Err(syn::Error::new_spanned(&input.generics, message));
    }
    let (ident, other) = (&input.ident, other(&input.ident, data.variants.iter())?);
    let own: Vec<(&Ident, &Field)> = data.variants.iter().filter_map(made_from).collect();
    let tries = own.iter().map(|(variant, field)| {
        let (ty, make) = (&field.ty, make(ident, variant, field));
        quote! {
            let failure = match ::emmer::__rt::own_error::<__E, #ty>(failure) {
                ::core::result::Result::Ok(inner) => return #make,
                ::core::result::Result::Err(failure) => failure,
            };
        }
    });
    let known =
        |name: &str| own.iter().any(|(_, field)| last(&field.ty).is_some_and(|l| l == name));
    let others = ["StateError", "ReminderError"].into_iter().filter(|name| !known(name));
    let others = others.map(|name| {
        let ty = Ident::new(name, proc_macro2::Span::call_site());
        quote! {
            #[automatically_derived]
            impl ::core::convert::From<::emmer::__rt::#ty> for #ident {
                fn from(failure: ::emmer::__rt::#ty) -> Self {
                    Self::#other(::core::convert::From::from(failure))
                }
            }
        }
    });
    Ok(quote! {
        #[automatically_derived]
        impl<__E> ::core::convert::From<::emmer::__rt::CallError<__E>> for #ident
        where
            __E: ::core::fmt::Display
                + ::core::fmt::Debug
                + ::core::marker::Send
                + ::core::marker::Sync
                + 'static,
        {
            fn from(failure: ::emmer::__rt::CallError<__E>) -> Self {
                let failure = match ::emmer::__rt::own_error::<__E, Self>(failure) {
                    ::core::result::Result::Ok(own) => return own,
                    ::core::result::Result::Err(failure) => failure,
                };
                #(#tries)*
                Self::#other(::core::convert::From::from(failure))
            }
        }

        #[automatically_derived]
        impl ::core::convert::From<::emmer::__rt::Error> for #ident {
            fn from(error: ::emmer::__rt::Error) -> Self {
                Self::#other(error)
            }
        }

        #(#others)*
    })
}

/// The variant for every failure that has none of its own.
fn other<'a>(ident: &Ident, variants: impl Iterator<Item = &'a Variant>) -> syn::Result<&'a Ident> {
    let is_other = |variant: &&Variant| variant.attrs.iter().any(|a| a.path().is_ident("other"));
    let mut marked = variants.filter(is_other);
    let Some(variant) = marked.next() else {
        let message = "failures without a variant need a place: add `#[other] Other(emmer::Error)`";
        return Err(syn::Error::new_spanned(ident, message));
    };
    if let Some(second) = marked.next() {
        return Err(syn::Error::new_spanned(second, "one variant is `#[other]`, and only one"));
    }
    match &variant.fields {
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => Ok(&variant.ident),
        _ => {
            let message = format!("write `{}(emmer::Error)`", variant.ident);
            Err(syn::Error::new_spanned(variant, message))
        }
    }
}

/// The variant that is made of another error: its one field has `#[from]`.
fn made_from(variant: &Variant) -> Option<(&Ident, &Field)> {
    let mut fields = variant.fields.iter();
    let (field, None) = (fields.next()?, fields.next()) else { return None };
    let is_from = field.attrs.iter().any(|attribute| attribute.path().is_ident("from"));
    is_from.then_some((&variant.ident, field))
}

fn make(ident: &Ident, variant: &Ident, field: &Field) -> TokenStream {
    match &field.ident {
        Some(name) => quote!(#ident::#variant { #name: inner }),
        None => quote!(#ident::#variant(inner)),
    }
}

/// The last part of a type's path.
fn last(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    path.path.segments.last().map(|last| last.ident.to_string())
}
