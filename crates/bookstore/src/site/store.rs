//! What the pages ask of the database: all SQL of the shop.
//!
//! Its substance is that of TPC-W's public servlets for PostgreSQL. Amounts come as whole cents, days as
//! text.

pub(super) mod books;
pub(super) mod carts;
pub(super) mod customers;
pub(super) mod orders;
