//! What an operator asks of a running process over the admin listener, with `POST`:
//!
//! | path | does |
//! |---|---|
//! | `/reload` | reads the configuration again; 422 with every error, and nothing has changed |
//! | `/drain` | ends the process as the first SIGTERM does |
//! | `/upgrade` | starts the program that is installed now, which takes the sockets over |
//! | `/takeover` | becomes another protocol, by which a successor takes the sockets over (Unix socket only) |
//! | `/gates/NAME/pause` | holds requests up, and answers once none is in flight |
//! | `/gates/NAME/resume` | lets them go |
//! | `/gates/NAME/pass` | the emergency: lets everything pass |
//! | `/gates/NAME/enforce` | decides again, as the configuration says |
//! | `/allowed` | nothing: says whether the sender may change anything |
//!
//! A client that leaves before its pause is answered takes it back. The body of pause and resume may name
//! a database: `{"database":"shop"}`. All is taken over the Unix socket or with the token, as changes are.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::change::{Refused, gate, may_change};
use super::{Admin, Desk, Door, GateView};
use crate::command::{Command, Commands};
use crate::gate::Driver;

/// How often a pause looks whether the last request has ended. Nothing tells it: that would cost every
/// request.
const PAUSE_LOOK: Duration = Duration::from_millis(10);

type Answer = Result<String, Refused>;

pub(super) fn routes() -> Router<Desk> {
    Router::new()
        .route("/reload", post(reload))
        .route("/drain", post(drain))
        .route("/upgrade", post(upgrade))
        .route("/takeover", post(take_over))
        .route("/gates/{name}/pause", post(pause))
        .route("/gates/{name}/resume", post(resume))
        .route("/gates/{name}/pass", post(pass))
        .route("/gates/{name}/enforce", post(enforce))
        .route("/allowed", post(allowed))
}

async fn reload(State(desk): State<Desk>, headers: HeaderMap) -> Answer {
    let (sender, answer) = oneshot::channel();
    tell(&desk, &headers, Command::Reload(sender)).await?;
    match answer.await {
        Ok(Ok(done)) => Ok(done + "\n"),
        Ok(Err(errors)) => {
            Err(Refused(StatusCode::UNPROCESSABLE_ENTITY, format!("nothing has changed:\n{errors}")))
        }
        Err(_) => Err(ends()),
    }
}

async fn drain(State(desk): State<Desk>, headers: HeaderMap) -> Answer {
    tell(&desk, &headers, Command::Shutdown).await?;
    Ok("draining: no new clients; the process ends with the last transaction, or after drain_timeout\n"
        .to_owned())
}

async fn upgrade(State(desk): State<Desk>, headers: HeaderMap) -> Answer {
    let (sender, answer) = oneshot::channel();
    tell(&desk, &headers, Command::Upgrade(sender)).await?;
    match answer.await {
        Ok(Ok(done)) => Ok(done + "\n"),
        Ok(Err(why)) => Err(Refused(StatusCode::UNPROCESSABLE_ENTITY, why)),
        Err(_) => Err(ends()),
    }
}

/// The protocol that a successor asks for, of the version that is understood.
pub const HANDOVER_PROTOCOL: &str = "gatekeeper-handover/1";

async fn take_over(State(desk): State<Desk>, mut request: Request) -> Result<Response, Refused> {
    if desk.door != Door::Socket {
        let why = "sockets are handed over on the Unix socket of the admin listener only";
        return Err(Refused(StatusCode::FORBIDDEN, why.to_owned()));
    }
    let asked = request.headers().get(header::UPGRADE).map(|value| value.to_str().unwrap_or("?"));
    if asked != Some(HANDOVER_PROTOCOL) {
        return Err(Refused(
            StatusCode::UPGRADE_REQUIRED,
            format!(
                "gatekeeper {} hands over by {HANDOVER_PROTOCOL}, and was asked for {}: drain it instead, and \
                 start the other one",
                desk.admin.version,
                asked.unwrap_or("nothing")
            ),
        ));
    }
    let commands: Commands = desk.admin.commands.get().cloned().ok_or_else(ends)?;
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let Ok(parts) = upgraded.downcast::<TokioIo<UnixStream>>() else { return };
        match parts.io.into_inner().into_std() {
            // Without a receiver the process has ended.
            Ok(stream) => _ = commands.send(Command::Offer(stream)).await,
            Err(error) => tracing::warn!(%error, "a successor's connection can't be used"),
        }
    });
    let head = [(header::CONNECTION, "upgrade"), (header::UPGRADE, HANDOVER_PROTOCOL)];
    Ok((StatusCode::SWITCHING_PROTOCOLS, head).into_response())
}

async fn tell(desk: &Desk, headers: &HeaderMap, command: Command) -> Result<(), Refused> {
    may_change(desk, headers)?;
    let commands: Commands = desk.admin.commands.get().cloned().ok_or_else(ends)?;
    commands.send(command).await.map_err(|_| ends())
}

fn ends() -> Refused {
    Refused(
        StatusCode::SERVICE_UNAVAILABLE,
        "gatekeeper is starting or ending: it takes no commands".to_owned(),
    )
}

/// Whose requests are meant: those for a database, or all.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whose {
    database: Option<String>,
}

/// The gate and the database that a request names, where it may change something.
fn named(
    desk: &Desk,
    headers: &HeaderMap,
    name: &str,
    body: &Bytes,
) -> Result<(Arc<dyn GateView>, Option<String>), Refused> {
    may_change(desk, headers)?;
    let gate = gate(&desk.admin, name)?;
    let wrong =
        |error| Refused(StatusCode::BAD_REQUEST, format!("{error}; send such as {{\"database\":\"shop\"}}"));
    let whose: Whose =
        if body.is_empty() { Whose::default() } else { serde_json::from_slice(body).map_err(wrong)? };
    Ok((gate, whose.database))
}

fn refused(name: &str, why: &str) -> Refused {
    Refused(StatusCode::CONFLICT, format!("gate {name}: {why}"))
}

async fn pause(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let (gate, database) = named(&desk, &headers, &name, &body)?;
    gate.pause(database.as_deref()).map_err(|why| refused(&name, &why))?;
    let mut taken_back = TakenBack { gate: &*gate, database: database.as_deref(), is_done: false };
    let mut look = tokio::time::interval(PAUSE_LOOK);
    loop {
        look.tick().await;
        if is_ending(&desk.admin) {
            return Err(ends());
        }
        if !holds_up(&*gate, database.as_deref()) {
            // What is held up from now on is another pause's.
            taken_back.is_done = true;
            return Err(refused(&name, "somebody has resumed it before the last request in flight ended"));
        }
        if gate.in_flight_of(database.as_deref()) == 0 {
            break;
        }
    }
    taken_back.is_done = true;
    tracing::info!(
        gate = name,
        database,
        "paused over the admin listener: requests wait until somebody resumes"
    );
    Ok("paused: no request is in flight, and new ones wait until somebody resumes\n".to_owned())
}

fn holds_up(gate: &dyn GateView, database: Option<&str>) -> bool {
    gate.paused().iter().any(|name| name == "*" || database == Some(name))
}

fn is_ending(admin: &Admin) -> bool {
    admin.phase_name() == "draining"
}

/// Takes a pause back that didn't come about, also where its client has left.
struct TakenBack<'a> {
    gate: &'a dyn GateView,
    database: Option<&'a str>,
    is_done: bool,
}

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // It may have been resumed meanwhile.
            let _ = self.gate.resume(self.database);
        }
    }
}

async fn resume(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let (gate, database) = named(&desk, &headers, &name, &body)?;
    gate.resume(database.as_deref()).map_err(|why| refused(&name, &why))?;
    tracing::info!(gate = name, database, "resumed over the admin listener");
    Ok("resumed: requests pass again\n".to_owned())
}

async fn allowed(State(desk): State<Desk>, headers: HeaderMap) -> Answer {
    may_change(&desk, &headers)?;
    Ok("changes are taken from you\n".to_owned())
}

async fn pass(State(desk): State<Desk>, Path(name): Path<String>, headers: HeaderMap, body: Bytes) -> Answer {
    control(&desk, &name, (&headers, &body), Driver::pass_everything)?;
    tracing::warn!(
        gate = name,
        "an operator lets everything pass: no order, bound, target or class holds until `gatekeeper enforce`"
    );
    Ok("everything passes: no order, bound, target or class holds until `gatekeeper enforce`\n".to_owned())
}

async fn enforce(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    control(&desk, &name, (&headers, &body), Driver::decide_again)?;
    tracing::info!(gate = name, "an operator lets the gate decide again");
    Ok("the gate decides again, as the configuration says\n".to_owned())
}

fn control(
    desk: &Desk,
    name: &str,
    (headers, body): (&HeaderMap, &Bytes),
    change: fn(&Driver) -> Result<(), String>,
) -> Result<(), Refused> {
    may_change(desk, headers)?;
    let gate = gate(&desk.admin, name)?;
    if !body.is_empty() {
        let why = format!("gate {name}: this is of the whole gate, so send no body");
        return Err(Refused(StatusCode::BAD_REQUEST, why));
    }
    let driver = gate.driver().ok_or_else(|| refused(name, "it decides nothing"))?;
    change(driver).map_err(|why| refused(name, &why))
}
