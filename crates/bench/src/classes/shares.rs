//! Shares in work: two classes with weights of 2 and 1, each of which asks for the whole processor.
//!
//! The first class comes alone at first, and has what the other leaves. Then both are backlogged until
//! requests cease to come. In a second run the other class comes in bursts of ten requests, so that it is
//! idle again and again.

use std::time::Duration;

use super::Options;
use super::laboratory::{Drawn, Ended, Stream, lines};
use crate::Error;
use crate::alternate::Display;
use crate::stats::{mean, percentile};

/// For how long the first class is alone, in seconds.
const ALONE: f64 = 5.0;
/// When requests cease to come.
const UNTIL: f64 = 40.0;
/// The time over which work is counted.
const WINDOW: f64 = 10.0;
/// How soon after a change it isn't.
const AFTER: f64 = 1.0;
/// The mean processor time of each class's requests.
const MEANS: [f64; 2] = [0.005, 0.020];
const WEIGHTS: [f64; 2] = [2.0, 1.0];
/// The second class's bursts: how many there are and one, in seconds from each to the next, of how many
/// requests on average, and how long it takes until these have come.
const BURSTS: u32 = 21;
const PERIOD: f64 = 2.0;
const BURST: f64 = 10.0;
const SHORTLY: f64 = 0.02;
/// How long after a class has become idle the other's work is looked at.
const SOON: f64 = 0.2;

pub(super) async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    let stream = |class: usize, from| Stream {
        class: class as u16,
        does: "work",
        mean: MEANS[class],
        rates: vec![(from, 1.0 / MEANS[class])],
        phase: None,
    };
    let drawn = Drawn::new(&[stream(0, 0.0), stream(1, ALONE)], UNTIL, options.seed);
    let keys = WEIGHTS.map(|weight| format!("weight = {weight}"));
    let (ended, ()) = drawn.meet(lines(1, Duration::from_secs(1), &keys), options.cpu, |_, _| Ok(())).await?;
    let begin = ALONE + AFTER;
    let steps = (UNTIL - WINDOW - begin) as u32;
    let wanted = WEIGHTS[0] / (WEIGHTS[0] + WEIGHTS[1]);
    let off = |step: u32| {
        let from = begin + f64::from(step);
        let [first, second] = work(&ended, from, from + WINDOW);
        (first / (first + second) / wanted - 1.0).abs()
    };
    let worst = (0..=steps).map(off).fold(0.0, f64::max);
    let alone = work(&ended, AFTER, ALONE)[0] / (ALONE - AFTER);
    let both = work(&ended, begin, UNTIL).iter().sum::<f64>() / (UNTIL - begin);
    let text = format!(
        "  shares of work: at most {:.1} % off the weights in any {WINDOW} s; alone a class has {:.2} of what both \
         have together\n",
        100.0 * worst,
        alone / both
    );
    let text = text + &idle(options, lines(1, Duration::from_secs(1), &keys), both).await?;
    display.say(&text);
    Ok(text)
}

/// How soon the first class has all, whenever the other has become idle; `all` is the work of a second.
async fn idle(options: &Options, lines: String, all: f64) -> Result<String, Error> {
    let bursts = || (1..BURSTS).map(|number| PERIOD * f64::from(number));
    let stream = |class: usize, rates| {
        let mean = MEANS[class];
        Stream { class: class as u16, does: "work", mean, rates, phase: None }
    };
    // It is ahead by a second of work, which the bursts don't use up.
    let first = stream(0, vec![(0.0, 2.0 / MEANS[0]), (1.0, 1.0 / MEANS[0])]);
    let burst = |at| [(at, BURST / SHORTLY), (at + SHORTLY, 0.0)];
    let second = stream(1, bursts().flat_map(burst).collect());
    let until = PERIOD * f64::from(BURSTS);
    let drawn = Drawn::new(&[first, second], until, options.seed);
    let (ended, ()) = drawn.meet(lines, options.cpu, |_, _| Ok(())).await?;
    let end = |one: &Ended| one.due + one.response;
    let (mut gaps, mut shares) = (Vec::new(), Vec::new());
    for burst in bursts() {
        let of = ended.iter().filter(|one| one.class == 1 && (burst..burst + PERIOD).contains(&one.due));
        let Some(idle) = of.map(end).reduce(f64::max) else { continue };
        let next = ended.iter().filter(|one| one.class == 0 && end(one) > idle);
        let next = next.min_by(|one, other| end(one).total_cmp(&end(other)));
        gaps.extend(next.map(|one| 1e3 * (end(one) - idle - one.takes).max(0.0)));
        shares.push(work(&ended, idle, idle + SOON)[0] / SOON / all);
    }
    Ok(format!(
        "  whenever a class becomes idle ({} times), the other's next request begins within {:.1} ms (at most {:.1}), and \
         it has {:.2} of what both had together over the next {:.0} ms (at least {:.2})\n",
        gaps.len(),
        mean(&gaps),
        percentile(&gaps, 1.0),
        mean(&shares),
        1e3 * SOON,
        percentile(&shares, 0.0)
    ))
}

/// The work of both classes that ended between these.
fn work(ended: &[Ended], from: f64, to: f64) -> [f64; 2] {
    let mut work = [0.0; 2];
    for one in ended.iter().filter(|one| (from..to).contains(&(one.due + one.response))) {
        work[one.class] += one.takes;
    }
    work
}
