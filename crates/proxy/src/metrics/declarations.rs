//! Finds a declared metric by its full name, for the board and the alert rules.

use std::fmt;

use super::process::{PROCESS, SYSTEM};
use super::{Kind, Metric, PREFIX, Seconds, of_gates};

/// What a metric tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Gate,
    Process,
}

/// What is known of a declared metric without its value.
pub(super) struct Declared {
    /// The name with the prefix and the unit.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) in_seconds: Seconds,
    /// The labels beside that of the source.
    pub(super) labels: &'static [&'static str],
    pub(super) of: Source,
}

impl Declared {
    fn new<S>(metric: &Metric<S>, prefix: &str, of: Source) -> Self {
        let &Metric { in_seconds, kind, labels, .. } = metric;
        Self { name: metric.full_name(prefix), kind, in_seconds, labels, of }
    }
}

/// A board or a rule names a metric that isn't declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undeclared(String);

impl fmt::Display for Undeclared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "there is no metric {}; docs/reference/metrics.md has all", self.0)
    }
}

impl std::error::Error for Undeclared {}

/// The metric of this full name.
pub(super) fn find(name: &str) -> Result<Declared, Undeclared> {
    let of_gates = of_gates().map(|metric| Declared::new(metric, PREFIX, Source::Gate));
    let of_process = PROCESS.iter().map(|metric| Declared::new(metric, PREFIX, Source::Process));
    let of_system = SYSTEM.iter().map(|metric| Declared::new(metric, "", Source::Process));
    let mut all = of_gates.chain(of_process).chain(of_system);
    all.find(|metric| metric.name == name).ok_or_else(|| Undeclared(name.to_owned()))
}
