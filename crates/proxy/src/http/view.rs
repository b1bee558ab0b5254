//! What a gate for HTTP shows of itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use admission::{ClassId, Policy};

use super::state::{Gate, Settings};
use crate::gate::Driver;
use crate::groups::ProcessorStatus;
use crate::lateness::LatenessView;
use crate::upstream::address::Address;
use crate::upstream::health::UpstreamView;
use crate::view::{ClientsView, GateView, PoolView, UplinkReport};

/// One gate, as dashboards see it.
#[derive(Clone, Debug)]
pub struct Status {
    gate: Arc<Gate>,
    listen: Address,
}

impl Status {
    pub(crate) fn new(gate: Arc<Gate>, listen: Address) -> Self {
        Self { gate, listen }
    }

    /// Changes what can change in a running gate: where it listens and its mode stay as they are.
    pub fn reload(&self, settings: Settings, policy: Policy) {
        self.gate.reload(settings, policy);
    }
}

impl GateView for Status {
    fn driver(&self) -> Option<&Driver> {
        Some(&self.gate.driver)
    }

    fn mode(&self) -> &'static str {
        if self.gate.told().settings.observe { "observe" } else { "enforce" }
    }

    fn listen(&self) -> String {
        self.listen.to_string()
    }

    fn upstream(&self) -> String {
        let told = self.gate.told();
        let all: Vec<String> = told.settings.upstream.iter().map(Address::to_string).collect();
        all.join(", ")
    }

    fn class_name(&self, class: ClassId) -> Option<Arc<str>> {
        self.gate.classes.name(class)
    }

    fn processor(&self, class: ClassId) -> Option<ProcessorStatus> {
        self.gate.groups.status(class)
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        let told = self.gate.told();
        told.endpoints.all().iter().map(|endpoint| endpoint.health.view(&endpoint.address)).collect()
    }

    /// One for each endpoint.
    fn pools(&self) -> Vec<PoolView> {
        let pool = |endpoint: &Arc<super::endpoint::Endpoint>| PoolView {
            user: String::new(),
            database: endpoint.address.to_string(),
            connections: endpoint.connections(),
            idle: u32::try_from(endpoint.idle()).unwrap_or(u32::MAX),
            ..PoolView::default()
        };
        self.gate.told().endpoints.all().iter().map(pool).collect()
    }

    fn clients(&self) -> ClientsView {
        ClientsView {
            connected: self.gate.counts.connected.load(Ordering::Relaxed),
            ..ClientsView::default()
        }
    }

    fn uplink(&self) -> Option<UplinkReport> {
        self.gate.told().uplink.as_ref().map(|uplink| uplink.report())
    }

    fn own_answers(&self) -> Vec<(&'static str, u64)> {
        self.gate.own_answers()
    }

    fn lateness(&self) -> Option<LatenessView> {
        Some(self.gate.lateness.view())
    }
}
