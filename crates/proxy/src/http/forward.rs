//! A dispatched request to the service, and the head of its response back.
//!
//! What may be tried again: a request of which nothing was sent, on another endpoint if there is one; and
//! once, on a new connection, one that was sent on a kept connection which the service closed without a
//! word, if it may be repeated (RFC 9110, section 9.2.2) and has no body. Anything else may have been done,
//! and the client has to know that.

use std::error::Error;
use std::future::Future;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use admission::Outcome;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::time::{Instant, timeout_at};

use super::body::{Broken, ToClient, ToService};
use super::driven::Late;
use super::endpoint::{Endpoint, Lease, Sender, Wish};
use super::fields::{Fault, Upgrade, strip};
use super::flight::Flight;
use super::foreseen;
use super::parameters::Sample;
use super::present::{Field, Present};
use super::reject::Refusal;
use super::service::Endpoints;
use super::socket::Watched;
use super::state::{Gate, Told};
use super::upload::{Place, Upload};
use crate::permit::Permit;
use crate::upstream::health::Lack;

/// How many connections are tried for one request of which nothing was sent.
const TRIES: usize = 3;

/// What a client's connection may become.
pub(crate) struct Upgrading {
    /// What it asks for.
    pub(crate) to: Upgrade,
    /// Its connection, once the answer is sent.
    pub(crate) client: OnUpgrade,
}

/// Sends a request and passes its response on, and to `client` (which speaks HTTP/1.1) what comes before it.
///
/// # Errors
/// No response can be had.
pub(crate) async fn forward(
    (gate, told): (&Arc<Gate>, &Told),
    request: &mut Request<ToService>,
    (place, sample): (Place, Option<Sample>),
    upgrading: Option<Upgrading>,
    client: Option<&Watched>,
) -> Result<Response<ToClient>, Refusal> {
    if let Some(upgrading) = &upgrading {
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(header::UPGRADE, upgrading.to.0.clone());
    }
    let dispatched = Instant::now();
    let deadline = dispatched + told.settings.upstream_timeout;
    let upload = place.upload();
    let mut place = Some(place);
    let waiting = (dispatched, deadline, client, &mut place);
    let exchanging = exchange(&told.endpoints, request, upgrading.is_some(), waiting);
    let exchanged = match &upload {
        None => exchanging.await,
        Some(upload) => Box::pin(upload.mind(exchanging)).await,
    };
    let place = place.expect("it was held while the request was sent, and given back");
    // What the service waits for beside its response may be as long as that, and counts as what the client
    // takes of it.
    let account = upload.as_ref().map_or((dispatched, Duration::ZERO), |upload| upload.account());
    let upload = upload.filter(|upload| upload.goes_on());
    let permit = place.into_permit();
    match exchanged {
        Ok((mut response, lease)) => {
            if told.settings.observe
                && let Some(value) = permit.as_ref().and_then(Permit::foreseen).and_then(foreseen::value)
            {
                response.headers_mut().insert(foreseen::OBSERVED, value);
            }
            let flight = Flight::new(permit, lease, account, upload, (outcome(response.status()), sample));
            pass((gate, told), response, flight, upgrading, client.is_some())
        }
        Err(refusal) => {
            let (dispatched, awaited) = account;
            if let Some(permit) = permit {
                permit.complete(Outcome::Failure, dispatched.elapsed().saturating_sub(awaited));
            }
            Err(refusal)
        }
    }
}

/// What the status of a response says of what its request took. A service that fails or refuses has saved
/// itself the work.
fn outcome(status: StatusCode) -> Outcome {
    let failed = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    if failed { Outcome::Failure } else { Outcome::Success }
}

async fn exchange(
    endpoints: &Endpoints,
    request: &mut Request<ToService>,
    upgrades: bool,
    (mut now, deadline, client, place): (Instant, Instant, Option<&Watched>, &mut Option<Place>),
) -> Result<(Response<Incoming>, Lease), Refusal> {
    let may_repeat = is_idempotent(request.method()) && request.body().is_empty();
    let mut repeated = None;
    let again = if upgrades { Wish::Upgrade } else { Wish::New };
    let mut wish = if upgrades { Wish::Upgrade } else { Wish::Any };
    let mut failed: Option<Arc<Endpoint>> = None;
    for _ in 0..TRIES {
        let endpoint = endpoints.choose(failed.as_ref());
        let Ok(mut lease) = endpoint.lease(now, wish, may_repeat).await else {
            // It may have taken for long to find that out.
            (failed, now) = (Some(endpoint), Instant::now());
            continue;
        };
        if may_repeat && lease.is_kept && repeated.is_none() {
            repeated = Some(Copied::of(request));
        }
        let sent = send(&mut lease, request, (deadline, client, place)).await;
        match sent.map_err(|Late| Refusal::LateAnswer)? {
            Ok(response) => {
                endpoint.succeeded();
                // Once a service has answered in HTTP/1.0, hyper sends on that connection in HTTP/1.0:
                // without chunks, so that the next body without a length would be left out.
                lease.lasts = response.version() >= Version::HTTP_11;
                return Ok((response, lease));
            }
            Err((error, Sent::No)) => {
                tracing::debug!(endpoint = %endpoint.address, %error, "a request was not sent, and is tried again");
                wish = again;
            }
            Err((error, Sent::Perhaps)) => {
                if let Some(refusal) = of_client(&error) {
                    return Err(refusal);
                }
                if error.is_parse_too_large() {
                    return Err(Refusal::LargeAnswer);
                }
                let Some(copied) = repeated.take().filter(|_| lease.is_kept) else {
                    endpoint.failed(Lack::Response, &error);
                    return Err(Refusal::Unreachable);
                };
                tracing::debug!(endpoint = %endpoint.address, %error, "a request may be repeated, and is");
                (*request, wish) = (copied.into_request(), again);
            }
        }
    }
    Err(Refusal::Unreachable)
}

/// Whether anything of a request has been sent that could not be.
enum Sent {
    No,
    Perhaps,
}

/// Takes the request, and gives it back if nothing of it was sent.
async fn send(
    lease: &mut Lease,
    request: &mut Request<ToService>,
    (deadline, client, place): (Instant, Option<&Watched>, &mut Option<Place>),
) -> Result<Result<Response<Incoming>, (hyper::Error, Sent)>, Late> {
    let sent = match lease.sender.as_mut() {
        Some(Sender::Http1(connection)) => {
            in_http1(request, client.is_none());
            connection.send(mem::take(request), deadline, client, place).await?
        }
        Some(Sender::Http2(sender)) => {
            in_http2(request, lease.endpoint.scheme());
            let upload = place.as_ref().and_then(Place::upload);
            let sent = in_time(deadline, upload, sender.try_send_request(mem::take(request))).await?;
            sent.map_err(|mut unsent| {
                let request = unsent.take_message().map(Box::new);
                (unsent.into_error(), request)
            })
        }
        None => unreachable!("a lease has its sender until it is given back"),
    };
    Ok(sent.map_err(|(error, unsent)| match unsent.filter(|unsent| unsent.body().is_whole()) {
        Some(unsent) => {
            *request = *unsent;
            (error, Sent::No)
        }
        None => (error, Sent::Perhaps),
    }))
}

/// What a service answers by the deadline; behind an upload, in time since that has gone on.
async fn in_time<T>(
    mut deadline: Instant,
    upload: Option<Arc<Upload>>,
    answering: impl Future<Output = T>,
) -> Result<T, Late> {
    let mut answering = pin!(answering);
    loop {
        if let Ok(answered) = timeout_at(deadline, answering.as_mut()).await {
            return Ok(answered);
        }
        let due = upload.as_ref().map_or(deadline, |upload| upload.due());
        if due <= Instant::now() {
            return Err(Late);
        }
        deadline = due;
    }
}

/// A body without a length is sent in chunks, whatever the method; and so is one behind which trailers may
/// come, which only HTTP/2 has a place for behind a length.
fn in_http1(request: &mut Request<ToService>, may_have_trailers: bool) {
    if request.version() > Version::HTTP_11 {
        from_http2(request);
    }
    if request.body().is_end_stream() {
        return;
    }
    let fields = request.headers_mut();
    if !fields.contains_key(header::CONTENT_LENGTH) || may_have_trailers && announces_trailers(fields) {
        in_chunks(fields);
    }
}

fn announces_trailers(fields: &HeaderMap) -> bool {
    fields.contains_key(header::TRAILER)
}

fn in_chunks(fields: &mut HeaderMap) {
    fields.remove(header::CONTENT_LENGTH);
    fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
}

/// HTTP/2 says the host in the target, and has no upgrades.
fn in_http2(request: &mut Request<ToService>, scheme: Scheme) {
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::CONNECTION);
    request.headers_mut().remove(header::UPGRADE);
    // If it was tried in HTTP/1.1 before.
    request.headers_mut().remove(header::TRANSFER_ENCODING);
    let host = request.headers_mut().remove(header::HOST);
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(scheme);
    parts.authority = host.and_then(|host| host.as_bytes().try_into().ok());
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// Undoes [`in_http2`], for a request that was first tried on a connection of HTTP/2.
fn from_http2(request: &mut Request<ToService>) {
    *request.version_mut() = Version::HTTP_11;
    let target = mem::take(request.uri_mut()).into_parts();
    if let Some(host) = target.authority.and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        request.headers_mut().insert(header::HOST, host);
    }
    *request.uri_mut() = Uri::from(target.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/")));
}

fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}

/// The head of a request without a body, to be sent once more: the first one is hyper's. Hardly any is
/// needed, so the fields are in a list, which costs a third of what a map does.
struct Copied {
    method: Method,
    target: Uri,
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Copied {
    fn of<B>(request: &Request<B>) -> Self {
        let mut fields = Vec::with_capacity(request.headers().len());
        fields.extend(request.headers().iter().map(|(name, value)| (name.clone(), value.clone())));
        Self { method: request.method().clone(), target: request.uri().clone(), fields }
    }

    fn into_request(self) -> Request<ToService> {
        let mut request = Request::new(ToService::default());
        (*request.method_mut(), *request.uri_mut()) = (self.method, self.target);
        for (name, value) in self.fields {
            request.headers_mut().append(name, value);
        }
        request
    }
}

/// What went wrong may be that the client's body ended before its end, which says nothing of the service.
fn of_client(error: &hyper::Error) -> Option<Refusal> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(broken) = cause.downcast_ref::<Broken>() {
            return Some(match broken {
                Broken::Late(_) => Refusal::LateBody,
                Broken::NoRoom => Refusal::NoRoom,
                Broken::Large => Refusal::Fault(Fault::LargeBody),
                Broken::Refused(refusal) => refusal.clone(),
                Broken::Http(_) | Broken::Left | Broken::File(_) => Refusal::Fault(Fault::Body),
            });
        }
        source = cause.source();
    }
    None
}

fn pass(
    (gate, told): (&Arc<Gate>, &Told),
    mut response: Response<Incoming>,
    flight: Flight,
    upgrading: Option<Upgrading>,
    to_http1: bool,
) -> Result<Response<ToClient>, Refusal> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(upgrading) = upgrading else {
            flight.crash();
            return Err(Refusal::Unreachable);
        };
        return Ok(switch(gate, response, flight, upgrading));
    }
    let present = Present::of(response.headers());
    if present.has(Field::TransferEncoding) {
        if !is_only_chunked(response.headers()) {
            // The field ends here, and with it what would tell the client how to read the body.
            tracing::debug!("a response has a transfer coding that isn't chunked");
            flight.crash();
            return Err(Refusal::Unreachable);
        }
        // It was read by its chunks, and a length beside them may be any (RFC 9112, section 6.3).
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    strip(response.headers_mut(), present);
    if to_http1
        && response.version() == Version::HTTP_2
        && !response.body().is_end_stream()
        && announces_trailers(response.headers())
    {
        in_chunks(response.headers_mut());
    }
    *response.version_mut() = Version::HTTP_11;
    let (head, body) = response.into_parts();
    if body.is_end_stream() {
        flight.land();
    } else if present.has(Field::Events) {
        flight.let_go();
    } else {
        let length = body.size_hint().exact();
        // What waits for the uplink or for an HTTP/2 client's window isn't in buffers, however small it is.
        let least = if told.uplink.is_some() || !to_http1 { u64::MAX } else { 0 };
        gate.flights().watch(&flight, length.map(|length| length.max(least)));
    }
    Ok(Response::from_parts(head, ToClient::passed(body, flight)))
}

/// Whether the only transfer coding is `chunked`, which hyper has taken off the body.
fn is_only_chunked(fields: &HeaderMap) -> bool {
    let mut codings = fields.get_all(header::TRANSFER_ENCODING).iter();
    let first = codings.next().is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    first && codings.next().is_none()
}

/// Both connections become a tunnel. It was admitted once; from here on it holds nothing but its two sockets.
fn switch(
    gate: &Arc<Gate>,
    mut response: Response<Incoming>,
    flight: Flight,
    upgrading: Upgrading,
) -> Response<ToClient> {
    let service = hyper::upgrade::on(&mut response);
    let to = response.headers().get(header::UPGRADE).cloned();
    let present = Present::of(response.headers());
    strip(response.headers_mut(), present);
    let fields = response.headers_mut();
    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(header::UPGRADE, to.unwrap_or(upgrading.to.0));
    flight.let_go();
    let handing_over = flight.hand_over();
    let gate = Arc::clone(gate);
    tokio::spawn(async move {
        let tunnel = async {
            let client_and_service = async { tokio::try_join!(upgrading.client, service) };
            let ((), both) = tokio::join!(handing_over, client_and_service);
            let (client, service) = both?;
            let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
            // How it ends is between the two.
            let _ = copy_bidirectional(&mut client, &mut service).await;
            Ok::<(), hyper::Error>(())
        };
        tokio::select! {
            ended = tunnel => if let Err(error) = ended {
                tracing::debug!(%error, "an upgrade came to nothing");
            },
            () = gate.aborting() => {}
        }
        drop(flight);
    });
    Response::from_parts(response.into_parts().0, ToClient::own(""))
}

/// How long the gate waits for a service that has been sent a request, by default.
pub(crate) const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_tried_in_http_2_is_sent_in_http_1_1_as_if_it_had_not_been() {
        let built = Request::post("/a?b").header("host", "a.example:81").header("x-a", "1");
        let mut request = built.body(ToService::default()).unwrap();
        let fields = request.headers().clone();
        in_http2(&mut request, Scheme::HTTPS);
        in_http1(&mut request, true);
        assert_eq!((request.version(), request.uri()), (Version::HTTP_11, &Uri::from_static("/a?b")));
        assert_eq!(request.headers(), &fields);
    }

    #[test]
    fn what_is_sent_once_more_has_every_field_in_the_same_order() {
        let built = Request::put("/a?b").header("host", "a.example").header("x-a", "1").header("x-a", "2");
        let request = built.body(()).unwrap();
        let copied = Copied::of(&request).into_request();
        assert_eq!((copied.method(), copied.uri()), (request.method(), request.uri()));
        assert_eq!(copied.headers(), request.headers());
        assert!(copied.body().is_empty());
    }
}
