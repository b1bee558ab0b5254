//! Changes of a running gate over the admin listener.
//!
//! ```text
//! curl --unix-socket /run/gatekeeper/admin.sock http://gatekeeper/gates/shop
//! {"gate":"shop","capacity":"none"}
//! curl --unix-socket /run/gatekeeper/admin.sock -X PATCH -d '{"capacity":"20s"}' \
//!     http://gatekeeper/gates/shop
//! {"gate":"shop","capacity":"20s"}
//! ```
//!
//! What is changed so holds at once and is kept nowhere: a reload or a restart brings back what the
//! configuration says. It is taken over the Unix socket, or with the token; anybody else is refused with
//! 403 and told how. 404: there is no such gate. 400: what was sent can't be, and why.

use std::sync::Arc;

use admission::Capacity;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::{Deserialize, Serialize};

use super::{Admin, Desk, Door, GateView};

/// The longest change that is read, in bytes.
pub const BODY_BYTES_MAX: usize = 4_096;

/// How a capacity is read and written: in the words of the configuration, which this crate doesn't know.
#[derive(Clone, Copy, Debug)]
pub struct CapacityWords {
    /// What a text means, or what is wrong with it and what to write instead.
    pub read: fn(&str) -> Result<Capacity, String>,
    /// A capacity as a text.
    pub write: fn(Capacity) -> String,
}

/// What can be changed of a gate, as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSettings {
    /// Its name.
    pub gate: String,
    /// The capacity in force, as in the configuration.
    pub capacity: String,
}

/// What is to be changed of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateChange {
    /// Another capacity, as in the configuration.
    pub capacity: String,
}

/// Why a change isn't made.
pub(super) struct Refused(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}

pub(super) type Answer = Result<Json<GateSettings>, Refused>;

pub(super) async fn show(State(desk): State<Desk>, Path(name): Path<String>) -> Answer {
    let gate = gate(&desk.admin, &name)?;
    Ok(Json(settings(&*gate, words(&desk.admin)?)))
}

pub(super) async fn change(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    // First of all, so that a client that may not change anything learns nothing here.
    may_change(&desk, &headers)?;
    let words = words(&desk.admin)?;
    let gate = gate(&desk.admin, &name)?;
    let wrong = |why: String| Refused(StatusCode::BAD_REQUEST, why);
    let asked: GateChange = serde_json::from_slice(&body)
        .map_err(|error| wrong(format!("{error}; send such as {{\"capacity\":\"20s\"}}")))?;
    let capacity = (words.read)(&asked.capacity)
        .map_err(|why| wrong(format!("capacity = {:?}: {why}", asked.capacity)))?;
    let before = (words.write)(gate.capacity());
    gate.set_capacity(capacity);
    let after = settings(&*gate, words);
    tracing::info!(
        gate = gate.name(),
        from = before,
        to = after.capacity,
        "the capacity was changed over the admin listener; a reload takes it back"
    );
    Ok(Json(after))
}

/// Whether the client that asks may change anything.
pub(super) fn may_change(desk: &Desk, headers: &HeaderMap) -> Result<(), Refused> {
    if desk.door == Door::Socket {
        return Ok(());
    }
    let refused = |why: &str| Err(Refused(StatusCode::FORBIDDEN, why.to_owned()));
    let token = desk.admin.token.read();
    let Some(token) = token.as_ref() else {
        return refused(
            "changes are taken over the admin socket, or over TCP with a token, and not from this connection. Write \
             socket = \"/run/gatekeeper/admin.sock\" (a directory of the gate's user) or token_file = \"/path\" below \
             [admin] of the configuration, and restart; a gate that was started with flags alone needs a file for that. \
             `kill -TERM PID` drains without either, and `kill -HUP PID` reads a file again",
        );
    };
    let sent = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    // The scheme's name is the same in capitals and small letters (RFC 9110, 11.1).
    let sent = sent.and_then(|value| value.split_at_checked("Bearer ".len()));
    match sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")) {
        Some((_, sent)) if token.is(sent) => Ok(()),
        Some(_) => refused("this isn't the token of token_file"),
        None => refused("changes over TCP take the token of token_file: send Authorization: Bearer TOKEN"),
    }
}

fn words(admin: &Admin) -> Result<CapacityWords, Refused> {
    let none = || Refused(StatusCode::NOT_FOUND, "nothing can be changed here".to_owned());
    admin.words.get().copied().ok_or_else(none)
}

pub(super) fn gate(admin: &Admin, name: &str) -> Result<Arc<dyn GateView>, Refused> {
    let found = admin.gates().into_iter().find(|gate| gate.name() == name);
    found.ok_or_else(|| Refused(StatusCode::NOT_FOUND, format!("there is no gate {name:?}")))
}

fn settings(gate: &dyn GateView, words: CapacityWords) -> GateSettings {
    GateSettings { gate: gate.name().to_owned(), capacity: (words.write)(gate.capacity()) }
}
