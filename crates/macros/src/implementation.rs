//! `#[grain]` on `impl Interface for Class`: the code stays as it is, its mistakes get better
//! words, and the runtime learns which methods cannot suspend.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::{
    FnArg, GenericParam, ImplItem, ImplItemFn, Item, ItemImpl, Path, ReturnType, Type, parse_quote,
};

use crate::errors::Errors;
use crate::instant::is_instant;
use crate::interface::{check_not_generic, check_receiver};
use crate::reminders;

const WHERE_IT_GOES: &str = "#[grain] belongs on `impl Interface for Class`";

/// The implementation with its checks, or every mistake in it.
pub(crate) fn expand(args: &TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let mut item = implementation(syn::parse2(item)?)?;
    let mut errors = Errors::default();
    if !args.is_empty() {
        let message = "on an impl, #[grain] takes no arguments: `idle` and `reentrant` belong on \
                       the struct, below #[derive(Grain)]";
        errors.at(args, message);
    }
    let Some((interface, _)) = item.trait_.clone() else {
        errors.finish()?;
        return reminders::expand(item);
    };
    for impl_item in &item.items {
        if let ImplItem::Fn(function) = impl_item {
            check_method(function, &item.self_ty, &interface, &mut errors);
        }
    }
    errors.finish()?;
    let checks = reminders::checks(&item);
    let proof = proof(&item, &interface);
    tell_instant_methods(&mut item);
    // `async fn` says a little more than the trait's `impl Future + Send`; that is as it should be.
    Ok(quote! {
        #[allow(refining_impl_trait)]
        #item
        #proof
        #checks
    })
}

/// The implementation, or an error that names the other kind of item.
fn implementation(item: Item) -> syn::Result<ItemImpl> {
    match item {
        Item::Impl(item) => Ok(item),
        Item::Struct(item) => {
            let message = format!(
                "{WHERE_IT_GOES}. For a struct, write `#[derive(Grain)]` first and `#[grain(..)]` \
                 on the line below it"
            );
            Err(syn::Error::new_spanned(item.ident, message))
        }
        Item::Trait(item) => {
            let message =
                format!("{WHERE_IT_GOES}. For a trait, write `#[grain_interface(key = String)]`");
            Err(syn::Error::new_spanned(item.ident, message))
        }
        _ => Err(syn::Error::new(Span::call_site(), WHERE_IT_GOES)),
    }
}

/// Overrides the interface's list of methods that cannot suspend, which is empty.
fn tell_instant_methods(item: &mut ItemImpl) {
    let names: Vec<String> = item
        .items
        .iter()
        .filter_map(|item| match item {
            ImplItem::Fn(function) if is_instant(function) => {
                Some(function.sig.ident.unraw().to_string())
            }
            _ => None,
        })
        .collect();
    if !names.is_empty() {
        item.items.push(parse_quote! {
            #[doc(hidden)]
            fn __instant_methods() -> &'static [&'static str] {
                &[#(#names),*]
            }
        });
    }
}

fn check_method(function: &ImplItemFn, class: &Type, interface: &Path, errors: &mut Errors) {
    let signature = &function.sig;
    if let Some(mark) = function.attrs.iter().find(|attribute| reminders::is_reminder(attribute)) {
        let message = format!(
            "a reminder's handler is not a method of an interface: put it into `#[grain] impl {}`",
            quote!(#class)
        );
        errors.at(mark, message);
    }
    check_receiver(signature, "a grain's method", errors);
    check_not_generic(signature, errors);
    if signature.asyncness.is_none() && !returns_future(&signature.output) {
        let interface = interface.segments.last().map(|last| last.ident.to_string());
        let message = format!(
            "a grain's method is asynchronous: write `async fn`. If `{}` is not a method of `{}`, \
             move it to an ordinary `impl {}`",
            signature.ident,
            interface.unwrap_or_default(),
            quote!(#class)
        );
        errors.at(signature.fn_token, message);
    }
    for input in &signature.inputs {
        if let FnArg::Typed(typed) = input {
            for attribute in typed.attrs.iter().filter(|a| a.path().is_ident("serde")) {
                errors.at(
                    attribute,
                    "`#[serde(..)]` on an argument belongs in the #[grain_interface] trait",
                );
            }
        }
    }
}

/// Returns true if the method may return a future although it is not `async`: only its form is seen
/// here.
fn returns_future(output: &ReturnType) -> bool {
    match output {
        ReturnType::Default => false,
        ReturnType::Type(_, ty) => match &**ty {
            Type::ImplTrait(_) => true,
            Type::Path(path) => path.path.segments.last().is_some_and(|last| {
                ["Pin", "Ready", "BoxFuture"].iter().any(|name| last.ident == name)
            }),
            _ => false,
        },
    }
}

/// Code that compiles only when the trait is an interface and the class can host it: without it the
/// mistake would appear where the silo is built, perhaps in another crate.
fn proof(item: &ItemImpl, interface: &Path) -> TokenStream {
    let generic =
        item.generics.params.iter().any(|param| !matches!(param, GenericParam::Lifetime(_)));
    if generic {
        return TokenStream::new();
    }
    let class = &item.self_ty;
    quote! {
        #[allow(deprecated)]
        const _: () = {
            const fn hosts<Class, Interface>()
            where
                Class: ::emmer::__rt::Grain,
                Interface: ::emmer::__rt::Hosted<Class> + ?::core::marker::Sized,
            {
            }
            hosts::<#class, dyn #interface>()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(args: &TokenStream, item: TokenStream) -> String {
        expand(args, item).map(|tokens| tokens.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn the_impl_stays_as_it_is() {
        let item = quote! {
            impl Counter for CounterGrain {
                async fn add(&mut self, mut n: u64) -> u64 {
                    n += 1;
                    n
                }
                fn total(&self) -> impl Future<Output = u64> + Send {
                    ready(1)
                }
            }
        };
        let out = expand(&TokenStream::new(), item.clone()).unwrap().to_string();
        let item = item.to_string();
        assert!(out.contains(item.trim_end_matches(" }")), "{out}");
        assert!(out.contains("& [\"add\"]"), "{out}");
        assert!(out.contains("hosts :: < CounterGrain , dyn Counter > ()"), "{out}");
    }

    #[test]
    fn a_generic_class_is_proved_where_it_is_hosted() {
        let out = expand(
            &TokenStream::new(),
            quote!(
                impl<T: 'static> Counter for CounterGrain<T> {}
            ),
        )
        .unwrap();
        assert!(!out.to_string().contains("hosts"));
    }

    #[test]
    fn it_says_where_it_goes() {
        let none = &TokenStream::new();
        assert!(
            error(
                none,
                quote!(
                    struct CounterGrain;
                )
            )
            .contains("on the line below it")
        );
        assert!(
            error(
                none,
                quote!(
                    trait Counter {}
                )
            )
            .contains("#[grain_interface(key = String)]")
        );
        assert!(error(none, quote!(impl CounterGrain {})).contains("need no #[grain]"));
        assert!(
            error(
                none,
                quote!(
                    fn counter() {}
                )
            )
            .contains("impl Interface for Class")
        );
        assert!(
            error(&quote!(idle = "1s"), quote!(impl Counter for C {}))
                .contains("belong on the struct")
        );
    }

    #[test]
    fn methods_are_checked() {
        let of = |method: TokenStream| {
            error(&TokenStream::new(), quote!(impl Counter for C { #method }))
        };
        assert!(
            of(quote!(
                fn add(&mut self) -> u64 {
                    1
                }
            ))
            .contains("write `async fn`")
        );
        assert!(
            of(quote!(
                async fn add(self) {}
            ))
            .contains("cannot be taken by value")
        );
        assert!(
            of(quote!(
                async fn add() {}
            ))
            .contains("called on a grain")
        );
        assert!(
            of(quote!(
                async fn add<T>(&self, t: T) {}
            ))
            .contains("cannot be generic")
        );
        assert!(
            of(quote!(
                async fn add(&self, #[serde(default)] n: u8) {}
            ))
            .contains("belongs in the")
        );
    }
}
