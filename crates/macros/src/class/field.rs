//! What stands on the fields: `#[state("name")]` and `#[context]`.

use syn::{Attribute, Field, FieldsNamed, Ident, LitStr, Type};

use super::attributes;
use crate::errors::Errors;
use crate::names;

/// How a field is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Make {
    /// Bound to the system store under this name.
    State(String),
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
    let mut make = Make::Default;
    for attribute in &field.attrs {
        attributes::refuse_on_field(attribute, errors);
        let Some(found) = errors.take(of_attribute(attribute)).flatten() else { continue };
        if make != Make::Default {
            errors.at(attribute, "a field is one state or the context, and only once");
        }
        check_new(&found, attribute, earlier, errors);
        make = found;
    }
    make
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
