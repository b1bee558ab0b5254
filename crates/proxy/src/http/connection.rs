//! A client's connection, and each of its requests: looked at, typed, admitted, passed on.
//!
//! hyper reads and writes the connection; a request is a future of its own, which is dropped when its
//! client resets it or goes. A request that waits holds its head, at most
//! [`READ_AHEAD`](super::body::READ_AHEAD) of its body, and a place in the queue, which is given back with
//! it.

use std::convert::Infallible;
use std::future::Future;
use std::num::NonZeroU128;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use admission::{ClassId, Connection, Entry, PoolId, Priority, TenantId};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::sync::SetOnce;
use tokio::time::{Instant, sleep, timeout};

use super::alarm::HeadTimer;
use super::body::{Broken, Client, ToClient, ToService, is_malformed};
use super::classify::Classified;
use super::fields::{self, FIELDS_MAX, Fault, From};
use super::files::Asked;
use super::forward::{Upgrading, forward};
use super::frames::CONNECTION_WINDOW;
use super::origins::Asker;
use super::own_fields::TYPE;
use super::parameters::{self, PREFIX_MAX, Said, Sample, is_json};
use super::path::normal;
use super::present::{Field, Present};
use super::record::Record;
use super::reject::{Refusal, Wanted, rejected};
use super::socket::{Socket, Watched};
use super::span::{Parent, Recorded, TRACEPARENT};
use super::state::{Gate, Settings, Told};
use super::uplink::said;
use super::upload::{Place, Upload};
use crate::gate::{Arrival, Waiting};
use crate::lateness::Turn;
use crate::observe::TypeName;
use crate::permit::Permit;
use crate::shutdown::{Ending, Phase};
use crate::why::Origin;

/// The streams of one HTTP/2 connection at once.
const STREAMS_MAX: u32 = 250;
/// The time for a last response once everything closes; the listener's own grace is longer.
const LAST_WORD: Duration = Duration::from_secs(1);
/// How long a draining gate waits for the first request of a connection.
const FIRST_REQUEST_MAX: Duration = Duration::from_secs(2);
/// What hyper holds of a response for one connection or stream.
const BUFFER_MAX: usize = 64 * 1024;
/// What a client may send on one stream of HTTP/2 before the service has taken any of it.
const STREAM_WINDOW: u32 = 256 * 1024;
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The client is gone, or will be: nothing more is said to it.
#[derive(Debug, thiserror::Error)]
#[error("the client has gone")]
pub(crate) struct Gone;

/// Serves one connection to its end.
pub(crate) async fn serve(gate: Arc<Gate>, socket: Socket, watched: Watched, from: From) {
    let told = gate.told();
    let (builder, header_timeout) = (builder(&told), told.settings.header_timeout);
    drop(told);
    let (asked, from) = (SetOnce::new(), Arc::new(from));
    let service = service_fn(|request| {
        // Only the first request sets it.
        let _ = asked.set(request.version());
        respond(&gate, &watched, &from, request)
    });
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(socket), service));
    let mut ending = Ending::new(&gate.shutdown);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = last(&mut ending, &asked, &watched) => {
            // Its first request may be on its way: a new client knows nothing of a connection that ends.
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = asked.wait() => {}
                () = sleep(FIRST_REQUEST_MAX) => {}
                () = gate.aborting() => {}
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = cut_off(&gate) => Ok(()),
            }
        }
        () = silent(&asked, header_timeout) => {
            tracing::debug!(gate = gate.driver.name(), "a client has asked for nothing in header_timeout");
            Ok(())
        }
    };
    if let Err(error) = ended {
        // hyper has answered what is no request by itself.
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            gate.has_refused("bad_request");
        }
        tracing::debug!(gate = gate.driver.name(), %error, "a client's connection ended");
    }
}

/// Resolves when a connection is closed, whatever is under way: those that wait have heard that by then.
async fn cut_off(gate: &Gate) {
    gate.aborting().await;
    sleep(LAST_WORD).await;
}

/// Resolves when a connection is to take no more requests: once the gate drains. Once it is handed over,
/// HTTP/2 can say so without losing a request, and HTTP/1 with the next answer.
async fn last(ending: &mut Ending, asked: &SetOnce<Version>, watched: &Watched) {
    ending.reached(Phase::HandedOver).await;
    watched.end_with_next();
    let is_told = async {
        if *asked.wait().await != Version::HTTP_2 {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = ending.reached(Phase::Draining) => {}
        () = is_told => {}
    }
}

/// Resolves when a connection's first request has not come within `header_timeout`. hyper's own timer begins
/// only once hyper knows the version of HTTP, which a client may keep to itself.
async fn silent(asked: &SetOnce<Version>, header_timeout: Duration) {
    if timeout(header_timeout, asked.wait()).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

fn builder(told: &Told) -> auto::Builder<TokioExecutor> {
    let settings = &told.settings;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(HeadTimer::default())
        .header_read_timeout(settings.header_timeout)
        // What the end of a client's stream says is found out by the request that it finds under way.
        .half_close(true)
        .max_buf_size(settings.header_max.max(BUFFER_MAX));
    // A bound that is told takes memory for each head.
    if settings.header_fields_max != FIELDS_MAX {
        builder.http1().max_headers(settings.header_fields_max);
    }
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(settings.header_max).unwrap_or(u32::MAX))
        .max_send_buf_size(BUFFER_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(Some(settings.header_timeout))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Answers one request, in one way or another.
fn respond<'a>(
    gate: &'a Arc<Gate>,
    watched: &'a Watched,
    from: &'a Arc<From>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ToClient>, Gone>> + use<> {
    let (gate, watched, from) = (Arc::clone(gate), watched.clone(), Arc::clone(from));
    // Before more is read of a connection that carries several.
    let under_way = watched.under_way();
    async move {
        let told = gate.told();
        let (version, has_body) = (request.version(), !request.body().is_end_stream());
        let present = Present::of(request.headers());
        let wanted = Wanted::by(request.method(), present);
        let path = normal(request.uri().path());
        let mut classified = gate.classifier.classify(request.method(), &path);
        let class = gate.classes.class_of(&request, &path, &from, &told.settings.trusted_proxies);
        let file = told.settings.file(&request, &path);
        drop(path);
        let asker = if present.has(Field::Origin) { Asker::of(&request, &classified) } else { None };
        let whose = (gate.driver.name(), &classified.name.label, class.as_ref());
        let mut record = Record::begin(&told.settings, whose, request.method(), request.headers());
        let ordered = told.uplink.as_ref().map(|up| (up, said(Priority::default(), request.headers())));
        let class = class.map_or(ClassId::DEFAULT, |class| class.id);
        let tenant = gate.classes.tenant_of(class, &request, &from, &told.settings.trusted_proxies);
        let what = (&mut classified, (class, tenant));
        let asked = (request, present, file);
        let by_itself = (version != Version::HTTP_2).then_some(&watched);
        let passed = tokio::select! {
            biased;
            passed = pass((&gate, &told), &watched, &from, asked, what, record.as_deref_mut()) => passed,
            () = leaves(by_itself) => Err(Ended::Gone),
        };
        watched.answers();
        let (mut response, reason) = match passed {
            Ok(mut response) => {
                if response.body().is_file() {
                    answer_early(&watched, has_body, response.headers_mut());
                }
                if let Some(asker) = &asker {
                    gate.origins.learn(asker, response.status(), response.headers());
                }
                (response, None)
            }
            Err(Ended::Gone) => return Err(Gone),
            Err(Ended::Refused(refusal)) => {
                gate.has_refused(refusal.name());
                let mut response = refusal.respond(&wanted, told.settings.error_page.as_ref());
                if let Some(asker) = &asker {
                    gate.origins.allow(asker, response.headers_mut());
                }
                answer_early(&watched, has_body, response.headers_mut());
                (response, Some(refusal.name()))
            }
        };
        watched.announced().await;
        response.body_mut().hold(under_way);
        if version == Version::HTTP_2 {
            response.body().is_one_of(watched.leisure());
        }
        if let Some((uplink, asked)) = ordered.filter(|_| !response.body().is_end_stream()) {
            let others = (version == Version::HTTP_2).then(|| watched.siblings());
            uplink.order(&mut response, classified.name.key, asked, watched.tcp(), others);
        }
        if let Some(watched) = by_itself.filter(|_| !response.body().is_end_stream()) {
            let is_events = Present::of(response.headers()).has(Field::Events);
            response.body_mut().watch(watched, is_events);
        }
        if let Some(mut record) = record {
            record.answer(response.status().as_u16(), reason);
            response.body_mut().note(record);
        }
        if version == Version::HTTP_2 {
            response.headers_mut().remove(header::CONNECTION);
        } else if watched.take_last() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }
}

/// The gate answers by itself, whatever still comes of the request.
fn answer_early(watched: &Watched, has_body: bool, fields: &mut HeaderMap) {
    // hyper doesn't read the rest of a body to serve the next request behind it.
    if watched.is_answered_early() {
        fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if has_body {
        watched.answered_early();
    }
}

/// Resolves when the client of a request has gone that has its connection for itself.
async fn leaves(by_itself: Option<&Watched>) {
    match by_itself {
        Some(watched) => watched.gone().await,
        // A stream that is reset drops its request by itself.
        None => std::future::pending().await,
    }
}

/// Why a request has no response of the service.
enum Ended {
    Gone,
    Refused(Refusal),
}

impl std::convert::From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl std::convert::From<Broken> for Ended {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Late(_) => Refusal::LateBody.into(),
            Broken::NoRoom => Refusal::NoRoom.into(),
            Broken::Large => Refusal::Fault(Fault::LargeBody).into(),
            Broken::Refused(refusal) => refusal.into(),
            // Its client listens: it has sent something that is no body.
            Broken::Http(error) if is_malformed(&error) => Refusal::Fault(Fault::Body).into(),
            Broken::Http(_) | Broken::Left | Broken::File(_) => Self::Gone,
        }
    }
}

async fn pass(
    (gate, told): (&Arc<Gate>, &Told),
    watched: &Watched,
    from: &From,
    (mut request, mut present, file): (Request<Incoming>, Present, Option<Asked>),
    (classified, (class, tenant)): (&mut Classified, (ClassId, Option<TenantId>)),
    mut record: Option<&mut Record>,
) -> Result<Response<ToClient>, Ended> {
    let is_http2 = request.version() == Version::HTTP_2;
    // Others know of no interim response, or can't be sent any.
    let client = (request.version() == Version::HTTP_11).then_some(watched);
    if watched.take_refused() || (is_http2 && matches!(gate.lateness.turn(), Turn::Refused | Turn::Closed)) {
        return Err(Refusal::Late.into());
    }
    if watched.take_ambiguous() && request.version() == Version::HTTP_11 {
        return Err(Refusal::Fault(Fault::Length).into());
    }
    fields::check(&request, present).map_err(Refusal::Fault)?;
    if is_http2 {
        fields::join_lengths(request.headers_mut()).map_err(Refusal::Fault)?;
        fields::join_cookies(request.headers_mut());
        present = Present::of(request.headers());
    }
    refuse_large(&told.settings, &request, present)?;
    if let Some(file) = file {
        return Ok(file.respond(request).await.map(ToClient::file));
    }
    let upgrading = fields::upgrade(&request, present)
        .map(|to| Upgrading { to, client: hyper::upgrade::on(&mut request) });
    if is_http2 || upgrading.is_some() {
        watched.share();
    }
    let expects = present.has(Field::Expect) && request.headers_mut().remove(header::EXPECT).is_some();
    let whose = if is_http2 { Client::Stream } else { Client::Alone }(watched.clone());
    let (wait_max, bytes_max) = (told.settings.body_timeout, told.settings.body_max);
    let mut request = request.map(|body| ToService::new(body, whose, wait_max, bytes_max));
    if is_http2 {
        // Over HTTP/1 its connection counts it.
        request.body_mut().count_head(present.bytes())?;
    }
    // From now on, however slowly the client sends its body.
    let time_out = present.has(Field::TimeOut).then(|| super::classify::time_out(request.headers()));
    let deadline = time_out.flatten().map(|time_out| gate.driver.clock().now().after(time_out));
    // A client that waits to be asked for its body sends none before.
    if !expects
        && let Some(length) = request.body().to_be_gathered()
        && let Ok(_room) = gate.gathering.try_acquire()
    {
        gather(request.body_mut(), length).await?;
    }
    let mut sample = None;
    if let Some(path) = classified.parameters.take() {
        // Few paths have any.
        let (name, said) = Box::pin(tell_apart(&path, &mut request, Ahead::unless(expects))).await?;
        sample = said;
        if let Some(name) = name {
            classified.name = name;
        }
        if let Some(record) = record.as_deref_mut() {
            record.rename(&classified.name.label);
        }
    }
    // A gate that tells the time to nobody needn't look at the clock.
    let arrived = (record.is_some() || told.settings.server_timing).then(Instant::now);
    let elapsed = || arrived.map_or(Duration::ZERO, |arrived| arrived.elapsed());
    let asked = admission::Request {
        request_type: classified.name.key,
        class,
        // Its connection is the visitor's own: a request that waits with it takes it from nobody.
        client: None,
        tenant,
        pool: PoolId::default(),
        connection: Connection::Needed,
        entry: Entry::Queued,
        deadline,
    };
    let trace = record
        .as_deref()
        .map_or_else(|| Parent::of(request.headers()).map(|parent| parent.trace), |record| record.trace);
    let turn = (!is_http2).then(|| watched.number());
    let origin = Origin { trace: trace.and_then(NonZeroU128::new), session: None, turn };
    let permit = match gate.driver.arrive(asked, origin, None, || classified.name.clone()) {
        Arrival::Dispatched(permit) => permit,
        Arrival::Rejected(refused, number) => return Err(rejected(&gate.driver, refused, number).into()),
        Arrival::Waiting(waiting) => {
            // Large, and not needed by a request that needn't wait.
            Box::pin(wait(gate, waiting, request.body_mut(), Ahead::unless(expects))).await?
        }
    };
    let held_up = elapsed();
    if let Some(record) = record.as_deref_mut() {
        record.dispatch(held_up);
    }
    let place = place((gate, told), from, &mut request, (asked, classified), permit);
    fields::readdress(&mut request, from, present);
    if told.settings.pass_type
        && let Ok(name) = HeaderValue::from_str(&classified.name.label)
    {
        request.headers_mut().insert(TYPE, name);
    }
    let recorded = record.as_deref().and_then(Record::recorded);
    if let Some(parent) = recorded.and_then(Recorded::to_service) {
        request.headers_mut().insert(TRACEPARENT, parent);
    }
    let mut response = forward((gate, told), &mut request, (place, sample), upgrading, client).await?;
    if let Some(record) = record {
        record.respond(elapsed().saturating_sub(held_up));
    }
    gate.classifier.learn(classified, response.headers_mut());
    if told.settings.server_timing
        && let Ok(timing) = HeaderValue::from_str(&format!("gate;dur={:.3}", held_up.as_secs_f64() * 1e3))
    {
        response.headers_mut().append(SERVER_TIMING, timing);
    }
    Ok(response)
}

/// The place of a request that is dispatched. An upload's is minded.
fn place(
    (gate, told): (&Arc<Gate>, &Told),
    from: &From,
    request: &mut Request<ToService>,
    (asked, classified): (admission::Request, &Classified),
    permit: Permit,
) -> Place {
    if !request.body().is_coming() {
        return Place::own(permit);
    }
    let share = gate.shares.take(fields::client_of(request.headers(), from, &told.settings.trusted_proxies));
    let what = (asked, classified.name.clone());
    let upload = Upload::new(&gate.driver, what, permit, share, told.settings.upstream_timeout);
    request.body_mut().tell(&upload);
    Place::Upload(upload)
}

/// What says of itself that it is too large is refused before anything waits for it.
fn refuse_large(settings: &Settings, request: &Request<Incoming>, present: Present) -> Result<(), Refusal> {
    if !fields::is_within(request, present, (settings.header_max, settings.header_fields_max)) {
        return Err(Refusal::Fault(Fault::LargeHead));
    }
    let is_large = |most: u64| request.body().size_hint().lower() > most;
    if settings.body_max.is_some_and(is_large) { Err(Refusal::Fault(Fault::LargeBody)) } else { Ok(()) }
}

/// Whether the body is read while its request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    Read,
    /// The client sends it when it is asked to, which is once it is needed.
    Leave,
}

impl Ahead {
    fn unless(expects: bool) -> Self {
        if expects { Self::Leave } else { Self::Read }
    }
}

/// Has a short body there before its request stands in line.
async fn gather(body: &mut ToService, length: usize) -> Result<(), Ended> {
    body.gather(length).await.map_err(Ended::from)
}

/// The type of a request by more than its path, and what its time is told to. Of its body only what came
/// with its head is read.
async fn tell_apart(
    path: &Arc<parameters::Path>,
    request: &mut Request<ToService>,
    ahead: Ahead,
) -> Result<(Option<TypeName>, Option<Sample>), Ended> {
    let reads = ahead == Ahead::Read && path.reads_bodies() && is_json(request.headers());
    if reads {
        request.body_mut().take_in(PREFIX_MAX).await?;
    }
    let body = reads.then(|| request.body().beginning(PREFIX_MAX));
    Ok(path.tell_apart(Said::of(request.uri().query(), body.as_deref())))
}

/// Waits for the verdict, and reads on meanwhile.
async fn wait(gate: &Gate, waiting: Waiting, body: &mut ToService, ahead: Ahead) -> Result<Permit, Ended> {
    let reading = async {
        match ahead {
            Ahead::Read => body.read_ahead().await,
            Ahead::Leave => std::future::pending::<Result<Infallible, Broken>>().await,
        }
    };
    let number = waiting.number();
    tokio::select! {
        biased;
        verdict = waiting => verdict.map_err(|refused| rejected(&gate.driver, refused, number).into()),
        broken = reading => match broken {
            Ok(never) => match never {},
            Err(broken) => Err(broken.into()),
        },
        () = gate.aborting() => Err(Refusal::Ending.into()),
    }
}
