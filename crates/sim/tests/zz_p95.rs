//! Prototype.
mod common;
use admission::*;
use common::target::*;
use sim::*;
#[test]
fn proto() {
    for mixn in [SHOPPING, BROWSING] {
        for load in [1.5, 3.0, 10.0] {
            let scenarios: Vec<_> = (301..=330)
                .map(|seed| {
                    let mut s = bounded_response(seed, ours_p95(), load);
                    let scale = 0.020 / service_time(mixn);
                    s.types = s
                        .types
                        .iter()
                        .map(|k| match &k.service_time {
                            Distribution::Lognormal { mean, cv } => Kind::new(
                                &k.name,
                                Distribution::Lognormal {
                                    mean: Duration::from_secs_f64(mean.as_secs_f64() * scale),
                                    cv: *cv,
                                },
                            ),
                            _ => unreachable!(),
                        })
                        .collect();
                    for src in &mut s.sources {
                        src.mix = Mix::Shares(mix(mixn));
                    }
                    s
                })
                .collect();
            let minutes = sweep(&scenarios, None, |_, run| reached(&run.expect("sound"), 1, 20, 80));
            let mut p: Vec<f64> = minutes.iter().map(|m| m.p95 * 1e3).collect();
            p.sort_by(f64::total_cmp);
            let useful = minutes.iter().map(|m| m.useful).sum::<f64>() / minutes.len() as f64;
            let late = minutes.iter().map(|m| m.late).sum::<f64>() / minutes.len() as f64;
            let within = p.iter().filter(|p| (450.0..=550.0).contains(*p)).count();
            println!(
                "mix {mixn} load {load}: p95 {:.0} {:.0} {:.0} {:.0} {:.0} within {within} late {late:.4} useful {useful:.3}",
                p[0], p[7], p[15], p[22], p[29]
            );
        }
    }
}
