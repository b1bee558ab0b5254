//! The values of one metric, on their way into the text.

use std::fmt;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use crate::observe::{BOUNDS_SECONDS, Buckets};

/// Where the values of one metric go.
pub(super) struct Samples<'a, 'e> {
    pub(super) encoder: &'a mut MetricEncoder<'e>,
    /// The labels beside `gate`.
    pub(super) names: &'static [&'static str],
    pub(super) gate: Option<&'a str>,
}

impl Samples<'_, '_> {
    /// A gauge without labels of what the server is asked for, if it is.
    pub(super) fn told(&mut self, value: Option<Option<u32>>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.gauge(&[], value.map_or(f64::NAN, f64::from)))
    }

    pub(super) fn gauge(&mut self, labels: &[&str], value: f64) -> fmt::Result {
        let labels = self.labels(labels);
        if labels.is_empty() {
            return self.encoder.encode_gauge(&value);
        }
        self.encoder.encode_family(&labels)?.encode_gauge(&value)
    }

    pub(super) fn counter(&mut self, labels: &[&str], value: u64) -> fmt::Result {
        let labels = self.labels(labels);
        self.encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    pub(super) fn counter_seconds(&mut self, labels: &[&str], value: f64) -> fmt::Result {
        let labels = self.labels(labels);
        if labels.is_empty() {
            return self.encoder.encode_counter::<NoLabelSet, _, f64>(&value, None);
        }
        self.encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    pub(super) fn histogram(&mut self, labels: &[&str], value: &Buckets) -> fmt::Result {
        let labels = self.labels(labels);
        let bounds = BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(value.counts).collect();
        let (sum, count) = (value.sum.as_secs_f64(), value.count());
        self.encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn labels(&self, values: &[&str]) -> Vec<(&'static str, String)> {
        debug_assert_eq!(self.names.len(), values.len());
        let gate = self.gate.map(|gate| ("gate", gate));
        let others = self.names.iter().copied().zip(values.iter().copied());
        gate.into_iter().chain(others).map(|(name, value)| (name, value.to_owned())).collect()
    }
}
