//! `gatekeeper status`, `reload`, `drain`, `pause`, `resume`, `pass` and `enforce`: an operator's
//! commands to a running gatekeeper, over its admin listener.

use std::fmt::Write as _;
use std::time::Duration;

use proxy::admin::{GateStatus, Status};
use serde_json::json;

use super::running::asked;
use super::table::{clean, count, goal, long_time, turns};
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
    if let Some(process) = status.predecessor {
        text += &format!(
            "process {process}, which handed over, serves the clients that it had: no figure below counts them\n"
        );
    }
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
        None => line(format!("{}{bound}, {}", in_flight(gate.in_flight), waiting(gate.queued))),
        Some(really) => line(format!(
            "{}, all pass; enforcing there would be {}{bound}, and {} would wait",
            in_flight(really),
            gate.in_flight,
            gate.queued
        )),
    }
    if let Some(target) = &gate.target {
        let refuses = match target.present_bound {
            None => "nothing is refused for it now".to_owned(),
            Some(bound) => {
                let bound = count(bound as u64, "is in flight or waits", "are in flight or wait");
                format!("the next request is refused where {bound}")
            }
        };
        line(format!("target {}: {refuses}", goal(target)));
    }
    let found = gate.connections_found.as_ref().map_or(String::new(), |found| format!(" ({})", found.why));
    let would = if gate.really_in_flight.is_some() { "would be " } else { "" };
    let kept = match gate.connections_pinned {
        0 => String::new(),
        kept => format!(", {kept} kept by sessions"),
    };
    line(format!(
        "{} of {} {would}in use{kept}{found}",
        gate.connections_in_use,
        count(gate.connections.into(), "connection", "connections")
    ));
    let clients = count(gate.clients_connected as u64, "client", "clients");
    line(format!("{clients}, {} known", count(gate.types_known as u64, "request type", "request types")));
    let counts = &gate.requests;
    let refused = if gate.really_in_flight.is_some() { "would have been refused" } else { "refused" };
    line(format!(
        "since the start: {} succeeded, {} failed, {} {refused}{}",
        count(counts.succeeded_total, "request", "requests"),
        counts.failed_total + counts.conflicted_total,
        counts.rejected_total,
        reasons(gate)
    ));
    for class in &gate.classes {
        let goal = class.goal.as_ref().map_or(String::new(), |goal| {
            format!(", goal {goal}: {}", class.standing.as_deref().unwrap_or("not judged yet"))
        });
        let waiting = waiting(class.queued as usize);
        line(format!("class {}: {}{goal}, {waiting}", class.class, turns(class, &gate.classes)));
    }
    format!("gate {} ({}), clients at {}\n{text}", clean(&gate.name), clean(&gate.mode), clean(&gate.listen))
}

fn in_flight(requests: usize) -> String {
    format!("{} in flight", count(requests as u64, "request", "requests"))
}

fn waiting(requests: usize) -> String {
    count(requests as u64, "waits", "wait")
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

#[cfg(test)]
pub(super) mod tests {
    use proxy::admin::GoalReport;

    use super::*;

    /// A gate of which nothing but its name is told.
    pub(crate) fn status() -> GateStatus {
        let counts = json!({
            "dispatched_total": 0, "succeeded_total": 1, "failed_total": 0, "conflicted_total": 0,
            "canceled_total": 0, "left_total": 0, "rejected_total": 0, "rejected_by_reason": {},
            "work_seconds_total": 0.0,
        });
        let status = json!({
            "name": "shop", "mode": "enforce", "listen": "127.0.0.1:6432", "upstream": "db:5432",
            "load_seconds": 0.0, "capacity_seconds": null, "capacity_requests": 1, "retry_after_seconds": 1.0,
            "parallelism_requests": null, "parallelism_samples": null, "queued": 1, "in_flight": 1,
            "suspended": 0, "long_in_flight": 0, "long_limit": null, "connections": 1, "connections_in_use": 1,
            "connections_pinned": 0, "pinned_by_reason": {}, "types_known": 1, "types_forgotten_total": 0,
            "clients_connected": 1, "clients_logging_in": 0, "clients_refused_total": 0,
            "logins_succeeded_total": 0, "logins_failed_total": 0, "requests": counts, "pools": [],
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn one_of_each_is_told_in_the_singular() {
        let told = told_of(&status());
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "  1 request in flight, of 1 at most, 1 waits",
                "  1 of 1 connection in use",
                "  1 client, 1 request type known",
                "  since the start: 1 request succeeded, 0 failed, 0 refused",
            ]
        );
    }

    #[test]
    fn a_process_that_serves_on_after_an_upgrade_is_told() {
        let told = |predecessor| {
            let memory = proxy::admin::MemoryStatus::default();
            let (version, phase) = ("1".to_owned(), "ready".to_owned());
            let status =
                Status { version, phase, uptime_seconds: 1.0, predecessor, memory, gates: vec![status()] };
            told(&status, &Remote::at("127.0.0.1:6433"))
        };
        assert!(told(Some(123)).contains("\nprocess 123, which handed over, serves the clients that it had"));
        assert!(!told(None).contains("handed over"));
    }

    #[test]
    fn the_reference_has_every_key_of_a_gate() {
        let page = include_str!("../../../../docs/reference/status.md");
        let target = GoalReport { mean_seconds: None, p95_seconds: None, present_bound: None };
        let gate = serde_json::to_value(GateStatus { target: Some(target), ..status() }).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let class = json!({
            "class": "", "weight": 1.0, "goal": null, "observed": null, "standing": null, "queued": 0,
            "in_flight": 0, "dispatched_total": 0, "rejected_total": 0, "over_share_total": 0,
            "work_seconds_total": 0.0, "queue_wait_seconds_total": 0.0,
        });
        let class: proxy::admin::ClassStatus = serde_json::from_value(class).unwrap();
        let class = serde_json::to_value(class).unwrap();
        for key in [&gate, &gate["requests"], &gate["target"], &class].into_iter().flat_map(keys) {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }

    #[test]
    fn a_target_is_told_with_what_it_refuses() {
        let held = |present_bound| {
            let target = GoalReport { mean_seconds: Some(0.15), p95_seconds: None, present_bound };
            told_of(&GateStatus { target: Some(target), ..status() })
        };
        let refuses = "target mean 150ms: the next request is refused where 12 are in flight or wait\n";
        assert!(held(Some(12.7)).contains(refuses), "{}", held(Some(12.7)));
        assert!(held(None).contains("target mean 150ms: nothing is refused for it now\n"), "{}", held(None));
    }
}
