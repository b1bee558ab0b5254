//! `/types`: what was learned of the request types, and what they came to.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use serde::Deserialize;

use super::{Admin, Desk, GateTypes, TypesReport};

#[derive(Deserialize)]
pub(super) struct TypesQuery {
    /// Only this gate.
    gate: Option<String>,
    /// Only the type with this short id.
    id: Option<String>,
}

pub(super) async fn types(
    State(Desk { admin, .. }): State<Desk>,
    Query(query): Query<TypesQuery>,
) -> Response {
    let tell = move |admin: &Admin| {
        let mut gates = admin.gates();
        gates.retain(|gate| query.gate.as_deref().is_none_or(|asked| asked == gate.name()));
        match query.gate {
            Some(asked) if gates.is_empty() => {
                (StatusCode::NOT_FOUND, format!("there is no gate {asked:?}\n")).into_response()
            }
            _ => {
                let of = |gate: &_| GateTypes::of(gate, query.id.as_deref());
                Json(TypesReport { gates: gates.iter().map(|gate| of(&**gate)).collect() }).into_response()
            }
        }
    };
    admin.build(tell).await
}
