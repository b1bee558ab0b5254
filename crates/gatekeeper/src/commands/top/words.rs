//! Figures and states in plain English; the page's `words.js` says the same in a browser.

use proxy::admin::GateStatus;

use super::model::{Event, Gate, Recent, Sample};
use crate::commands::table::{count, goal, long_time, time};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Good,
    Warn,
    Bad,
}

/// Whether it is well: in a few words, and in a sentence.
pub(super) struct Verdict {
    pub(super) level: Level,
    pub(super) title: &'static str,
    pub(super) text: String,
}

/// Whether a gate is well.
pub(super) fn verdict(gate: &Gate, phase: &str) -> Verdict {
    let (status, queued) = (&gate.status, gate.status.queued);
    let told = |level, title, text| Verdict { level, title, text };
    if phase == "draining" {
        let text = "It takes no new clients. Open transactions may end.".to_owned();
        return told(Level::Warn, "Gatekeeper is ending", text);
    }
    let down: Vec<_> = status.upstreams.iter().filter(|it| it.state == "down").collect();
    if let (Some(first), true) = (down.first(), down.len() == status.upstreams.len()) {
        let why = first.last_error.as_ref().map_or(String::new(), |error| format!(" Last error: {error}."));
        let text = format!("{} is down since {}.{why}", first.address, long_time(first.since_seconds));
        return told(Level::Bad, "The service doesn't answer", text);
    }
    if !status.paused.is_empty() {
        let what = if status.paused.iter().any(|name| name == "*") {
            "Every request waits".to_owned()
        } else {
            format!("Requests for {} wait", status.paused.join(", "))
        };
        let text = format!("{what} until somebody resumes. {} now.", waits(queued));
        return told(Level::Warn, "Paused", text);
    }
    if status.stalled {
        let text = format!("Nothing has ended for long, and {}.", waits(queued));
        return told(Level::Bad, "The service has stopped answering", text);
    }
    if status.passes_everything {
        let text =
            "An operator has set bounds, order and targets aside, until `gatekeeper enforce`.".to_owned();
        return told(Level::Warn, "Emergency: everything passes", text);
    }
    busy(gate, !down.is_empty())
}

/// Whether a gate whose service answers is well.
fn busy(gate: &Gate, is_partly_down: bool) -> Verdict {
    let told = |level, title, text| Verdict { level, title, text };
    let (status, queued) = (&gate.status, gate.status.queued);
    let (served, refused) = (mean(gate, |it| it.served), mean(gate, |it| it.refused));
    let rates = match rate(served).as_str() {
        "1.0" => "1 request a second is served".to_owned(),
        served => format!("{served} requests a second are served"),
    };
    let is_observing = status.mode == "observe";
    if refused >= 0.05 {
        let why = gate
            .refused()
            .first()
            .map_or("of something that the gate doesn't tell".to_owned(), |it| reason(it.0));
        let (title, verb) = match is_observing {
            true => ("It would refuse requests", "would be refused"),
            false => ("It refuses requests", "are refused"),
        };
        let text = format!("{} a second {verb}, mostly because {why}; {rates}.", rate(refused));
        return told(Level::Bad, title, text);
    }
    if is_partly_down {
        let down = status.upstreams.iter().filter(|it| it.state == "down");
        let down: Vec<_> = down.map(|it| it.address.as_str()).collect();
        return told(Level::Warn, "Part of the service is down", format!("{}. {rates}.", down.join(", ")));
    }
    if let Some(late) = status.lateness.as_ref().filter(|it| it.is_late) {
        let text = format!("Clients wait {} until they are read.", time(late.delay_seconds));
        return told(Level::Warn, "Gatekeeper itself is short of processor time", text);
    }
    let longest = longest(gate);
    let wait = gate.last(1).next().map_or(0.0, |it| it.times.wait_p95 as f64 / 1e6);
    if queued > 0 && (longest >= 1.0 || wait >= 0.25) {
        let title = if is_observing { "Requests would wait" } else { "Busy: requests wait" };
        let text =
            format!("{}, the longest for {}; {rates}, and none is refused.", waits(queued), time(longest));
        return told(Level::Warn, title, text);
    }
    if served < 0.05 && queued == 0 {
        return told(Level::Good, "Well, and at rest", "No requests come.".to_owned());
    }
    let quiet =
        if queued > 0 { format!("{} for a moment.", waits(queued)) } else { "Nobody waits.".to_owned() };
    told(Level::Good, "All is well", format!("{rates}. {quiet}"))
}

/// The mean of the last ten seconds.
pub(super) fn mean(gate: &Gate, of: impl Fn(&Sample) -> f64) -> f64 {
    let last = gate.last(10);
    last.clone().map(of).sum::<f64>() / last.count().max(1) as f64
}

/// How long the oldest waiting request has waited, in seconds.
pub(super) fn longest(gate: &Gate) -> f64 {
    gate.waiting.first().map_or(0.0, |it| it.longest_ms as f64 / 1e3)
}

fn waits(queued: usize) -> String {
    count(queued as u64, "request waits", "requests wait")
}

/// A rate with two or three digits.
pub(super) fn rate(value: f64) -> String {
    match value {
        _ if value >= 9.95 => format!("{value:.0}"),
        _ if value >= 0.095 => format!("{value:.1}"),
        _ if value > 0.0 => "<0.1".to_owned(),
        _ => "0".to_owned(),
    }
}

/// A part of a whole.
pub(super) fn share(value: f64) -> String {
    match value {
        _ if value >= 0.0995 => format!("{:.0}%", value * 100.0),
        _ if value >= 0.0005 => format!("{:.1}%", value * 100.0),
        _ if value > 0.0 => "<0.1%".to_owned(),
        _ => "0%".to_owned(),
    }
}

/// Why requests were refused.
pub(super) fn reason(name: &str) -> String {
    match name {
        "queue_full" => "the queue was full",
        "queue_timeout" => "no room came within queue_timeout",
        "deadline" => "a deadline had passed",
        "deadline_unreachable" => "a deadline couldn't be met",
        "queue_delay" => "the queue was slow for too long",
        "target" => "the target would have been missed",
        "pinned_max" => "too many sessions keep a connection",
        "over_share" => "a class or tenant had more than its share, or is in the background",
        _ => return name.replace('_', " "),
    }
    .to_owned()
}

/// Why a type is in its lane.
pub(super) fn lane_why(row: &Recent, status: &GateStatus) -> String {
    let expected = time(row.expected);
    let limit = status.long_limit.map_or(String::new(), |most| {
        format!(" At most {} at once.", count(u64::from(most), "long one runs", "long ones run"))
    });
    match row.lane.as_str() {
        "short" => format!("Expected to take {expected}, not much more than others. It passes freely."),
        "long" => {
            format!("Expected to take {expected}, more than four times the mean of all requests.{limit}")
        }
        "variable" => format!(
            "Expected to take {expected}, but its times vary too much for a limit. It leaves the last quarter of the connections to others."
        ),
        _ if row.counts.completed > 0 => {
            "Too few requests have ended to know what one takes. Until then it runs one at a time.".to_owned()
        }
        _ => "Nothing is known of it yet. It runs one at a time until its first requests have ended."
            .to_owned(),
    }
}

/// What a request of this lane waits for.
pub(super) fn waits_for(status: &GateStatus, lane: &str) -> String {
    if status.paused.iter().any(|name| name == "*") {
        return "an operator's pause to end".to_owned();
    }
    if !status.paused.is_empty() {
        return format!("a pause (of {})", status.paused.join(", "));
    }
    if !status.upstreams.is_empty() && status.upstreams.iter().all(|it| it.state == "down") {
        return "the service, which is down".to_owned();
    }
    let is_long = matches!(lane, "long" | "variable");
    match (status.long_limit, status.capacity_requests, status.capacity_seconds) {
        _ if lane == "unknown" => "its turn: unknown types run one at a time".to_owned(),
        (Some(most), ..) if is_long && status.long_in_flight >= most => {
            format!("room in the long lane ({})", long_lane(status.long_in_flight, most))
        }
        _ if status.connections_in_use >= status.connections => {
            let kept = status.connections_pinned;
            let kept = if kept > 0 { format!(", {kept} kept by sessions") } else { String::new() };
            format!("a server connection (all {} in use{kept})", status.connections)
        }
        (_, Some(most), _) if status.in_flight >= most as usize => {
            format!("room: {most} {} at once", if most == 1 { "request runs" } else { "requests run" })
        }
        (.., Some(most)) if status.load_seconds >= most => {
            format!("room: {} of {} work in flight", time(status.load_seconds), time(most))
        }
        _ if is_long && u64::from(status.connections_in_use) * 4 >= u64::from(status.connections) * 3 => {
            "a server connection that short requests leave free".to_owned()
        }
        _ if status.pools.len() > 1 => "its turn, or a server connection of its user and database".to_owned(),
        _ => "its turn".to_owned(),
    }
}

/// How full the long lane is. What turns out long as it runs is in it, too, and nobody is put out of it.
fn long_lane(running: u32, most: u32) -> String {
    match running.checked_sub(most) {
        None | Some(0) => format!("{running} of {most} in use"),
        Some(_) => {
            format!("{running} run, {most} may start: others turned out long as they ran, or the limit fell")
        }
    }
}

/// What the gate has found: a name, a value, a reason.
pub(super) fn found(status: &GateStatus) -> Vec<[String; 3]> {
    let line = |name: &str, value: String, why: String| [name.to_owned(), value, why];
    let in_use = format!("{} of {} in use", status.connections_in_use, status.connections);
    let why = status.connections_found.as_ref();
    let why = why.map_or("The number is configured.".to_owned(), |found| format!("Found: {}.", found.why));
    let mut lines = vec![line("Connections", in_use, why)];
    if let Some(most) = status.capacity_requests {
        let why = match most >= status.connections {
            true => "As many as connections: nothing says that fewer complete more.",
            false => "Follows what completes most, and rises at once while requests wait.",
        };
        lines.push(line("Requests at once", most.to_string(), why.to_owned()));
    }
    if let Some(most) = status.capacity_seconds {
        let why = "The sum of what requests in flight are expected to take.";
        let value = format!("{} of {}", time(status.load_seconds), time(most));
        lines.push(line("Work at once", value, why.to_owned()));
    }
    lines.push(works_on(status));
    if let Some(target) = &status.target {
        let why = match target.present_bound {
            None => "Nothing is refused for it now.".to_owned(),
            Some(bound) => {
                let most = count(bound as u64, "request waits or runs", "requests wait or run");
                format!("Where {most}, the next one is refused.")
            }
        };
        lines.push(line("Target", goal(target), why));
    }
    if let Some(most) = status.long_limit {
        let why = "So many long requests keep the service busy.";
        lines.push(line("Long lane", long_lane(status.long_in_flight, most), why.to_owned()));
    }
    for group in &status.groups {
        let value = format!("{} of {} at once", group.in_flight, group.limit);
        let waiting = count(group.waiting as u64, "request waits", "requests wait");
        let why = format!("{}; {waiting}.", group.types.join(" · "));
        lines.push(line("Types that contend", value, why));
    }
    if status.clients_mixing_waiting > 0 {
        let value = format!("{} of {} wait", status.clients_mixing_waiting, status.clients_mixing);
        let why = "They send short and long requests in turn, and wait for a long one: those may go first.";
        lines.push(line("Mixed clients", value, why.to_owned()));
    }
    lines
}

/// On how much the service works. What it tells of its cores comes before what was learned: requests that
/// wait for locks, disks or others take no core, and as many as want may do that at once.
fn works_on(status: &GateStatus) -> [String; 3] {
    let (value, why) = match (status.cores, status.parallelism_requests) {
        (Some(cores), _) => (count(u64::from(cores), "core", "cores"), "It has told the gate so."),
        (None, Some(learned)) => {
            (format!("{learned} at once"), "About its cores, more where requests wait for locks or disks.")
        }
        (None, None) => {
            ("not known yet".to_owned(), "Learned from how much longer requests take beside others.")
        }
    };
    ["Service works on".to_owned(), value, why.to_owned()]
}

/// An event as a sentence.
pub(super) fn event(event: &Event) -> String {
    let unknown = "?".to_owned();
    let get = |name: &str| event.facts.iter().find(|(known, _)| known == name).map_or(&unknown, |it| &it.1);
    let cause = event.facts.iter().find(|(known, _)| known == "cause");
    let cause = cause.map_or(String::new(), |(_, cause)| format!(". {cause}"));
    match event.text.as_str() {
        "another capacity: more is completed" | "another capacity" => {
            let gain = event.facts.iter().find(|(known, _)| known == "gain");
            let gain = gain.map_or(String::new(), |(_, gain)| format!(": {gain} is completed so"));
            format!("Requests at once: {} → {}{gain}", get("from"), get("to"))
        }
        "another limit of the long lane" => format!("Long lane: {} → {} at once", get("from"), get("to")),
        "requests were refused" => format!("{} refused: {}{cause}", get("count"), reason(get("reason"))),
        "requests would have been refused" => {
            format!("{} would have been refused: {}{cause}", get("count"), reason(get("reason")))
        }
        "a type changed its lane" => {
            let changes = get("changes").parse::<u64>().ok().filter(|changes| *changes > 1);
            let changes = changes
                .map_or(String::new(), |changes| format!(", the last of {changes} changes within a minute"));
            format!("To the {} lane{changes}: {}", get("lane"), get("type"))
        }
        "limits" => {
            let first = match get("finds_connections").as_str() {
                "true" => "{} connections until the server is known to have another number",
                _ if get("connections") == "1" => "At most {} connection",
                _ => "At most {} connections",
            };
            let (queue, clients, order) = (get("queue_max"), get("max_clients"), get("order"));
            let first = first.replace("{}", get("connections"));
            format!("{first}, {queue} waiting requests, {clients} clients; order: {order}")
        }
        "an upstream is up again" => format!("{} is up again", get("upstream")),
        "an upstream is down" => format!("{} is down: {}", get("upstream"), get("reason")),
        "protecting" => format!("Protects {}, listens at {}", get("upstream"), get("listen")),
        text => {
            let facts: Vec<_> = event.facts.iter().filter_map(|(name, value)| fact(name, value)).collect();
            let times = if event.lines > 1 { format!(" ({} times)", event.lines) } else { String::new() };
            format!("{text}{times} {}", facts.join(", "))
        }
    }
}

/// A field of the log, for people.
fn fact(name: &str, value: &str) -> Option<String> {
    let words = name.replace('_', " ");
    let bare = value.strip_prefix("Some(").and_then(|rest| rest.strip_suffix(')')).unwrap_or(value);
    let timed = words.strip_suffix(" seconds").or_else(|| words.strip_suffix(" s"));
    match (value, timed.zip(bare.parse().ok())) {
        ("false" | "None", _) => None,
        ("true", _) => Some(words),
        _ if matches!(name, "reason" | "error") => Some(bare.to_owned()),
        (_, Some((words, seconds))) => Some(format!("{words} {}", long_time(seconds))),
        _ => Some(format!("{words} {bare}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_lane_that_is_more_than_full_says_why() {
        assert_eq!([0, 2].map(|running| long_lane(running, 2)), ["0 of 2 in use", "2 of 2 in use"]);
        assert!(long_lane(4, 2).starts_with("4 run, 2 may start: others turned out long"));
    }

    #[test]
    fn an_event_names_the_time_of_its_changes() {
        let of = |text: &str, facts: &[(&str, &str)]| {
            let facts = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            event(&Event { text: text.to_owned(), facts, lines: 1, ..Event::default() })
        };
        let lane = |changes| {
            of("a type changed its lane", &[("lane", "short"), ("type", "a"), ("changes", changes)])
        };
        assert_eq!(lane("1"), "To the short lane: a");
        assert_eq!(lane("1755"), "To the short lane, the last of 1755 changes within a minute: a");
        let gained = [("from", "4"), ("to", "8"), ("gain", "many times as much")];
        let told = of("another capacity: more is completed", &gained);
        assert_eq!(told, "Requests at once: 4 → 8: many times as much is completed so");
    }

    #[test]
    fn cores_that_the_service_tells_come_before_what_was_learned() {
        let mut status: GateStatus = crate::commands::operate::tests::status();
        status.parallelism_requests = Some(57);
        assert_eq!(works_on(&status)[1], "57 at once");
        status.cores = Some(2);
        assert_eq!(works_on(&status)[1], "2 cores");
    }

    #[test]
    fn fields_of_the_log_are_words() {
        let told = |name, value| fact(name, value).unwrap_or_default();
        assert_eq!(told("queue_timeout", "Some(5s)"), "queue timeout 5s");
        assert_eq!(
            (told("finds_cores", "true"), told("finds_cores", "false")),
            ("finds cores".to_owned(), String::new())
        );
        assert_eq!(told("lasted_s", "12.5"), format!("lasted {}", long_time(12.5)));
        assert_eq!(told("error", "refused"), "refused");
    }
}
