//! The state of one client's session. What it does stands in the files beside: `connection` carries units,
//! `gather` collects them, `admit` asks the gate, `extended` serves batches, `leave` ends it.

use std::sync::Arc;
use std::time::Duration;

use admission::Instant;
use bytes::BytesMut;

use super::channel::Channel;
use super::exchange::Fault;
use super::pool::Lease;
use super::roster::Place;
use super::server::Server;
use super::state::State;
use super::transaction::Transaction;
use super::weight::Weight;
use super::{Places, Shared, cancel};
use crate::gate::Client;
use crate::principal;
use crate::shutdown::Ending;
use crate::sql::stats::Counters;

/// Whether the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Close,
}

/// A logged-in client, what is known of it, and what it holds.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Channel,
    pub(super) state: State,
    pub(super) transaction: Transaction,
    /// The server connection, while a transaction is open or the session is pinned.
    pub(super) server: Option<Server>,
    pub(super) cancel: cancel::Registration,
    pub(super) lease: Option<Lease>,
    pub(super) to_server: BytesMut,
    /// How long the service was busy with the request in flight.
    pub(super) busy: Duration,
    /// What of it has failed.
    pub(super) fault: Fault,
    /// A refused batch goes on: up to its Sync everything is dropped.
    pub(super) skipping: bool,
    /// The client has said good-bye.
    pub(super) terminated: bool,
    /// The gate only observes.
    pub(super) observes: bool,
    pub(super) ending: Ending,
    /// The client, as the gate knows it.
    pub(super) at_gate: Client,
    /// On the roster: what others see of the session.
    pub(super) place: Place,
    pub(super) principal: principal::Current,
    /// Of its database.
    pub(super) counters: Arc<Counters>,
    /// How much of the processor the present statement needs.
    pub(super) weight: Weight,
    /// When the request in flight was first sent.
    pub(super) opened: Option<Instant>,
    /// Somebody has told the session to end.
    pub(super) is_killed: bool,
    pub(super) _places: Places,
}
