//! The gate for HTTP in front of a real HTTP server, both on loopback: byte for byte where it matters.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod abandoned;
mod conformance;
mod dial;
mod encrypted;
mod files;
mod framing;
mod halves;
mod http2;
mod interim;
mod link;
mod log;
mod queue;
mod site;
mod trailers;
mod trust;
mod upgrades;
mod uplink;
mod uploads;
