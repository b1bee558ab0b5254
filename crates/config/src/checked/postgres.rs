//! What only a gate for PostgreSQL has.

use std::time::Duration;

use toml::de::DeValue;

use super::words::{NAME_BYTES_MAX, read_upstream};
use super::{Auth, auth, number};
use crate::address::Address;
use crate::complaint::Complaint;
use crate::raw::{self, Section};

pub(crate) const SERVER_PORT: u16 = 5432;
pub(crate) const GATE_PORT: u16 = 6432;

/// How long a client holds a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// For a transaction.
    Transaction,
    /// For its session.
    Session,
}

/// What becomes of a running statement whose client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisconnect {
    /// Writes are finished, the rest is canceled.
    Default,
    /// It is canceled.
    Cancel,
    /// It is finished.
    Finish,
}

/// A gate for PostgreSQL, beside what every gate has.
#[derive(Clone, Debug, PartialEq)]
pub struct Postgres {
    /// Where the server listens.
    pub upstream: Address,
    /// How long a client holds a server connection, when the gate decides.
    pub pooling: Pooling,
    /// How long a transaction may be idle; without end if `None`.
    pub idle_transaction_timeout: Option<Duration>,
    /// After how long a wait a client is told of it, if at all.
    pub wait_notice: Option<Duration>,
    /// The most clients of one user.
    pub user_clients_max: Option<u32>,
    /// The most clients of one database.
    pub database_clients_max: Option<u32>,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// How long a message may take from its beginning to its end.
    pub message_timeout: Duration,
    /// The most logins at once.
    pub logins_max: u32,
    /// Whether a server that asks no password may be reached from other machines.
    pub allow_trust_relay: bool,
    /// How clients log in.
    pub auth: Auth,
    /// Whether long reads get less of the processor.
    pub lower_long_reads: bool,
    /// What becomes of a running statement whose client is gone.
    pub on_disconnect: OnDisconnect,
    /// The users that may use the console.
    pub admin_users: Vec<String>,
    /// The users that may use the console, but only to read.
    pub stats_users: Vec<String>,
    /// The database to which the login of a console user is relayed.
    pub admin_database: String,
}

pub(crate) const POOLINGS: &[(&str, Pooling)] =
    &[("transaction", Pooling::Transaction), ("session", Pooling::Session)];
pub(crate) const ON_DISCONNECT: &[(&str, OnDisconnect)] =
    &[("default", OnDisconnect::Default), ("cancel", OnDisconnect::Cancel), ("finish", OnDisconnect::Finish)];

/// Reads the keys of a gate for PostgreSQL; `listen_is_local` is the gate's.
pub(super) fn read(section: &mut Section<'_>, listen_is_local: bool) -> Postgres {
    let allow_trust_relay = section.read("allow_trust_relay", raw::boolean);
    Postgres {
        upstream: read_upstream(section, SERVER_PORT),
        pooling: section.read("pooling", |value| raw::choice(value, POOLINGS)),
        idle_transaction_timeout: section.read("idle_transaction_timeout", raw::time_or_none),
        wait_notice: section.read("wait_notice", raw::time_or_none),
        user_clients_max: section.read("user_clients_max", clients),
        database_clients_max: section.read("database_clients_max", clients),
        login_timeout: section.read("login_timeout", raw::some_time),
        message_timeout: section.read("message_timeout", raw::some_time),
        logins_max: section.read("logins_max", |value| number(value, 1, 10_000)),
        allow_trust_relay,
        auth: auth::read(section, listen_is_local, allow_trust_relay),
        lower_long_reads: section.read("lower_long_reads", raw::boolean),
        on_disconnect: section.read("on_disconnect", |value| raw::choice(value, ON_DISCONNECT)),
        admin_users: section.read("admin_users", raw::users),
        stats_users: section.read("stats_users", raw::users),
        admin_database: section.read("admin_database", database),
    }
}

fn clients(value: &DeValue<'_>) -> Result<Option<u32>, Complaint> {
    Ok(raw::bound(value, 1_000_000)?.map(|bound| u32::try_from(bound).unwrap_or(u32::MAX)))
}

fn database(value: &DeValue<'_>) -> Result<String, Complaint> {
    let name = raw::text(value)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(Complaint::new("can't be a database's name"));
    }
    Ok(name)
}
