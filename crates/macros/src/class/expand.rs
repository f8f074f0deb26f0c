//! What a grain class becomes.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::attributes::Placement;
use super::field::{ClassField, Make};
use super::{Class, attributes};

/// `impl Grain`, and an empty `impl Lifecycle` unless the user writes it.
pub(super) fn class(class: &Class) -> TokenStream {
    let ident = &class.input.ident;
    let (generics, arguments, clause) = class.input.generics.split_for_impl();
    let placement = match &class.attributes.placement {
        Some(placement) => {
            let strategy = placement.strategy();
            quote!(::core::option::Option::Some(#strategy))
        }
        None => quote!(::core::option::Option::None),
    };
    let workers = class.attributes.placement.as_ref().and_then(Placement::workers_max);
    let workers = workers.map(|max| {
        let max = usize::from(max);
        quote! {
            const WORKERS_MAX: ::core::option::Option<usize> = ::core::option::Option::Some(#max);
        }
    });
    let idle = class.attributes.idle.map_or_else(
        || quote!(::core::option::Option::None),
        |idle| {
            let idle = attributes::duration(idle);
            quote!(::core::option::Option::Some(#idle))
        },
    );
    let reads: Vec<TokenStream> = class.fields.iter().filter_map(read).collect();
    let has_state = !reads.is_empty();
    let (reentrant, comes_back) =
        (class.attributes.reentrant, class.attributes.call_chain_reentrancy);
    let fields = class.fields.iter().map(make);
    let lifecycle = (!class.attributes.lifecycle).then(|| {
        quote! {
            #[automatically_derived]
            impl #generics ::emmer::__rt::Lifecycle for #ident #arguments #clause {}
        }
    });
    quote! {
        #lifecycle

        #[automatically_derived]
        impl #generics ::emmer::__rt::Grain for #ident #arguments #clause {
            const PLACEMENT: ::core::option::Option<::emmer::__rt::Strategy> = #placement;
            #workers
            const IDLE: ::core::option::Option<::core::time::Duration> = #idle;
            const HAS_STATE: bool = #has_state;
            const REENTRANT: bool = #reentrant;
            const CALL_CHAIN_REENTRANCY: bool = #comes_back;
            const REMINDERS: &'static [&'static str] = {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoReminders as _;
                Self::__REMINDERS
            };

            fn ticks() -> ::core::option::Option<::emmer::__rt::MethodEntry<Self>> {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoReminders as _;
                Self::__ticks()
            }

            fn create(ctx: &::emmer::__rt::Ctx) -> Self {
                let _ = ctx;
                Self { #(#fields,)* }
            }

            async fn load(&mut self) -> ::core::result::Result<(), ::emmer::__rt::StateError> {
                #(#reads)*
                ::core::result::Result::Ok(())
            }
        }
    }
}

/// Reads the field from the store, if it is a state.
fn read(field: &ClassField) -> Option<TokenStream> {
    let ClassField { ident, ty, make } = field;
    let span = ty.span().resolved_at(Span::call_site());
    matches!(make, Make::State(_))
        .then(|| quote_spanned!(span=> ::emmer::__rt::Persistent::read(&mut self.#ident).await?;))
}

/// One field of the new instance. Spanned at the field's type, where a wrong type is then reported.
fn make(field: &ClassField) -> TokenStream {
    let ClassField { ident, ty, make } = field;
    let span = ty.span().resolved_at(Span::call_site());
    let value = match make {
        Make::State(name) => quote_spanned!(span=> ::emmer::__rt::Persistent::bound(ctx, #name)),
        // Also into an `Option<Ctx>`, which a class can have that derives `Default` for its own
        // tests.
        Make::Context => {
            quote_spanned!(span=> ::core::convert::From::from(<::emmer::__rt::Ctx as ::core::clone::Clone>::clone(ctx)))
        }
        Make::Default => quote_spanned!(span=> <#ty as ::core::default::Default>::default()),
    };
    quote!(#ident: #value)
}
