//! What a client is told when the gate answers by itself: the one place where reasons become statuses.
//!
//! | what | status | `x-gatekeeper` |
//! |---|---|---|
//! | refused by the gate | 503 with `Retry-After` | the reason: `queue_full`, `queue_timeout`, … |
//! | its class has more than its share, or is in the background | 429 with `Retry-After` | `over_share` |
//! | the gate ends, and its turn has not come | 503, and the connection ends | `shutdown` |
//! | the gate's own processor is short | 503 with `Retry-After`, and the connection ends | `late` |
//! | no memory for its body (`memory_max`) | 503 with `Retry-After`, and the connection ends | `memory` |
//! | its deadline has passed, or will have | 504 | `deadline`, `deadline_unreachable` |
//! | a request that may not pass | 400, 405 (method), 413, 431 (size); the connection ends | `bad_request` |
//! | the client's body doesn't come | 408, and the connection ends | `body_timeout` |
//! | no connection to the service, no answer, or one whose head is too large | 502 | `upstream` |
//! | the service didn't answer in time | 504 | `upstream_timeout` |
//!
//! The field tells these from the service's own errors. A refused request is named by `x-gatekeeper-request`,
//! as `gatekeeper why` takes it. Bodies are problem details (RFC 9457), or the
//! operator's page for clients that accept HTML. gRPC hears of it in its own way: `grpc-status` 14
//! (UNAVAILABLE), 8 (RESOURCE_EXHAUSTED) over a share or 4 (DEADLINE_EXCEEDED), and
//! `grpc-retry-pushback-ms`.

use std::borrow::Cow;
use std::time::Duration;

use admission::{Reason, Refused};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use serde_json::json;

use super::body::ToClient;
use super::fields::Fault;
use super::present::{Field, Present};
use crate::cause::Cause;
use crate::gate::Driver;

/// Says that the gate has answered, and why.
pub(crate) const GATEKEEPER: HeaderName = HeaderName::from_static("x-gatekeeper");
/// Names a refused request as `gatekeeper why` takes it.
const REQUEST: HeaderName = HeaderName::from_static("x-gatekeeper-request");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// Of a service that has less to give for a while (draft-ietf-httpapi-ratelimit-headers).
const REDUCED: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// When a client that met a late or full gate may try again at the earliest; at most three times as late, so
/// that not all come at once.
const LATE_RETRY: Duration = Duration::from_secs(1);

/// What the gate answers by itself without having asked the judge, or after it: the names of these refusals.
pub(crate) const OWN: [&str; 7] =
    ["late", "memory", "bad_request", "body_timeout", "upstream", "upstream_timeout", "shutdown"];

/// What a client is told of whose head hyper could make nothing. `head` is hyper's own answer to it, which
/// has a status and no body; its first line and its date stay. `None`: it isn't one of these.
pub(crate) fn explained(head: &[u8]) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let fault = match head.strip_prefix("HTTP/1.")?.get(2..5)? {
        "400" => Fault::Head,
        "414" => Fault::LongTarget,
        "431" => Fault::LargeHead,
        _ => return None,
    };
    let refusal = Refusal::Fault(fault);
    let problem = refusal.problem(refusal.status());
    let is_kept = |line: &&str| {
        let name = line.split(':').next().unwrap_or("");
        !["connection", "content-length"].iter().any(|other| name.eq_ignore_ascii_case(other))
    };
    let kept: String = head.split("\r\n").filter(is_kept).flat_map(|line| [line, "\r\n"]).collect();
    let (length, name) = (problem.len(), refusal.name());
    let fields = format!(
        "content-type: application/problem+json\r\ncontent-length: {length}\r\ncache-control: no-store\r\n\
         {GATEKEEPER}: {name}\r\nconnection: close\r\n\r\n"
    );
    Some([kept.as_bytes(), fields.as_bytes(), &problem].concat())
}

/// Why the gate answers by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The judge refused it.
    Rejected(Reason, Told),
    /// The gate itself is late.
    Late,
    /// The process has no room for its body, or for its head over HTTP/2.
    NoRoom,
    /// The gate ends now.
    Ending,
    /// It may not be passed on.
    Fault(Fault),
    /// Its body doesn't come.
    LateBody,
    /// No answer can be had.
    Unreachable,
    /// The head of the answer is too large, or has too many fields.
    LargeAnswer,
    /// No answer came.
    LateAnswer,
}

/// What the client of a refused request is told beside the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// What it waited for.
    cause: Option<Cause>,
    /// After how long another try may be worth it.
    after: Duration,
    /// What `gatekeeper why` knows the request by.
    id: String,
}

/// A refusal by the gate, with when another try may be worth it: not all at once.
pub(crate) fn rejected(driver: &Driver, refused: Refused, number: u64) -> Refusal {
    let after = driver.retry_after().mul_f64(rand::random_range(1.0..1.5));
    let id = format!("{}/{number}", driver.name());
    Refusal::Rejected(refused.reason, Told { cause: driver.cause(refused), after, id })
}

/// What a refusal has to fit.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    is_grpc: bool,
    accepts_html: bool,
    is_head: bool,
}

impl Wanted {
    /// By a request of whose head this is known.
    pub(crate) fn by(method: &Method, present: Present) -> Self {
        Self {
            is_grpc: present.has(Field::Grpc),
            accepts_html: present.has(Field::Html),
            is_head: *method == Method::HEAD,
        }
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Rejected(Reason::Deadline | Reason::DeadlineUnreachable, _) | Self::LateAnswer => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Fault(Fault::LongTarget) => StatusCode::URI_TOO_LONG,
            Self::Rejected(Reason::OverShare, _) => StatusCode::TOO_MANY_REQUESTS,
            Self::Rejected(..) | Self::Late | Self::NoRoom | Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
            Self::Fault(Fault::Method) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Fault(Fault::LargeBody) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Fault(Fault::LargeHead) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Fault(_) => StatusCode::BAD_REQUEST,
            Self::LateBody => StatusCode::REQUEST_TIMEOUT,
            Self::Unreachable | Self::LargeAnswer => StatusCode::BAD_GATEWAY,
        }
    }

    /// What it is called in the response, in metrics and in the log.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Rejected(reason, _) => reason.as_str(),
            Self::Late => "late",
            Self::NoRoom => "memory",
            Self::Ending => "shutdown",
            Self::Fault(_) => "bad_request",
            Self::LateBody => "body_timeout",
            Self::Unreachable | Self::LargeAnswer => "upstream",
            Self::LateAnswer => "upstream_timeout",
        }
    }

    fn detail(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Rejected(Reason::Deadline | Reason::DeadlineUnreachable, _) => {
                "The deadline of the request has passed, or would pass before its turn."
            }
            Self::Rejected(Reason::OverShare, _) => {
                "The service has as much to do as it can, and requests like this one ask for more than their share of it, \
                 or take what others leave; the request was not begun."
            }
            Self::Rejected(_, Told { cause: Some(cause), .. }) => {
                // The advice is for operators, and visitors of a site read this.
                return Cow::Owned(format!("The request was not begun. {cause}"));
            }
            Self::Rejected(Reason::Target, _) => {
                "Responses would become slower than they may be (target); the request was not begun."
            }
            Self::Rejected(..) => "The service has as much to do as it can; the request was not begun.",
            Self::Late => "The gate has more to do than it can; the request was not begun.",
            Self::NoRoom => "The gate has no room for this request.",
            Self::Ending => "The gate is shutting down; the request was not begun.",
            Self::Fault(fault) => return Cow::Owned(format!("{fault}.")),
            Self::LateBody => "The body of the request did not come.",
            Self::Unreachable => "The service can't be reached, or broke off.",
            Self::LargeAnswer => {
                "The head of the service's response is too large, or has more fields than `header_fields_max`."
            }
            Self::LateAnswer => "The service did not answer in time.",
        })
    }

    fn is_over_share(&self) -> bool {
        matches!(self, Self::Rejected(Reason::OverShare, _))
    }

    /// Whether the connection can't be used any more.
    fn ends_connection(&self) -> bool {
        matches!(self, Self::Fault(_) | Self::LateBody | Self::Late | Self::NoRoom | Self::Ending)
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected(Reason::Deadline | Reason::DeadlineUnreachable, _) => None,
            Self::Rejected(_, told) => Some(told.after),
            Self::Late | Self::NoRoom => Some(LATE_RETRY.mul_f64(rand::random_range(1.0..3.0))),
            _ => None,
        }
    }

    /// The response, `page` being the operator's.
    pub(crate) fn respond(&self, wanted: &Wanted, page: Option<&Bytes>) -> Response<ToClient> {
        let mut response = if wanted.is_grpc { self.to_grpc() } else { self.to_http(wanted, page) };
        let fields = response.headers_mut();
        fields.insert(GATEKEEPER, HeaderValue::from_static(self.name()));
        if let Self::Rejected(_, Told { id, .. }) = self
            && let Ok(id) = HeaderValue::from_str(id)
        {
            fields.insert(REQUEST, id);
        }
        if self.ends_connection() {
            fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn to_http(&self, wanted: &Wanted, page: Option<&Bytes>) -> Response<ToClient> {
        let status = self.status();
        let (kind, body) = match page
            .filter(|_| wanted.accepts_html && (status.is_server_error() || self.is_over_share()))
        {
            Some(page) => ("text/html; charset=utf-8", page.clone()),
            None => ("application/problem+json", self.problem(status)),
        };
        let length = body.len();
        let body = if wanted.is_head { Bytes::new() } else { body };
        let mut response = Response::new(ToClient::own(body));
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after() {
            fields.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs_f64().ceil().max(1.0) as u64));
        }
        response
    }

    fn problem(&self, status: StatusCode) -> Bytes {
        let is_reduced = matches!(self, Self::Rejected(..) | Self::Late) && !self.is_over_share();
        if is_reduced {
            // These are the many, and none of their words needs to be escaped.
            return Bytes::from(format!(
                r#"{{"detail":"{}","reason":"{}","status":{},"title":"{}","type":"{REDUCED}"}}"#,
                self.detail(),
                self.name(),
                status.as_u16(),
                status.canonical_reason().unwrap_or("Error"),
            ));
        }
        let problem = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": self.detail(),
            "reason": self.name(),
        });
        Bytes::from(problem.to_string())
    }

    /// A response of trailers only.
    fn to_grpc(&self) -> Response<ToClient> {
        let code = match self {
            Self::Rejected(Reason::Deadline | Reason::DeadlineUnreachable, _)
            | Self::LateAnswer
            | Self::LateBody => 4,
            Self::Fault(_) => 13,
            Self::Rejected(Reason::OverShare, _) => 8,
            Self::Rejected(..)
            | Self::Unreachable
            | Self::LargeAnswer
            | Self::Late
            | Self::NoRoom
            | Self::Ending => 14,
        };
        let mut response = Response::new(ToClient::own(Bytes::new()));
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        fields.insert(GRPC_STATUS, HeaderValue::from(code));
        if let Ok(message) = HeaderValue::from_str(&self.detail().replace('%', "%25")) {
            fields.insert(GRPC_MESSAGE, message);
        }
        if let Some(after) = self.retry_after() {
            fields.insert(GRPC_PUSHBACK, HeaderValue::from(after.as_millis() as u64));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: Reason) -> Refusal {
        let told = Told { cause: None, after: Duration::from_millis(1_200), id: "shop/7".to_owned() };
        Refusal::Rejected(reason, told)
    }

    fn wanted(fields: &[(HeaderName, &'static str)]) -> Wanted {
        let fields =
            fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        Wanted::by(&Method::GET, Present::of(&fields))
    }

    #[test]
    fn a_refusal_says_why_in_the_way_of_who_asked() {
        let full = refusal(Reason::QueueFull);
        let page = Bytes::from_static(b"<p>busy");
        let plain = full.respond(&wanted(&[]), Some(&page));
        assert_eq!(plain.status(), 503);
        assert_eq!(plain.headers()["retry-after"], "2");
        assert_eq!(plain.headers()["x-gatekeeper"], "queue_full");
        assert_eq!(plain.headers()["x-gatekeeper-request"], "shop/7");
        assert_eq!(plain.headers()["content-type"], "application/problem+json");
        assert!(!plain.headers().contains_key("connection"));
        let problem: serde_json::Value = serde_json::from_slice(&full.problem(plain.status())).unwrap();
        assert_eq!((&problem["reason"], &problem["type"]), (&json!("queue_full"), &json!(REDUCED)));
        let late = Refusal::Late.respond(&wanted(&[]), None);
        assert_eq!(
            (late.status(), &late.headers()["connection"]),
            (plain.status(), &HeaderValue::from_static("close"))
        );
        let html = full.respond(&wanted(&[(header::ACCEPT, "text/html,*/*")]), Some(&page));
        assert_eq!(html.headers()["content-type"], "text/html; charset=utf-8");
        assert_eq!(html.headers()["content-length"], "7");
        let grpc = full.respond(&wanted(&[(header::CONTENT_TYPE, "application/grpc+proto")]), Some(&page));
        assert_eq!((grpc.status(), &grpc.headers()["grpc-status"]), (StatusCode::OK, &HeaderValue::from(14)));
        assert_eq!(grpc.headers()["grpc-retry-pushback-ms"], "1200");
    }

    #[test]
    fn a_refusal_by_target_names_the_target() {
        let detail = refusal(Reason::Target).detail();
        assert!(detail.contains("(target)") && !detail.contains("capacity"), "{detail}");
    }

    #[test]
    fn who_asks_for_more_than_its_share_is_told_so() {
        let over = refusal(Reason::OverShare);
        let plain = over.respond(&wanted(&[]), None);
        assert_eq!(
            (plain.status(), &plain.headers()["retry-after"]),
            (StatusCode::TOO_MANY_REQUESTS, &HeaderValue::from(2))
        );
        assert_eq!(plain.headers()["x-gatekeeper"], "over_share");
        let page = Bytes::from_static(b"<p>busy");
        let html = over.respond(&wanted(&[(header::ACCEPT, "text/html")]), Some(&page));
        assert_eq!(html.headers()["content-length"], "7", "people see the page");
        let grpc = over.respond(&wanted(&[(header::CONTENT_TYPE, "application/grpc")]), None);
        assert_eq!((grpc.status(), &grpc.headers()["grpc-status"]), (StatusCode::OK, &HeaderValue::from(8)));
        assert_eq!(grpc.headers()["grpc-retry-pushback-ms"], "1200");
    }

    #[test]
    fn an_answer_of_hyper_gets_a_reason_and_no_other_does() {
        let said = explained(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: now\r\n\r\n",
        );
        let said = String::from_utf8(said.unwrap()).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        let lines: Vec<&str> = head.lines().collect();
        assert_eq!(lines[..2], ["HTTP/1.1 431 Request Header Fields Too Large", "date: now"]);
        assert!(
            lines.contains(&"connection: close") && lines.contains(&"x-gatekeeper: bad_request"),
            "{head}"
        );
        assert!(lines.contains(&format!("content-length: {}", body.len()).as_str()), "{head}");
        assert!(body.contains("header_fields_max"), "{body}");
        for other in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 400 Bad", "HTTP/1.", "PRI * HTTP/2.0\r\n\r\n", ""]
        {
            assert_eq!(explained(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_may_not_be_passed_on_ends_its_connection() {
        let bad = Refusal::Fault(Fault::Length).respond(&wanted(&[]), None);
        assert_eq!(
            (bad.status(), &bad.headers()["connection"]),
            (StatusCode::BAD_REQUEST, &HeaderValue::from_static("close"))
        );
        assert_eq!(Refusal::Fault(Fault::Method).respond(&wanted(&[]), None).status(), 405);
    }
}
