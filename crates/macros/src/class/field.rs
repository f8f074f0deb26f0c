//! The attributes of fields: `#[state("name")]`, `#[journal("name")]`, `#[service]`, `#[carry]` and
//! `#[context]`.

use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Field, FieldsNamed, Ident, LitInt, LitStr, Meta, Token, Type};

use super::attributes;
use crate::errors::Errors;
use crate::names;

/// Way in which a field is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Make {
    /// Bound to a store.
    State(State),
    /// As a state, with events.
    Journal(Journal),
    /// A service of the silo.
    Service,
    /// A copy of the grain's context.
    Context,
    /// By `Default`, or from the silo that the grain comes from.
    Carry,
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

/// The words of `#[journal("account", snapshot = 50, keep = 1000)]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) state: State,
    /// Appends between two snapshots.
    pub(crate) snapshot: Option<u64>,
    /// Appends that are kept.
    pub(crate) keep: Option<u64>,
}

impl Parse for State {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        const HOW: &str = "under which name is the state stored? Write `#[state(\"total\")]`";
        const MORE: &str = "behind its name a state has `store = \"archive\"` and `version = 2`";
        let state = Self::named(input, HOW, "a state's")?;
        words(input, state, MORE, |state, key, input| state.word(key, input, MORE))
    }
}

impl Parse for Journal {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        const HOW: &str = "under which name is the journal stored? Write `#[journal(\"account\")]`";
        const MORE: &str = "behind its name a journal has `snapshot = 100` (appends between two \
            snapshots), `keep = 1000` (appends that are kept), `store = \"archive\"` and \
            `version = 2`";
        let state = State::named(input, HOW, "a journal's")?;
        let journal = Self { state, snapshot: None, keep: None };
        words(input, journal, MORE, |journal, key, input| {
            let number = match () {
                () if key == "snapshot" => &mut journal.snapshot,
                () if key == "keep" => &mut journal.keep,
                () => return journal.state.word(key, input, MORE),
            };
            let literal: LitInt = input.parse()?;
            let count = literal.base10_parse().ok().filter(|count| *count > 0);
            let wrong = "a number of appends is a whole number from 1";
            let count = count.ok_or_else(|| syn::Error::new(literal.span(), wrong))?;
            if number.replace(count).is_some() {
                return Err(syn::Error::new(key.span(), MORE));
            }
            Ok(())
        })
    }
}

/// The words behind the name, each as `key = value`.
fn words<T>(
    input: ParseStream<'_>,
    mut found: T,
    more: &str,
    word: impl Fn(&mut T, &Ident, ParseStream<'_>) -> syn::Result<()>,
) -> syn::Result<T> {
    while !input.is_empty() {
        let wrong = |e: syn::Error| syn::Error::new(e.span(), more);
        input.parse::<Token![,]>().map_err(wrong)?;
        let key: Ident = input.parse().map_err(wrong)?;
        input.parse::<Token![=]>().map_err(wrong)?;
        word(&mut found, &key, input)?;
    }
    Ok(found)
}

impl State {
    fn named(input: ParseStream<'_>, how: &str, whose: &str) -> syn::Result<Self> {
        let literal: LitStr = input.parse().map_err(|e| syn::Error::new(e.span(), how))?;
        let name = names::stored_name(&literal, whose)?;
        Ok(Self { name, store: None, version: None })
    }

    fn word(&mut self, key: &Ident, input: ParseStream<'_>, more: &str) -> syn::Result<()> {
        let wrong = |e: syn::Error| syn::Error::new(e.span(), more);
        if key == "store" && self.store.is_none() {
            let literal: LitStr = input.parse().map_err(wrong)?;
            self.store = Some(names::stored_name(&literal, "a store's")?);
        } else if key == "version" && self.version.is_none() {
            let literal: LitInt = input.parse().map_err(wrong)?;
            let version = literal.base10_parse().ok().filter(|version| *version > 0);
            let wrong = "a version is a whole number from 1: `version = 2`";
            self.version = Some(version.ok_or_else(|| syn::Error::new(literal.span(), wrong))?);
        } else {
            return Err(syn::Error::new(key.span(), more));
        }
        Ok(())
    }
}

impl Make {
    /// Returns true if the field moves with its grain.
    pub(crate) const fn is_carried(&self) -> bool {
        matches!(self, Self::State(_) | Self::Journal(_) | Self::Carry)
    }

    /// State or journal of the field.
    pub(crate) const fn stored(&self) -> Option<&State> {
        match self {
            Self::State(state) | Self::Journal(Journal { state, .. }) => Some(state),
            _ => None,
        }
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

/// The attributes of fields.
pub(super) const MARKS: [&str; 5] = ["state", "journal", "service", "context", "carry"];

fn make(field: &Field, earlier: &[ClassField], errors: &mut Errors) -> Make {
    let (mut make, mut is_marked) = (Make::Default, false);
    for attribute in &field.attrs {
        attributes::refuse_on_field(attribute, errors);
        is_marked |= MARKS.iter().any(|mark| attribute.path().is_ident(mark));
        let Some(found) = errors.take(of_attribute(attribute)).flatten() else { continue };
        if make != Make::Default {
            errors.at(
                attribute,
                "a field is one state, journal, service, carried value or the context, and only once",
            );
        }
        check_new(&found, attribute, earlier, errors);
        check_kind(&found, field, errors);
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
        Some("Journal") => errors.at(
            &field.ty,
            "under which name is this stored? Write `#[journal(\"name\")]` above the field",
        ),
        Some("Ctx") => errors.at(&field.ty, "write `#[context]` above the field"),
        _ => {}
    }
}

/// A state in a field of a journal's type, or the other way round.
fn check_kind(found: &Make, field: &Field, errors: &mut Errors) {
    let message = match (found, type_name(field).as_deref()) {
        (Make::State(_), Some("Journal")) => "a `Journal` is marked `#[journal(\"name\")]`",
        (Make::Journal(_), Some("Persistent")) => "a `Persistent` is marked `#[state(\"name\")]`",
        _ => return,
    };
    errors.at(&field.ty, message);
}

/// Parses an attribute of the field; nothing for one of another macro.
fn of_attribute(attribute: &Attribute) -> syn::Result<Option<Make>> {
    if attribute.path().is_ident("context") {
        let message = "the context has no arguments: write `#[context]`";
        return match attribute.meta.require_path_only() {
            Ok(_) => Ok(Some(Make::Context)),
            Err(_) => Err(syn::Error::new_spanned(attribute, message)),
        };
    }
    if attribute.path().is_ident("carry") {
        let message = "a field moves with its grain as a whole: write `#[carry]`";
        return match attribute.meta.require_path_only() {
            Ok(_) => Ok(Some(Make::Carry)),
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
    if attribute.path().is_ident("journal") {
        return match &attribute.meta {
            Meta::List(list) => list.parse_args().map(|journal| Some(Make::Journal(journal))),
            _ => Err(syn::Error::new_spanned(
                attribute,
                "under which name is the journal stored? Write `#[journal(\"account\")]`",
            )),
        };
    }
    Ok(None)
}

fn check_new(found: &Make, attribute: &Attribute, earlier: &[ClassField], errors: &mut Errors) {
    let place = |make: &Make| make.stored().map(|state| (state.store.clone(), state.name.clone()));
    if let Some(State { name, .. }) = found.stored()
        && let Some(other) = earlier.iter().find(|field| place(&field.make) == place(found))
    {
        let what = if matches!(other.make, Make::Journal(_)) { "journal" } else { "state" };
        let message = format!(
            "the field `{}` already stores the {what} {name:?}: two fields cannot share it",
            other.ident
        );
        errors.at(attribute, message);
    }
}
