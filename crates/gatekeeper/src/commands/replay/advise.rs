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
//!
//! **A larger service** is tried, too: one with twice the cores, and two beside one another where a gate
//! sends requests to several endpoints (HTTP), each to the one with the fewest in flight.

use std::time::Duration;

use admission::{Capacity, ClassId, Order, Policy, Turns, Weight};
use config::LongLimit;
use sim::{Interval, Outcome, Row, Scenario, Service, Upstream};

use super::recorded::{Recorded, Request};
use super::{Cores, chosen, demand, demands, known_cores, scenario, table, with_gate, world_of};
use crate::Failure;
use crate::cli::{AdviceArgs, AdviseArgs, ServiceTimes};
use crate::commands::table::{count, time};

/// In how many parts the requests are compared.
const PARTS: usize = 10;
/// By which part of the response time a setting must be better to be advised.
const WORTH: f64 = 0.05;
/// Of the requests, so many of the last are replayed.
const REQUESTS_MAX: usize = 300_000;
/// Of so many classes at most other weights are tried.
const CLASSES_MAX: usize = 8;
/// Fewer requests say nothing.
const REQUESTS_LEAST: usize = 1_000;

/// Other settings.
#[derive(Clone, Debug, Default, PartialEq)]
struct Setting {
    keys: Vec<(&'static str, String)>,
    /// Another weight of a class.
    weight: Option<(ClassId, String, Weight)>,
}

/// What requests took before some settings.
#[derive(Clone, Debug)]
struct Measured {
    /// The mean of each part, in seconds.
    parts: Vec<f64>,
    /// The mean of each class, in seconds.
    classes: Vec<f64>,
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
    /// With a larger service: twice the cores, or two of them.
    larger: Vec<(&'static str, Finding)>,
    /// The names of the classes.
    classes: Vec<String>,
    /// How far the replay lies from what was recorded, and whether that is too far.
    misfit: (f64, Option<String>),
    cores: Cores,
    known: Known,
    /// How many connections the recorded gate had.
    connections: u32,
    span: Duration,
    /// What a gate that observes would have done, and what enforcing would have come to.
    observed: Option<(Observed, Enforcing)>,
}

/// What a gate that observes would have done.
#[derive(Clone, Copy, Debug)]
struct Observed {
    delayed: u64,
    refused: u64,
    /// The mean response time of now: without it.
    without: f64,
}

/// What enforcing would have done to a gate that observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enforcing {
    Helps,
    Harms,
    /// It makes no difference beyond chance.
    Idle,
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
    let text = advice.text(advice.nothing_better());
    if advice.misfit.1.is_none() {
        return Ok(text);
    }
    crate::print(&text)?;
    Err(Failure::Unwell)
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
            "In the last {span} this gate would have delayed {} of {count} requests and refused {}; to say what that \
             would have saved takes {REQUESTS_LEAST} requests.\n",
            observed.delayed, observed.refused
        ));
    }
    Ok(Advice::of(recorded, args)?.text(String::new()))
}

impl Setting {
    fn of(key: &'static str, value: impl ToString) -> Self {
        Self { keys: vec![(key, value.to_string())], weight: None }
    }

    fn words(&self) -> String {
        if let Some((_, class, weight)) = &self.weight {
            return format!("weight = {} of class {class}", weight.as_f64());
        }
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
        others.push(Self { keys: vec![("rejection", "target".to_owned()), target], weight: None });
        others
    }

    /// Twice and half the weight of each class, where the requests are of several.
    fn weights(gate: &config::Gate, recorded: &Recorded) -> Vec<Self> {
        let is_tried = |class: &&admission::ServiceClass| {
            class.turns == Turns::Shared && recorded.classes.len() > 1 && recorded.classes.contains(&class.id)
        };
        let tried = gate.policy.classes.iter().filter(is_tried).take(CLASSES_MAX);
        let both = tried.flat_map(|class| [2.0, 0.5].map(|factor| (class, factor)));
        let other = |(class, factor): (&admission::ServiceClass, f64)| {
            let weight = Weight::new(class.weight.as_f64() * factor)?;
            Some(Self { keys: Vec::new(), weight: Some((class.id, name_of(gate, class.id), weight)) })
        };
        both.filter_map(other).collect()
    }
}

impl Measured {
    /// Of a run's requests, in order of arrival; each source is a class.
    fn of(rows: &[Row], penalty: Duration) -> Self {
        let seconds = |row: &Row| match row.outcome {
            Outcome::Completed => row.response_time().as_secs_f64(),
            _ => penalty.as_secs_f64().max(row.response_time().as_secs_f64()),
        };
        let mut times: Vec<f64> = rows.iter().map(seconds).collect();
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
        let parts = times.chunks(times.len().div_ceil(PARTS).max(1)).map(mean).collect();
        let mut classes: Vec<Vec<f64>> = Vec::new();
        for (row, time) in rows.iter().zip(&times) {
            let class = usize::from(row.source);
            classes.resize_with(classes.len().max(class + 1), Vec::new);
            classes[class].push(*time);
        }
        let all = mean(&times);
        times.sort_by(f64::total_cmp);
        let rank = (times.len() as f64 * 0.95).ceil() as usize;
        Self {
            parts,
            classes: classes.iter().map(|times| mean(times)).collect(),
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
        let mut settings = Setting::others(&base.policy, gate.long_limit, recorded_mean);
        settings.extend(Setting::weights(gate, &recorded));
        let mut scenarios = vec![base.clone()];
        let mut tried = Vec::new();
        for setting in settings {
            // Some don't go with others: no target beside `rejection = "deadline"`.
            let Ok(other) = config::amended(world, &setting.keys) else { continue };
            let mut scenario = with_gate(&without, &recorded, &other)?;
            if let Some((id, _, weight)) = setting.weight {
                let own = scenario.policy.classes.iter_mut().filter(|class| class.id == id);
                own.for_each(|class| class.weight = weight);
            }
            scenarios.push(scenario);
            tried.push(setting);
        }
        let mut larger = Vec::new();
        if matches!(gate.service, config::Service::Http(_)) {
            let mut replicated = base.clone();
            replicated.upstream.replicas = 2;
            larger.push(("a second replica as large", replicated));
        }
        let mut doubled = base;
        doubled.upstream.set_cores(cores.count() * 2);
        if let Some(admission::LongLimit::Found { cores }) = &mut doubled.policy.long_limit {
            *cores = cores.map(|told| told * 2);
        }
        larger.insert(0, ("twice the cores", doubled));
        let (names, larger): (Vec<_>, Vec<_>) = larger.into_iter().unzip();
        scenarios.extend(larger);
        scenarios.push(without);
        let mut measured = measure(&scenarios, penalty, args.threads)?.into_iter();
        let (Some((base, line)), Some((ungated, without))) = (measured.next(), measured.next_back()) else {
            return Err(Failure::Runtime("nothing was replayed".to_owned()));
        };
        let as_recorded = if observes { without } else { line };
        let [enforced, passed] = [(&base, &ungated), (&ungated, &base)]
            .map(|(of, beside)| Finding::of(Setting::default(), of.clone(), beside).is_better(beside));
        let enforcing = match (enforced, passed) {
            (true, _) => Enforcing::Helps,
            (_, true) => Enforcing::Harms,
            _ => Enforcing::Idle,
        };
        let observed = observed.map(|counts| (counts, enforcing));
        let tried = tried.into_iter().zip(measured.by_ref());
        let findings = tried.map(|(setting, (of, _))| Finding::of(setting, of, &base)).collect();
        let larger = names.into_iter().zip(measured);
        let larger = larger.map(|(what, (of, _))| (what, Finding::of(Setting::default(), of, &base)));
        Ok(Self {
            findings,
            larger: larger.collect(),
            classes: recorded.classes.iter().map(|id| name_of(gate, *id)).collect(),
            misfit: table::misfit_of(&recorded.requests, &as_recorded),
            cores,
            known,
            connections,
            span: recorded.span(),
            observed,
            base,
        })
    }

    /// Why a setting that seems to be better isn't advised.
    fn doubt(&self, finding: &Finding) -> Option<&'static str> {
        let gives_company = finding.setting.keys.iter().any(|(key, value)| match *key {
            "connections" => value.parse::<u32>().is_ok_and(|count| count > self.connections),
            "capacity" | "long_limit" => value == "none",
            _ => false,
        });
        if finding.gain.low() <= 0.0 {
            return Some("may be chance");
        }
        let is_unseen = self.known == Known::Neither && gives_company;
        is_unseen.then_some("too few requests ran beside others to tell whether the service bears it")
    }

    /// The best of the settings, if any is better.
    fn best(&self) -> Option<&Finding> {
        let is_better = |finding: &&Finding| {
            self.misfit.1.is_none() && self.doubt(finding).is_none() && finding.is_better(&self.base)
        };
        let by_mean = |a: &&Finding, b: &&Finding| a.measured.mean.total_cmp(&b.measured.mean);
        self.findings.iter().filter(is_better).min_by(by_mean)
    }

    /// The sentence of a gate that observes, and what is advised; where nothing is, `otherwise`.
    fn text(&self, otherwise: String) -> String {
        let span = spoken(self.span);
        let mut text = self.guess();
        text += &self.observed.map_or(String::new(), |(of, enforcing)| self.observed(&span, of, enforcing));
        match (&self.misfit.1, self.best()) {
            (Some(misfit), _) => text += misfit,
            (None, Some(best)) => text += &self.advised(best, &span),
            (None, None) => text += &otherwise,
        }
        text
    }

    fn observed(&self, span: &str, of: Observed, enforcing: Enforcing) -> String {
        let Observed { delayed, refused, without } = of;
        let (now, enforced) = (time(without), time(self.base.mean));
        let delayed = count(delayed, "request", "requests");
        let saved = match (&self.misfit.1, enforcing) {
            (Some(_), _) => "; what that would have saved can't be told".to_owned(),
            (None, Enforcing::Helps) => format!(
                ", and saved {} of each on average: {enforced} instead of {now}",
                time(without - self.base.mean)
            ),
            (None, Enforcing::Idle) => ", and saved nothing".to_owned(),
            (None, Enforcing::Harms) => format!(
                ", and saved nothing: requests take {now} on average now, and would have taken {enforced} with these \
                 settings enforced, which is worse"
            ),
        };
        format!("In the last {span} this gate would have delayed {delayed} and refused {refused}{saved}.\n")
    }

    /// Says that nothing helps but a larger service, and whether that is sure.
    fn nothing_better(&self) -> String {
        let (base, tried) = (&self.base, self.findings.len());
        let gain = |finding: &Finding| 1.0 - finding.measured.mean / base.mean;
        let closest = self.findings.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)));
        let doubt = closest.filter(|finding| gain(finding) >= WORTH).map(|finding| {
            let why = match self.doubt(finding) {
                Some(company) if finding.gain.low() > 0.0 => format!(
                    "but {company}: record a trace with a higher `connections` and `capacity`, and ask again"
                ),
                _ => "which may be chance".to_owned(),
            };
            let (words, mean) = (finding.setting.words(), time(finding.measured.mean));
            format!(" Closest came {words}: {mean} ({:.1} % less), {why}.", gain(finding) * 100.0)
        });
        let larger = self.of_larger();
        let larger = if larger.is_empty() { larger } else { format!("; it would have been {larger}") };
        format!(
            "None of the {tried} settings that were tried would have been better than {} on average{larger}.{}\n",
            time(base.mean),
            doubt.unwrap_or_default()
        )
    }

    /// What a larger service would have given, where that is better.
    fn of_larger(&self) -> String {
        let better = self.larger.iter().filter(|(_, finding)| finding.is_better(&self.base));
        let words = better.map(|(what, finding)| format!("{} with {what}", time(finding.measured.mean)));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The class that pays most for another weight.
    fn payer(&self, best: &Finding) -> Option<String> {
        best.setting.weight.as_ref()?;
        let both = self.base.classes.iter().zip(&best.measured.classes);
        let (class, (was, is)) =
            both.enumerate().max_by(|(_, a), (_, b)| (a.1 - a.0).total_cmp(&(b.1 - b.0)))?;
        let name = self.classes.get(class)?;
        (is > was).then(|| format!("; those of class {name} {} instead of {}", time(*is), time(*was)))
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

    /// An advice to a gate that lets everything pass stands beside what that gives.
    fn beside_now(&self, with: f64, now: f64) -> String {
        let how = match with / now {
            ratio if ratio < 1.0 - WORTH => "better than",
            ratio if ratio > 1.0 + WORTH => "worse than letting all pass, as",
            _ => "as good as",
        };
        format!("That is {how} now: {}.\n", time(now))
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
        let others = others.iter().map(|it| {
            // What seems to be better than the best says why it isn't.
            let doubt = self.doubt(it).filter(|_| it.measured.mean < with.mean);
            let doubt = doubt.map_or(String::new(), |why| format!(" ({why})"));
            format!("{}: {}{doubt}", it.setting.words(), time(it.measured.mean))
        });
        let others = Some(self.of_larger()).filter(|words| !words.is_empty()).into_iter().chain(others);
        let paid = self.payer(best).unwrap_or_default();
        let now = self.observed.map(|(of, _)| self.beside_now(with.mean, of.without));
        format!(
            "{}: requests would have taken {} on average instead of {}{} ({less:.0} % less), 95 of 100 at most {} instead of \
             {}{refused}{paid}.\n{}\
             {}: better in {won} of {parts} parts of the recorded {span}, by {} to {} (95 %); the recorded settings, \
             replayed, are {:.0} % off what was recorded.\n\
             Also tried: {}.\n",
            best.setting.words(),
            time(with.mean),
            time(base.mean),
            if now.is_some() { " with the settings enforced as they are" } else { "" },
            time(with.p95),
            time(base.p95),
            now.unwrap_or_default(),
            if won == parts { "Sure" } else { "Rather sure" },
            time(best.gain.low()),
            time(best.gain.high()),
            self.misfit.0 * 100.0,
            others.collect::<Vec<_>>().join(", "),
        )
    }
}

/// The name of a class of the gate.
fn name_of(gate: &config::Gate, id: ClassId) -> String {
    let known = gate.classes.iter().find(|class| ClassId::named(&class.name) == id);
    known.map_or(ClassId::DEFAULT_NAME, |class| &class.name).to_owned()
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
