//! The attributes of fields: `#[state("name")]`, `#[service]` and `#[context]`.

use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Field, FieldsNamed, Ident, LitInt, LitStr, Meta, Token, Type};

use super::attributes;
use crate::errors::Errors;
use crate::names;

/// How a field is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Make {
    /// Bound to a store.
    State(State),
    /// A service of the silo.
    Service,
    /// A copy of the grain's context.
    Context,
    /// By `Default`.
    Default,
}

/// The words of `#[state("name", store = "archive", version = 2)]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) store: Option<String>,
    pub(crate) version: Option<u32>,
}

impl Parse for State {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        const HOW: &str = "under which name is the state stored? Write `#[state(\"total\")]`";
        const MORE: &str = "behind its name a state has `store = \"archive\"` and `version = 2`";
        let literal: LitStr = input.parse().map_err(|e| syn::Error::new(e.span(), HOW))?;
        let name = names::stored_name(&literal, "a state's")?;
        let mut state = Self { name, store: None, version: None };
        while !input.is_empty() {
            let more = |e: syn::Error| syn::Error::new(e.span(), MORE);
            input.parse::<Token![,]>().map_err(more)?;
            let key: Ident = input.parse().map_err(more)?;
            input.parse::<Token![=]>().map_err(more)?;
            if key == "store" && state.store.is_none() {
                let literal: LitStr = input.parse().map_err(more)?;
                state.store = Some(names::stored_name(&literal, "a store's")?);
            } else if key == "version" && state.version.is_none() {
                let literal: LitInt = input.parse().map_err(more)?;
                let version = literal.base10_parse().ok().filter(|version| *version > 0);
                let wrong = "a version is a whole number from 1: `version = 2`";
                state.version =
                    Some(version.ok_or_else(|| syn::Error::new(literal.span(), wrong))?);
            } else {
                return Err(syn::Error::new(key.span(), MORE));
            }
        }
        Ok(state)
    }
}

/// One field of a class.
pub(crate) struct ClassField {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) make: Make,
}

pub(crate) fn parse(named: &FieldsNamed, errors: &mut Errors) -> Vec<ClassField> {
    let mut fields: Vec<ClassField> = Vec::with_capacity(named.named.len());
    for field in &named.named {
        let Some(ident) = field.ident.clone() else { continue };
        let make = make(field, &fields, errors);
        fields.push(ClassField { ident, ty: field.ty.clone(), make });
    }
    fields
}

fn make(field: &Field, earlier: &[ClassField], errors: &mut Errors) -> Make {
    let (mut make, mut is_marked) = (Make::Default, false);
    for attribute in &field.attrs {
        attributes::refuse_on_field(attribute, errors);
        is_marked |= ["state", "service", "context"].iter().any(|n| attribute.path().is_ident(n));
        let Some(found) = errors.take(of_attribute(attribute)).flatten() else { continue };
        if make != Make::Default {
            errors.at(attribute, "a field is one state, service or the context, and only once");
        }
        check_new(&found, attribute, earlier, errors);
        make = found;
    }
    check_threads(field, errors);
    if !is_marked {
        check_plain(field, errors);
    }
    make
}

/// The last part of the path of a field's type.
fn type_name(field: &Field) -> Option<String> {
    let Type::Path(path) = &field.ty else { return None };
    path.path.segments.last().map(|last| last.ident.to_string())
}

/// A field of a type that one thread has alone. One that hides in another type is found by the
/// compiler.
fn check_threads(field: &Field, errors: &mut Errors) {
    let found = type_name(field);
    let shared = match found.as_deref() {
        Some("Rc") => "Arc",
        Some("RefCell") => "Mutex",
        Some("Cell") => "an atomic type",
        _ => return,
    };
    let message = format!(
        "turns of a grain run on any thread: use {shared} instead of {}",
        found.unwrap_or_default()
    );
    errors.at(&field.ty, message);
}

/// A field of a type that is nothing without its attribute.
fn check_plain(field: &Field, errors: &mut Errors) {
    match type_name(field).as_deref() {
        Some("Persistent") => errors.at(
            &field.ty,
            "under which name is this stored? Write `#[state(\"name\")]` above the field",
        ),
        Some("Ctx") => errors.at(&field.ty, "write `#[context]` above the field"),
        _ => {}
    }
}

/// What an attribute makes of its field; nothing when it is somebody else's.
fn of_attribute(attribute: &Attribute) -> syn::Result<Option<Make>> {
    if attribute.path().is_ident("context") {
        let message = "the context has no arguments: write `#[context]`";
        return match attribute.meta.require_path_only() {
            Ok(_) => Ok(Some(Make::Context)),
            Err(_) => Err(syn::Error::new_spanned(attribute, message)),
        };
    }
    if attribute.path().is_ident("service") {
        let message = "a service is found by its type: write `#[service]`";
        return match attribute.meta.require_path_only() {
            Ok(_) => Ok(Some(Make::Service)),
            Err(_) => Err(syn::Error::new_spanned(attribute, message)),
        };
    }
    if attribute.path().is_ident("state") {
        return match &attribute.meta {
            Meta::List(list) => list.parse_args().map(|state| Some(Make::State(state))),
            _ => Err(syn::Error::new_spanned(
                attribute,
                "under which name is the state stored? Write `#[state(\"total\")]`",
            )),
        };
    }
    Ok(None)
}

fn check_new(found: &Make, attribute: &Attribute, earlier: &[ClassField], errors: &mut Errors) {
    let place = |make: &Make| match make {
        Make::State(state) => Some((state.store.clone(), state.name.clone())),
        _ => None,
    };
    if let Make::State(State { name, .. }) = found
        && let Some(other) = earlier.iter().find(|field| place(&field.make) == place(found))
    {
        let message = format!(
            "the field `{}` already stores the state {name:?}: two fields cannot share it",
            other.ident
        );
        errors.at(attribute, message);
    }
}
