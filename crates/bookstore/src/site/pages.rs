//! The fourteen pages: what each asks of the database, and how it looks.

pub(super) mod admin;
pub(super) mod browse;
pub(super) mod cart;
pub(super) mod checkout;
pub(super) mod orders;
pub(super) mod search;
