//! `#[observer]`: a trait whose methods are events, and the enum of these events.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{FnArg, Ident, ItemTrait, Pat, ReceiverKind, ReturnType, TraitItem, TraitItemFn, Type};

use crate::errors::Errors;
use crate::names;
use crate::types::{self, Place};

/// The name of the method that the macro adds.
const GAP: &str = "gap";

struct Event<'a> {
    item: &'a TraitItemFn,
    variant: Ident,
    arguments: Vec<(&'a Ident, &'a Type)>,
}

/// The expansion, or every mistake in it.
pub(crate) fn expand(args: &TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let item: ItemTrait = syn::parse2(item).map_err(|error| {
        syn::Error::new(error.span(), format!("#[observer] belongs on a trait: {error}"))
    })?;
    let mut errors = Errors::default();
    if !args.is_empty() {
        errors.at(args, "#[observer] has no arguments");
    }
    if !item.generics.params.is_empty() {
        errors.at(&item.generics, "an observer's interface cannot be generic: write the types out");
    }
    let mut events = Vec::new();
    for trait_item in &item.items {
        match trait_item {
            TraitItem::Fn(function) => events.extend(event(function, &mut errors)),
            other => {
                errors.at(other, "an observer's interface has only methods, one for each event");
            }
        }
    }
    errors.finish()?;
    Ok(write(&item, &events))
}

fn event<'a>(item: &'a TraitItemFn, errors: &mut Errors) -> Option<Event<'a>> {
    let signature = &item.sig;
    let name = signature.ident.unraw().to_string();
    if name == GAP {
        errors.at(&signature.ident, "every observer has `gap` already: it tells of missed events");
    }
    if signature.asyncness.is_some() {
        errors.at(
            signature.asyncness,
            "nothing waits for an observer: write `fn`, and start a task in it for what takes long",
        );
    }
    if let Some(body) = &item.default {
        errors.at(body, "an observer's interface only declares its events: end the line with `;`");
    }
    if let ReturnType::Type(_, ty) = &signature.output {
        errors.at(ty, "an event has no answer: remove the return type");
    }
    if !signature.generics.params.is_empty() {
        errors.at(&signature.generics, "an event cannot be generic: write its types out");
    }
    let mut inputs = signature.inputs.iter();
    let takes_self = matches!(
        inputs.next(),
        Some(FnArg::Receiver(receiver))
            if matches!(&receiver.kind, ReceiverKind::Reference(_, None, None))
    );
    if !takes_self {
        errors
            .at(&signature.ident, "an event is told to an observer: its first argument is `&self`");
        return None;
    }
    let mut arguments = Vec::new();
    for input in inputs {
        let FnArg::Typed(typed) = input else { continue };
        types::check(&typed.ty, Place::Argument, errors);
        match &*typed.pat {
            Pat::Ident(name) if name.by_ref.is_none() && name.mutability.is_none() => {
                arguments.push((&name.ident, &*typed.ty));
            }
            pattern => errors.at(pattern, "what an event says travels by name: write a name here"),
        }
    }
    let variant = format_ident!("{}", names::camel(&name), span = signature.ident.span());
    Some(Event { item, variant, arguments })
}

fn write(item: &ItemTrait, events: &[Event<'_>]) -> TokenStream {
    let (attrs, vis, ident) = (&item.attrs, &item.vis, &item.ident);
    let supertraits = item.supertraits.iter();
    let name = ident.unraw().to_string();
    let (event, tell) = (format_ident!("{ident}Event"), format_ident!("{ident}Tell"));
    let event_doc = format!("What [`{name}`] tells, one variant for each method.");
    let tell_doc = format!("Makes the events of [`{name}`], for `observers.tell(|to| ..)`.");
    let methods = events.iter().map(|event| event.item);
    let variants = events.iter().map(|event| {
        let (variant, wire) = (&event.variant, event.item.sig.ident.unraw().to_string());
        let docs = event.item.attrs.iter().filter(|a| a.path().is_ident("doc"));
        let doc = format!("`{wire}`.");
        let fields = event.arguments.iter().map(|(name, ty)| {
            let doc = format!("The argument `{}`.", name.unraw());
            quote!(#[doc = #doc] #name: #ty)
        });
        quote! {
            #[doc = #doc]
            #(#docs)*
            #[serde(rename = #wire)]
            #variant { #(#fields),* }
        }
    });
    let tellers = events.iter().map(|of| {
        let (method, variant) = (&of.item.sig.ident, &of.variant);
        let docs = of.item.attrs.iter().filter(|a| a.path().is_ident("doc"));
        let doc = format!("The event `{}`.", method.unraw());
        let arguments = of.arguments.iter().map(|(name, ty)| quote!(#name: #ty));
        let names = of.arguments.iter().map(|(name, _)| name);
        quote! {
            #[doc = #doc]
            #(#docs)*
            #[allow(clippy::too_many_arguments, clippy::unused_self)]
            #vis fn #method(&self #(, #arguments)*) -> #event {
                #event::#variant { #(#names),* }
            }
        }
    });
    let arms = events.iter().map(|of| {
        let (method, variant) = (&of.item.sig.ident, &of.variant);
        let names: Vec<_> = of.arguments.iter().map(|(name, _)| name).collect();
        quote!(#event::#variant { #(#names),* } => self.#method(#(#names),*))
    });
    quote! {
        #(#attrs)*
        #vis trait #ident:
            #(#supertraits +)* ::core::marker::Send + ::core::marker::Sync + 'static
        {
            #(#methods)*

            /// Events may be missing here.
            fn gap(&self, gap: ::emmer::__rt::Gap) {
                let _ = gap;
            }
        }

        #[doc = #event_doc]
        #[derive(
            ::core::clone::Clone,
            ::core::fmt::Debug,
            ::emmer::__rt::serde::Serialize,
            ::emmer::__rt::serde::Deserialize,
        )]
        #[serde(crate = "::emmer::__rt::serde")]
        #[allow(clippy::large_enum_variant)]
        #vis enum #event {
            #(#variants,)*
        }

        #[doc = #tell_doc]
        #[derive(::core::default::Default)]
        #vis struct #tell;

        #[allow(dead_code)]
        impl #tell {
            #(#tellers)*
        }

        #[automatically_derived]
        impl ::emmer::__rt::ObserverInterface for dyn #ident + '_ {
            type Event = #event;
            type Tell = #tell;
            const NAME: &'static str = #name;

            fn deliver(&self, event: Self::Event) {
                match event {
                    #(#arms,)*
                }
            }

            fn deliver_gap(&self, gap: ::emmer::__rt::Gap) {
                self.gap(gap);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(item: TokenStream) -> String {
        expand(&TokenStream::new(), item).map(|_| String::new()).unwrap_or_else(|e| e.to_string())
    }

    #[test]
    fn mistakes_are_told_where_they_are() {
        for (item, words) in [
            (
                quote!(
                    trait T {
                        async fn said(&self);
                    }
                ),
                "nothing waits for an observer",
            ),
            (
                quote!(
                    trait T {
                        fn said(&self) -> u64;
                    }
                ),
                "an event has no answer",
            ),
            (
                quote!(
                    trait T {
                        fn said(&mut self);
                    }
                ),
                "its first argument is `&self`",
            ),
            (
                quote!(
                    trait T {
                        fn said();
                    }
                ),
                "its first argument is `&self`",
            ),
            (
                quote!(
                    trait T {
                        fn said(&self, line: &str);
                    }
                ),
                "write `String` instead of `&str`",
            ),
            (
                quote!(
                    trait T {
                        fn gap(&self);
                    }
                ),
                "every observer has `gap` already",
            ),
            (
                quote!(
                    trait T<X> {
                        fn said(&self);
                    }
                ),
                "cannot be generic",
            ),
            (
                quote!(
                    trait T {
                        fn said(&self) {}
                    }
                ),
                "end the line with `;`",
            ),
            (
                quote!(
                    trait T {
                        const N: u64;
                    }
                ),
                "has only methods",
            ),
            (
                quote!(
                    struct T;
                ),
                "belongs on a trait",
            ),
        ] {
            let complaint = complaint(item);
            assert!(complaint.contains(words), "{complaint}");
        }
        assert_eq!(
            complaint(quote!(
                trait T {
                    fn said(&self, line: String);
                }
            )),
            ""
        );
    }
}
