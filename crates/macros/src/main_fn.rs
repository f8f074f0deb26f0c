//! `#[emmer::main]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, Result, ReturnType};

const HOW_TO_WRITE: &str = "write `#[emmer::main] async fn main() -> emmer::Result<()>`";

/// The function as the `main` of a program: on threads of its own, its error as an exit code.
pub(crate) fn expand(args: &TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let signature = &function.sig;
    if !args.is_empty() {
        return Err(Error::new_spanned(args, "#[emmer::main] takes no arguments"));
    }
    let is_whole = signature.asyncness.is_some()
        && signature.inputs.is_empty()
        && signature.generics.params.is_empty()
        && signature.output != ReturnType::Default;
    if !is_whole {
        return Err(Error::new_spanned(signature, HOW_TO_WRITE));
    }
    let (attributes, visibility, name) = (&function.attrs, &function.vis, &signature.ident);
    let (body, output) = (&function.block, &signature.output);
    Ok(quote! {
        #(#attributes)*
        #visibility fn #name() -> ::std::process::ExitCode {
            async fn #name() #output #body
            ::emmer::__run_main(#name())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_main_is_refused_in_words() {
        for item in [
            quote!(
                fn main() -> emmer::Result<()> {}
            ),
            quote!(
                async fn main() {}
            ),
            quote!(
                async fn main(args: u8) -> emmer::Result<()> {}
            ),
        ] {
            let error = expand(&TokenStream::new(), item).unwrap_err().to_string();
            assert_eq!(error, HOW_TO_WRITE);
        }
    }
}
