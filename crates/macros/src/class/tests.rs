use quote::quote;

use super::*;

fn expansion(item: TokenStream) -> String {
    expand(item).unwrap().to_string().replace(' ', "")
}

fn complaint(item: TokenStream) -> String {
    let error = expand(item).map(|tokens| tokens.to_string()).unwrap_err();
    let complaints: Vec<String> = error.into_iter().map(|e| e.to_string()).collect();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    complaints.concat()
}

#[test]
fn fields_are_made_each_in_its_way() {
    let out = expansion(quote! {
        struct CounterGrain {
            #[state("total")]
            total: Persistent<u64>,
            #[context]
            ctx: Ctx,
            seen: Vec<u8>,
            #[state("log")]
            log: Persistent<Vec<String>>,
        }
    });
    let create = "Ok(Self{total:::emmer::__rt::Persistent::bound(ctx,const{&::emmer::__rt::StateSpec::new(\"total\")}),ctx:::core::convert::From::from(<::emmer::__rt::Ctxas::core::clone::Clone>::clone(ctx)),\
                  seen:<Vec<u8>as::emmer::__rt::FieldDefault>::make(),\
                  log:::emmer::__rt::Persistent::bound(ctx,const{&::emmer::__rt::StateSpec::new(\"log\")}),})";
    assert!(out.contains(create), "{out}");
    assert!(
        out.contains(
            "Persistent::read(&mutself.total).await?;::emmer::__rt::Persistent::read(&mutself.log).await?;"
        ),
        "{out}"
    );
    assert!(out.contains("constHAS_STATE:bool=true;"), "{out}");
}

#[test]
fn attributes_of_the_class_become_constants() {
    let plain = expansion(quote!(
        struct CounterGrain;
    ));
    assert!(!plain.contains("fnplacement"), "{plain}");
    assert!(
        plain.contains("Option<::core::time::Duration>=::core::option::Option::None;"),
        "{plain}"
    );
    assert!(plain.contains("constHAS_STATE:bool=false;"), "{plain}");

    assert!(!plain.contains("WORKERS_MAX"), "{plain}");
    for (placement, max) in [(quote!(stateless_worker), 0), (quote!(stateless_worker = 8), 8)] {
        let workers = expansion(quote!(
            #[placement(#placement)]
            struct CounterGrain;
        ));
        assert!(workers.contains("Some(::emmer::__rt::Strategy::PreferLocal),"), "{workers}");
        let said = format!(
            "constWORKERS_MAX:::core::option::Option<usize>=::core::option::Option::Some({max}usize);"
        );
        assert!(workers.contains(&said), "{workers}");
    }

    let rich = expansion(quote! {
        #[placement(prefer_local)]
        #[grain(idle = "90s")]
        struct CounterGrain {}
    });
    assert!(rich.contains("Some(::emmer::__rt::Strategy::PreferLocal),"), "{rich}");
    assert!(rich.contains("Some(::core::time::Duration::from_millis(90000u64))"), "{rich}");

    let picky = expansion(quote! {
        #[placement("near", Region { zone: 7 }, require("disk" = "ssd", "zone"), prefer("gpu"))]
        struct CounterGrain;
    });
    for said in [
        "Strategy::custom_with(\"near\",&(Region{zone:7}))?",
        "SiloFilter::require(\"disk\",\"ssd\"),",
        "SiloFilter::require_same(\"zone\"),",
        "SiloFilter::require_same(\"gpu\").preferred()",
    ] {
        assert!(picky.contains(said), "{picky}");
    }
    let only = expansion(quote! {
        #[placement(prefer("disk" = "ssd"))]
        struct CounterGrain;
    });
    assert!(only.contains("strategy:::core::option::Option::None,"), "{only}");
}

#[test]
fn other_derives_attributes_are_left_alone() {
    let item = quote! {
        #[serde(deny_unknown_fields)]
        /// A comment.
        struct CounterGrain {
            #[serde(skip)]
            n: u8,
        }
    };
    assert!(expand(item).is_ok());
}

#[test]
fn generic_classes_own_what_they_hold() {
    let out = expansion(quote!(
        struct Cache<T: Send + Sync + 'static>
        where
            T: Default,
        {
            value: T,
        }
    ));
    assert!(
        out.contains("impl<T:Send+Sync+'static>::emmer::__rt::GrainforCache<T>whereT:Default,{"),
        "{out}"
    );
    assert!(
        expand(quote!(
            struct Cache<T: Send>
            where
                T: 'static,
            {
                value: T,
            }
        ))
        .is_ok()
    );
    assert!(
        expand(quote!(
            struct Cache<const N: usize> {}
        ))
        .is_ok()
    );
    assert!(
        complaint(quote!(
            struct Cache<T: Send> {
                value: T,
            }
        ))
        .contains("write `T: Send + Sync + 'static`")
    );
    assert!(
        complaint(quote!(
            struct Cache<'a> {
                value: &'a str,
            }
        ))
        .contains("types without lifetimes")
    );
}

#[test]
fn only_structs_with_names_are_classes() {
    assert!(
        complaint(quote!(
            enum CounterGrain {}
        ))
        .contains("put the enum into a field")
    );
    assert!(complaint(quote!(union CounterGrain { a: u8 })).contains("not a union"));
    assert!(
        complaint(quote!(
            struct CounterGrain(u8);
        ))
        .contains("give these names")
    );
}

#[test]
fn state_is_named_once() {
    let of = |fields: TokenStream| complaint(quote!(struct CounterGrain { #fields }));
    assert!(of(quote!(#[state] a: P)).contains("#[state(\"total\")]"));
    assert!(of(quote!(#[state(total)] a: P)).contains("#[state(\"total\")]"));
    assert!(of(quote!(#[state("")] a: P)).contains("is empty"));
    assert!(
        of(quote!(#[state("x")] a: P, #[state("x")] b: P))
            .contains("the field `a` already stores the state \"x\"")
    );
    assert!(of(quote!(#[state("x")] #[context] a: P)).contains("only once"));
    assert!(of(quote!(#[context("x")] a: P)).contains("write `#[context]`"));
    assert!(of(quote!(#[placement(random)] a: P)).contains("belongs above the struct"));
}

#[test]
fn class_attributes_are_checked() {
    let of = |attributes: TokenStream| complaint(quote!(#attributes struct CounterGrain;));
    assert!(
        of(quote!(#[placement(nearest)]))
            .contains("no placement strategy `nearest`: write `#[placement(random)]`")
    );
    assert!(of(quote!(#[placement])).contains("name one placement strategy"));
    assert!(of(quote!(#[placement(random, random)])).contains("name one placement strategy"));
    assert!(of(quote!(#[placement(random)] #[placement(random)])).contains("one placement"));
    for wrong in [quote!(""), quote!("a" "b"), quote!("a",), quote!("a", "b", "c")] {
        assert!(of(quote!(#[placement(#wrong)])).contains("named, and told one value"), "{wrong}");
    }
    for wrong in [quote!(), quote!(= ""), quote!(= front), quote!(("front")), quote!(= "a", "b")] {
        let said = of(quote!(#[placement(silo_role #wrong)]));
        assert!(said.contains("say which role a silo needs"), "{wrong}: {said}");
    }
    for wrong in [quote!(= 0), quote!(= -1), quote!(= "8"), quote!((8)), quote!(= 1_025), quote!(8)]
    {
        let said = of(quote!(#[placement(stateless_worker #wrong)]));
        assert!(said.contains("say how many workers of a grain"), "{wrong}: {said}");
    }
    for wrong in [
        quote!(require),
        quote!(require()),
        quote!(random, prefer(zone)),
        quote!(require("zone" = 7)),
        quote!("a", require("" = "x")),
    ] {
        let said = of(quote!(#[placement(#wrong)]));
        assert!(said.contains("for a value of the silo's metadata"), "{wrong}: {said}");
    }
    let stateful = quote!(
        #[placement(stateless_worker)]
        struct CounterGrain {
            #[state("total")]
            total: Persistent<u64>,
        }
    );
    assert!(complaint(stateful).contains("a stateless worker has no state in the store"));
    let stateful = quote!(
        #[placement(stateless_worker)]
        struct CounterGrain {
            #[journal("total")]
            total: Journal<u64, u64>,
        }
    );
    assert!(complaint(stateful).contains("a stateless worker has no state in the store"));
    for reentrant in [quote!(reentrant), quote!(call_chain_reentrancy)] {
        let said = of(quote!(#[placement(stateless_worker)] #[grain(#reentrant)]));
        assert!(said.contains("runs one call at a time"), "{said}");
    }
    let said = of(quote!(#[placement(stateless_worker)] #[grain(active_max = 10)]));
    assert!(said.contains("`#[placement(stateless_worker = 8)]`"), "{said}");
    assert!(of(quote!(#[grain(idle = "10 minutes")])).contains("`idle = \"10m\"`"));
    assert!(of(quote!(#[grain(idle = 10)])).contains("`idle = \"10m\"`"));
    assert!(of(quote!(#[grain(idle = "1s", idle = "2s")])).contains("twice"));
    assert!(of(quote!(#[grain(sticky)])).contains("knows `idle = \"10m\"`, `reentrant`"));
    assert!(of(quote!(#[state("x")])).contains("on a field"));
}
