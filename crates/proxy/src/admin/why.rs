//! `/why`: what became of a request, and why.
//!
//! | parameter | asks for |
//! |---|---|
//! | `slowest=N` | those that took longest in the last five minutes; without any parameter 10 of them |
//! | `id=TRACE` | those of a trace: 32 hexadecimal digits, or a whole `traceparent` |
//! | `id=NUMBER`, `id=GATE/NUMBER` | the one that has this number |
//! | `session=N` | the last ones of a session |
//! | `gate=NAME` | only those of this gate |

use std::cmp::Reverse;
use std::num::NonZeroU128;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Deserialize;

use super::{Admin, Desk};
use crate::why::{Ask, STORIES_MAX};

mod report;

pub use report::{OvertakersReport, StoryReport, TypeCountReport, WaitReport, WhyReport};

/// How many of the slowest are told where nobody says how many.
const SLOWEST: usize = 10;

#[derive(Deserialize)]
pub(super) struct WhyQuery {
    id: Option<String>,
    session: Option<u64>,
    slowest: Option<usize>,
    gate: Option<String>,
}

pub(super) async fn tell(State(Desk { admin, .. }): State<Desk>, Query(query): Query<WhyQuery>) -> Response {
    admin.build(move |admin| answer(admin, &query)).await
}

fn answer(admin: &Admin, query: &WhyQuery) -> Response {
    let (gate, ask) = match asked(query) {
        Ok(asked) => asked,
        Err(wrong) => return (StatusCode::BAD_REQUEST, wrong).into_response(),
    };
    let gate = gate.or(query.gate.as_deref());
    let mut gates = admin.gates();
    gates.retain(|known| gate.is_none_or(|asked| asked == known.name()));
    if let Some(asked) = gate.filter(|_| gates.is_empty()) {
        return (StatusCode::NOT_FOUND, format!("there is no gate {asked:?}\n")).into_response();
    }
    let mut requests: Vec<StoryReport> = Vec::new();
    for gate in &gates {
        let Some((now, told, labels)) = gate.driver().map(|driver| driver.tell(ask)) else { continue };
        requests.extend(told.iter().map(|told| StoryReport::of(&**gate, now, told, &labels)));
    }
    let nanos = |report: &StoryReport| Reverse((report.response_seconds * 1e9) as u64);
    match ask {
        Ask::Slowest(most) => {
            requests.sort_by_key(nanos);
            requests.truncate(most.min(STORIES_MAX));
        }
        Ask::Trace(_) | Ask::Number(_) | Ask::Session(_) if requests.is_empty() => {
            let text = "nothing is known of that request: it has not come, or ended too long ago. Of each gate \
                        the last 2,048 that ended are kept, the last 1,024 that were refused, and the 16 \
                        slowest of each ten seconds for five minutes\n";
            return (StatusCode::NOT_FOUND, text).into_response();
        }
        Ask::Trace(_) | Ask::Number(_) | Ask::Session(_) => {}
    }
    Json(WhyReport { requests }).into_response()
}

/// Which gate is asked, if the id says so, and for what.
fn asked(query: &WhyQuery) -> Result<(Option<&str>, Ask), String> {
    match (&query.id, query.session, query.slowest) {
        (None, None, most) => Ok((None, Ask::Slowest(most.unwrap_or(SLOWEST)))),
        (None, Some(session), None) => Ok((None, Ask::Session(session))),
        (Some(id), None, None) => asked_by(id).ok_or_else(|| {
            format!(
                "id={id:?} names no request: it takes a trace (32 hexadecimal digits, or a traceparent), the \
                 number of a request, or GATE/NUMBER as /why?slowest=10 shows it\n"
            )
        }),
        _ => Err("ask for one of id, session and slowest at a time\n".to_owned()),
    }
}

fn asked_by(id: &str) -> Option<(Option<&str>, Ask)> {
    if let Some((gate, number)) = id.rsplit_once('/') {
        return Some((Some(gate), Ask::Number(number.parse().ok()?)));
    }
    let trace = if id.contains('-') { id.split('-').nth(1)? } else { id };
    if trace.len() == 32 {
        let trace = u128::from_str_radix(trace, 16).ok().and_then(NonZeroU128::new)?;
        return Some((None, Ask::Trace(trace)));
    }
    Some((None, Ask::Number(id.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_asked_for_by_its_trace_or_its_number() {
        let trace = Ask::Trace(NonZeroU128::new(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736).unwrap());
        for (id, asked) in [
            ("4bf92f3577b34da6a3ce929d0e0e4736", Some((None, trace))),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Some((None, trace))),
            ("12", Some((None, Ask::Number(12)))),
            ("my-shop/12", Some((Some("my-shop"), Ask::Number(12)))),
            ("shop/x", None),
            ("", None),
            ("-", None),
            ("00000000000000000000000000000000", None),
        ] {
            assert_eq!(asked_by(id), asked, "{id}");
        }
    }
}
