//! The report of `bench peers`: a table for each load, and whether the gate is ahead of each peer.

use std::path::Path;

use serde::Serialize;

use super::LOADS;
use super::book::Book;
use super::turn::Turned;
use super::variant::{GATE, TARGETED, Variant};
use crate::Error;
use crate::files::write_figures;
use crate::stats::Rounds;
use crate::table::{Figures, paragraph, ratio, seconds, spread};

/// The columns: what each is called, which figure it is, how it is shown.
const COLUMNS: [Column; 7] = [
    ("goodput, of the peak", |turned| turned.goodput, ratio),
    ("mean, all", |turned| turned.mean, seconds),
    ("mean, short", |turned| turned.short_mean, seconds),
    ("95 %, short", |turned| turned.short_p95, seconds),
    ("short answered", |turned| turned.short_answered, percent),
    ("refused", |turned| turned.refused, percent),
    ("refused after", |turned| turned.refused_after, seconds),
];

type Column = (&'static str, fn(&Turned) -> f64, fn(f64) -> String);

/// All turns of one variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turns {
    /// What it is called.
    pub name: String,
    /// Its setting, if one was looked for.
    pub setting: String,
    is_peer: bool,
    /// By load, then by round; fewer where not all is measured.
    pub by_load: Vec<Vec<Turned>>,
}

/// The whole experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The most work that the origin did with clients that were never idle, in processors.
    pub peak: f64,
    /// In capacities.
    pub loads: [f64; LOADS.len()],
    /// By variant.
    pub variants: Vec<Turns>,
}

impl Report {
    pub(super) fn of(book: &Book, variants: &[Variant], rounds: usize, gatekeeper: &str) -> Self {
        let turns = |variant: &Variant| {
            let setting = book.best(variant).unwrap_or_default();
            let of = variant.figures_of(setting, gatekeeper);
            let by_round = |load: &f64| {
                let found = (0..rounds).filter_map(|round| book.turn(variant.name, *load, round, &of));
                found.cloned().collect()
            };
            Turns {
                name: variant.name.to_owned(),
                setting: setting.to_string(),
                is_peer: variant.is_peer(),
                by_load: LOADS.iter().map(by_round).collect(),
            }
        };
        Self {
            peak: book.peak().unwrap_or_default(),
            loads: LOADS,
            variants: variants.iter().map(turns).collect(),
        }
    }

    pub(super) fn write(&self, output: &Path) -> Result<(), Error> {
        write_figures(self, output, "peers")?;
        let path = output.join("peers.md");
        std::fs::write(&path, self.markdown()).map_err(Error::io(format!("writing {}", path.display())))
    }

    /// The rows of a load: the variant, and a text for each column.
    fn rows(&self, number: usize) -> impl Iterator<Item = (&Turns, [String; COLUMNS.len()])> {
        self.variants.iter().filter(move |turns| !turns.by_load[number].is_empty()).map(move |turns| {
            let cell = |(_, figure, show): Column| {
                let values: Vec<f64> = turns.by_load[number].iter().map(figure).collect();
                spread(Rounds::of(&values), show)
            };
            (turns, COLUMNS.map(cell))
        })
    }

    /// The figures as tables, with verdicts computed from them.
    pub fn text(&self) -> String {
        let mut figures = Figures::new(&COLUMNS.map(|(name, _, _)| name.to_owned()));
        for (number, load) in self.loads.iter().enumerate() {
            figures.heading(&format!("{load} times the capacity"));
            for (turns, cells) in self.rows(number) {
                figures.row(&format!("  {}", turns.name), cells);
            }
        }
        let mut text: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        text += "\n";
        for turns in self.variants.iter().filter(|turns| turns.is_peer) {
            text += &paragraph(&format!("{} has {}.", turns.name, turns.setting));
        }
        for verdict in self.verdicts() {
            text += &paragraph(&verdict);
        }
        text
    }

    /// The figures as tables for a page, in Markdown.
    fn markdown(&self) -> String {
        let head: Vec<&str> = COLUMNS.iter().map(|(name, _, _)| *name).collect();
        let mut text = format!(
            "The origin does {:.3} s of work a second. Medians of the rounds (lowest … highest).\n",
            self.peak
        );
        for (number, load) in self.loads.iter().enumerate() {
            text +=
                &format!("\n| {load} × | {} |\n|---|{}\n", head.join(" | "), "---|".repeat(COLUMNS.len()));
            for (turns, cells) in self.rows(number) {
                let setting = if turns.is_peer { format!(" ({})", turns.setting) } else { String::new() };
                text += &format!("| {}{setting} | {} |\n", turns.name, cells.join(" | "));
            }
        }
        text += "\n";
        for verdict in self.verdicts() {
            text += &format!("* {verdict}\n");
        }
        text
    }

    /// Whether each gate is ahead of each peer.
    fn verdicts(&self) -> Vec<String> {
        let named = |name: &str| self.variants.iter().find(|turns| turns.name == name);
        let gates = [GATE.name, TARGETED.name].into_iter().filter_map(named);
        let pairs = gates.flat_map(|gate| {
            self.variants.iter().filter(|turns| turns.is_peer).map(move |peer| (gate, peer))
        });
        pairs.map(|(gate, peer)| self.verdict(gate, peer)).filter(|verdict| !verdict.is_empty()).collect()
    }

    fn verdict(&self, gate: &Turns, peer: &Turns) -> String {
        let mut said = Vec::new();
        for (number, load) in self.loads.iter().enumerate() {
            let rounds = || gate.by_load[number].iter().zip(&peer.by_load[number]);
            if rounds().next().is_none() {
                continue;
            }
            let of =
                |figure: fn((&Turned, &Turned)) -> f64| Rounds::of(&rounds().map(figure).collect::<Vec<_>>());
            let goodput = of(|(gate, peer)| gate.goodput / peer.goodput);
            let faster = of(|(gate, peer)| peer.short_mean / gate.short_mean);
            said.push(format!(
                "{load} times: goodput {} times as much, {}; short pages {} times as fast, {}",
                spread(goodput, ratio),
                standing(goodput),
                spread(faster, ratio),
                standing(faster)
            ));
        }
        if said.is_empty() {
            String::new()
        } else {
            format!("{} beside {}: {}.", gate.name, peer.name, said.join("; "))
        }
    }
}

/// How the gate stands by a ratio that is above one where it is ahead.
fn standing(ratio: Rounds) -> &'static str {
    match ratio {
        _ if ratio.low > 1.0 => "ahead",
        _ if ratio.high < 1.0 => "behind",
        _ => "as good within the spread",
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::super::turn::tests::turned;
    use super::*;

    #[test]
    fn the_gate_is_ahead_where_it_is_in_every_round() {
        let turns = |name: &str, is_peer, figures: [(f64, f64); 2]| Turns {
            name: name.to_owned(),
            setting: if is_peer { "maxconn 8".to_owned() } else { String::new() },
            is_peer,
            by_load: vec![
                figures.map(|(goodput, short)| turned(goodput, short)).to_vec(),
                vec![turned(figures[1].0, figures[1].1)],
                Vec::new(),
            ],
        };
        let report = Report {
            peak: 1.0,
            loads: LOADS,
            variants: vec![
                turns(GATE.name, false, [(1.0, 0.010), (0.9, 0.020)]),
                turns("HAProxy", true, [(0.9, 0.1), (1.0, 0.1)]),
            ],
        };
        assert_eq!(
            report.verdicts(),
            [
                "gate beside HAProxy: 1.5 times: goodput 1.01  (0.90 … 1.11) times as much, as good within the spread; \
                 short pages 7.50  (5.00 … 10.0) times as fast, ahead; 3 times: goodput 0.90 times as much, behind; \
                 short pages 5.00 times as fast, ahead."
            ]
        );
        let text = report.text();
        assert!(text.contains("HAProxy has maxconn 8."), "{text}");
        assert!(!text.contains("10.0 s"), "nothing is shown of what isn't measured: {text}");
        let markdown = report.markdown();
        assert!(markdown.contains("| HAProxy (maxconn 8) | 0.95  (0.90 … 1.00) |"), "{markdown}");
        assert!(markdown.contains("\n* gate beside HAProxy: "), "{markdown}");
    }
}
