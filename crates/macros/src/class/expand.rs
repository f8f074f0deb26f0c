//! The code that a grain class becomes.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::field::{ClassField, Journal, Make, State};
use super::placement::Placement;
use super::{Class, attributes};

/// `impl Grain`, with the hooks of the class if it implements `Lifecycle`.
pub(super) fn class(class: &Class) -> TokenStream {
    let ident = &class.input.ident;
    let (generics, arguments, clause) = class.input.generics.split_for_impl();
    let placement = class.attributes.placement.as_ref().map(Placement::method);
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
    let stays = class.attributes.stays.then(|| {
        quote!(
            const STAYS: bool = true;
        )
    });
    let active_max = class.attributes.active_max.map(|max| {
        let max = proc_macro2::Literal::u64_unsuffixed(max);
        quote! {
            const ACTIVE_MAX: ::core::option::Option<usize> = ::core::option::Option::Some(#max);
        }
    });
    let carried = carried(class);
    let create = create(class);
    let bind = class.attributes.constructor.then(|| bind(class));
    let services = services(class);
    let stores = stores(class);
    let data_version = data_version(class);
    let name = class.attributes.name.as_ref().map(|name| {
        quote! {
            const CLASS: ::core::option::Option<&'static str> = ::core::option::Option::Some(#name);
        }
    });
    quote! {
        #[automatically_derived]
        #[allow(deprecated)]
        impl #generics ::emmer::__rt::Grain for #ident #arguments #clause {
            #workers
            #name
            #stays
            #active_max
            const IDLE: ::core::option::Option<::core::time::Duration> = #idle;
            const HAS_STATE: bool = #has_state;
            const HAS_HOOKS: bool = {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoHooks as _;
                ::emmer::__rt::Hooks::<Self>::ARE_THERE
            };
            const REENTRANT: bool = #reentrant;
            const CALL_CHAIN_REENTRANCY: bool = #comes_back;
            const REMINDERS: &'static [&'static str] = {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoReminders as _;
                Self::REMINDERS_BELONG_IN_ONE_GRAIN_IMPL
            };

            fn ticks() -> ::core::option::Option<::emmer::__rt::MethodEntry> {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoReminders as _;
                Self::__ticks()
            }

            #placement

            #stores

            #data_version

            #services

            #create

            #bind

            async fn run_activate(
                &mut self,
                ctx: &::emmer::__rt::Ctx,
            ) -> ::core::result::Result<(), ::emmer::__rt::ActivationError> {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoHooks as _;
                ::emmer::__rt::Hooks::<Self>::activate(self, ctx).await
            }

            async fn run_deactivate(
                &mut self,
                ctx: &::emmer::__rt::Ctx,
                reason: ::emmer::__rt::DeactivationReason,
            ) {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoHooks as _;
                ::emmer::__rt::Hooks::<Self>::deactivate(self, ctx, reason).await;
            }

            async fn run_arrive(
                &mut self,
                ctx: &::emmer::__rt::Ctx,
            ) -> ::core::result::Result<(), ::emmer::__rt::ActivationError> {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoHooks as _;
                ::emmer::__rt::Hooks::<Self>::arrive(self, ctx).await
            }

            fn may_move(&self) -> bool {
                #[allow(unused_imports)]
                use ::emmer::__rt::NoHooks as _;
                ::emmer::__rt::Hooks::<Self>::may_move(self)
            }

            #carried

            async fn load(&mut self) -> ::core::result::Result<(), ::emmer::__rt::StateError> {
                #(#reads)*
                ::core::result::Result::Ok(())
            }
        }
    }
}

/// Makes the instance, field by field; refuses where the application has a constructor.
fn create(class: &Class) -> TokenStream {
    let body = if class.attributes.constructor {
        quote! {
            ::core::result::Result::Err(::emmer::__rt::ActivationError::new(
                "this class has a constructor: host it by `host_with`",
            ))
        }
    } else {
        let fields = class.fields.iter().map(make);
        quote!(::core::result::Result::Ok(Self { #(#fields,)* }))
    };
    let constructor = class.attributes.constructor;
    let shareable = class.fields.iter().map(|ClassField { ty, .. }| {
        let span = ty.span().resolved_at(Span::call_site());
        quote_spanned!(span=> ::emmer::__rt::shareable::<#ty>();)
    });
    quote! {
        const CONSTRUCTOR: bool = #constructor;

        fn create(
            ctx: &::emmer::__rt::Ctx,
        ) -> ::core::result::Result<Self, ::emmer::__rt::ActivationError> {
            let _ = ctx;
            #(#shareable)*
            #body
        }
    }
}

/// The type of a field that is stored, and how the class declares it.
fn stored(make: &Make, span: Span) -> Option<(TokenStream, TokenStream)> {
    let State { name, store, version } = make.stored()?;
    let store = store.as_ref().map(|store| quote_spanned!(span=> .store(#store)));
    let version = version.map(|version| quote_spanned!(span=> .version(#version)));
    let state = quote_spanned!(span=> ::emmer::__rt::StateSpec::new(#name) #store #version);
    let Make::Journal(Journal { snapshot, keep, .. }) = make else {
        return Some((quote_spanned!(span=> ::emmer::__rt::Persistent), state));
    };
    let snapshot = snapshot.map(|appends| quote_spanned!(span=> .snapshot(#appends)));
    let keep = keep.map(|appends| quote_spanned!(span=> .keep(#appends)));
    let journal = quote_spanned!(span=> ::emmer::__rt::JournalSpec::new(#state) #snapshot #keep);
    Some((quote_spanned!(span=> ::emmer::__rt::Journal), journal))
}

/// Binds the states of an instance that a constructor made.
fn bind(class: &Class) -> TokenStream {
    let binds = class.fields.iter().filter_map(|ClassField { ident, ty, make }| {
        let (of, spec) = stored(make, ty.span().resolved_at(Span::call_site()))?;
        Some(quote!(#of::bind(&mut self.#ident, ctx, const { &#spec });))
    });
    quote! {
        fn bind(&mut self, ctx: &::emmer::__rt::Ctx) {
            let _ = ctx;
            #(#binds)*
        }
    }
}

/// The fields that move with the grain. Spanned at the field's type, where a wrong type is
/// reported.
fn carried(class: &Class) -> TokenStream {
    let fields = class.fields.iter().filter(|field| field.make.is_carried());
    let fields = fields.map(|ClassField { ident, ty, .. }| {
        let (span, name) = (ty.span().resolved_at(Span::call_site()), ident.to_string());
        quote_spanned!(span=> (#name, &mut self.#ident as &mut dyn ::emmer::__rt::Carried))
    });
    quote! {
        fn carried(&mut self) -> ::emmer::__rt::CarriedFields<'_> {
            ::std::vec::Vec::from([#(#fields),*])
        }
    }
}

/// The names of the stores of its states.
fn stores(class: &Class) -> Option<TokenStream> {
    let stores: Vec<&String> =
        class.fields.iter().filter_map(|field| field.make.stored()?.store.as_ref()).collect();
    (!stores.is_empty()).then(|| {
        quote! {
            const STATE_STORES: &'static [&'static str] = &[#(#stores),*];
        }
    })
}

/// The version of all its data. It grows with the version of each state.
fn data_version(class: &Class) -> Option<TokenStream> {
    let versions = class.fields.iter().filter_map(|field| field.make.stored()?.version);
    let version = versions.fold(1_u32, |sum, version| sum.saturating_add(version - 1));
    (version > 1).then(|| quote!(const DATA_VERSION: u32 = #version;))
}

/// The services that the silo must have. A constructor finds its own.
fn services(class: &Class) -> Option<TokenStream> {
    let fields = class.fields.iter().filter(|field| field.make == Make::Service);
    let needs: Vec<TokenStream> = fields
        .map(|ClassField { ident, ty, .. }| {
            let span = ty.span().resolved_at(Span::call_site());
            let name = ident.to_string();
            quote_spanned!(span=> ::emmer::__rt::ServiceNeed::of::<#ty>(#name))
        })
        .collect();
    (!needs.is_empty() && !class.attributes.constructor).then(|| {
        quote! {
            fn services() -> ::std::vec::Vec<::emmer::__rt::ServiceNeed> {
                ::std::vec::Vec::from([#(#needs),*])
            }
        }
    })
}

/// Reads the field from the store, if it is a state.
fn read(field: &ClassField) -> Option<TokenStream> {
    let ClassField { ident, ty, make } = field;
    let span = ty.span().resolved_at(Span::call_site());
    let (of, _) = stored(make, span)?;
    Some(quote_spanned!(span=> #of::read(&mut self.#ident).await?;))
}

/// One field of the new instance. Spanned at the field's type, where a wrong type is then reported.
fn make(field: &ClassField) -> TokenStream {
    let ClassField { ident, ty, make } = field;
    let span = ty.span().resolved_at(Span::call_site());
    let declared = stored(make, span);
    let value = match make {
        Make::State(_) | Make::Journal(_) => {
            let (of, spec) = declared.unzip();
            quote_spanned!(span=> #of::bound(ctx, const { &#spec }))
        }
        // Also into an `Option<Ctx>`, which a class can have that derives `Default` for its own
        // tests.
        Make::Context => {
            quote_spanned!(span=> ::core::convert::From::from(<::emmer::__rt::Ctx as ::core::clone::Clone>::clone(ctx)))
        }
        Make::Service => {
            let name = ident.to_string();
            quote_spanned!(span=> ::emmer::__rt::service::<#ty>(ctx, #name)?)
        }
        Make::Default | Make::Carry => {
            quote_spanned!(span=> <#ty as ::emmer::__rt::FieldDefault>::make())
        }
    };
    quote!(#ident: #value)
}
