//! `gatekeeper advise`: what other settings would have done with the recorded requests, in three lines.
//!
//! The requests of the trace are replayed before the recorded settings and before others. Each request counts
//! with its response time; one that was refused, or left, with `queue_timeout`, so that refusing isn't for
//! nothing. The requests are cut into [`PARTS`] parts by arrival, and a setting is compared with the recorded
//! ones part by part. It is advised if it is better by [`WORTH`] or more, and if that isn't chance: the lower
//! end of the confidence interval (95 %, paired, Student) is above 0. Of several the best is advised.
//!
//! **The service** is taken for one that shares its cores, or for one that serves so many at a time, by which
//! of both the trace agrees with: whether requests took the same with company as without
//! (`demand::disagreement`). Where too few had company to tell, no setting is advised that gives more of it.
//! Where the recorded settings, replayed, don't give what was recorded, nothing is.

use std::time::Duration;

use admission::{Capacity, Order, Policy};
use config::LongLimit;
use sim::{Interval, Outcome, Row, Scenario, Service, Upstream};

use super::recorded::{Recorded, Request};
use super::{Cores, chosen, demand, demands, known_cores, scenario, table, with_gate, world_of};
use crate::Failure;
use crate::cli::{AdviceArgs, AdviseArgs, ServiceTimes};
use crate::commands::table::time;

/// In how many parts the requests are compared.
const PARTS: usize = 10;
/// By which part of the response time a setting must be better to be advised.
const WORTH: f64 = 0.05;
/// Of the requests, so many of the last are replayed.
const REQUESTS_MAX: usize = 300_000;
/// Fewer requests say nothing.
const REQUESTS_LEAST: usize = 1_000;

/// Other settings.
#[derive(Clone, Debug, PartialEq)]
struct Setting {
    keys: Vec<(&'static str, String)>,
}

/// What requests took before some settings.
#[derive(Clone, Debug)]
struct Measured {
    /// The mean of each part, in seconds.
    parts: Vec<f64>,
    mean: f64,
    p95: f64,
    refused: u64,
}

/// What was found of a setting.
#[derive(Clone, Debug)]
struct Finding {
    setting: Setting,
    measured: Measured,
    /// By how much the parts' means are shorter.
    gain: Interval,
}

/// What the trace tells of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Requests share its cores.
    Sharing,
    /// It serves one for each core at a time, the others in order.
    Servers,
    /// Too few requests had company.
    Neither,
}

/// Other explanations must leave less than this part of the disagreement.
const CLEARLY: f64 = 0.5;

/// The service that explains the trace, and what requests take alone by that.
fn kept_by(recorded: &Recorded, cores: u32, times: ServiceTimes) -> (Known, Vec<Option<f64>>) {
    let requests = &recorded.requests;
    let sharing = demands(requests, cores, times);
    let queued = demand::queued(requests, cores);
    let disagree =
        |demands: &[Option<f64>]| demand::disagreement(requests, demands, cores, recorded.labels.len());
    match (disagree(&sharing), disagree(&queued)) {
        (Some(shared), Some(behind)) if times == ServiceTimes::Shared && behind < CLEARLY * shared => {
            (Known::Servers, queued)
        }
        (Some(_), _) => (Known::Sharing, sharing),
        (None, _) => (Known::Neither, sharing),
    }
}

/// All that was found.
#[derive(Debug)]
struct Advice {
    base: Measured,
    findings: Vec<Finding>,
    /// With twice the cores.
    doubled: Finding,
    /// How far the replay lies from what was recorded, and whether that is too far.
    misfit: (f64, Option<String>),
    cores: Cores,
    known: Known,
    /// How many connections the recorded gate had.
    connections: u32,
    span: Duration,
    /// What a gate that observes would have done, and whether enforcing would have been better.
    observed: Option<(Observed, bool)>,
}

/// What a gate that observes would have done.
#[derive(Clone, Copy, Debug)]
struct Observed {
    delayed: u64,
    refused: u64,
    /// The mean response time without it.
    without: f64,
}

/// The advice from a file as text.
pub(crate) fn advise(args: &AdviseArgs) -> Result<String, Failure> {
    let mut recorded = Recorded::read(&args.trace, true)?;
    recorded.keep_last(args.advice.last, REQUESTS_MAX);
    if recorded.requests.len() < REQUESTS_LEAST {
        return Err(Failure::Usage(format!(
            "{}: has {} requests of the last {}; for an advice it takes {REQUESTS_LEAST}",
            args.trace.display(),
            recorded.requests.len(),
            humantime::format_duration(args.advice.last)
        )));
    }
    let advice = Advice::of(recorded, &args.advice)?;
    Ok(advice.text(advice.nothing_better()))
}

/// The advice from a trace in memory, that of a gate which observes. Nothing is advised where nothing helps.
pub(in crate::commands) fn advice(trace: &[u8], gate: &str, args: &AdviceArgs) -> Result<String, Failure> {
    let length = trace.len() as u64;
    let mut recorded = Recorded::read_from(trace, (format!("gate {gate}"), length), true)?;
    recorded.keep_last(args.last, REQUESTS_MAX);
    if recorded.requests.is_empty() {
        return Ok(format!("In the last {} no request came.\n", humantime::format_duration(args.last)));
    }
    if recorded.requests.len() < REQUESTS_LEAST {
        let (count, span) = (recorded.requests.len(), spoken(recorded.span()));
        let observed = recorded.really_ran();
        return Ok(format!(
            "In the last {span} this gate would have delayed {} of {count} requests and refused {}; what that would \
             have saved takes {REQUESTS_LEAST} requests to say.\n",
            observed.delayed, observed.refused
        ));
    }
    Ok(Advice::of(recorded, args)?.text(String::new()))
}

impl Setting {
    fn of(key: &'static str, value: impl ToString) -> Self {
        Self { keys: vec![(key, value.to_string())] }
    }

    fn words(&self) -> String {
        let words = |(key, value): &(&str, String)| format!("{key} = {value}");
        self.keys.iter().map(words).collect::<Vec<_>>().join(", ")
    }

    /// Those that are tried beside these.
    fn others(policy: &Policy, long_limit: LongLimit, mean: f64) -> Vec<Self> {
        let mut others = Vec::new();
        let connections = policy.connections;
        for other in [connections.div_ceil(4), connections.div_ceil(2), connections * 2, connections * 3] {
            if other != connections {
                others.push(Self::of("connections", other));
            }
        }
        others.dedup();
        others.push(match policy.order {
            Order::Fifo => Self::of("order", "shortest-first"),
            Order::ShortestFirst { .. } => Self::of("order", "fifo"),
        });
        others.push(match long_limit {
            LongLimit::NoLane => Self::of("long_limit", "auto"),
            LongLimit::Auto | LongLimit::Fixed(_) => Self::of("long_limit", "none"),
        });
        others.push(match policy.capacity {
            Capacity::Found(_) => Self::of("capacity", "none"),
            Capacity::Unlimited | Capacity::Fixed(_) => Self::of("capacity", "auto"),
        });
        let target = Duration::from_millis((mean * 500.0).ceil().max(1.0) as u64);
        let target = ("target", humantime::format_duration(target).to_string());
        others.push(Self { keys: vec![("rejection", "target".to_owned()), target] });
        others
    }
}

impl Measured {
    /// Of a run's requests, in order of arrival.
    fn of(rows: &[Row], penalty: Duration) -> Self {
        let seconds = |row: &Row| match row.outcome {
            Outcome::Completed => row.response_time().as_secs_f64(),
            _ => penalty.as_secs_f64().max(row.response_time().as_secs_f64()),
        };
        let mut times: Vec<f64> = rows.iter().map(seconds).collect();
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
        let parts = times.chunks(times.len().div_ceil(PARTS).max(1)).map(mean).collect();
        let all = mean(&times);
        times.sort_by(f64::total_cmp);
        let rank = (times.len() as f64 * 0.95).ceil() as usize;
        Self {
            parts,
            mean: all,
            p95: times.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN),
            refused: rows.iter().filter(|row| row.outcome != Outcome::Completed).count() as u64,
        }
    }
}

impl Finding {
    fn of(setting: Setting, measured: Measured, base: &Measured) -> Self {
        let gains: Vec<f64> =
            base.parts.iter().zip(&measured.parts).map(|(base, other)| base - other).collect();
        Self { setting, gain: Interval::of(&gains), measured }
    }

    fn is_better(&self, base: &Measured) -> bool {
        self.gain.low() > 0.0 && base.mean - self.measured.mean >= WORTH * base.mean
    }
}

impl Advice {
    fn of(mut recorded: Recorded, args: &AdviceArgs) -> Result<Self, Failure> {
        let world = &world_of(&recorded)?;
        let cores = known_cores(args.cores, &recorded, world);
        let gate = chosen(&recorded, world)?;
        let observes = recorded.header.mode == "observe";
        let observed = observes.then(|| recorded.really_ran());
        let (known, demands) = kept_by(&recorded, cores.count(), args.service_times);
        let mut without = scenario(&recorded, &demands, cores.count());
        if known == Known::Servers {
            without.upstream = Upstream::new(Service::Fifo { servers: cores.count() });
        }
        let recorded_mean = recorded.mean_response();
        let base = with_gate(&without, &recorded, world)?;
        let (penalty, connections) = (base.policy.queue_timeout, base.policy.connections);
        let settings = Setting::others(&base.policy, gate.long_limit, recorded_mean);
        let mut scenarios = vec![base.clone()];
        let mut tried = Vec::new();
        for setting in settings {
            // Some don't go with others: no target beside `rejection = "deadline"`.
            let Ok(other) = config::amended(world, &setting.keys) else { continue };
            scenarios.push(with_gate(&without, &recorded, &other)?);
            tried.push(setting);
        }
        let mut doubled = base;
        doubled.upstream.set_cores(cores.count() * 2);
        if let Some(admission::LongLimit::Found { prior }) = &mut doubled.policy.long_limit {
            *prior = prior.map(|cores| cores * 2);
        }
        scenarios.extend([doubled, without]);
        let mut measured = measure(&scenarios, penalty, args.threads)?.into_iter();
        let (first, without, doubled) = (measured.next(), measured.next_back(), measured.next_back());
        let (Some((base, line)), Some((ungated, without)), Some((doubled, _))) = (first, without, doubled)
        else {
            return Err(Failure::Runtime("nothing was replayed".to_owned()));
        };
        let as_recorded = if observes { without } else { line };
        let enforced = Finding::of(Setting { keys: Vec::new() }, base.clone(), &ungated);
        let observed = observed.map(|counts| (counts, enforced.is_better(&ungated)));
        let findings =
            tried.into_iter().zip(measured).map(|(setting, (of, _))| Finding::of(setting, of, &base));
        Ok(Self {
            findings: findings.collect(),
            doubled: Finding::of(Setting { keys: Vec::new() }, doubled, &base),
            misfit: table::misfit_of(&recorded.requests, &as_recorded),
            cores,
            known,
            connections,
            span: recorded.span(),
            observed,
            base,
        })
    }

    /// The best of the settings, if any is better.
    fn best(&self) -> Option<&Finding> {
        let gives_company = |setting: &Setting| {
            setting.keys.iter().any(|(key, value)| match *key {
                "connections" => value.parse::<u32>().is_ok_and(|count| count > self.connections),
                "capacity" | "long_limit" => value == "none",
                _ => false,
            })
        };
        let is_seen = |setting: &Setting| self.known != Known::Neither || !gives_company(setting);
        let is_better = |finding: &&Finding| {
            self.misfit.1.is_none() && is_seen(&finding.setting) && finding.is_better(&self.base)
        };
        let by_mean = |a: &&Finding, b: &&Finding| a.measured.mean.total_cmp(&b.measured.mean);
        self.findings.iter().filter(is_better).min_by(by_mean)
    }

    /// The sentence of a gate that observes, and what is advised; where nothing is, `otherwise`.
    fn text(&self, otherwise: String) -> String {
        let span = spoken(self.span);
        let mut text = self.guess();
        text += &self.observed.map_or(String::new(), |(of, helps)| self.observed(&span, of, helps));
        match (&self.misfit.1, self.best()) {
            (Some(misfit), _) => text += misfit,
            (None, Some(best)) => text += &self.advised(best, &span),
            (None, None) => text += &otherwise,
        }
        text
    }

    fn observed(&self, span: &str, Observed { delayed, refused, without }: Observed, helps: bool) -> String {
        let saved = match &self.misfit.1 {
            Some(_) => "; what that would have saved can't be told".to_owned(),
            None if helps => format!(
                ", and saved {} of each on average: {} instead of {}",
                time(without - self.base.mean),
                time(self.base.mean),
                time(without)
            ),
            None => ", and saved nothing".to_owned(),
        };
        format!(
            "In the last {span} this gate would have delayed {delayed} requests and refused {refused}{saved}.\n"
        )
    }

    /// How close the best of the settings came, and how far the replay is to be believed.
    fn nothing_better(&self) -> String {
        let (base, tried) = (&self.base, self.findings.len());
        let gain = |finding: &Finding| 1.0 - finding.measured.mean / base.mean;
        let closest = self.findings.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)));
        let closest = closest.map_or(String::new(), |finding| {
            let (gain, mean) = (gain(finding) * 100.0, time(finding.measured.mean));
            let why = match gain >= WORTH * 100.0 {
                true if finding.gain.low() <= 0.0 => "which may be chance",
                true => {
                    "but too few of the recorded requests ran beside others to tell whether the service bears it: \
                     record a trace with a higher `connections` and `capacity`, and ask again"
                }
                false => "which is not worth a change",
            };
            let less = if gain < 0.0 { "more" } else { "less" };
            format!(
                "\nClosest came {}: {mean} on average instead of {} ({:.1} % {less}), {why}.",
                finding.setting.words(),
                time(base.mean),
                gain.abs()
            )
        });
        let more = if self.doubled.is_better(base) {
            let Measured { mean, p95, .. } = self.doubled.measured;
            format!(
                " Twice the cores, or a second replica as large, would: {} on average, 95 of 100 at most {}.",
                time(mean),
                time(p95)
            )
        } else {
            String::new()
        };
        format!(
            "None of the {tried} settings that were tried would have been better.{more}{closest}\n\
             The recorded settings, replayed, are {:.0} % off what was recorded, which fits.\n",
            self.misfit.0 * 100.0,
        )
    }

    /// Stands before all that is said: it all depends on the cores.
    fn guess(&self) -> String {
        match self.cores {
            Cores::Guessed(count) => {
                format!("The service's {count} cores are a guess (name them with --cores). ")
            }
            Cores::Named(_) | Cores::Learned(_) => String::new(),
        }
    }

    fn advised(&self, best: &Finding, span: &str) -> String {
        let (base, with) = (&self.base, &best.measured);
        let less = (1.0 - with.mean / base.mean) * 100.0;
        let refused = match (base.refused, with.refused) {
            (0, 0) => String::new(),
            (before, after) => format!("; {after} refused instead of {before}"),
        };
        let pairs = base.parts.iter().zip(&with.parts);
        let (parts, won) = (base.parts.len(), pairs.filter(|(base, with)| with < base).count());
        let mut others: Vec<_> = self.findings.iter().filter(|other| other.setting != best.setting).collect();
        others.sort_by(|a, b| a.measured.mean.total_cmp(&b.measured.mean));
        let others = others.iter().map(|it| format!("{}: {}", it.setting.words(), time(it.measured.mean)));
        let doubled = if self.doubled.is_better(base) {
            format!(
                "{} with twice the cores, or a second replica as large; ",
                time(self.doubled.measured.mean)
            )
        } else {
            String::new()
        };
        format!(
            "{}: requests would have taken {} on average instead of {} ({less:.0} % less), 95 of 100 at most {} instead of \
             {}{refused}.\n\
             {}: better in {won} of {parts} parts of the recorded {span}, by {} to {} (95 %); the recorded settings, \
             replayed, are {:.0} % off what was recorded.\n\
             Also tried: {doubled}{}.\n",
            best.setting.words(),
            time(with.mean),
            time(base.mean),
            time(with.p95),
            time(base.p95),
            if won == parts { "Sure" } else { "Rather sure" },
            time(best.gain.low()),
            time(best.gain.high()),
            self.misfit.0 * 100.0,
            others.collect::<Vec<_>>().join(", "),
        )
    }
}

/// A span in words, to the second.
fn spoken(span: Duration) -> String {
    humantime::format_duration(Duration::from_secs(span.as_secs().max(1))).to_string()
}

/// Runs all, and measures each.
fn measure(
    scenarios: &[Scenario],
    penalty: Duration,
    threads: Option<std::num::NonZero<usize>>,
) -> Result<Vec<(Measured, table::Line)>, Failure> {
    let runs = sim::sweep(scenarios, threads, |_, run| {
        let run = run.map_err(|error| Failure::Runtime(error.to_string()))?;
        Ok((Measured::of(&run.rows, penalty), table::Line::simulated(&run.summary.overall)))
    });
    runs.into_iter().collect()
}

impl Recorded {
    /// Forgets what arrived earlier than so long before the end, or was followed by more than so many.
    fn keep_last(&mut self, last: Duration, most: usize) {
        let end = self.requests.last().map_or(0, |request| request.arrived);
        let from = end.saturating_sub(u64::try_from(last.as_nanos()).unwrap_or(u64::MAX));
        let early = self.requests.partition_point(|request| request.arrived < from);
        self.requests.drain(..early.max(self.requests.len().saturating_sub(most)));
        self.from = self.requests.first().map_or(self.from, |request| request.arrived);
    }

    /// From the first arrival to the last.
    fn span(&self) -> Duration {
        let last = self.requests.last().map_or(self.from, |request| request.arrived);
        Duration::from_nanos(last - self.from)
    }

    fn mean_response(&self) -> f64 {
        let took = |request: &Request| Some((request.ended? - request.arrived) as f64 / 1e9);
        demand::mean(self.requests.iter().filter_map(took)).unwrap_or(0.0)
    }

    /// A gate that observed has let everything pass: each request really ran from its arrival. Says how many
    /// would have been delayed and refused, and the mean time that requests really took.
    fn really_ran(&mut self) -> Observed {
        let (mut delayed, mut refused) = (0, 0);
        for request in &mut self.requests {
            delayed += u64::from(request.dispatched.is_some_and(|at| at > request.arrived));
            refused += u64::from(request.end == super::recorded::End::Rejected);
            if request.end == super::recorded::End::Completed {
                request.dispatched = Some(request.arrived);
                request.ended = Some(request.arrived + request.upstream);
            }
        }
        Observed { delayed, refused, without: self.mean_response() }
    }
}

#[cfg(test)]
mod tests;
