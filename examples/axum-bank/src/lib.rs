//! A bank: accounts and transfers as grains, behind a web server made with axum.
//!
//! Emmer has no transactions over several grains, and a transfer needs none: it is a grain of its
//! own that writes down its progress, and each account does a step of a transfer once. `README.md`
//! says how to run it, and how to kill silos under it.

pub mod account;
pub mod api;
pub mod kills;
pub mod transfer;
pub mod web;

/// The grains of a bank: the same for a silo and for a test.
pub fn bank(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn api::Account, account::AccountGrain>()
        .host::<dyn api::Transfer, transfer::TransferGrain>()
}
