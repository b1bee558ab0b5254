//! Under which host names the admin listener answers over TCP.
//!
//! A page in a browser may give its own host name the address of this listener (DNS rebinding). The browser
//! then takes the listener for the page's own site, and lets the page read the answers. But the browser
//! still sends the page's host name. So a request must name the listener by an IP address, `localhost`, or
//! a name that the operator gave. A request without any name doesn't come from a browser.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Desk, Door};

/// Host names in lower case.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<String>);

impl Names {
    pub(super) fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether a host as a request names it is one of them.
    fn contains(&self, host: &str) -> bool {
        let host =
            host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
        host == "localhost" || host.parse::<IpAddr>().is_ok() || self.0.contains(&host)
    }
}

/// Answers 421 to a request for another name.
pub(super) async fn check(State(desk): State<Desk>, request: Request, next: Next) -> Response {
    let is_ours = desk.door == Door::Socket || {
        let none = Names::default();
        let names = desk.admin.names.get().unwrap_or(&none);
        let in_target = request.uri().host().into_iter().all(|host| names.contains(host));
        in_target
            && request.headers().get_all(header::HOST).iter().all(|host| {
                let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
                host.is_some_and(|host| names.contains(host.host()))
            })
    };
    if is_ours {
        return next.run(request).await;
    }
    let why = "the admin listener doesn't answer for this host name: \
               ask for its address, or add the name to `names` in [admin]\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}
