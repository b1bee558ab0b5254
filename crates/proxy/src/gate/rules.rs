//! What a gate is told to decide by: the policy of the configuration, or in an emergency nothing.
//!
//! An operator lets everything pass until the gate is told to decide again. The configured policy is kept
//! meanwhile, and a reload changes that one alone: an emergency doesn't end by a change of something else.
//! What holds instead is a plain pool: first come, first served, as many at once as there are connections.
//! Over HTTP connections are opened as they are needed, so that everything runs at once. Where requests wait,
//! the tenants of a class still take turns.

use admission::{
    AfterStall, Capacity, Contention, Gate, Goal, LongLimit, Order, Policy, Rejection, ServiceClass, Snapshot,
};

use super::Driver;

/// How many requests run at once in an emergency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Requests up to the number of connections.
    Connections,
    /// All.
    All,
}

/// Whether the configured policy is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    Decides,
    Passes,
}

/// What a gate is told to decide by.
#[derive(Debug)]
pub(super) struct Rules {
    configured: Policy,
    control: Control,
    passing: Passing,
}

impl Rules {
    pub(super) fn new(configured: Policy) -> Self {
        Self { configured, control: Control::Decides, passing: Passing::Connections }
    }

    /// The classes of the configuration.
    pub(super) fn classes(&self) -> &[ServiceClass] {
        &self.configured.classes
    }

    /// The policy that is in force.
    pub(super) fn in_force(&self) -> Policy {
        let policy = self.configured.clone();
        if self.control == Control::Decides {
            return policy;
        }
        let connections = match self.passing {
            Passing::Connections => policy.connections,
            Passing::All => u32::MAX,
        };
        Policy {
            capacity: Capacity::Unlimited,
            contention: Contention::None,
            connections,
            long_limit: None,
            order: Order::Fifo,
            pinned_max: connections,
            after_stall: AfterStall::InOrder,
            rejection: Rejection::Nobody,
            classes: Vec::new(),
            ..policy
        }
    }
}

impl Driver {
    /// The policy of the configuration, as it was last changed.
    pub fn policy(&self) -> Policy {
        self.rules.lock().configured.clone()
    }

    /// Changes that policy.
    pub fn update_policy(&self, update: impl FnOnce(&mut Policy)) {
        let mut rules = self.rules.lock();
        update(&mut rules.configured);
        let policy = rules.in_force();
        self.change(|gate, now| gate.set_policy(now, policy));
    }

    /// The gate's state now. The connections are those of the configuration, also while more run at once.
    pub(super) fn looked_at(&self, look: impl FnOnce(&Gate) -> Snapshot) -> Snapshot {
        let configured = self.rules.lock().configured.connections;
        let snapshot = self.change(|gate, now| {
            gate.handle_timeout(now);
            look(gate.gate())
        });
        Snapshot { connections: snapshot.connections.min(configured), ..snapshot }
    }

    /// In an emergency this many pass at once.
    pub(crate) fn pass_in_emergency(&self, passing: Passing) {
        self.rules.lock().passing = passing;
    }

    /// Whether an operator lets everything pass.
    pub(crate) fn passes_everything(&self) -> bool {
        self.rules.lock().control == Control::Passes
    }

    /// The response time that is to be held by refusing, unless an operator lets everything pass.
    pub(crate) fn target(&self) -> Option<Goal> {
        let rules = self.rules.lock();
        let goal = match &rules.configured.rejection {
            Rejection::Target(targets) => targets.all,
            Rejection::Yaksha(settings) => Goal { mean: Some(settings.target), p95: None },
            Rejection::Nobody | Rejection::Deadline | Rejection::Other(_) => return None,
        };
        (rules.control == Control::Decides && !goal.is_none()).then_some(goal)
    }

    /// The cores that the service has told the gate.
    pub(crate) fn cores(&self) -> Option<u32> {
        match self.rules.lock().configured.long_limit {
            Some(LongLimit::Found { cores }) => cores,
            Some(LongLimit::Fixed(_)) | None => None,
        }
    }

    /// How many run at once while everything passes; `None`: all.
    pub(crate) fn passing_max(&self) -> Option<u32> {
        let rules = self.rules.lock();
        (rules.passing == Passing::Connections).then_some(rules.configured.connections)
    }

    /// Decides nothing from now on.
    ///
    /// # Errors
    /// Nothing is changed, and why.
    pub fn pass_everything(&self) -> Result<(), String> {
        self.control(Control::Passes, "everything passes already")
    }

    /// Decides by the configured policy again.
    ///
    /// # Errors
    /// Nothing is changed, and why.
    pub fn decide_again(&self) -> Result<(), String> {
        self.control(Control::Decides, "it decides already")
    }

    fn control(&self, control: Control, is_so: &str) -> Result<(), String> {
        if self.only_watches() {
            return Err("it only observes, so everything passes".to_owned());
        }
        let mut rules = self.rules.lock();
        if rules.control == control {
            return Err(is_so.to_owned());
        }
        rules.control = control;
        let policy = rules.in_force();
        self.change(|gate, now| gate.set_policy(now, policy));
        Ok(())
    }
}
