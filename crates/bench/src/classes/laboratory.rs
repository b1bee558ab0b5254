//! Requests of several classes, and the gate and the origin that they meet.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::Error;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::http::{Beyond, Habits, OpenRun, OpenRuns, Origin, Request};
use crate::load::Record;

/// The most connections of all clients together.
const CONNECTIONS_MAX: usize = 8_000;
/// How long a client waits.
const PATIENCE: Duration = Duration::from_secs(100);

/// Requests of one class that need the same.
pub(super) struct Stream {
    /// The class's number.
    pub(super) class: u16,
    /// What a request does: `work` or `block`.
    pub(super) does: &'static str,
    /// For how long, on average: exponentially distributed, in seconds.
    pub(super) mean: f64,
    /// Requests per second, from these seconds on.
    pub(super) rates: Vec<(f64, f64)>,
    /// The first arrival of a stream at regular intervals, as a part of an interval; `None`: a Poisson
    /// process.
    pub(super) phase: Option<f64>,
}

/// Requests in order of time.
pub(super) struct Drawn {
    requests: Arc<Vec<Request>>,
    bytes: Arc<Vec<Vec<u8>>>,
    /// What each takes of the origin, in seconds.
    takes: Vec<f64>,
}

/// What became of a request.
pub(super) struct Ended {
    /// Which class.
    pub(super) class: usize,
    /// When it was due, in seconds.
    pub(super) due: f64,
    /// From then to its answer, in seconds.
    pub(super) response: f64,
    /// What it took of the origin, in seconds.
    pub(super) takes: f64,
}

impl Drawn {
    /// Draws what comes within so many seconds.
    pub(super) fn new(streams: &[Stream], until: f64, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        // 1 - u is never zero, so the logarithm is finite.
        let mut exponential = move || -(1.0 - random.random::<f64>()).ln();
        let mut all = Vec::new();
        for stream in streams {
            let mut gap = stream.phase.unwrap_or_else(&mut exponential);
            for (place, &(from, rate)) in stream.rates.iter().enumerate() {
                let end = stream.rates.get(place + 1).map_or(until, |next| next.0.min(until));
                let mut due = from;
                // A gap is so many expected arrivals, used up at the rate of the moment.
                while due + gap / rate < end {
                    due += gap / rate;
                    all.push((due, stream, stream.mean * exponential()));
                    gap = if stream.phase.is_some() { 1.0 } else { exponential() };
                }
                gap -= (end - due).max(0.0) * rate;
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let request = |(number, (due, stream, _)): (usize, &(f64, &Stream, f64))| Request {
            due: Duration::from_secs_f64(*due),
            request_type: stream.class,
            bytes: number,
        };
        let written = |(_, stream, takes): &(f64, &Stream, f64)| {
            let (class, does, micros) = (stream.class, stream.does, takes * 1e6);
            format!("GET /c{class}?{does}={micros:.0} HTTP/1.1\r\nHost: site.example\r\n\r\n").into_bytes()
        };
        Self {
            requests: Arc::new(all.iter().enumerate().map(request).collect()),
            bytes: Arc::new(all.iter().map(written).collect()),
            takes: all.iter().map(|one| one.2).collect(),
        }
    }

    /// Has them meet an origin through a gate with these lines, and waits until all have ended. Meanwhile
    /// `watch` runs on a thread of its own; it gets the gate and the time when requests begin to come.
    ///
    /// # Errors
    /// If something doesn't start, or a request wasn't served.
    pub(super) async fn meet<T: Send + 'static>(
        &self,
        lines: String,
        cpu: Option<usize>,
        watch: impl FnOnce(&Gatekeeper, Instant) -> Result<T, Error> + Send + 'static,
    ) -> Result<(Vec<Ended>, T), Error> {
        let start = move || Origin::start(cpu).map(|origin| (origin.port(), origin));
        self.meet_at(start, lines, watch).await
    }

    /// Has the requests meet a service through a gate, like [`Self::meet`]. `start` returns its port and
    /// what is dropped at its end.
    ///
    /// # Errors
    /// If something doesn't start, or a request wasn't served.
    pub(super) async fn meet_at<S: Send + 'static, T: Send + 'static>(
        &self,
        start: impl FnOnce() -> Result<(u16, S), Error> + Send + 'static,
        lines: String,
        watch: impl FnOnce(&Gatekeeper, Instant) -> Result<T, Error> + Send + 'static,
    ) -> Result<(Vec<Ended>, T), Error> {
        let (service, gate) = blocking(move || {
            let (port, service) = start()?;
            let gate = Gatekeeper::start_lines(port, &lines)?;
            Ok((service, gate))
        })
        .await?;
        let run = OpenRun {
            address: (Ipv4Addr::LOCALHOST, gate.port()).into(),
            inside: None,
            habits: Habits::default(),
            requests: Arc::clone(&self.requests),
            bytes: Arc::clone(&self.bytes),
            patience: PATIENCE,
            connections_max: CONNECTIONS_MAX,
            beyond: Beyond::Waits,
            measured: Vec::new(),
        };
        let begin = Instant::now();
        let watched = blocking(move || {
            let seen = watch(&gate, begin);
            Ok((seen, gate))
        });
        let (outcome, watched) = tokio::join!(run.run(), watched);
        let (outcome, (seen, gate)) = (outcome?, watched?);
        blocking(move || {
            drop(gate);
            drop(service);
            Ok(())
        })
        .await?;
        Ok((self.ended(&outcome)?, seen?))
    }

    fn ended(&self, outcome: &OpenRuns) -> Result<Vec<Ended>, Error> {
        if let Some(failure) = &outcome.first_failure {
            return Err(Error::Experiment(format!("a request failed: {failure}")));
        }
        let ended = |(record, number): &(Record, usize)| Ended {
            class: record.request_type.into(),
            due: record.due.as_secs_f64(),
            response: record.response.as_secs_f64(),
            takes: self.takes[*number],
        };
        Ok(outcome.records.iter().map(ended).collect())
    }
}

/// The lines of a gate that lets so many requests in, in order of arrival within a class. Each class has
/// keys of its own.
pub(super) fn lines(connections: u32, tick: Duration, classes: &[String]) -> String {
    let mut lines = format!(
        "connections = {connections}\ncapacity = \"none\"\norder = \"fifo\"\nlong_limit = \"none\"\n\
         queue_timeout = \"100s\"\ngoal_tick = \"{}ms\"\n",
        tick.as_millis()
    );
    for (number, keys) in classes.iter().enumerate() {
        let _ = write!(lines, "[[gate.class]]\nname = \"c{number}\"\npath = [\"/c{number}\"]\n{keys}\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_follow_their_rates() {
        let rates = vec![(0.0, 100.0), (10.0, 0.0), (20.0, 300.0)];
        for (phase, spread) in [(Some(0.5), 1.0), (None, 300.0)] {
            let stream = Stream { class: 0, does: "work", mean: 0.01, rates: rates.clone(), phase };
            let drawn = Drawn::new(&[stream], 30.0, 1);
            let within = |from: u64, to: u64| {
                let range = Duration::from_secs(from)..Duration::from_secs(to);
                drawn.requests.iter().filter(|request| range.contains(&request.due)).count() as f64
            };
            assert!((within(0, 10) - 1_000.0).abs() <= spread, "{}", within(0, 10));
            assert!((within(20, 30) - 3_000.0).abs() <= spread, "{}", within(20, 30));
            assert_eq!(within(10, 20), 0.0);
            let mean = drawn.takes.iter().sum::<f64>() / drawn.takes.len() as f64;
            assert!((0.009..0.011).contains(&mean), "{mean}");
        }
    }
}
