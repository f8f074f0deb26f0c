//! `#[derive(GrainKey)]`: a struct around a key, as a key of its own type.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DataStruct, DeriveInput, Fields};

const SHAPE: &str = "a key of your own is a struct with one field, which is a key: \
                     `struct OrderId(u64);`";

/// The struct as a grain's key.
pub(crate) fn expand(item: TokenStream) -> syn::Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let wrong = || syn::Error::new_spanned(&input.ident, SHAPE);
    let Data::Struct(DataStruct { fields, .. }) = &input.data else { return Err(wrong()) };
    if !input.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(&input.generics, "a key has no generic parameters"));
    }
    let mut all = fields.iter();
    let (Some(field), None) = (all.next(), all.next()) else { return Err(wrong()) };
    let (ident, inner) = (&input.ident, &field.ty);
    let (take, make) = match (&field.ident, fields) {
        (Some(name), Fields::Named(_)) => (quote!(self.#name), quote!(Self { #name: inner })),
        _ => (quote!(self.0), quote!(Self(inner))),
    };
    Ok(quote! {
        #[automatically_derived]
        impl ::emmer::__rt::KeyType for #ident {
            type View<'a> = Self;

            const KIND: ::emmer::__rt::KeyKind = <#inner as ::emmer::__rt::KeyType>::KIND;

            fn into_key(self) -> ::emmer::__rt::GrainKey {
                <#inner as ::emmer::__rt::KeyType>::into_key(#take)
            }

            fn view(key: &::emmer::__rt::GrainKey) -> ::core::option::Option<Self> {
                <Self as ::emmer::__rt::KeyType>::read(key)
            }

            fn read(key: &::emmer::__rt::GrainKey) -> ::core::option::Option<Self> {
                <#inner as ::emmer::__rt::KeyType>::read(key).map(|inner| #make)
            }
        }
    })
}
