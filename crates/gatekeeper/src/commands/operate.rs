//! `gatekeeper status`, `reload`, `drain`, `pause`, `resume`, `pass` and `enforce`: an operator's
//! commands to a running gatekeeper, over its admin listener.

use std::fmt::Write as _;
use std::time::Duration;

use proxy::admin::{GateStatus, Status};
use serde_json::json;

use super::running::asked;
use super::table::{clean, long_time, turns};
use crate::Failure;
use crate::cli::{AdminArgs, DrainArgs, EmergencyArgs, PauseArgs, StatusArgs};
use crate::remote::{Answer, Remote, block_on};

/// How often `drain --wait` looks whether the process has ended.
const LOOK: Duration = Duration::from_millis(200);

/// How it is, in a few lines.
pub(crate) fn status(args: &StatusArgs) -> Result<String, Failure> {
    let remote = asked(&args.admin)?;
    let answer = block_on(remote.get("/status"))?;
    let json = answer.body.clone();
    let status: Status = remote.parsed(answer)?;
    let ills: Vec<_> = ills(&status);
    let mut text = if args.json { json + "\n" } else { told(&status, &remote) };
    if ills.is_empty() {
        return Ok(text);
    }
    if !args.json {
        text += &format!("not well: {}\n", ills.join("; "));
    }
    crate::print(&text)?;
    Err(Failure::Unwell)
}

/// What an operator should look at.
fn ills(status: &Status) -> Vec<String> {
    let mut ills = Vec::new();
    if status.phase != "ready" {
        ills.push(format!("it is {}", clean(&status.phase)));
    }
    for gate in &status.gates {
        let name = clean(&gate.name);
        if !gate.upstreams.is_empty() && gate.upstreams.iter().all(|it| it.state == "down") {
            ills.push(format!("gate {name}: the service is down"));
        } else if gate.stalled {
            ills.push(format!("gate {name}: the service has stopped answering"));
        }
        if !gate.paused.is_empty() {
            ills.push(format!("gate {name}: paused by an operator ({})", clean(&paused(gate))));
        }
        if gate.passes_everything {
            ills.push(format!("gate {name}: everything passes, by an operator"));
        }
    }
    ills
}

/// What an operator has paused of a gate.
fn paused(gate: &GateStatus) -> String {
    match gate.paused.iter().any(|name| name == "*") {
        true => "the whole gate".to_owned(),
        false => format!("database {}", gate.paused.join(", ")),
    }
}

fn told(status: &Status, remote: &Remote) -> String {
    let (version, phase) = (clean(&status.version), clean(&status.phase));
    let uptime = long_time(status.uptime_seconds);
    let mut text = format!("gatekeeper {version} at {remote}: {phase}, up {uptime}\n");
    for gate in &status.gates {
        text += &told_of(gate);
    }
    text
}

/// One gate in a few lines.
pub(super) fn told_of(gate: &GateStatus) -> String {
    let mut text = String::new();
    let mut line = |told: String| {
        // A string takes all.
        let _ = writeln!(text, "  {}", clean(&told));
    };
    for it in &gate.upstreams {
        let error = it.last_error.as_ref().filter(|_| it.state == "down");
        let error = error.map_or(String::new(), |error| format!(": {error}"));
        line(format!("upstream {} is {} since {}{error}", it.address, it.state, long_time(it.since_seconds)));
    }
    if !gate.paused.is_empty() {
        line(format!("paused ({}): requests wait until `gatekeeper resume`", paused(gate)));
    }
    if gate.passes_everything {
        line("everything passes: the gate decides nothing until `gatekeeper enforce`".to_owned());
    }
    let bound = gate.capacity_requests.map_or(String::new(), |most| format!(", of {most} at most"));
    match gate.really_in_flight {
        None => line(format!("{} requests in flight{bound}, {} wait", gate.in_flight, gate.queued)),
        Some(really) => line(format!(
            "{really} requests in flight, all pass; enforcing there would be {}{bound}, and {} would wait",
            gate.in_flight, gate.queued
        )),
    }
    let found = gate.connections_found.as_ref().map_or(String::new(), |found| format!(" ({})", found.why));
    let would = if gate.really_in_flight.is_some() { "would be " } else { "" };
    // Over HTTP there are no sessions, and a pool is of an address alone.
    let is_http = gate.pools.iter().all(|pool| pool.user.is_empty() && !pool.database.is_empty());
    let kept = match is_http && gate.connections_pinned == 0 {
        true => String::new(),
        false => format!(", {} kept by sessions", gate.connections_pinned),
    };
    line(format!(
        "{} of {} connections {would}in use{kept}{found}",
        gate.connections_in_use, gate.connections
    ));
    line(format!("{} clients, {} request types known", gate.clients_connected, gate.types_known));
    let counts = &gate.requests;
    let refused = if gate.really_in_flight.is_some() { "would have been refused" } else { "refused" };
    line(format!(
        "since the start: {} requests succeeded, {} failed, {} {refused}{}",
        counts.succeeded_total,
        counts.failed_total + counts.conflicted_total,
        counts.rejected_total,
        reasons(gate)
    ));
    for class in &gate.classes {
        let goal = class.goal.as_ref().map_or(String::new(), |goal| {
            format!(", goal {goal}: {}", class.standing.as_deref().unwrap_or("not judged yet"))
        });
        line(format!("class {}: {}{goal}, {} wait", class.class, turns(class), class.queued));
    }
    format!("gate {} ({}), clients at {}\n{text}", clean(&gate.name), clean(&gate.mode), clean(&gate.listen))
}

fn reasons(gate: &GateStatus) -> String {
    let mut reasons: Vec<_> =
        gate.requests.rejected_by_reason.iter().filter(|(_, count)| **count > 0).collect();
    reasons.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), name.as_str()));
    let reasons: Vec<_> = reasons.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) }
}

/// Has the gatekeeper read its configuration again.
pub(crate) fn reload(args: &AdminArgs) -> Result<String, Failure> {
    let remote = asked(args)?;
    done(&remote, block_on(remote.post("/reload", String::new()))?)
}

/// Has the gatekeeper end once its transactions have ended.
pub(crate) fn drain(args: &DrainArgs) -> Result<String, Failure> {
    let remote = asked(&args.admin)?;
    block_on(async {
        let told = done(&remote, remote.post("/drain", String::new()).await?)?;
        if args.wait {
            while remote.get("/healthz").await.is_ok() {
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(told)
    })
}

/// Has the gatekeeper start its successor, which takes over.
pub(crate) fn upgrade(args: &AdminArgs) -> Result<String, Failure> {
    let remote = asked(args)?;
    done(&remote, block_on(remote.post_for_as_long_as_it_takes("/upgrade", String::new()))?)
}

/// Holds requests up until none is in flight.
pub(crate) fn pause(args: &PauseArgs) -> Result<String, Failure> {
    hold(args, "pause", || {
        eprintln!("pausing: waits until no request is in flight; Ctrl-C takes it back");
    })
}

/// Lets paused requests go.
pub(crate) fn resume(args: &PauseArgs) -> Result<String, Failure> {
    hold(args, "resume", || ())
}

/// Lets everything pass.
pub(crate) fn pass(args: &EmergencyArgs) -> Result<String, Failure> {
    command((&args.admin, args.gate.as_deref()), String::new(), "pass", || ())
}

/// Has a gate decide again.
pub(crate) fn enforce(args: &EmergencyArgs) -> Result<String, Failure> {
    command((&args.admin, args.gate.as_deref()), String::new(), "enforce", || ())
}

/// Pauses or resumes a gate, or one of its databases.
fn hold(args: &PauseArgs, name: &str, begin: impl FnOnce()) -> Result<String, Failure> {
    let body = args.database.as_ref().map_or(String::new(), |name| json!({ "database": name }).to_string());
    command((&args.admin, args.gate.as_deref()), body, name, begin)
}

/// `begin` is called once the gate is found.
fn command(
    (admin, gate): (&AdminArgs, Option<&str>),
    body: String,
    name: &str,
    begin: impl FnOnce(),
) -> Result<String, Failure> {
    let remote = asked(admin)?;
    block_on(async {
        let gate = remote.gate(gate).await?.name;
        begin();
        let answer = remote.post_for_as_long_as_it_takes(&format!("/gates/{gate}/{name}"), body).await?;
        done(&remote, answer)
    })
}

/// What the gate says it did, or why it didn't.
fn done(remote: &Remote, answer: Answer) -> Result<String, Failure> {
    let said: Vec<_> = answer.body.lines().map(clean).collect();
    let said = said.join("\n");
    match answer.status.as_u16() {
        _ if answer.status.is_success() => Ok(said + "\n"),
        404 if said.is_empty() => Err(Failure::Runtime(format!(
            "{remote} doesn't know this command: it is an older gatekeeper, or none"
        ))),
        _ => Err(Failure::Runtime(format!("{remote} refuses: {said}"))),
    }
}
