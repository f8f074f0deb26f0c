//! The types that may travel: those of arguments and of return values.

use quote::{ToTokens, quote};
use syn::visit::{self, Visit};
use syn::{GenericArgument, Lifetime, PathArguments, ReturnType, Type};

use crate::errors::Errors;

/// Place of a type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Argument,
    Return,
}

impl Place {
    const fn plural(self) -> &'static str {
        match self {
            Self::Argument => "arguments",
            Self::Return => "return values",
        }
    }
}

/// Reports everything in `ty` that cannot travel between silos, whatever it means.
pub(crate) fn check(ty: &Type, place: Place, errors: &mut Errors) {
    Travel { place, errors }.visit_type(ty);
}

struct Travel<'a> {
    place: Place,
    errors: &'a mut Errors,
}

impl<'ast> Visit<'ast> for Travel<'_> {
    fn visit_type(&mut self, ty: &'ast Type) {
        let what = self.place.plural();
        match ty {
            Type::Reference(reference) => {
                let owned = owned(&reference.elem);
                let given = text(ty);
                let message = format!(
                    "{what} travel between silos and cannot be borrowed: write `{owned}` instead \
                     of `{given}`"
                );
                self.errors.at(ty, message);
            }
            Type::ImplTrait(_) => {
                let message = format!(
                    "{what} are encoded by both sides and need one type: name it instead of `impl \
                     ..`"
                );
                self.errors.at(ty, message);
            }
            Type::TraitObject(_) => {
                let message = format!(
                    "{what} travel between silos as data: `dyn ..` cannot, use a struct or an enum"
                );
                self.errors.at(ty, message);
            }
            Type::Infer(_) => {
                self.errors.at(
                    ty,
                    format!("{what} of an interface need their type written out instead of `_`"),
                );
            }
            Type::Path(path) if path.qself.is_none() && path.path.is_ident("Self") => {
                let message = format!(
                    "{what} cannot be the grain itself: pass its key or a part of its state"
                );
                self.errors.at(ty, message);
            }
            // It names an interface, as data.
            Type::Path(path)
                if path.path.segments.last().is_some_and(|last| last.ident == "ObserverRef") => {}
            _ => visit::visit_type(self, ty),
        }
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        let what = self.place.plural();
        self.errors.at(
            lifetime,
            format!(
                "{what} travel between silos and cannot borrow: use a type without `{lifetime}`"
            ),
        );
    }
}

/// Type to write instead of a borrow of `ty`.
fn owned(ty: &Type) -> String {
    if let Type::Slice(slice) = ty {
        return format!("Vec<{}>", text(&slice.elem));
    }
    match text(ty).as_str() {
        "str" => "String".to_owned(),
        "Path" => "PathBuf".to_owned(),
        other => other.to_owned(),
    }
}

/// A type as a person would write it.
pub(crate) fn text(tokens: &impl ToTokens) -> String {
    let mut out = tokens.to_token_stream().to_string();
    let tight = [
        (" < ", "<"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :: ", "::"),
        ("& ", "&"),
        ("[ ", "["),
        (" ]", "]"),
        ("( ", "("),
        (" )", ")"),
        (" ;", ";"),
    ];
    for (loose, close) in tight {
        out = out.replace(loose, close);
    }
    out
}

/// `T` of `Sink<T>`, or of `Source<T>`. Only the name is visible here.
pub(crate) fn of_stream(ty: &Type, name: &str) -> Option<Type> {
    let Type::Path(path) = bare(ty) else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match (arguments.args.first(), arguments.args.len()) {
        (Some(GenericArgument::Type(ty)), 1) => Some(ty.clone()),
        _ => None,
    }
}

/// A method's return type as the caller sees it.
#[derive(Debug)]
pub(crate) struct Output {
    /// All of it.
    pub(crate) whole: Type,
    /// `T` and `E` of `Result<T, E>`.
    pub(crate) result: Option<(Type, Type)>,
}

/// Takes a return type apart.
pub(crate) fn output(declared: &ReturnType) -> syn::Result<Output> {
    let whole = match declared {
        ReturnType::Default => syn::parse2(quote!(()))?,
        ReturnType::Type(_, ty) => bare(ty).clone(),
    };
    let result = result_types(&whole)?;
    Ok(Output { whole, result })
}

/// The type without the brackets a macro or a careful person put around it.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        other => other,
    }
}

/// Returns true if this is `emmer::Result`.
fn is_emmer(path: &syn::Path) -> bool {
    path.segments.len() == 2 && path.segments.first().is_some_and(|first| first.ident == "emmer")
}

/// The two types of a `Result`. Only its name is visible here, so an alias that hides one of them
/// is refused.
fn result_types(ty: &Type) -> syn::Result<Option<(Type, Type)>> {
    let Type::Path(path) = ty else { return Ok(None) };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Result") else {
        return Ok(None);
    };
    let mut types = Vec::new();
    if let PathArguments::AngleBracketed(arguments) = &last.arguments {
        types.extend(arguments.args.iter().filter_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty.clone()),
            _ => None,
        }));
    }
    let mut types = types.into_iter();
    match (types.next(), types.next(), types.next()) {
        (Some(ok), Some(err), None) => Ok(Some((ok, err))),
        (Some(ok), None, None) if is_emmer(&path.path) => {
            Ok(Some((ok, syn::parse2(quote!(::emmer::Error))?)))
        }
        (first, ..) => {
            let ok = first.map_or_else(|| "T".to_owned(), |first| text(&first));
            let message = format!(
                "the error type reaches the caller and must be visible here: write both types, \
                 `Result<{ok}, E>`, or `emmer::Result<{ok}>` for any error"
            );
            Err(syn::Error::new_spanned(ty, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn complaints(ty: &Type) -> Vec<String> {
        let mut errors = Errors::default();
        check(ty, Place::Argument, &mut errors);
        errors
            .finish()
            .err()
            .map(|e| e.into_iter().map(|e| e.to_string()).collect())
            .unwrap_or_default()
    }

    #[test]
    fn borrowed_types_are_named_with_their_owned_ones() {
        let pairs: [(Type, &str); 5] = [
            (parse_quote!(&str), "write `String` instead of `&str`"),
            (parse_quote!(&'static str), "write `String` instead of `&'static str`"),
            (parse_quote!(&[u8]), "write `Vec<u8>` instead of `&[u8]`"),
            (parse_quote!(Option<&Order>), "write `Order` instead of `&Order`"),
            (
                parse_quote!(&mut HashMap<u8, u8>),
                "write `HashMap<u8, u8>` instead of `&mut HashMap<u8, u8>`",
            ),
        ];
        for (ty, advice) in pairs {
            let complaints = complaints(&ty);
            assert_eq!(complaints.len(), 1, "{complaints:?}");
            assert!(complaints[0].ends_with(advice), "{complaints:?}");
        }
    }

    #[test]
    fn what_cannot_travel_is_refused() {
        let bad: [Type; 5] = [
            parse_quote!(impl Into<String>),
            parse_quote!(Box<dyn Fn()>),
            parse_quote!(Vec<_>),
            parse_quote!(Cow<'static, str>),
            parse_quote!(Option<Self>),
        ];
        for ty in bad {
            assert_eq!(complaints(&ty).len(), 1, "{}", text(&ty));
        }
        let good: Type = parse_quote!(BTreeMap<String, Vec<(u64, [u8; 4])>>);
        assert!(complaints(&good).is_empty());
    }

    #[test]
    fn results_split_into_their_types() {
        let split =
            |ty: Type| result_types(&ty).map(|r| r.map(|(ok, err)| (text(&ok), text(&err))));
        assert_eq!(split(parse_quote!(u64)).unwrap(), None);
        assert_eq!(
            split(parse_quote!(Result<u64, Full>)).unwrap(),
            Some(("u64".into(), "Full".into()))
        );
        assert_eq!(
            split(parse_quote!(std::result::Result<Vec<u8>, a::Full>)).unwrap(),
            Some(("Vec<u8>".into(), "a::Full".into()))
        );
        let alias = split(parse_quote!(io::Result<Vec<u8>>)).unwrap_err().to_string();
        assert!(alias.contains("write both types, `Result<Vec<u8>, E>`"), "{alias}");
        let none = split(parse_quote!(fmt::Result)).unwrap_err().to_string();
        assert!(none.contains("`Result<T, E>`"), "{none}");
        assert_eq!(
            split(parse_quote!(emmer::Result<u64>)).unwrap(),
            Some(("u64".into(), ":: emmer::Error".into()))
        );
    }

    #[test]
    fn a_return_type_may_be_absent_or_in_brackets() {
        assert_eq!(text(&output(&ReturnType::Default).unwrap().whole), "()");
        let bracketed: ReturnType = parse_quote!(-> (Result<u8, E>));
        assert!(output(&bracketed).unwrap().result.is_some());
    }
}
