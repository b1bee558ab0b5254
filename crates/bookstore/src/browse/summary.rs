//! The figures of a run, as `--json` writes them: times in seconds, rates in interactions a second.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::images;
use super::lateness;
use super::plan::{Load, Phase, Plan};
use super::record::{Counted, Outcome, PhaseRecord, Tally, Times};
use crate::interaction::Interaction;
use crate::mixes::Mix;
use crate::names::Scale;

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The site.
    pub site: String,
    /// What was asked for.
    pub settings: Settings,
    /// How large the shop is.
    pub scale: Scale,
    /// One after another, with the warm-up.
    pub phases: Vec<PhaseSummary>,
    /// All phases that count, together.
    pub total: Figures,
    /// Second by second from the start, with the warm-up.
    pub seconds: Vec<SecondSummary>,
    /// What was wrong with answers.
    pub complaints: Vec<Complaint>,
    /// Whether the client was the bottleneck in a phase that counts.
    pub client_was_the_bottleneck: bool,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The source of all chance.
    pub seed: u64,
    /// Threads of the client.
    pub threads: usize,
    /// Mean think time, after scaling.
    pub think_mean: f64,
    /// Its cap.
    pub think_cap: f64,
    /// Mean length of a visit, after scaling.
    pub session_mean: f64,
    /// Its cap.
    pub session_cap: f64,
    /// How long a page is waited for.
    pub timeout: f64,
    /// Over how many connections images are fetched; 0: they aren't.
    pub image_connections: usize,
    /// Visitors of an open loop that may be present at once.
    pub most_present: usize,
}

/// A phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// What it is called.
    pub name: String,
    /// Whether it counts.
    pub is_counted: bool,
    /// Where visitors went.
    pub mix: Mix,
    /// Browsers of a closed loop.
    pub browsers: Option<u32>,
    /// Visits a second of an open loop.
    pub sessions_per_second: Option<f64>,
    /// What came of it.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What came of a phase, or of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// How long it took.
    pub duration: f64,
    /// Right pages a second: TPC-W's WIPS.
    pub wips: f64,
    /// How many interactions ended how.
    pub counts: Counts,
    /// Of the rejected, those that the shop itself turned away, with a page that says so; the others
    /// somebody before it.
    pub busy: u64,
    /// How long they took, together, by how they ended.
    pub sums: Sums,
    /// Response times of right pages, from the request to the page's last byte.
    pub response: Percentiles,
    /// From the request to the last byte of the last image of right pages.
    pub complete: Percentiles,
    /// Every interaction however it ended, with all the time that was waited for it: a time-out counts with
    /// the whole of it.
    pub all_requests: Percentiles,
    /// The figures of each page, in the specification's order.
    pub interactions: Vec<PageFigures>,
    /// Images.
    pub images: ImageFigures,
    /// The visitors that were present.
    pub present: Present,
    /// Whether the figures agree with one another, by Little's law.
    pub little: Little,
    /// The load of the client itself.
    pub client: Client,
}

/// How many interactions ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The right page, whole.
    pub done: u64,
    /// 503 or 429.
    pub rejected: u64,
    /// Nobody waited longer.
    pub timed_out: u64,
    /// No or a broken connection, or another status of 500 and above.
    pub failed: u64,
    /// An answer that isn't the page.
    pub wrong: u64,
    /// Still waited for when the run ended.
    pub unfinished: u64,
}

/// How long interactions took, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// See [`Counts`].
    pub done: f64,
    /// See [`Counts`].
    pub rejected: f64,
    /// See [`Counts`].
    pub timed_out: f64,
    /// See [`Counts`].
    pub failed: f64,
    /// See [`Counts`].
    pub wrong: f64,
    /// See [`Counts`].
    pub unfinished: f64,
}

/// Times. Percentiles are exact within 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many.
    pub count: u64,
    /// Together.
    pub sum: f64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 95th.
    pub p95: f64,
    /// The 99th.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// One page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PageFigures {
    /// Its four letters.
    pub code: String,
    /// Its name.
    pub name: String,
    /// Its share of all interactions, in percent.
    pub share: f64,
    /// How many ended how.
    pub counts: Counts,
    /// How long they took.
    pub sums: Sums,
    /// Response times of right pages.
    pub response: Percentiles,
}

/// Images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFigures {
    /// Came whole.
    pub done: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Refused.
    pub rejected: u64,
    /// Not there in time.
    pub timed_out: u64,
    /// Anything else.
    pub failed: u64,
}

/// Figures of the visitors that were present.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Present {
    /// The mean number of browsers.
    pub mean: f64,
    /// The largest number of browsers.
    pub most: usize,
    /// The visits that began.
    pub sessions: u64,
    /// The visits that an open loop turned away.
    pub turned_away: u64,
}

/// Little's law: present = rate × (response + think).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Little {
    /// Interactions a second, however they ended.
    pub rate: f64,
    /// How long one kept its browser on average, with images.
    pub response: f64,
    /// How long browsers really thought or stayed away on average.
    pub think: f64,
    /// `(present − rate × (response + think)) / present`: near 0 if nothing was left out of the figures.
    pub residual: f64,
}

/// How the client did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    /// The share of its threads' processor time that it used.
    pub processor_share: f64,
    /// How late browsers went on.
    pub lateness: Percentiles,
    /// Why it was the bottleneck; empty if it wasn't.
    pub bottleneck: Vec<String>,
}

/// A second of the run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SecondSummary {
    /// Which, from the start.
    pub second: usize,
    /// What ended in it.
    pub counts: Counts,
    /// Of the rejected, those that the shop itself turned away.
    pub busy: u64,
    /// Mean response time of right pages.
    pub response: f64,
    /// Browsers present.
    pub present: usize,
}

/// Something wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Complaint {
    /// What.
    pub what: String,
    /// How often, in the warm-up, too.
    pub count: u64,
}

impl Summary {
    /// From what was counted.
    pub(super) fn new(site: String, plan: &Plan, scale: Scale, threads: usize, counted: &Counted) -> Self {
        let mut total = PhaseRecord::new();
        let mut bottleneck = Vec::new();
        for (phase, record) in plan.phases.iter().zip(&counted.phases).filter(|(phase, _)| phase.is_counted) {
            total.merge(record);
            let reasons = lateness::reasons(record, threads);
            bottleneck.extend(reasons.into_iter().map(|reason| format!("{}: {reason}", phase.name)));
        }
        let phases = plan.phases.iter().zip(&counted.phases);
        let complaints = counted.complaints.iter();
        let client_was_the_bottleneck = !bottleneck.is_empty();
        Self {
            site,
            settings: Settings::new(plan, threads),
            scale,
            phases: phases.map(|(phase, record)| PhaseSummary::new(phase, record, threads)).collect(),
            total: Figures::new(&total, threads, bottleneck),
            seconds: seconds(counted),
            complaints: complaints.map(|(what, &count)| Complaint { what: what.clone(), count }).collect(),
            client_was_the_bottleneck,
        }
    }
}

impl Settings {
    fn new(plan: &Plan, threads: usize) -> Self {
        let pace = &plan.pace;
        Self {
            seed: plan.seed,
            threads,
            think_mean: pace.think.mean.as_secs_f64(),
            think_cap: pace.think.cap.as_secs_f64(),
            session_mean: pace.session.mean.as_secs_f64(),
            session_cap: pace.session.cap.as_secs_f64(),
            timeout: plan.patience.as_secs_f64(),
            image_connections: plan.image_connections.unwrap_or(0),
            most_present: plan.most_present,
        }
    }
}

impl PhaseSummary {
    fn new(phase: &Phase, record: &PhaseRecord, threads: usize) -> Self {
        let (browsers, sessions_per_second) = match phase.load {
            Load::Browsers(count) => (Some(count), None),
            Load::Sessions(rate) => (None, Some(rate)),
        };
        Self {
            name: phase.name.clone(),
            is_counted: phase.is_counted,
            mix: phase.mix,
            browsers,
            sessions_per_second,
            figures: Figures::new(record, threads, lateness::reasons(record, threads)),
        }
    }
}

impl Figures {
    fn new(record: &PhaseRecord, threads: usize, bottleneck: Vec<String>) -> Self {
        let mut whole = Tally::default();
        for page in &record.pages {
            for outcome in Outcome::ALL {
                whole.counts[outcome as usize] += page.counts[outcome as usize];
                whole.sums[outcome as usize] += page.sums[outcome as usize];
            }
            whole.done.merge(&page.done);
        }
        let duration = record.duration.as_secs_f64();
        let asked: u64 = whole.counts.iter().sum();
        let pages = Interaction::ALL.into_iter().zip(&record.pages);
        Self {
            duration,
            wips: whole.done.count as f64 / duration.max(1e-9),
            counts: counts(&whole.counts),
            busy: record.busy,
            sums: sums(&whole.sums),
            response: Percentiles::new(&whole.done),
            complete: Percentiles::new(&record.complete),
            all_requests: Percentiles::new(&record.all),
            interactions: pages.map(|(page, tally)| PageFigures::new(page, tally, asked)).collect(),
            images: image_figures(record.images),
            present: Present {
                mean: record.present / duration.max(1e-9),
                most: record.most_present,
                sessions: record.sessions,
                turned_away: record.turned_away,
            },
            little: Little::new(record, &whole),
            client: Client {
                processor_share: lateness::processor_share(record, threads),
                lateness: Percentiles::new(&record.lag),
                bottleneck,
            },
        }
    }
}

impl PageFigures {
    fn new(page: Interaction, tally: &Tally, of: u64) -> Self {
        Self {
            code: page.code().to_owned(),
            name: page.name().to_owned(),
            share: tally.counts.iter().sum::<u64>() as f64 * 100.0 / of.max(1) as f64,
            counts: counts(&tally.counts),
            sums: sums(&tally.sums),
            response: Percentiles::new(&tally.done),
        }
    }
}

impl Little {
    fn new(record: &PhaseRecord, whole: &Tally) -> Self {
        let duration = record.duration.as_secs_f64().max(1e-9);
        let ended: u64 = whole.counts.iter().sum::<u64>() - whole.counts[Outcome::Unfinished as usize];
        let not_done: Duration =
            whole.sums[Outcome::Rejected as usize..Outcome::Unfinished as usize].iter().sum();
        let busy = record.complete.sum + not_done;
        let (rate, present) = (ended as f64 / duration, record.present / duration);
        let response = busy.as_secs_f64() / ended.max(1) as f64;
        let think = record.thought.mean().as_secs_f64();
        let residual = if present > 0.0 { 1.0 - rate * (response + think) / present } else { 0.0 };
        Self { rate, response, think, residual }
    }
}

impl Percentiles {
    fn new(times: &Times) -> Self {
        let at = |quantile| times.histogram.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            count: times.count,
            sum: times.sum.as_secs_f64(),
            mean: times.mean().as_secs_f64(),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

fn counts([done, rejected, timed_out, failed, wrong, unfinished]: &[u64; 6]) -> Counts {
    let [done, rejected, timed_out] = [*done, *rejected, *timed_out];
    Counts { done, rejected, timed_out, failed: *failed, wrong: *wrong, unfinished: *unfinished }
}

fn sums(sums: &[Duration; 6]) -> Sums {
    let [done, rejected, timed_out, failed, wrong, unfinished] = sums.map(|sum| sum.as_secs_f64());
    Sums { done, rejected, timed_out, failed, wrong, unfinished }
}

fn image_figures(images: images::Images) -> ImageFigures {
    let images::Images { done, bytes, rejected, timed_out, failed } = images;
    ImageFigures { done, bytes, rejected, timed_out, failed }
}

fn seconds(counted: &Counted) -> Vec<SecondSummary> {
    let seconds = counted.seconds.iter().enumerate();
    let summary = seconds.map(|(second, values)| SecondSummary {
        second,
        counts: counts(&values.counts),
        busy: values.busy,
        response: values.done.as_secs_f64() / values.counts[Outcome::Done as usize].max(1) as f64,
        present: values.present,
    });
    summary.collect()
}
