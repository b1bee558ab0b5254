//! `/gates/NAME/trace`: the last hour of a gate that only observes, as a trace.

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::{Admin, Desk};
use crate::gate::Driver;

pub(super) async fn trace(State(Desk { admin, .. }): State<Desk>, Path(name): Path<String>) -> Response {
    let tell = move |admin: &Admin| {
        let Some(gate) = admin.gates().into_iter().find(|gate| gate.name() == name) else {
            return (StatusCode::NOT_FOUND, format!("there is no gate {name:?}\n")).into_response();
        };
        match gate.driver().and_then(Driver::kept_trace) {
            Some(Ok(bytes)) => ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response(),
            Some(Err(error)) => {
                tracing::error!(%error, "what is kept of a gate could not be told");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            None => {
                let why = "keeps no requests, because it doesn't observe. Give it a trace_file, and ask \
                           `gatekeeper advise FILE`";
                (StatusCode::NOT_FOUND, format!("gate {name:?} {why}\n")).into_response()
            }
        }
    };
    admin.build(tell).await
}
