//! One method of an interface: its rules, and its parts for the expansion.

use quote::format_ident;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, FnArg, Ident, Meta, Pat, PatType, ReceiverKind, Safety, Signature, TraitItemFn, Type,
};

use crate::errors::Errors;
use crate::names;
use crate::types::{self, Output, Place};

/// Names the reference type needs for itself.
const RESERVED: [(&str, &str); 6] = [
    ("grain_id", "the grain's identity"),
    ("of", "the grain of another class"),
    ("key", "the grain's key"),
    ("clone", "another reference to the same grain"),
    ("into", "every type has it from the prelude"),
    ("try_into", "every type has it from the prelude"),
];

/// A method that can be called across the cluster.
pub(crate) struct InterfaceMethod {
    /// Everything the user wrote above it.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) ident: Ident,
    /// The struct that holds its arguments.
    pub(crate) args_type: Ident,
    pub(crate) receiver: FnArg,
    pub(crate) turn: Turn,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) output: Output,
}

/// Access of a method to its grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// `&mut self`.
    Exclusive,
    /// `&self`.
    Shared,
    /// `&self` and `#[always_interleave]`.
    Past,
    /// `Interleaved<Self>`.
    Free,
}

/// The attribute of methods that go past calls that wait.
const ALWAYS_INTERLEAVE: &str = "always_interleave";

/// One argument of a method: a field of the struct that travels.
pub(crate) struct Argument {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    /// The type of the values, if the argument is a `Sink`.
    pub(crate) sink: Option<Type>,
    /// True if the argument is a `Source`.
    pub(crate) is_source: bool,
    /// Its `#[serde(..)]` attributes and comments, which belong on the field.
    pub(crate) attrs: Vec<Attribute>,
}

impl InterfaceMethod {
    /// The method's name as it travels.
    pub(crate) fn name(&self) -> String {
        self.ident.unraw().to_string()
    }

    /// The argument that the values of a streamed answer go to.
    pub(crate) fn sink(&self) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.sink.is_some())
    }

    /// Returns true if an argument is a stream.
    pub(crate) fn streams(&self) -> bool {
        self.arguments.iter().any(|argument| argument.sink.is_some() || argument.is_source)
    }

    /// The attributes that hold for everything made from this method.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Attribute> {
        self.attrs.iter().filter(|a| a.path().is_ident("cfg"))
    }

    /// The attributes that a caller's method takes over.
    pub(crate) fn caller_attrs(&self) -> impl Iterator<Item = &Attribute> {
        self.attrs
            .iter()
            .filter(|a| ["doc", "cfg", "deprecated"].iter().any(|name| a.path().is_ident(name)))
    }
}

/// The method; None when its mistakes leave nothing to expand.
pub(crate) fn parse(
    function: &TraitItemFn,
    interface: &Ident,
    errors: &mut Errors,
) -> Option<InterfaceMethod> {
    let signature = &function.sig;
    check_kind(function, errors);
    check_name(&signature.ident, errors);
    check_not_generic(signature, errors);
    let receiver = check_receiver(signature, "an interface's method", errors);
    let arguments = arguments(signature, errors);
    if let Some(second) = arguments.iter().filter(|argument| argument.sink.is_some()).nth(1) {
        let message = "a method streams one answer: put the values of both sinks into an enum";
        errors.at(&second.ty, message);
    }
    let output = errors.take(types::output(&signature.output));
    if let Some(output) = &output {
        types::check(&output.whole, Place::Return, errors);
    }
    let (receiver, mut turn) = receiver?;
    for attribute in function.attrs.iter().filter(|a| hides_interleave(a)) {
        let message = "the macro does not see what is behind `cfg_attr`: write the method twice, \
                       with `#[cfg(..)]` and `#[cfg(not(..))]`";
        errors.at(attribute, message);
    }
    let (interleave, attrs): (Vec<_>, Vec<_>) = function
        .attrs
        .iter()
        .cloned()
        .partition(|attribute| attribute.path().is_ident(ALWAYS_INTERLEAVE));
    if let Some(attribute) = interleave.first() {
        if turn != Turn::Shared {
            let message = "a method that interleaves takes `&self`; one that waits for long and \
                           gives its grain back meanwhile takes `this: Interleaved<Self>`, without \
                           this attribute";
            errors.at(attribute, message);
        }
        turn = Turn::Past;
    }
    Some(InterfaceMethod {
        attrs,
        ident: signature.ident.clone(),
        args_type: args_type(interface, &signature.ident),
        receiver,
        turn,
        arguments,
        output: output?,
    })
}

/// Returns true if `always_interleave` depends on a condition: a macro gets `cfg_attr` as written.
fn hides_interleave(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg_attr") && list.tokens.to_string().contains(ALWAYS_INTERLEAVE)
}

/// `CounterAddArgs`: in the module of the trait, so that the types of the arguments mean the same
/// there as in the trait, also inside a function.
fn args_type(interface: &Ident, method: &Ident) -> Ident {
    let method_name = names::camel(&method.unraw().to_string());
    format_ident!("{}{}Args", interface, method_name, span = method.span())
}

fn check_kind(function: &TraitItemFn, errors: &mut Errors) {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        errors.at(signature.fn_token, "a call may cross the network: write `async fn`");
    }
    if let Some(constness) = &signature.constness {
        errors.at(constness, "a grain's method cannot be `const`");
    }
    if let Safety::Unsafe(token) = &signature.safety {
        errors.at(token, "a grain's method cannot be `unsafe`");
    }
    if let Some(abi) = &signature.abi {
        errors.at(abi, "a grain's method has no ABI of its own");
    }
    if let Some(variadic) = &signature.variadic {
        errors.at(variadic, "a grain's method has a fixed number of arguments");
    }
    if let Some(body) = &function.default {
        let message = "an interface only declares its methods: end the line with `;` and write the \
                       body in `#[grain] impl`";
        errors.at(body, message);
    }
}

fn check_name(ident: &Ident, errors: &mut Errors) {
    let name = ident.unraw().to_string();
    if let Some((_, use_of_it)) = RESERVED.iter().find(|(reserved, _)| *reserved == name) {
        let message = format!(
            "`{name}` is a method of every grain reference ({use_of_it}): choose another name, \
             such as `get_{name}`"
        );
        errors.at(ident, message);
    }
}

/// Refuses generics on a method of an interface or of its implementation.
pub(crate) fn check_not_generic(signature: &Signature, errors: &mut Errors) {
    if !signature.generics.params.is_empty() {
        let message = "a grain's method cannot be generic: the other side must know every type. \
                       Write the types out, or one method for each";
        errors.at(&signature.generics, message);
    }
    if let Some(clause) = &signature.generics.where_clause {
        errors.at(clause, "a grain's method cannot have a where clause");
    }
}

/// The receiver and whether it is exclusive, or a complaint.
pub(crate) fn check_receiver(
    signature: &Signature,
    whose: &str,
    errors: &mut Errors,
) -> Option<(FnArg, Turn)> {
    const CHOICE: &str =
        "write `&mut self` for a turn of its own, or `&self` to run with other `&self` turns";
    let first = signature.inputs.first();
    if let Some(handle) = first.filter(|first| is_handle(first)) {
        return Some((handle.clone(), Turn::Free));
    }
    let Some(FnArg::Receiver(receiver)) = first else {
        errors.at(&signature.ident, format!("{whose} is called on a grain: {CHOICE}"));
        return None;
    };
    match &receiver.kind {
        ReceiverKind::Reference(_, None, mutability) => {
            let turn = if mutability.is_some() { Turn::Exclusive } else { Turn::Shared };
            Some((FnArg::Receiver(receiver.clone()), turn))
        }
        ReceiverKind::Reference(_, Some(lifetime), _) => {
            errors.at(lifetime, format!("{whose} needs no lifetime on its receiver: {CHOICE}"));
            None
        }
        _ => {
            errors.at(
                receiver,
                format!("a grain stays where it is and cannot be taken by value: {CHOICE}"),
            );
            None
        }
    }
}

/// Returns true if this is `this: Interleaved<Self>`.
fn is_handle(first: &FnArg) -> bool {
    let FnArg::Typed(typed) = first else { return false };
    let Type::Path(path) = &*typed.ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "Interleaved")
}

fn arguments(signature: &Signature, errors: &mut Errors) -> Vec<Argument> {
    let typed = signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) if !is_handle(input) => Some(typed),
        _ => None,
    });
    typed.filter_map(|typed| argument(typed, errors)).collect()
}

fn argument(typed: &PatType, errors: &mut Errors) -> Option<Argument> {
    types::check(&typed.ty, Place::Argument, errors);
    for attribute in &typed.attrs {
        if !["serde", "doc"].iter().any(|name| attribute.path().is_ident(name)) {
            errors.at(attribute, "an argument may carry `#[serde(..)]` and comments only");
        }
    }
    match &*typed.pat {
        Pat::Ident(name)
            if name.by_ref.is_none() && name.mutability.is_none() && name.subpat.is_none() =>
        {
            Some(Argument {
                ident: name.ident.clone(),
                ty: (*typed.ty).clone(),
                sink: types::of_stream(&typed.ty, "Sink"),
                is_source: types::of_stream(&typed.ty, "Source").is_some(),
                attrs: typed.attrs.clone(),
            })
        }
        Pat::Ident(name) if name.mutability.is_some() => {
            let message = format!(
                "arguments are declared by name only: write `{}` here and `mut` in the impl",
                name.ident
            );
            errors.at(&typed.pat, message);
            None
        }
        pattern => {
            let message =
                "arguments travel by name: write a name here, and take it apart in the impl";
            errors.at_span(pattern.span(), message);
            None
        }
    }
}
