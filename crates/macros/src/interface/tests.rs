use quote::quote;

use super::*;

fn key() -> TokenStream {
    quote!(key = String)
}

/// The expansion as text without spaces, so that a test can look for pieces of it.
fn expansion(item: TokenStream) -> String {
    expand(key(), item).unwrap().to_string().replace(' ', "")
}

fn complaints(args: TokenStream, item: TokenStream) -> Vec<String> {
    let error = expand(args, item).map(|tokens| tokens.to_string()).unwrap_err();
    error.into_iter().map(|e| e.to_string()).collect()
}

/// The one complaint about an interface with this one item.
fn complaint(item: &str) -> String {
    let item: TraitItem = syn::parse_str(item).unwrap();
    let complaints = complaints(key(), quote!(trait Counter { #item }));
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    complaints.concat()
}

fn assert_refused(items: &[(&str, &str)]) {
    for (item, words) in items {
        let complaint = complaint(item);
        assert!(complaint.contains(words), "{item}: {complaint}");
    }
}

fn counter() -> TokenStream {
    quote! {
        /// Counts.
        pub(crate) trait Counter: Send {
            /// Adds.
            #[must_use]
            async fn add(&mut self, n: u64, #[serde(default)] note: Option<String>) -> Result<u64, Full>;
            #[cfg(feature = "read")]
            async fn total(&self) -> u64;
            async fn r#move(&mut self);
        }
    }
}

#[test]
fn methods_become_send_futures_and_the_trait_stays_nameable() {
    let out = expansion(counter());
    assert!(out.contains("pub(crate)traitCounter:Send{"), "{out}");
    assert!(
        out.contains(
            "#[doc=r\"Adds.\"]#[must_use]fnadd(&mutself,n:u64,note:Option<String>)\
             ->impl::core::future::Future<Output=Result<u64,Full>>+::core::marker::SendwhereSelf:::core::marker::Sized;"
        ),
        "{out}"
    );
}

#[test]
fn arguments_become_a_struct_with_the_visibility_of_the_trait() {
    let out = expansion(counter());
    assert!(out.contains("pub(crate)structCounterAddArgs{"), "{out}");
    assert!(out.contains("pub(crate)note:Option<String>"), "{out}");
    assert!(out.contains("None=>::core::default::Default::default(),__note=>"), "{out}");
    assert!(out.contains("pub(crate)structCounterTotalArgs{}"), "{out}");
}

#[test]
fn serde_reads_arguments_that_say_more_than_that_they_have_a_default() {
    let out = expansion(quote! {
        trait Counter {
            async fn add(&mut self, #[serde(alias = "old")] n: u64, #[serde(default)] note: String);
        }
    });
    assert!(out.contains("#[serde(alias=\"old\")]n:u64"), "{out}");
    assert!(out.contains("#[serde(default)]note:String"), "{out}");
    assert!(out.contains("::emmer::__rt::encode_into(out,self)"), "{out}");
    assert!(out.contains("::emmer::__rt::decode(body)"), "{out}");
}

#[test]
fn a_result_is_split_and_anything_else_is_not() {
    let out = expansion(counter());
    assert!(out.contains("typeOutput=Result<u64,Full>;typeOk=u64;typeErr=Full;"), "{out}");
    assert!(out.contains("typeOutput=u64;typeOk=u64;typeErr=::emmer::__rt::NoError;"), "{out}");
    assert!(out.contains("typeOutput=();typeOk=();"), "{out}");
}

#[test]
fn numbers_and_names_come_from_the_source() {
    let out = expansion(counter());
    assert!(out.contains("name32(\"Counter.add\")"), "{out}");
    assert!(
        out.contains("constNAME:&'staticstr=\"move\";"),
        "raw identifiers travel without r#: {out}"
    );
    assert!(out.contains("constGRAIN_TYPE:&'staticstr=\"counter\";"), "{out}");
    let named = expand(quote!(key = u64, grain = "tally"), counter()).unwrap().to_string();
    assert!(named.contains("GRAIN_TYPE : & 'static str = \"tally\""), "{named}");
}

#[test]
fn turns_are_exclusive_for_mut_self_only() {
    let out = expansion(counter());
    assert_eq!(out.matches("activation.admit_exclusive()").count(), 2);
    assert_eq!(out.matches("activation.admit_shared()").count(), 1);
    assert!(
        out.contains("<__ClassasCounter>::add(admitted.grain(),args.n,args.note).await"),
        "{out}"
    );
    assert!(out.contains("<__ClassasCounter>::total(admitted.grain()).await"), "{out}");
}

#[test]
fn what_interleaves_is_admitted_in_its_own_way() {
    let expanded = expand(
        quote!(key = u64),
        quote!(
            trait Feed {
                #[always_interleave]
                async fn count(&self) -> u64;
                async fn next(this: Interleaved<Self>, known: u64) -> u64;
            }
        ),
    );
    let out: String = expanded.unwrap().to_string().split_whitespace().collect();
    assert_eq!(out.matches("activation.admit_past()").count(), 1);
    assert_eq!(out.matches("activation.admit_interleaved()").count(), 1);
    assert!(out.contains("fnnext(this:Interleaved<Self>,known:u64)"), "{out}");
    assert!(out.contains("fnnext(&self,known:u64)"), "callers call it on the reference: {out}");
    assert!(!out.contains("always_interleave"), "{out}");
    let refused = expand(
        quote!(key = u64),
        quote!(
            trait Feed {
                #[always_interleave]
                async fn count(&mut self) -> u64;
            }
        ),
    );
    assert!(refused.unwrap_err().to_string().contains("takes `&self`"));
}

#[test]
fn callers_see_docs_and_conditions_but_not_other_attributes() {
    let out = expansion(counter());
    let caller = "#[doc=r\"Adds.\"]#[allow(clippy::too_many_arguments)]pub(crate)fnadd(&self,n:u64,note:Option<String>)";
    assert!(out.contains(caller), "{out}");
    // On the trait's method, its arguments, a check of its return type, their impl, the caller's
    // method and the list entry.
    assert_eq!(out.matches("#[cfg(feature=\"read\")]").count(), 6, "{out}");
}

#[test]
fn a_user_may_give_own_advice() {
    let item = quote! {
        #[diagnostic::on_unimplemented(message = "mine")]
        trait Counter {}
    };
    assert_eq!(expansion(item).matches("on_unimplemented").count(), 1);
}

#[test]
fn attribute_arguments_are_checked() {
    let of = |args: TokenStream| {
        complaints(
            args,
            quote!(
                trait Counter {}
            ),
        )
        .concat()
    };
    assert!(of(quote!()).contains("`#[grain_interface(key = String)]`"));
    assert!(of(quote!(key)).contains("`#[grain_interface(key = String)]`"));
    assert!(of(quote!(key = "String")).contains("without quotes"));
    assert!(of(quote!(key = u64, key = u64)).contains("said twice"));
    assert!(of(quote!(key = u64, grain = tally)).contains("as a text"));
    assert!(of(quote!(key = u64, grain = "a b")).contains("cannot hold ' '"));
    assert!(
        of(quote!(key = u64, name = "tally"))
            .contains("knows `key = Type`, `grain = \"name\"`, `version = 2`,")
    );
    assert!(of(quote!(key = u64, internal = true)).contains("stands alone"));
    assert!(of(quote!(key = u64, internal, internal)).contains("said twice"));
    let on_struct = complaints(
        key(),
        quote!(
            struct Counter;
        ),
    )
    .concat();
    assert!(on_struct.contains("belongs on a trait"));
}

#[test]
fn the_trait_is_checked() {
    let of = |item: TokenStream| complaints(key(), item).concat();
    assert!(
        of(quote!(
            trait Counter<T> {}
        ))
        .contains("one interface per type")
    );
    assert!(
        of(quote!(
            trait Counter
            where
                Self: Copy,
            {
            }
        ))
        .contains("no where clause")
    );
    assert!(
        of(quote!(
            unsafe trait Counter {}
        ))
        .contains("remove `unsafe`")
    );
    assert!(
        of(quote!(
            trait Counter: Clone {}
        ))
        .contains("no supertraits")
    );
    assert!(
        expand(
            key(),
            quote!(
                trait Counter: Send + Sync + 'static {}
            )
        )
        .is_ok()
    );
    assert_refused(&[
        ("type Item;", "only async methods"),
        ("const N: u64;", "only async methods"),
    ]);
}

#[test]
fn methods_are_checked() {
    let refused = [
        ("async fn add<T>(&self, t: T);", "cannot be generic"),
        ("async fn add<'a>(&self);", "cannot be generic"),
        ("fn add(&self);", "write `async fn`"),
        ("async unsafe fn add(&self);", "unsafe"),
        ("async fn add(self);", "cannot be taken by value"),
        ("async fn add(self: Box<Self>);", "cannot be taken by value"),
        ("async fn add(&'static self);", "no lifetime on its receiver"),
        ("async fn add();", "called on a grain"),
        ("async fn add(&self) {}", "end the line with `;`"),
        ("async fn grain_id(&self);", "`get_grain_id`"),
        ("async fn add(&self) -> io::Result<u64>;", "`Result<u64, E>`"),
        ("async fn add(&self) -> &str;", "write `String` instead of `&str`"),
    ];
    assert_refused(&refused);
}

#[test]
fn arguments_are_checked() {
    let refused = [
        ("async fn add(&self, (a, b): (u8, u8));", "travel by name"),
        ("async fn add(&self, _: u8);", "travel by name"),
        ("async fn add(&self, mut n: u8);", "write `n` here"),
        ("async fn add(&self, #[cfg(test)] n: u8);", "and comments only"),
        ("async fn add(&self, n: &str);", "instead of `&str`"),
    ];
    assert_refused(&refused);
}

#[test]
fn methods_that_differ_too_little_are_refused() {
    let item = quote!(
        trait Counter {
            async fn add_one(&self);
            async fn add__one(&self);
        }
    );
    assert!(complaints(key(), item).concat().contains("`CounterAddOneArgs`"));
}

#[test]
fn all_mistakes_are_reported_together() {
    let item = quote!(
        trait Counter<T> {
            fn add(self, n: &str);
            const N: u64;
        }
    );
    assert_eq!(complaints(quote!(), item).len(), 6);
}

/// The numbers that callers use, and the older numbers that a class serves.
fn numbers(args: TokenStream) -> (Vec<String>, Vec<String>) {
    let item = quote!(
        trait Counter {
            async fn add(&mut self, n: u64);
        }
    );
    let out = expand(args, item).unwrap().to_string().replace(' ', "");
    let names = |text: &str| {
        let parts = text.split("name32(\"").skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (before, after) = out.split_once("also:").unwrap();
    (names(before), names(after.split("name:").next().unwrap()))
}

#[test]
fn a_version_gives_methods_other_numbers_and_keeps_those_that_it_serves() {
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let cases: [(TokenStream, &str, &[&str]); 6] = [
        (quote!(), "Counter.add", &[]),
        (quote!(, version = 1), "Counter.add", &[]),
        (quote!(, version = 3), "Counter.add@3", &["Counter.add", "Counter.add@2"]),
        (quote!(, version = 2, compatible = "backward"), "Counter.add@2", &["Counter.add"]),
        (quote!(, version = 2, compatible = "strict"), "Counter.add@2", &[]),
        (quote!(, version = 2, compatible = "all"), "Counter.add", &[]),
    ];
    for (args, own, older) in cases {
        let told = args.to_string();
        assert_eq!(numbers(quote!(key = u64 #args)), (text(&[own]), text(older)), "{told}");
    }
    let out = expand(
        quote!(key = u64, version = 7),
        quote!(
            trait Counter {}
        ),
    )
    .unwrap();
    assert!(out.to_string().replace(' ', "").contains("constVERSION:u32=7u32;"), "{out}");
}

#[test]
fn versions_that_are_none_are_refused() {
    for (args, words) in [
        (quote!(version = 0), "a whole number from 1 to 100"),
        (quote!(version = 101), "a whole number from 1 to 100"),
        (quote!(version = "2"), "a whole number from 1 to 100"),
        (quote!(version = 2, version = 2), "said twice"),
        (quote!(compatible = "forward"), "`\"strict\"` (of this version)"),
        (quote!(compatible = strict), "`\"strict\"` (of this version)"),
        (quote!(versions = 2), "knows `key = Type`"),
    ] {
        let told = complaints(
            quote!(key = u64, #args),
            quote!(
                trait Counter {}
            ),
        );
        assert!(told.len() == 1 && told[0].contains(words), "{args}: {told:?}");
    }
}
