//! Shares in work: two classes with weights of 2 and 1, each of which asks for the whole processor.
//!
//! The first class comes alone at first, and has what the other leaves. Then both are backlogged until
//! requests cease to come.

use std::time::Duration;

use super::Options;
use super::laboratory::{Drawn, Ended, Stream, lines};
use crate::Error;
use crate::alternate::Display;

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
    let (ended, ()) =
        drawn.meet(lines(1, Duration::from_secs(1), &keys), options.origin_cpu, |_, _| Ok(())).await?;
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
    display.say(&text);
    Ok(text)
}

/// The work of both classes that ended between these.
fn work(ended: &[Ended], from: f64, to: f64) -> [f64; 2] {
    let mut work = [0.0; 2];
    for one in ended.iter().filter(|one| (from..to).contains(&(one.due + one.response))) {
        work[one.class] += one.takes;
    }
    work
}
