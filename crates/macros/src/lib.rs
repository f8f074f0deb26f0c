//! The attribute and derive macros behind the `emmer` facade.
//!
//! * [`macro@grain_interface`] turns a trait with async methods into a grain interface: one
//!   argument struct per method, a reference type for callers, and the list of methods a silo
//!   dispatches to;
//! * [`macro@Grain`] makes a struct a grain class;
//! * [`macro@grain`] goes on the class's implementation of an interface and checks it.
//!
//! The generated code names everything through `::emmer::__rt`, so an application depends on
//! `emmer` alone. A mistake is a compile error at the user's own code that says what to write
//! instead; nothing here panics.

mod class;
mod error_type;
mod errors;
mod implementation;
mod instant;
mod interface;
mod key;
mod main_fn;
mod names;
mod observer;
mod reminders;
mod test;
mod types;

use proc_macro::TokenStream;

/// Makes a trait with async methods a grain interface, named `dyn Trait` where grains are called or
/// hosted.
///
/// ```ignore (needs the facade, whose tests compile it)
/// #[grain_interface(key = String)]
/// pub trait Counter {
///     /// Adds `n` and returns the new total.
///     async fn add(&mut self, n: u64) -> Result<u64, StateError>;
///     /// The total.
///     async fn total(&self) -> u64;
/// }
/// ```
///
/// * `key = T` (required): the type of the grains' keys: an integer, `String`, `Uuid`, a pair of
///   these, or a struct with `#[derive(GrainKey)]`;
/// * `grain = "name"`: the grain type's name, the trait's own in kebab case when absent. It is part
///   of every grain's identity: renaming the trait without it makes other grains of them.
///
/// A method takes `&mut self` (an exclusive turn) or `&self` (a shared turn) and owned arguments,
/// and returns an owned value. `Result<T, E>` reaches the caller as the call's own result and
/// error. Arguments travel by name: trailing ones may be added later under `#[serde(default)]`.
///
/// Besides the trait it makes `CounterRef`, what callers hold, and `CounterAddArgs`,
/// `CounterTotalArgs`: the arguments of each method as they travel.
#[proc_macro_attribute]
pub fn grain_interface(args: TokenStream, item: TokenStream) -> TokenStream {
    interface::expand(args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a trait the interface of observers: what grains tell to clients, and to services of silos.
/// It is named `dyn Trait` where observers are kept or watched.
///
/// ```ignore (needs the facade, whose tests compile it)
/// #[observer]
/// pub trait ChatEvents {
///     /// Somebody has said something.
///     fn said(&self, line: Line);
/// }
/// ```
///
/// A method takes `&self` and owned arguments, which are `Clone`, `Debug` and serde's, and returns
/// nothing. The trait also gets a method `gap` with an empty body: events may be missing there.
///
/// Besides the trait it makes `ChatEventsEvent`, an enum with a variant for each method, and
/// `ChatEventsTell`, which `Observers::tell` lends.
#[proc_macro_attribute]
pub fn observer(args: TokenStream, item: TokenStream) -> TokenStream {
    observer::expand(&args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Stands on `impl Interface for Class`: checks the methods and that the class is one, and leaves
/// the code as it is. A name in `ctx.remind("name")` must have a handler.
///
/// ```ignore (needs the facade, whose tests compile it)
/// #[grain]
/// impl Counter for CounterGrain {
///     async fn add(&mut self, n: u64) -> Result<u64, StateError> {
///         self.total.modify(|t| *t += n);
///         self.total.write().await?;
///         Ok(*self.total)
///     }
///     async fn total(&self) -> u64 {
///         *self.total
///     }
/// }
/// ```
///
/// On `impl Class` it finds the methods that reminders call:
///
/// ```ignore (needs the facade, whose tests compile it)
/// #[grain]
/// impl CounterGrain {
///     #[reminder("reset")]
///     async fn reset(&mut self, tick: Tick) -> Result<(), StateError> {
///         self.total.set(0);
///         self.total.write().await
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn grain(args: TokenStream, item: TokenStream) -> TokenStream {
    implementation::expand(&args.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Marks a method that reminders call, in a block `#[grain] impl Class`: `#[reminder("reset")]`.
#[proc_macro_attribute]
pub fn reminder(_args: TokenStream, item: TokenStream) -> TokenStream {
    reminders::misplaced(&item.into()).into()
}

/// Makes `async fn main() -> emmer::Result<()>` the `main` of a program: on as many threads as the
/// machine has processors. An error becomes the exit code that `emmer::exit` gives it.
///
/// ```ignore (needs the facade, whose tests compile it)
/// #[emmer::main]
/// async fn main() -> emmer::Result<()> {
///     let silo = Silo::builder().store("sqlite://shop.db").start().await?;
///     silo.run_until_stopped().await?;
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    main_fn::expand(&args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes an async function a test in virtual time, with a world of its own:
/// `async fn it_counts(world: emmer::test::World)`.
///
/// It runs once, with the seed 1, or with `#[emmer::test(seeds = 20)]` twenty times. A failure
/// prints the seed; `EMMER_TEST_SEED=7` replays one.
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    test::expand(args.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct with named fields a grain class.
///
/// On the fields:
/// * `#[journal("name", snapshot = 100, keep = 1000)]` on a `Journal<E, S>`: events that are stored
///   one behind the other, and the state that they add up to;
/// * `#[state("name")]` on a `Persistent<T>`: bound to the system store, read before the first
///   call; `#[state("name", store = "archive", version = 2)]`: in a store of its own, of a version;
/// * `#[service]` on an `Arc<T>` or an `Option<Arc<T>>`: what the silo was given by `.service(..)`;
/// * `#[context]` on a `Ctx` or an `Option<Ctx>`: the grain's own context;
/// * every other field is made by `Default`.
///
/// On the struct, below the derive:
/// * `#[placement(random)]` (what holds without it), `#[placement(prefer_local)]`,
///   `#[placement(hash_based)]`, `#[placement(activation_count)]` or
///   `#[placement(resource_optimized)]`: where activations go;
///   `#[placement(silo_role = "front")]`: to a silo of this role;
///   `#[placement(stateless_worker)]` or `#[placement(stateless_worker = 8)]`: where the call comes
///   from, up to so many activations of one grain on each silo;
///   `#[placement("name")]`: where the application's director of this name says, and
///   `#[placement("name", "text")]`: the same, with a text for it;
/// * `#[grain(idle = "10m")]`: how long an activation may be idle, in `ms`, `s`, `m` or `h`;
/// * `#[grain(reentrant)]`: its `&self` methods go past calls that wait for their turn;
/// * `#[grain(call_chain_reentrancy)]`: they do so in a call that comes back to the grain;
/// * `#[grain(name = "gift")]`: one of several classes for its interface, which callers choose by
///   `.of("gift")`;
/// * `#[grain(constructor)]`: a class that is hosted by `host_with`; its fields need no `Default`.
///
/// ```ignore (needs the facade, whose tests compile it)
/// #[derive(Grain)]
/// #[placement(prefer_local)]
/// #[grain(idle = "10m")]
/// struct CounterGrain {
///     #[state("total")]
///     total: Persistent<u64>,
/// }
/// ```
#[proc_macro_derive(Grain, attributes(state, journal, service, context, carry, placement, grain))]
pub fn derive_grain(item: TokenStream) -> TokenStream {
    class::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct with one field, which is a key, a type of key of its own:
/// `#[derive(GrainKey)] struct OrderId(u64);`.
#[proc_macro_derive(GrainKey)]
pub fn derive_key(item: TokenStream) -> TokenStream {
    key::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes an enum the error of a grain's methods: `?` turns failed calls, states and reminders into
/// it.
///
/// ```ignore (needs the facade, whose tests compile it)
/// #[derive(Debug, thiserror::Error, Serialize, Deserialize, GrainError)]
/// enum ShopError {
///     #[error("{0} is sold out")]
///     SoldOut(String),
///     #[error(transparent)]
///     Stock(#[from] StockError),
///     #[error("{0}")]
///     #[other]
///     Other(emmer::Error),
/// }
/// ```
///
/// A call whose own error is this enum returns it. A call whose own error is the type of a field
/// with `#[from]` returns that variant. Everything else becomes the variant marked `#[other]`.
#[proc_macro_derive(GrainError, attributes(from, other))]
pub fn derive_error(item: TokenStream) -> TokenStream {
    error_type::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
