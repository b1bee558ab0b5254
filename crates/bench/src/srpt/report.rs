//! The figures as tables and pictures.

use std::path::Path;

use serde::Serialize;
use sim::plot::{Curve, Panel, Plot, Scale};

use super::{Cell, Cost, Costs, Followed, Options, Setup};
use crate::Error;
use crate::files::write_figures;
use crate::stats::Rounds;
use crate::table::{self, Figures, count, ratio, seconds, spread};

/// One load with one setup.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// The load.
    pub load: String,
    /// The setup.
    #[serde(serialize_with = "written")]
    pub setup: Setup,
    /// For how long requests came.
    pub seconds: u64,
    /// By variant, then by round.
    pub cells: Vec<Vec<Cell>>,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The variants' names.
    pub variants: Vec<String>,
    /// Each load with each setup.
    pub sections: Vec<Section>,
    /// What the scheduler costs.
    pub costs: Option<Costs>,
    /// How soon a changed rate is followed.
    pub followed: Option<Followed>,
}

fn written<S: serde::Serializer>(setup: &Setup, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(setup)
}

type Row = (&'static str, fn(&Cell) -> f64, fn(f64) -> String);

const ROWS: [Row; 25] = [
    ("mean response time", |cell| cell.mean, seconds),
    ("C²", |cell| cell.squared_variation, ratio),
    ("slowdown", |cell| cell.slowdown, ratio),
    ("time to the first byte", |cell| cell.first_byte, seconds),
    ("half within", |cell| cell.quantiles[0], seconds),
    ("99 % within", |cell| cell.quantiles[2], seconds),
    ("up to 1 KB", |cell| cell.by_size[0], seconds),
    ("up to 10 KB", |cell| cell.by_size[1], seconds),
    ("up to 100 KB", |cell| cell.by_size[2], seconds),
    ("above", |cell| cell.by_size[3], seconds),
    ("largest 1 %", |cell| cell.largest, seconds),
    ("the largest", |cell| cell.very_largest, seconds),
    ("slowest of these, in times of a fair link", |cell| cell.slowest_of_largest()[0], ratio),
    ("in times of the slowest run of that link", |cell| cell.slowest_of_largest()[1], ratio),
    ("of these incomplete", |cell| 100.0 * cell.incomplete_of_largest(), percent),
    ("incomplete", |cell| 100.0 * cell.incomplete, percent),
    ("most connections", |cell| cell.connections as f64, count),
    ("connections refused", |cell| cell.refused as f64, count),
    ("packets dropped", |cell| cell.dropped as f64, count),
    ("MB sent while requests came", |cell| cell.sent as f64 / 1e6, |megabytes| format!("{megabytes:.2}")),
    ("MB of memory of the gate", |cell| cell.memory as f64 / 1e6, |megabytes| format!("{megabytes:.0}")),
    ("processor time for each response", |cell| cell.cost, micros),
    ("mean, simulated", |cell| cell.simulated, seconds),
    ("mean over that of an order that knows all", |cell| cell.mean / cell.clairvoyant, ratio),
    ("client late (99th percentile)", |cell| cell.late[0], seconds),
];

fn percent(percent: f64) -> String {
    format!("{percent:.2} %")
}

fn micros(seconds: f64) -> String {
    format!("{:.0} µs", seconds * 1e6)
}

fn rounds(cells: &[Cell], figure: fn(&Cell) -> f64) -> Rounds {
    Rounds::of(&cells.iter().map(figure).collect::<Vec<_>>())
}

impl Section {
    /// The means of the first variant over those of each, of each round.
    fn gains(&self) -> Vec<Rounds> {
        let first = self.cells.first().map_or(&[][..], Vec::as_slice);
        let gain = |cells: &Vec<Cell>| {
            Rounds::of(&first.iter().zip(cells).map(|(one, other)| one.mean / other.mean).collect::<Vec<_>>())
        };
        self.cells.iter().map(gain).collect()
    }

    fn plot(&self, variants: &[String]) -> Plot {
        let curves = |points: fn(&Cell) -> Vec<(f64, f64)>| -> Vec<Curve> {
            let within = |cell: &Cell| {
                let end = self.seconds as f64;
                points(cell).into_iter().filter(|point| point.0 <= end && point.1.is_finite()).collect()
            };
            let first = |cells: &Vec<Cell>| cells.first().map(within).unwrap_or_default();
            self.cells.iter().map(|cells| Curve { points: first(cells), band: Vec::new() }).collect()
        };
        Plot {
            title: format!("{}, setup {}: a link of 10 Mbit/s", self.load, self.setup),
            subtitle: "one run; the mean of those sent in each second, as far as they had ended".to_owned(),
            variants: variants.to_vec(),
            marks: None,
            axis: "seconds",
            seconds: self.seconds as f64,
            panels: vec![
                Panel::new(
                    "Mean response time",
                    Scale::Logarithmic,
                    seconds,
                    curves(|cell| {
                        cell.over_time.iter().enumerate().map(|(at, times)| (at as f64, times[0])).collect()
                    }),
                ),
                Panel::new(
                    "Connections at the server",
                    Scale::Linear,
                    count,
                    curves(|cell| {
                        let all = cell.connections_over_time.iter().enumerate();
                        all.map(|(at, &connections)| (at as f64, connections as f64)).collect()
                    }),
                ),
                Panel::new(
                    "Memory of the gate",
                    Scale::Linear,
                    |bytes| format!("{:.0} MB", bytes / 1e6),
                    curves(|cell| {
                        let all = cell.memory_over_time.iter().enumerate();
                        all.map(|(at, &bytes)| (at as f64, bytes as f64)).collect()
                    }),
                ),
            ],
        }
    }
}

impl Measured {
    pub(super) fn new(options: &Options, sections: &[Section]) -> Self {
        let variants = options.variants.iter().map(|variant| variant.name.to_owned()).collect();
        Self { variants, sections: sections.to_vec(), costs: None, followed: None }
    }

    pub(super) fn write(&self, output: &Path) -> Result<(), Error> {
        write_figures(self, output, "srpt")?;
        for section in &self.sections {
            let name = format!("srpt-{}-{}.svg", section.load, section.setup);
            section.plot(&self.variants).write(&output.join(name))?;
        }
        Ok(())
    }

    /// The figures as tables.
    pub fn text(&self) -> String {
        let mut figures = Figures::new(&self.variants);
        for section in &self.sections {
            figures.heading(&format!("{}, setup {}, {} s", section.load, section.setup, section.seconds));
            for (label, figure, show) in ROWS {
                figures.row(label, section.cells.iter().map(|cells| spread(rounds(cells, figure), show)));
            }
            let first = self.variants.first().map_or("", String::as_str);
            figures.row(
                &format!("{first}'s mean over it"),
                section.gains().into_iter().map(|gain| spread(gain, ratio)),
            );
        }
        let mut text: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        if self.sections.iter().flat_map(|section| section.cells.iter().flatten()).any(Cell::is_client_slow) {
            text.push_str(&table::paragraph(
                "In some cells the client itself was slow: it was late by more than a fifth of the mean, or used more than 0.9 of its processor.",
            ));
        }
        for (size, [off, told, found]) in self.costs.iter().flat_map(|costs| &costs.sizes) {
            let time = |gate: &[Cost]| spread(Costs::rounds(gate, |cost| cost.time), micros_exact);
            text.push_str(&table::paragraph(&format!(
                "Processor time of the gate for a response of {size} bytes: without an uplink {}, with one {}; ratio {}. Responses a second with one that is found instead of none: ratio {}.",
                time(off),
                time(told),
                spread(Costs::ratios(off, told, |cost| cost.time), ratio),
                spread(Costs::ratios(off, found, |cost| cost.rate), ratio),
            )));
        }
        if let Some(followed) = &self.followed {
            let [halved, doubled] =
                [&followed.halved, &followed.doubled].map(|rounds| spread(Rounds::of(rounds), seconds));
            text.push_str(&table::paragraph(&format!(
                "A gate that finds the rate followed a halved one within {halved}, a doubled one within {doubled}."
            )));
        }
        text
    }
}

fn micros_exact(seconds: f64) -> String {
    format!("{:.1} µs", seconds * 1e6)
}
