//! Experiments as data: a plan says what is asked and how, a runner measures its cells and writes each one
//! down, and a report says what came out.
//!
//! `experiments/NAME/plan.toml` is read by [`plan`]; [`runner`] goes through its cells, alternating the
//! variants, in a laboratory ([`laboratory`]: a private PostgreSQL and statements; [`visits`]: the
//! bookstore's site over one, and browsers; [`origin`]: a process that computes pages); [`results`] are
//! lines of JSON that an interrupted experiment goes on with; [`verdict`] judges the goals, [`report`]
//! shows it all.

pub mod anatomy;
mod busy;
pub mod cell;
mod check;
pub mod complaint;
mod control;
mod convergence;
pub mod demo;
pub mod laboratory;
pub mod learned;
pub mod machine;
pub mod measure;
mod meter;
pub mod offline;
pub mod origin;
mod pages;
pub mod part;
pub mod plan;
pub mod report;
pub mod results;
pub mod runner;
pub mod schedule;
mod site;
mod told;
pub mod verdict;
pub mod visits;
pub mod words;
mod yardstick;

pub use check::{FULL_MAX, SHORT_MAX, VARIANTS};

#[cfg(test)]
mod tests;
