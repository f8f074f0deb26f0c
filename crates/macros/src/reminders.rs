//! `#[reminder("name")]` on the methods of `#[grain] impl Class`: what ticks of reminders call.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::{
    Attribute, FnArg, GenericParam, Generics, Ident, ImplItem, ImplItemFn, ItemImpl, LitStr, Type,
};

use crate::errors::Errors;
use crate::interface::{Turn, check_not_generic, check_receiver};

/// The longest name, in bytes: `REMINDER_NAME_BYTES_MAX` of the runtime.
const NAME_BYTES_MAX: usize = 128;

/// A method that a reminder calls.
struct Handler {
    name: LitStr,
    method: Ident,
    exclusive: bool,
}

pub(crate) fn is_reminder(attribute: &Attribute) -> bool {
    attribute.path().is_ident("reminder")
}

/// The class's own methods, and what the runtime needs to know of those that reminders call.
pub(crate) fn expand(mut item: ItemImpl) -> syn::Result<TokenStream> {
    let mut errors = Errors::default();
    let mut handlers = Vec::new();
    for function in item.items.iter_mut().filter_map(function) {
        handlers.extend(handler(function, &mut errors));
    }
    if handlers.is_empty() && errors.is_empty() {
        let message = "#[grain] belongs on `impl Interface for Class`, or on `impl Class` with methods \
            that are marked #[reminder(\"name\")]: methods that can be called are declared in a \
            #[grain_interface] trait. Methods for the grain's own use need no #[grain]";
        errors.at(&item.self_ty, message);
    }
    let mut names = BTreeSet::new();
    for handler in &handlers {
        if !names.insert(handler.name.value()) {
            errors.at(&handler.name, "another method is marked with the same name");
        }
    }
    errors.finish()?;
    let checks = checks(&item);
    let ticks = ticks(&item, &handlers);
    Ok(quote! { #item #ticks #checks })
}

fn function(item: &mut ImplItem) -> Option<&mut ImplItemFn> {
    match item {
        ImplItem::Fn(function) => Some(function),
        _ => None,
    }
}

/// Takes the attribute off the method.
fn handler(function: &mut ImplItemFn, errors: &mut Errors) -> Option<Handler> {
    let at = function.attrs.iter().position(is_reminder)?;
    let attribute = function.attrs.remove(at);
    let name = errors.take(attribute.parse_args::<LitStr>().map_err(|_| {
        syn::Error::new_spanned(&attribute, "a reminder has a name: write `#[reminder(\"due\")]`")
    }))?;
    let bytes = name.value().len();
    if !(1..=NAME_BYTES_MAX).contains(&bytes) {
        errors.at(&name, format!("the name has {bytes} bytes: expected 1 to {NAME_BYTES_MAX}"));
    }
    let signature = &function.sig;
    check_not_generic(signature, errors);
    if signature.asyncness.is_none() {
        errors.at(signature.fn_token, "a reminder's handler is asynchronous: write `async fn`");
    }
    let (_, turn) = check_receiver(signature, "a reminder's handler", errors)?;
    let typed = signature.inputs.iter().filter(|input| matches!(input, FnArg::Typed(_))).count();
    if turn == Turn::Free || typed != 1 {
        let method = &signature.ident;
        let message = format!(
            "a reminder's handler is told the tick and nothing else: write `async fn \
             {method}(&mut self, tick: Tick)`"
        );
        errors.at(&signature.inputs, message);
        return None;
    }
    Some(Handler { name, method: signature.ident.clone(), exclusive: turn == Turn::Exclusive })
}

/// The names, and the method that ticks call. Both go before what classes without handlers have. A
/// class that has them in two places gets rustc's word of two definitions: it says the constant's
/// name.
fn ticks(item: &ItemImpl, handlers: &[Handler]) -> TokenStream {
    let class = &item.self_ty;
    let (generics, _, clause) = item.generics.split_for_impl();
    let names = handlers.iter().map(|handler| &handler.name);
    let arms = handlers.iter().map(|handler| arm(class, handler));
    quote! {
        #[automatically_derived]
        #[allow(deprecated, unreachable_pub)]
        impl #generics #class #clause {
            #[doc(hidden)]
            pub const REMINDERS_BELONG_IN_ONE_GRAIN_IMPL: &'static [&'static str] = &[#(#names),*];

            #[doc(hidden)]
            pub fn __ticks() -> ::core::option::Option<::emmer::__rt::MethodEntry> {
                ::core::option::Option::Some(::emmer::__rt::MethodEntry {
                    info: <::emmer::__rt::ReminderTick as ::emmer::__rt::Method>::INFO,
                    also: &[],
                    name: "Reminder.tick",
                    internal: true,
                    arrive: ::emmer::__rt::arrive::<::emmer::__rt::ReminderTick>,
                    instant: ::emmer::__rt::Instant::No,
                    start: |activation, slot, context| {
                        let args =
                            ::emmer::__rt::LocalSlot::<::emmer::__rt::ReminderTick>::args_of(slot)?;
                        match args.name() {
                            #(#arms)*
                            other => ::core::result::Result::Err(::emmer::__rt::no_handler(other)),
                        }
                    },
                })
            }
        }
    }
}

fn arm(class: &Type, handler: &Handler) -> TokenStream {
    let Handler { name, method, exclusive } = handler;
    let (context, admit, admitted) = if *exclusive {
        (quote!(context), quote!(admit_exclusive), quote!(mut admitted))
    } else {
        (quote!(context.concurrent()), quote!(admit_shared), quote!(admitted))
    };
    let call =
        quote_spanned!(method.span()=> <#class>::#method(admitted.grain(), args.tick()).await);
    quote! {
        #name => ::core::result::Result::Ok(
            ::emmer::__rt::boxed::<::emmer::__rt::ReminderTick, _>(#context, async move {
                let #admitted = match activation.#admit().await {
                    ::core::result::Result::Ok(admitted) => admitted,
                    ::core::result::Result::Err(closed) => {
                        return ::emmer::__rt::not_admitted(args, closed);
                    }
                };
                let mut slot = ::emmer::__rt::LocalSlot::empty();
                let is_error = slot.put(::emmer::__rt::TickResult::told(#call));
                admitted.done();
                (slot, ::emmer::__rt::TurnOutcome::Done { is_error })
            }),
        ),
    }
}

/// Code that compiles only if every `ctx.remind("name")` in the class's methods has a handler.
pub(crate) fn checks(item: &ItemImpl) -> TokenStream {
    if is_generic(&item.generics) {
        return TokenStream::new();
    }
    let mut asked = Vec::new();
    for impl_item in &item.items {
        if let ImplItem::Fn(function) = impl_item {
            let block = &function.block;
            find(quote!(#block), &mut asked);
        }
    }
    let class = &item.self_ty;
    let checks = asked.iter().map(|name| {
        let message = format!(
            "no method is marked #[reminder({0:?})]: write one in `#[grain] impl` of the class",
            name.value()
        );
        quote_spanned! {name.span()=>
            const _: () = ::core::assert!(
                ::emmer::__rt::is_among(<#class as ::emmer::__rt::Grain>::REMINDERS, #name),
                #message
            );
        }
    });
    quote!(#(#checks)*)
}

fn is_generic(generics: &Generics) -> bool {
    generics.params.iter().any(|param| !matches!(param, GenericParam::Lifetime(_)))
}

/// The names in `ctx.remind("name")`, wherever they stand.
fn find(tokens: TokenStream, asked: &mut Vec<LitStr>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let is_ident = |tree: &TokenTree, name: &str| matches!(tree, TokenTree::Ident(i) if i == name);
    for window in trees.windows(4) {
        let [receiver, TokenTree::Punct(dot), method, TokenTree::Group(arguments)] = window else {
            continue;
        };
        let is_call = is_ident(receiver, "ctx")
            && dot.as_char() == '.'
            && is_ident(method, "remind")
            && arguments.delimiter() == Delimiter::Parenthesis;
        if is_call && let Ok(name) = syn::parse2::<LitStr>(arguments.stream()) {
            asked.push(name);
        }
    }
    for tree in trees {
        if let TokenTree::Group(group) = tree {
            find(group.stream(), asked);
        }
    }
}

/// Error for a `#[reminder]` that no `#[grain]` has taken, and the code as it is.
pub(crate) fn misplaced(item: &TokenStream) -> TokenStream {
    let message = "`#[reminder]` belongs on a method in a block `#[grain] impl` of the class: write \
                   `#[grain]` above the block";
    let error = syn::Error::new(Span::call_site(), message).into_compile_error();
    quote!(#error #item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::implementation;

    fn expanded(item: TokenStream) -> syn::Result<String> {
        implementation::expand(&TokenStream::new(), item).map(|tokens| tokens.to_string())
    }

    #[test]
    fn handlers_are_found_and_lose_their_mark() {
        let out = expanded(quote! {
            impl Thermostat {
                #[reminder("daily report")]
                async fn report(&mut self, tick: Tick) -> Result<(), StateError> { Ok(()) }
                #[reminder("look")]
                async fn look(&self, _: Tick) {}
                fn other(&self) {}
            }
        })
        .unwrap();
        assert!(!out.contains("reminder (\"") && out.contains("fn other"), "{out}");
        assert!(out.contains("[\"daily report\" , \"look\"]"), "{out}");
        assert!(out.contains("admit_exclusive") && out.contains("admit_shared"), "{out}");
    }

    #[test]
    fn names_that_are_asked_for_are_checked() {
        let out = expanded(quote! {
            impl Heating for Thermostat {
                async fn start(&mut self) {
                    if true { self.ctx.remind("due").after(secs(1)).await.unwrap(); }
                    self.ctx.remind(DYNAMIC).await;
                    other.remind("somebody").await;
                }
            }
        })
        .unwrap();
        assert!(
            out.contains("REMINDERS , \"due\"") && !out.contains("REMINDERS , \"somebody"),
            "{out}"
        );
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let of =
            |method: TokenStream| expanded(quote!(impl C { #method })).unwrap_err().to_string();
        assert!(
            of(quote!(
                #[reminder]
                async fn f(&self, t: Tick) {}
            ))
            .contains("has a name")
        );
        assert!(
            of(quote!(
                #[reminder("")]
                async fn f(&self, t: Tick) {}
            ))
            .contains("0 bytes")
        );
        assert!(
            of(quote!(
                #[reminder("a")]
                fn f(&self, t: Tick) {}
            ))
            .contains("write `async fn`")
        );
        assert!(
            of(quote!(
                #[reminder("a")]
                async fn f(&self) {}
            ))
            .contains("tick: Tick")
        );
        assert!(
            of(quote!(
                #[reminder("a")]
                async fn f(t: Tick) {}
            ))
            .contains("called on a grain")
        );
        assert!(
            of(quote!(
                async fn f(&self) {}
            ))
            .contains("need no #[grain]")
        );
        let twice = quote! {
            #[reminder("a")] async fn f(&self, t: Tick) {}
            #[reminder("a")] async fn g(&self, t: Tick) {}
        };
        assert!(of(twice).contains("same name"));
        let misplaced = quote! {
            impl Heating for Thermostat {
                #[reminder("a")] async fn f(&self, t: Tick) {}
            }
        };
        assert!(
            expanded(misplaced).unwrap_err().to_string().contains("`#[grain] impl Thermostat`")
        );
    }
}
