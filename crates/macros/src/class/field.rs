//! What stands on the fields: `#[state("name")]`, `#[service]` and `#[context]`.

use syn::{Attribute, Field, FieldsNamed, Ident, LitStr, Type};

use super::attributes;
use crate::errors::Errors;
use crate::names;

/// How a field is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Make {
    /// Bound to the system store under this name.
    State(String),
    /// What the silo was given.
    Service,
    /// A copy of the grain's context.
    Context,
    /// By `Default`.
    Default,
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
        let message = "under which name is the state stored? Write `#[state(\"total\")]`";
        let literal: LitStr =
            attribute.parse_args().map_err(|_| syn::Error::new_spanned(attribute, message))?;
        return names::stored_name(&literal, "a state's").map(|name| Some(Make::State(name)));
    }
    Ok(None)
}

fn check_new(found: &Make, attribute: &Attribute, earlier: &[ClassField], errors: &mut Errors) {
    if let Make::State(name) = found
        && let Some(other) = earlier.iter().find(|field| field.make == *found)
    {
        let message = format!(
            "the field `{}` already stores the state {name:?}: two fields cannot share it",
            other.ident
        );
        errors.at(attribute, message);
    }
}
