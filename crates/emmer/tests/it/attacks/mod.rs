//! Attacks on the book's promises, through the public interface only: callers that give up at any
//! moment, panics in every place, circles, limits, strangers, silos that leave.
#![allow(clippy::type_complexity, reason = "a test")]

mod bounds;
mod callers;
mod circles;
mod deep;
#[cfg(feature = "test")]
mod drops;
#[cfg(feature = "test")]
mod hooks;
mod idle;
mod imp;
mod inside;
mod leaving;
mod lives;
#[cfg(feature = "test")]
mod lost;
mod operators;
#[cfg(feature = "test")]
mod reminders;
mod rings;
mod rows;
#[cfg(feature = "test")]
mod state;
mod storm;
#[cfg(feature = "test")]
mod trouble;
#[cfg(feature = "certs")]
mod unread;
#[cfg(feature = "test")]
mod virt;
