//! What is known of one request so far: for the access log, and for the trace that it belongs to. Dropped,
//! which is when the last byte of the response has gone or can't any more, it is told to both.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method};
use tokio::time::Instant;

use super::access::AccessLog;
use super::span::{Parent, Recorded};
use super::state::Settings;
use crate::classes::ClassName;
use crate::otlp::{Attribute, Span};

/// One request.
#[derive(Debug)]
pub(crate) struct Record {
    log: Option<AccessLog>,
    recorded: Option<Recorded>,
    pub(super) gate: Arc<str>,
    /// Its request type.
    pub(super) name: Arc<str>,
    /// Its service class, where there are several.
    pub(super) class: Option<Arc<str>>,
    pub(super) method: Method,
    pub(super) began: SystemTime,
    arrived: Instant,
    /// Until it was dispatched, if it was.
    pub(super) queue_wait: Option<Duration>,
    /// From dispatch to the head of the response.
    pub(super) upstream: Option<Duration>,
    pub(super) status: u16,
    /// Why the gate has answered by itself, if it has.
    pub(super) reason: Option<&'static str>,
    pub(super) bytes: u64,
    pub(super) is_complete: bool,
    /// The trace that it belongs to.
    pub(super) trace: Option<u128>,
}

impl Record {
    /// A request of this type has come. `None`: nobody wants to know.
    pub(crate) fn begin(
        settings: &Settings,
        (gate, name, class): (&str, &Arc<str>, Option<&ClassName>),
        method: &Method,
        fields: &HeaderMap,
    ) -> Option<Box<Self>> {
        if settings.access_log.is_none() && settings.traces.is_none() {
            return None;
        }
        let parent = Parent::of(fields);
        let recorded = settings.traces.as_ref().and_then(|traces| Recorded::begin(traces, parent));
        let log = settings.access_log.clone();
        if log.is_none() && recorded.is_none() {
            return None;
        }
        let begun = recorded.as_ref().map(|recorded| recorded.trace);
        Some(Box::new(Self {
            log,
            trace: parent.map(|parent| parent.trace).or(begun),
            recorded,
            gate: Arc::from(gate),
            name: Arc::clone(name),
            class: class.map(|class| Arc::clone(&class.name)),
            method: method.clone(),
            began: SystemTime::now(),
            arrived: Instant::now(),
            queue_wait: None,
            upstream: None,
            status: 0,
            reason: None,
            bytes: 0,
            is_complete: false,
        }))
    }

    /// Its request type is another one: more was read of it.
    pub(crate) fn rename(&mut self, name: &Arc<str>) {
        self.name = Arc::clone(name);
    }

    /// The gate's part in its trace, if that is recorded.
    pub(crate) fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_ref()
    }

    /// The request was dispatched after this wait in the queue.
    pub(crate) fn dispatch(&mut self, queue_wait: Duration) {
        self.queue_wait = Some(queue_wait);
    }

    /// The head of its response came so long after that.
    pub(crate) fn respond(&mut self, upstream: Duration) {
        self.upstream = Some(upstream);
    }

    /// So it is answered; `reason` if by the gate itself.
    pub(crate) fn answer(&mut self, status: u16, reason: Option<&'static str>) {
        (self.status, self.reason) = (status, reason);
    }

    /// Counts more bytes of the response's body that are on their way.
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Notes that the whole response is on its way.
    pub(crate) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Since its head came.
    pub(super) fn elapsed(&self) -> Duration {
        self.arrived.elapsed()
    }

    fn span(&self, recorded: &Recorded) -> Span {
        let seconds = |time: Duration| Attribute::Number(time.as_secs_f64());
        let decision = match (self.queue_wait, self.reason) {
            (Some(_), _) => "dispatched",
            (None, Some(_)) => "rejected",
            // The client has gone.
            (None, None) => "canceled",
        };
        let mut attributes = vec![
            ("http.request.method", Attribute::Text(Arc::from(self.method.as_str()))),
            ("gatekeeper.type", Attribute::Text(Arc::clone(&self.name))),
            ("gatekeeper.decision", Attribute::Word(decision)),
            ("http.response.body.size", Attribute::Count(self.bytes)),
        ];
        if self.status > 0 {
            attributes.push(("http.response.status_code", Attribute::Count(self.status.into())));
        }
        attributes.extend(
            self.class.as_ref().map(|class| ("gatekeeper.class", Attribute::Text(Arc::clone(class)))),
        );
        attributes.extend(self.reason.map(|reason| ("gatekeeper.reason", Attribute::Word(reason))));
        attributes.extend(self.queue_wait.map(|wait| ("gatekeeper.queue_wait_seconds", seconds(wait))));
        attributes.extend(self.upstream.map(|time| ("gatekeeper.upstream_seconds", seconds(time))));
        let dispatched = self.queue_wait.map(|wait| self.began + wait);
        let answered = dispatched.zip(self.upstream).map(|(at, upstream)| at + upstream);
        let events = [("dispatch", dispatched), ("first byte", answered)];
        Span {
            trace: recorded.trace,
            id: recorded.id,
            parent: recorded.parent,
            name: Arc::clone(&self.name),
            begin: self.began,
            end: self.began + self.elapsed(),
            attributes,
            events: events.into_iter().filter_map(|(name, at)| Some((name, at?))).collect(),
            failed: self.status >= 500,
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(recorded) = &self.recorded {
            recorded.exporter.send(self.span(recorded));
        }
        if let Some(log) = &self.log {
            log.write(self);
        }
    }
}
