//! Figs. 1 and 3 of *Self-managing web servers* (Computer Communications 29, 2006), beside theory. Figs. 4 to
//! 8 are measured on real servers (`bench run classes`).

use std::fmt::Write as _;

use sim::goals::{Delays, Workload, by_share, by_share_theory};
use sim::plot::{Curve, Panel, Plot, Scale};

use crate::error::Error;
use crate::figure::{Drawing, Figure};
use crate::numbers::{seconds, short_seconds};
use crate::results::{Length, Progress};

const LOADS: [f64; 12] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98];
const SHARES: [f64; 10] = [0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
/// Requests of the class per second.
const RATES: [f64; 3] = [3.0, 6.0, 9.0];
/// A class that takes more than this part of its share isn't shown.
const STEADY: f64 = 0.9;

pub(crate) fn figures(length: Length, progress: &Progress) -> Result<Vec<Figure>, Error> {
    let (seeds, step) = if length == Length::Short { (1, 4) } else { (4, 1) };
    progress.begin("self-managing", 2);
    let over_load = over_load(seeds, step)?;
    progress.advance(1);
    Ok(vec![over_load, over_share(seeds, step)?])
}

/// The mean of several seeds.
fn mean(seeds: u64, of: impl Fn(u64) -> Result<Delays, sim::Error>) -> Result<Delays, Error> {
    let runs = (1..=seeds).map(of).collect::<Result<Vec<Delays>, _>>();
    let runs = runs.map_err(|source| Error::Run { file: "self-managing".to_owned(), source })?;
    let mean = |of: fn(&Delays) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    Ok(Delays { accept: mean(|one| one.accept), run: mean(|one| one.run), service: mean(|one| one.service) })
}

/// Fig. 1.
fn over_load(seeds: u64, step: usize) -> Result<Figure, Error> {
    let parts: [fn(&Delays) -> f64; 3] = [|one| one.accept, |one| one.run, |one| one.service];
    let mut table =
        "| workload | load | per second | accept queue | theory | run queue | theory | service |\n\
                     |---|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    let mut panels = Vec::new();
    for (workload, name) in [
        (Workload::Persistent, "persistent connections, 50 workers"),
        (Workload::Encrypted, "encrypted connections, 50 workers"),
    ] {
        let mut curves = vec![Curve::default(); 5];
        for load in LOADS.into_iter().step_by(step) {
            let (found, theory) = (mean(seeds, |seed| workload.delays(load, seed))?, workload.theory(load));
            let at = |curve: &mut Curve, value: f64| curve.points.push((load * 100.0, value.max(1e-4)));
            for (curve, value) in curves.iter_mut().zip([
                parts[0](&found),
                parts[0](&theory),
                parts[1](&found),
                parts[1](&theory),
                parts[2](&found),
            ]) {
                at(curve, value);
            }
            let [accept, run, service] = parts.map(|of| seconds(of(&found)));
            let [accept_theory, run_theory, _] = parts.map(|of| seconds(of(&theory)));
            let _ = writeln!(
                table,
                "| {name} | {:.0} % | {:.1} | {accept} | {accept_theory} | {run} | {run_theory} | {service} |",
                load * 100.0,
                workload.rate(load),
            );
        }
        panels.push(Panel::new(format!("Mean delay: {name}"), Scale::Logarithmic, short_seconds, curves));
    }
    let names = ["accept queue", "theory", "run queue", "theory", "service"];
    let said = ["Fig. 1: where a request is delayed as the load rises", "below 0.1 ms drawn as 0.1 ms"];
    Ok(figure("self-managing-01", said, &names, "% of the most that can be served", (panels, table)))
}

/// Fig. 3.
fn over_share(seeds: u64, step: usize) -> Result<Figure, Error> {
    let mut table = "| per second | share | mean delay | theory |\n|---:|---:|---:|---:|\n".to_owned();
    let (mut curves, mut names) = (Vec::new(), Vec::new());
    for rate in RATES {
        let (mut simulated, mut theory) = (Curve::default(), Curve::default());
        let steady = |share: &f64| rate * sim::goals::SHARED_WORK < STEADY * share;
        for share in SHARES.into_iter().filter(steady).step_by(step) {
            let one = |seed| by_share(rate, share, seed).map(|run| Delays { accept: 0.0, run, service: 0.0 });
            let (found, said) = (mean(seeds, one)?.run, by_share_theory(rate, share));
            simulated.points.push((share * 100.0, found));
            theory.points.push((share * 100.0, said));
            let share = share * 100.0;
            let _ = writeln!(table, "| {rate} | {share:.0} % | {} | {} |", seconds(found), seconds(said));
        }
        curves.extend([simulated, theory]);
        names.extend([format!("{rate}/s"), "theory".to_owned()]);
    }
    let said = ["Fig. 3: a class's delay over its share", "requests of 52 ms; the others always want theirs"];
    let panels = vec![Panel::new("Mean delay", Scale::Logarithmic, short_seconds, curves)];
    Ok(figure("self-managing-03", said, &names, "% of the processor", (panels, table)))
}

fn figure(
    id: &str,
    [title, subtitle]: [&str; 2],
    variants: &[impl ToString],
    axis: &'static str,
    (panels, table): (Vec<Panel>, String),
) -> Figure {
    let plot = Plot {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        variants: variants.iter().map(ToString::to_string).collect(),
        marks: None,
        axis,
        seconds: 100.0,
        panels,
    };
    Figure { id: id.to_owned(), drawing: Some(Drawing::Plot(plot)), table }
}
