//! The code that an interface becomes.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Ident, LitStr};

use super::method::{Argument, InterfaceMethod};
use super::{Interface, Turn};

/// All of it.
pub(super) fn interface(interface: &Interface) -> TokenStream {
    let methods = &interface.methods;
    let trait_ = trait_(interface);
    let args = methods.iter().map(|method| args_struct(interface, method));
    let method_impls = methods.iter().map(|method| method_impl(interface, method));
    let reference = reference(interface);
    let interface_impl = interface_impl(interface);
    let hosted = hosted(interface);
    quote! {
        #trait_
        #(#args #method_impls)*
        #reference
        #interface_impl
        #hosted
    }
}

/// The trait, each method rewritten to what `async fn` means plus `Send`; `where Self: Sized` keeps
/// `dyn Trait` a legal name although no method can be called through it.
fn trait_(interface: &Interface) -> TokenStream {
    let item = &interface.item;
    let (attrs, vis, token, ident) = (&item.attrs, &item.vis, &item.trait_token, &item.ident);
    let (colon, supertraits) = (&item.colon_token, &item.supertraits);
    let advice =
        if attrs.iter().any(is_own_advice) { TokenStream::new() } else { advice(interface) };
    let methods = interface.methods.iter().map(|method| {
        let InterfaceMethod { attrs, ident, receiver, output, .. } = method;
        let names = method.arguments.iter().map(|a| &a.ident);
        let types = method.arguments.iter().map(|a| &a.ty);
        let whole = &output.whole;
        quote! {
            #(#attrs)*
            fn #ident(#receiver #(, #names: #types)*)
                -> impl ::core::future::Future<Output = #whole> + ::core::marker::Send
            where
                Self: ::core::marker::Sized;
        }
    });
    quote! {
        #advice
        #(#attrs)*
        #vis #token #ident #colon #supertraits {
            #(#methods)*

            /// The methods that cannot suspend; `#[grain]` on an implementation finds them.
            #[doc(hidden)]
            fn __instant_methods() -> &'static [&'static str]
            where
                Self: ::core::marker::Sized,
            {
                &[]
            }
        }
    }
}

fn is_own_advice(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "on_unimplemented")
}

/// Words of rustc where a class is hosted for an interface that it does not implement.
fn advice(interface: &Interface) -> TokenStream {
    let name = interface.name();
    let message = format!("`{{Self}}` does not implement the grain interface `{name}`");
    let note = format!("write `#[grain] impl {name} for {{Self}}` with every method of `{name}`");
    quote! {
        #[diagnostic::on_unimplemented(message = #message, label = "not a class of this \
            interface", note = #note)]
    }
}

/// The arguments of one method, as they travel: a map by name.
fn args_struct(interface: &Interface, method: &InterfaceMethod) -> TokenStream {
    let (vis, args_type) = (&interface.item.vis, &method.args_type);
    let conditions = method.conditions();
    let doc =
        format!("The arguments of [`{0}::{1}`], as they travel.", interface.name(), method.name());
    let by_serde = by_serde(method);
    let fields = method.arguments.iter().map(|Argument { ident, ty, attrs, .. }| {
        let doc = format!("The argument `{ident}`.");
        // Spanned at the name, so that an argument that cannot travel is reported there.
        let doc = quote_spanned!(ident.span()=> #[doc = #doc]);
        let attrs = attrs.iter().filter(|a| by_serde || !a.path().is_ident("serde"));
        quote!(#doc #(#attrs)* #vis #ident: #ty)
    });
    let derive = by_serde.then(|| {
        quote! {
            #[derive(::emmer::__rt::serde::Serialize, ::emmer::__rt::serde::Deserialize)]
            #[serde(crate = "::emmer::__rt::serde")]
        }
    });
    quote! {
        #(#conditions)*
        #[doc = #doc]
        #[doc(hidden)]
        #derive
        #vis struct #args_type {
            #(#fields,)*
        }
    }
}

/// Returns true if an argument has serde attributes besides a default: serde's own derived code
/// then reads and writes the struct. It is ten times as long.
fn by_serde(method: &InterfaceMethod) -> bool {
    let mut attributes = method.arguments.iter().flat_map(|argument| &argument.attrs);
    attributes.any(|attribute| attribute.path().is_ident("serde") && !is_default(attribute))
}

/// Returns true for `#[serde(default)]`.
fn is_default(attribute: &Attribute) -> bool {
    attribute.path().is_ident("serde")
        && attribute.parse_args::<Ident>().is_ok_and(|word| word == "default")
}

/// The methods that encode and decode the arguments.
fn codec(interface: &Interface, method: &InterfaceMethod) -> TokenStream {
    let (write, read) = if by_serde(method) {
        (quote!(::emmer::__rt::encode_into(out, self)), quote!(::emmer::__rt::decode(body)))
    } else {
        by_name(interface, method)
    };
    quote! {
        fn encode_args(
            &self,
            out: &mut ::emmer::__rt::BytesMut,
        ) -> ::core::result::Result<(), ::emmer::__rt::CodecError> {
            #write
        }

        fn decode_args(
            body: &[u8],
        ) -> ::core::result::Result<Self, ::emmer::__rt::CodecError> {
            #read
        }
    }
}

fn by_name(interface: &Interface, method: &InterfaceMethod) -> (TokenStream, TokenStream) {
    let of = full_name(interface, method);
    let idents: Vec<&Ident> = method.arguments.iter().map(|a| &a.ident).collect();
    let names: Vec<String> = idents.iter().map(|ident| ident.unraw().to_string()).collect();
    let count = names.len();
    let written = method.arguments.iter().zip(&names).map(|(Argument { ident, .. }, name)| {
        // Spanned at the name, so that an argument that cannot travel is reported there.
        quote_spanned!(ident.span().resolved_at(Span::call_site())=> (#name, &self.#ident))
    });
    let read = method.arguments.iter().zip(&names).map(|(argument, name)| {
        let (ident, ty) = (&argument.ident, &argument.ty);
        let span = ident.span().resolved_at(Span::call_site());
        let value = format_ident!("__{}", name);
        let field = quote_spanned!(span=> ::emmer::__rt::field::<#ty>(#of, #name, #value)?);
        let field = if argument.attrs.iter().any(is_default) {
            quote! {
                match #value {
                    ::core::option::Option::None => ::core::default::Default::default(),
                    #value => #field,
                }
            }
        } else {
            field
        };
        quote!(#ident: #field)
    });
    let values = names.iter().map(|name| format_ident!("__{}", name));
    (
        quote!(::emmer::__rt::encode_fields(out, #of, &[#(#written),*])),
        quote! {
            let mut values = [::core::option::Option::None; #count];
            ::emmer::__rt::decode_fields(body, #of, &[#(#names),*], &mut values)?;
            let [#(#values),*] = values;
            ::core::result::Result::Ok(Self { #(#read),* })
        },
    )
}

/// Implementation of `Method`, which the runtime uses.
fn method_impl(interface: &Interface, method: &InterfaceMethod) -> TokenStream {
    let (trait_ident, args_type) = (&interface.item.ident, &method.args_type);
    let (conditions, exclusive) = (method.conditions(), method.turn == Turn::Exclusive);
    let whole = &method.output.whole;
    let name = method.name();
    let (ok, err, split, is_error) = match &method.output.result {
        Some((ok, err)) => {
            let is_error = quote! {
                fn is_error(output: &Self::Output) -> bool {
                    output.is_err()
                }
            };
            (ok.to_token_stream(), err.to_token_stream(), quote!(output), is_error)
        }
        None => (
            whole.to_token_stream(),
            quote!(::emmer::__rt::NoError),
            quote!(::core::result::Result::Ok(output)),
            TokenStream::new(),
        ),
    };
    let numbered = numbered(interface, method, interface.args.version_of_calls());
    let streams = method.streams().then(|| {
        quote!(
            const STREAMS: bool = true;
        )
    });
    let codec = codec(interface, method);
    let arguments = method.arguments.iter().map(|argument| {
        let (name, of) = (argument.ident.unraw().to_string(), in_source(&argument.ty));
        quote!((#name, #of))
    });
    let returns = in_source(whole);
    let no_alias = method.output.result.is_none().then(|| no_alias(interface, method));
    quote! {
        #no_alias

        #(#conditions)*
        #[automatically_derived]
        impl ::emmer::__rt::Method for #args_type {
            type Interface = dyn #trait_ident;
            type Output = #whole;
            type Ok = #ok;
            type Err = #err;
            const NAME: &'static str = #name;
            const ID: u32 = ::emmer::__rt::name32(#numbered);
            const EXCLUSIVE: bool = #exclusive;
            const ARGUMENTS: &'static [(&'static str, &'static str)] = &[#(#arguments),*];
            const RETURNS: &'static str = #returns;
            #streams

            #codec

            #is_error

            fn split(output: Self::Output) -> ::core::result::Result<Self::Ok, Self::Err> {
                #split
            }
        }
    }
}

/// A type as people write it: tokens stand apart only behind a comma and between words.
fn in_source(of: &impl ToTokens) -> String {
    let mut text = String::new();
    for word in of.to_token_stream().to_string().split(' ') {
        let apart = |c: char| c.is_alphanumeric() || c == '_';
        let needs_room = text.ends_with([',', ';'])
            || text.ends_with("->")
            || word == "->"
            || (text.ends_with(apart) && word.starts_with(apart));
        if needs_room && !text.is_empty() {
            text.push(' ');
        }
        text += word;
    }
    text
}

/// Refuses a `Result` by another name: its error would look like a value.
fn no_alias(interface: &Interface, method: &InterfaceMethod) -> TokenStream {
    let (conditions, whole) = (method.conditions(), &method.output.whole);
    let message = format!(
        "the return type of `{}` is a `Result` by another name, which hides its error from callers: \
         write `Result<T, E>`, or `emmer::Result<T>` for any error",
        full_name(interface, method).value()
    );
    quote_spanned! {whole.span().resolved_at(Span::call_site())=>
        #(#conditions)*
        const _: () = {
            #[allow(unused_imports)]
            use ::emmer::__rt::NoResult as _;
            ::core::assert!(!::emmer::__rt::Returned::<#whole>::IS_RESULT, #message);
        };
    }
}

/// Text behind the method's number for callers of a version: `Counter.add`, `Counter.add@2`.
fn numbered(interface: &Interface, method: &InterfaceMethod, version: u32) -> LitStr {
    let name = full_name(interface, method).value();
    let text = if version == 1 { name } else { format!("{name}@{version}") };
    LitStr::new(&text, Span::call_site())
}

/// The method's numbers for callers of older versions.
fn older(interface: &Interface, method: &InterfaceMethod) -> TokenStream {
    let numbered =
        interface.args.older_versions().map(|version| numbered(interface, method, version));
    quote!(const { &[#(::emmer::__rt::name32(#numbered)),*] })
}

/// `Counter.add`: the method's name for people.
fn full_name(interface: &Interface, method: &InterfaceMethod) -> LitStr {
    LitStr::new(&format!("{}.{}", interface.name(), method.name()), Span::call_site())
}

/// Reference type of the interface.
fn reference(interface: &Interface) -> TokenStream {
    let (vis, trait_ident, key) = (&interface.item.vis, &interface.item.ident, &interface.args.key);
    let (reference, grain_type) = (interface.reference(), interface.grain_type());
    let doc = format!(
        "A reference to a [`{}`] grain, with one method per call. Cheap to clone; making one \
         sends nothing.",
        interface.name()
    );
    let calls = interface.methods.iter().map(|method| call(vis, method));
    quote! {
        #[doc = #doc]
        #[derive(
            ::core::clone::Clone,
            ::core::fmt::Debug,
            ::core::cmp::PartialEq,
            ::core::cmp::Eq,
            ::core::cmp::PartialOrd,
            ::core::cmp::Ord,
            ::core::hash::Hash,
            ::emmer::__rt::serde::Serialize,
        )]
        #[serde(crate = "::emmer::__rt::serde", transparent)]
        #vis struct #reference(::emmer::__rt::RawRef);

        #[automatically_derived]
        impl<'de> ::emmer::__rt::serde::Deserialize<'de> for #reference {
            fn deserialize<D>(deserializer: D) -> ::core::result::Result<Self, D::Error>
            where
                D: ::emmer::__rt::serde::Deserializer<'de>,
            {
                ::emmer::__rt::RawRef::decode::<dyn #trait_ident, D>(deserializer).map(Self)
            }
        }

        #[automatically_derived]
        impl ::core::convert::From<::emmer::__rt::RawRef> for #reference {
            fn from(raw: ::emmer::__rt::RawRef) -> Self {
                Self(raw)
            }
        }

        #[allow(dead_code)]
        impl #reference {
            /// The grain's identity.
            #vis fn grain_id(&self) -> &::emmer::__rt::GrainId {
                self.0.id()
            }

            /// The grain's key.
            #vis fn key(&self) -> <#key as ::emmer::__rt::KeyType>::View<'_> {
                self.0.typed_key::<#key>()
            }

            /// The grain of the same key and of the class `class`: one that says
            /// `#[grain(name = "..")]`.
            #[must_use]
            #vis fn of(&self, class: &str) -> Self {
                Self(self.0.of_class(#grain_type, class))
            }

            #(#calls)*
        }
    }
}

fn call(vis: &syn::Visibility, method: &InterfaceMethod) -> TokenStream {
    let (ident, args_type) = (&method.ident, &method.args_type);
    let attrs = method.caller_attrs();
    let names: Vec<&Ident> = method.arguments.iter().map(|a| &a.ident).collect();
    let given: Vec<&Argument> = method.arguments.iter().filter(|a| a.sink.is_none()).collect();
    let given_names = given.iter().map(|a| &a.ident);
    let types = given.iter().map(|Argument { ty, is_source, .. }| {
        if *is_source { quote!(impl ::core::convert::Into<#ty>) } else { ty.to_token_stream() }
    });
    let sources = given
        .iter()
        .filter(|a| a.is_source)
        .map(|Argument { ident, .. }| quote!(let #ident = ::core::convert::Into::into(#ident);));
    let (returned, made) = match method.sink() {
        None => (
            quote!(::emmer::__rt::Call<#args_type>),
            quote!(self.0.call(#args_type { #(#names),* })),
        ),
        Some(Argument { ident: sink, sink: value, .. }) => (
            quote! {
                ::emmer::__rt::Answers<
                    #value,
                    <#args_type as ::emmer::__rt::Method>::Err,
                    <#args_type as ::emmer::__rt::Method>::Ok,
                >
            },
            quote!(::emmer::__rt::answers(&self.0, |#sink| #args_type { #(#names),* })),
        ),
    };
    quote! {
        #(#attrs)*
        #[allow(clippy::too_many_arguments)]
        #vis fn #ident(&self #(, #given_names: #types)*) -> #returned {
            #(#sources)*
            #made
        }
    }
}

fn interface_impl(interface: &Interface) -> TokenStream {
    let (trait_ident, key, reference) =
        (&interface.item.ident, &interface.args.key, interface.reference());
    let (name, grain_type) = (interface.name(), interface.grain_type());
    let version = interface.args.version;
    quote! {
        #[automatically_derived]
        impl ::emmer::__rt::Interface for dyn #trait_ident {
            type Key = #key;
            type Ref = #reference;
            const NAME: &'static str = #name;
            const GRAIN_TYPE: &'static str = #grain_type;
            const VERSION: u32 = #version;
        }
    }
}

/// The methods as a silo dispatches to them, for whichever class implements the trait.
fn hosted(interface: &Interface) -> TokenStream {
    let trait_ident = &interface.item.ident;
    let entries = interface.methods.iter().map(|method| entry(interface, method));
    quote! {
        #[allow(deprecated)]
        #[automatically_derived]
        impl<__Class> ::emmer::__rt::Hosted<__Class> for dyn #trait_ident
        where
            __Class: #trait_ident + ::emmer::__rt::Grain,
        {
            fn methods() -> ::std::vec::Vec<::emmer::__rt::MethodEntry> {
                ::std::vec::Vec::from([#(#entries),*])
            }
        }
    }
}

/// One method: the arguments out of the input, then a turn that waits for admission and runs it.
fn entry(interface: &Interface, method: &InterfaceMethod) -> TokenStream {
    let (trait_ident, ident, args_type) = (&interface.item.ident, &method.ident, &method.args_type);
    let (conditions, exclusive) = (method.conditions(), method.turn == Turn::Exclusive);
    let (full_name, older) = (full_name(interface, method), older(interface, method));
    let name = method.name();
    // A stream begins with its turn.
    let names: Vec<TokenStream> = method
        .arguments
        .iter()
        .map(|Argument { ident, sink, is_source, .. }| {
            if sink.is_some() || *is_source {
                quote!(#ident.begin())
            } else {
                ident.to_token_stream()
            }
        })
        .collect();
    let internal = interface.args.internal;
    let kind = if exclusive { quote!(Exclusive) } else { quote!(Shared) };
    let now = quote! {
        if <__Class as #trait_ident>::__instant_methods().contains(&#name) {
            ::emmer::__rt::Instant::#kind(|admitted, slot| {
                ::emmer::__rt::run_now::<#args_type>(slot, |args| {
                    ::emmer::__rt::poll_now(
                        <__Class as #trait_ident>::#ident(admitted.grain() #(, args.#names)*)
                    )
                })
            })
        } else {
            ::emmer::__rt::Instant::No
        }
    };
    // A free method holds nothing of its grain while it waits.
    let free = method.turn == Turn::Free;
    let context = if free { quote!(context.interleaved()) } else { quote!(context) };
    let instant = if free || method.streams() { quote!(::emmer::__rt::Instant::No) } else { now };
    let admit = match method.turn {
        Turn::Exclusive => quote!(admit_exclusive),
        Turn::Past => quote!(admit_past),
        Turn::Shared => quote!(admit_shared),
        Turn::Free => quote!(admit_interleaved),
    };
    let binding = match method.turn {
        Turn::Exclusive => quote!(mut admitted),
        Turn::Free => quote!((admitted, __stay)),
        Turn::Past | Turn::Shared => quote!(admitted),
    };
    let grain = if free { quote!(admitted) } else { quote!(admitted.grain()) };
    let done = if free { quote!(drop(__stay);) } else { quote!(admitted.done();) };
    quote! {
        #(#conditions)*
        ::emmer::__rt::MethodEntry {
            info: <#args_type as ::emmer::__rt::Method>::INFO,
            also: #older,
            name: #full_name,
            internal: #internal,
            arrive: ::emmer::__rt::arrive::<#args_type>,
            instant: #instant,
            start: |activation, slot, context| {
                let args = ::emmer::__rt::LocalSlot::<#args_type>::args_of(slot)?;
                let context = #context;
                ::core::result::Result::Ok(::emmer::__rt::boxed::<#args_type, _>(context, async move {
                    let #binding = match activation.#admit().await {
                        ::core::result::Result::Ok(admitted) => admitted,
                        ::core::result::Result::Err(closed) => {
                            return ::emmer::__rt::not_admitted(args, closed);
                        }
                    };
                    let mut slot = ::emmer::__rt::LocalSlot::<#args_type>::empty();
                    let outcome = activation
                        .run_method(
                            <#args_type as ::emmer::__rt::Method>::INFO,
                            ::core::pin::pin!(async {
                                slot.put(
                                    <__Class as #trait_ident>::#ident(#grain #(, args.#names)*)
                                        .await
                                )
                            }),
                        )
                        .await;
                    #done
                    (slot, outcome)
                }))
            },
        }
    }
}
