//! `#[emmer::test]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Expr, ItemFn, Lit, MetaNameValue, Result};

/// The function as a test that runs in virtual time.
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let seeds = seeds(args)?;
    let function: ItemFn = syn::parse2(item)?;
    let name = &function.sig.ident;
    if function.sig.asyncness.is_none() || function.sig.inputs.len() != 1 {
        let text = format!(
            "a test of a world is async and takes it: `async fn {name}(world: emmer::test::World)`"
        );
        return Err(Error::new_spanned(&function.sig, text));
    }
    let attributes = &function.attrs;
    let (inputs, body, output) = (&function.sig.inputs, &function.block, &function.sig.output);
    Ok(quote! {
        #(#attributes)*
        #[::core::prelude::v1::test]
        fn #name() {
            async fn test(#inputs) #output #body
            ::emmer::test::run(concat!(module_path!(), "::", stringify!(#name)), #seeds, |world| async move {
                ::emmer::test::Ended::end(test(world).await);
            });
        }
    })
}

/// Number of seeds that a test runs with.
fn seeds(args: TokenStream) -> Result<u64> {
    if args.is_empty() {
        return Ok(1);
    }
    let expected = "write `#[emmer::test]` or `#[emmer::test(seeds = 20)]`";
    let value: MetaNameValue = syn::parse2(args).map_err(|e| Error::new(e.span(), expected))?;
    match &value.value {
        Expr::Lit(lit) if value.path.is_ident("seeds") => match &lit.lit {
            Lit::Int(number) => number.base10_parse(),
            other => Err(Error::new_spanned(other, expected)),
        },
        _ => Err(Error::new_spanned(value, expected)),
    }
}
