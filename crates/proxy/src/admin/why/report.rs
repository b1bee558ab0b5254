//! Stories as JSON, each with its sentences: what `/why` answers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use admission::{ClassId, Instant, Obstacle, Outcome, Reason, RequestType};
use serde::{Deserialize, Serialize};

use crate::admin::GateView;
use crate::metrics::shown::id;
use crate::why::{End, Reply, Story};

/// How much of a type's name a sentence has.
const LABEL_CHARS_MAX: usize = 72;

/// `/why`: the requests that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct WhyReport {
    pub requests: Vec<StoryReport>,
}

/// What became of one request, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct StoryReport {
    /// What it can be asked for by: the gate and the number of its arrival there.
    pub id: String,
    pub gate: String,
    /// The trace that it belongs to.
    pub trace: Option<String>,
    /// The number of its session, as in `SHOW CLIENTS`.
    pub session: Option<u64>,
    pub label: String,
    /// The id of its type, as in `/types`.
    pub type_id: String,
    pub class: Option<String>,
    pub arrived_seconds_ago: f64,
    /// `waiting`, `in flight`, `served`, `failed`, `left` or `refused`.
    pub state: String,
    /// Why it was refused, as in metrics.
    pub reason: Option<String>,
    pub response_seconds: f64,
    pub queue_wait_seconds: f64,
    /// The parts of the wait, the longest first.
    pub waited_for: Vec<WaitReport>,
    /// The most connections that silent clients held within transactions while it waited for one.
    pub held_by_silent_clients: u32,
    /// Those that had arrived later and went before it; nothing where that wasn't counted.
    pub overtaken_by: Option<OvertakersReport>,
    /// How many had arrived earlier and were dispatched after it, of the last 16,384 dispatches.
    pub overtook: u32,
    /// How long the service was busy with it, or is.
    pub upstream_seconds: Option<f64>,
    /// How long the response waited for the gate's uplink, once it is sent.
    #[serde(default)]
    pub uplink_seconds: f64,
    /// All of that in words.
    pub story: Vec<String>,
}

/// A part of a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct WaitReport {
    /// `capacity`, `connections`, `paused`, `long_lane`, `class`, `group`, `scout`, `stall` or `turn`.
    pub what: String,
    pub seconds: f64,
}

/// Requests that went before one that had arrived earlier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct OvertakersReport {
    pub count: u32,
    /// There were more than these: the first ones had been forgotten.
    pub is_partial: bool,
    /// Those that did so most.
    pub types: Vec<TypeCountReport>,
}

/// How many of a type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TypeCountReport {
    pub label: String,
    pub count: u32,
}

/// Counts of types by their names: several that are seen in one row have one.
fn by_label(counts: impl Iterator<Item = (String, u32)>) -> Vec<TypeCountReport> {
    let mut types: Vec<TypeCountReport> = Vec::new();
    for (label, count) in counts {
        match types.iter_mut().find(|known| known.label == label) {
            Some(known) => known.count += count,
            None => types.push(TypeCountReport { label, count }),
        }
    }
    types.sort_by_key(|known| Reverse(known.count));
    types
}

impl StoryReport {
    pub(crate) fn of(
        gate: &dyn GateView,
        now: Instant,
        told: &Reply,
        labels: &HashMap<RequestType, Arc<str>>,
    ) -> Self {
        let Reply { story, overtaken, overtook } = told;
        let label =
            |of: RequestType| labels.get(&of).map_or("a type forgotten since", |label| label).to_owned();
        let waits = story.waits(now);
        let waited = story.queue_wait.unwrap_or_else(|| now.since(story.arrived));
        let upstream = story.queue_wait.and_then(|waited| match story.end {
            Some(End::Served(_, upstream)) => Some(upstream),
            None => Some(now.since(story.arrived.after(waited))),
            Some(End::Refused(_) | End::Left) => None,
        });
        let overtaken_by = overtaken.as_ref().map(|it| OvertakersReport {
            count: it.count,
            is_partial: it.is_partial,
            types: by_label(it.by_type.iter().map(|&(of, count)| (label(of), count))),
        });
        let mut report = Self {
            id: format!("{}/{}", gate.name(), story.sequence),
            gate: gate.name().to_owned(),
            trace: story.origin.trace.map(|trace| format!("{trace:032x}")),
            session: story.origin.session,
            label: label(story.request_type),
            type_id: id(Some(story.request_type)),
            class: gate
                .class_name(story.class)
                .filter(|_| story.class != ClassId::DEFAULT)
                .map(|name| name.to_string()),
            arrived_seconds_ago: now.since(story.arrived).as_secs_f64(),
            state: state(story).to_owned(),
            reason: match story.end {
                Some(End::Refused(reason)) => Some(reason.as_str().to_owned()),
                _ => None,
            },
            response_seconds: story.response_time(now).as_secs_f64(),
            queue_wait_seconds: waited.as_secs_f64(),
            waited_for: waits
                .iter()
                .map(|(what, time)| WaitReport {
                    what: what.as_str().to_owned(),
                    seconds: time.as_secs_f64(),
                })
                .collect(),
            held_by_silent_clients: story.thinking,
            overtaken_by,
            overtook: *overtook,
            upstream_seconds: upstream.map(|time| time.as_secs_f64()),
            uplink_seconds: story.uplink.as_secs_f64(),
            story: Vec::new(),
        };
        report.story = report.sentences(story, &waits, gate.mode() == "observe");
        report
    }

    fn sentences(&self, story: &Story, waits: &[(Obstacle, Duration)], observes: bool) -> Vec<String> {
        let of = self.trace.as_ref().map_or_else(String::new, |trace| format!(" of trace {trace}"));
        let class = self.class.as_ref().map_or_else(String::new, |class| format!(", class {class}"));
        let ago = written(self.arrived_seconds_ago);
        let label = cut(&self.label);
        let mut told = vec![format!("Request {}{of}, “{label}”{class}, arrived {ago} ago.", self.id)];
        if observes {
            told.push("The gate only observes: the request passed, and what follows would have been.".into());
        }
        told.push(self.wait_sentence(story, waits));
        told.extend(self.order_sentences());
        told.push(self.end_sentence(story));
        if !story.uplink.is_zero() {
            let waited = written(self.uplink_seconds);
            told.push(format!("Its response waited {waited} for the uplink of the gate."));
        }
        told
    }

    fn wait_sentence(&self, story: &Story, waits: &[(Obstacle, Duration)]) -> String {
        let waits = waits.iter().filter(|(_, time)| !time.is_zero());
        let parts: Vec<_> = waits
            .map(|(what, time)| format!("{} {}", written(time.as_secs_f64()), self.waited_for_words(*what)))
            .collect();
        let total = written(self.queue_wait_seconds);
        match (story.queue_wait, &parts[..]) {
            (Some(Duration::ZERO), _) => "It didn't wait.".to_owned(),
            (Some(_), []) => format!("It waited {total}."),
            (Some(_), parts) => format!("It waited {total}: {}.", parts.join("; ")),
            (None, []) => format!("It has waited {total} so far."),
            (None, parts) => format!("It has waited {total} so far: {}.", parts.join("; ")),
        }
    }

    fn waited_for_words(&self, what: Obstacle) -> String {
        let words = match what {
            Obstacle::Capacity => "for room in the capacity",
            Obstacle::Connections if self.held_by_silent_clients > 0 => {
                return format!(
                    "for a server connection, of which clients that were silent within their transactions \
                     held up to {}",
                    self.held_by_silent_clients
                );
            }
            Obstacle::Connections => "for a server connection",
            Obstacle::Paused => "for an operator's pause to end",
            Obstacle::LongLane => "for a place in the long lane",
            Obstacle::Class => "while other classes had their turn",
            Obstacle::Group => "for room among types that contend with one another",
            Obstacle::Scout => "for the first request of its type to show what the type takes",
            Obstacle::Stall => "for the service, which answered nothing",
            Obstacle::Turn => "for its turn behind others of its line",
        };
        words.to_owned()
    }

    fn order_sentences(&self) -> Vec<String> {
        let mut told = Vec::new();
        match &self.overtaken_by {
            Some(by) if by.count > 0 => {
                let of = |it: &TypeCountReport| format!("{} of “{}”", it.count, cut(&it.label));
                let mut parts: Vec<_> = by.types.iter().map(of).collect();
                match by.count - by.types.iter().map(|it| it.count).sum::<u32>() {
                    0 => {}
                    others => parts.push(format!("{others} of other types")),
                }
                let least = if by.is_partial { "At least " } else { "" };
                told.push(format!(
                    "{least}{} that had arrived later went before it: {}.",
                    by.count,
                    parts.join(", ")
                ));
            }
            Some(_) if self.queue_wait_seconds > 0.0 => {
                told.push("No later request went before it.".to_owned());
            }
            Some(_) => {}
            None => told.push("Those that went before it weren't counted.".to_owned()),
        }
        if self.overtook > 0 {
            told.push(format!("It went before {} that had arrived earlier.", self.overtook));
        }
        told
    }

    fn end_sentence(&self, story: &Story) -> String {
        let upstream = written(self.upstream_seconds.unwrap_or_default());
        match story.end {
            None if story.queue_wait.is_none() => "It still waits.".to_owned(),
            None => format!("The service has worked on it for {upstream} so far."),
            Some(End::Served(Outcome::Success, _)) => format!("The service answered after {upstream}."),
            Some(End::Served(Outcome::Failure, _)) => format!("The service failed it after {upstream}."),
            Some(End::Served(Outcome::Conflict, _)) => {
                format!("The service gave it up for others that ran beside it, after {upstream}.")
            }
            Some(End::Served(Outcome::Canceled, Duration::ZERO)) => {
                "Its client left before it was sent to the service.".to_owned()
            }
            Some(End::Served(Outcome::Canceled, _)) => {
                format!("Its client left, or it was given up, after {upstream} in the service.")
            }
            Some(End::Left) => "Its client left the queue.".to_owned(),
            Some(End::Refused(reason)) => format!("It was refused: {}.", refused(reason)),
        }
    }
}

const fn state(story: &Story) -> &'static str {
    match (story.end, story.queue_wait) {
        (None, None) => "waiting",
        (None, Some(_)) => "in flight",
        (Some(End::Served(Outcome::Success, _)), _) => "served",
        (Some(End::Served(Outcome::Failure | Outcome::Conflict, _)), _) => "failed",
        (Some(End::Served(Outcome::Canceled, _) | End::Left), _) => "left",
        (Some(End::Refused(_)), _) => "refused",
    }
}

const fn refused(reason: Reason) -> &'static str {
    match reason {
        Reason::QueueFull => "the queue was full (queue_max)",
        Reason::QueueTimeout => "it had waited for as long as a request may (queue_timeout)",
        Reason::Deadline => "its own deadline had passed",
        Reason::DeadlineUnreachable => "it could not have made its own deadline behind those that waited",
        Reason::QueueDelay => "requests had waited for too long for a while (the rule of rejection)",
        Reason::Target => "with it the target of the response time could not have been held",
        Reason::OverShare => {
            "its class or tenant had more than its share (one in the background has none), and others less"
        }
        Reason::PinnedMax => "too many sessions keep their connections (pinned_max)",
    }
}

/// A time for people.
fn written(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 100.0 => format!("{seconds:.0} s"),
        _ if seconds >= 1.0 => format!("{seconds:.2} s"),
        _ if seconds >= 0.1 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds >= 0.001 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

/// A label on one line, not too long.
fn cut(label: &str) -> String {
    let line = label.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LABEL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_one_name_are_told_once() {
        let counts = [("GET /*/*", 2), ("GET /", 3), ("GET /*/*", 4)].map(|(name, n)| (name.to_owned(), n));
        let told = by_label(counts.into_iter());
        let told: Vec<_> = told.iter().map(|it| (it.label.as_str(), it.count)).collect();
        assert_eq!(told, [("GET /*/*", 6), ("GET /", 3)]);
    }
}
