//! TPC-W, the benchmark of an online bookstore: the shop as a real web application over a real database,
//! and the emulated browsers that visit it.
//!
//! The shop and its visitors share only [`interaction`], which pages there are and where, and [`names`],
//! who and what is in the shop. They meet over HTTP, so that anything may stand between them, and between
//! the shop and its database. This crate knows no gate.

pub mod browse;
pub mod calendar;
pub mod check;
pub mod interaction;
pub mod mixes;
pub mod money;
pub mod names;
pub mod populate;
pub mod schema;
pub mod site;

mod database;
mod error;

pub use database::DatabaseError;
pub use error::Error;
