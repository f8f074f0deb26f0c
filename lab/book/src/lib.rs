//! The code on the pages of the book. Each page is documentation here, so that its samples are
//! compiled and run as doctests, with the dependencies that an application may have. It is a
//! package of its own because a published package holds no page.

#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/admin.md")]
    struct Admin;

    #[doc = include_str!("../../../docs/calls.md")]
    struct Calls;

    #[doc = include_str!("../../../docs/clients.md")]
    struct Clients;

    #[doc = include_str!("../../../docs/concurrency.md")]
    struct Concurrency;

    #[doc = include_str!("../../../docs/directors.md")]
    struct Directors;

    #[doc = include_str!("../../../docs/filters.md")]
    struct Filters;

    #[doc = include_str!("../../../docs/getting-started.md")]
    struct GettingStarted;

    #[doc = include_str!("../../../docs/grains.md")]
    struct Grains;

    #[doc = include_str!("../../../docs/moving.md")]
    struct Moving;

    #[doc = include_str!("../../../docs/observability.md")]
    struct Observability;

    #[doc = include_str!("../../../docs/observers.md")]
    struct Observers;

    #[doc = include_str!("../../../docs/operations.md")]
    struct Operations;

    #[doc = include_str!("../../../docs/placement.md")]
    struct Placement;

    #[doc = include_str!("../../../docs/recipes.md")]
    struct Recipes;

    #[doc = include_str!("../../../docs/reminders.md")]
    struct Reminders;

    #[doc = include_str!("../../../docs/records.md")]
    struct Records;

    #[doc = include_str!("../../../docs/shop.md")]
    struct Shop;

    #[doc = include_str!("../../../docs/state.md")]
    struct State;

    #[doc = include_str!("../../../docs/streams.md")]
    struct Streams;

    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;

    #[doc = include_str!("../../../docs/tls.md")]
    struct Tls;

    #[doc = include_str!("../../../docs/versions.md")]
    struct Versions;
}
