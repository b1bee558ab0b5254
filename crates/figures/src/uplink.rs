//! The experiments of *Web servers under overload* (TOIT 2006) on a simulated uplink. The page
//! `docs/results/uplink.md` compares them with the paper.
//!
//! A case is a setup, loads, and a trace; its digest is what the figures show.

mod overload;
mod run;
mod setups;
mod workloads;

use std::path::Path;
use std::{fs, io};

use admission::{Duration, EgressOrder};
use sim::plot::{Panel, Plot};
use sim::uplink::{Bytes, Download, Queue, poisson};

use crate::error::Error;
use crate::figure::{Drawing, Figure};
use crate::results::Progress;

pub(crate) use run::{Case, play};

/// Requests of a generated trace.
const REQUESTS: usize = 100_000;

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Simulated seconds of a run; the paper's are half an hour.
    pub seconds: u64,
    /// A recorded trace instead of the generated NASA trace.
    pub trace: Option<Vec<Download>>,
    /// How far it has come.
    pub progress: Progress,
}

impl Plan {
    fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn world_cup() -> Vec<Download> {
        poisson(&Bytes::WorldCup, REQUESTS, 1)
    }

    fn nasa(&self) -> Vec<Download> {
        self.trace.clone().unwrap_or_else(|| poisson(&Bytes::Nasa, REQUESTS, 1))
    }
}

/// The orders that are compared: the paper's two mechanisms, and the gate's.
pub(crate) const ORDERS: [&str; 3] = ["FAIR", "bands", "SRPT"];

/// What makes an order of [`ORDERS`].
pub(crate) fn queue(order: &str) -> Queue {
    match order {
        "FAIR" => Queue::fair(),
        "bands" => Queue::published_bands(),
        _ => Queue::gate(EgressOrder::ShortestRemaining, None),
    }
}

/// A figure whose curves are one for each of [`ORDERS`].
fn plotted(id: &str, said: [&str; 2], (axis, seconds): (&'static str, f64), panels: Vec<Panel>) -> Figure {
    let [title, subtitle] = said.map(str::to_owned);
    let variants = ORDERS.map(str::to_owned).to_vec();
    let plot = Plot { title, subtitle, variants, marks: None, axis, seconds, panels };
    Figure { id: id.to_owned(), drawing: Some(Drawing::Plot(plot)), table: String::new() }
}

/// Runs everything, and writes the figures.
///
/// # Errors
/// What is wrong with a file that can't be written.
pub fn generate(plan: &Plan, directory: &Path) -> Result<(), Error> {
    let mut figures: Vec<Figure> = overload::figures(plan);
    figures.extend(workloads::figures(plan));
    figures.extend(setups::figures(plan));
    crate::write(directory, &figures)
}

/// A trace as a file of lines `seconds,bytes[,status…]` behind a heading.
///
/// # Errors
/// What is wrong with the file.
pub fn read_trace(path: &Path) -> Result<Vec<Download>, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::file("read", path, source))?;
    sim::uplink::read_trace(&text)
        .map_err(|source| Error::file("read", path, io::Error::new(io::ErrorKind::InvalidData, source)))
}
