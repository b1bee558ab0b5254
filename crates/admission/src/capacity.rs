//! How much may be in flight.
//!
//! The bound is an amount of work, the operator's number ([`fixed`]), or a number of requests that a
//! controller finds ([`Control`]). What is found is counted in requests, as in Heiss and Wagner (VLDB 1991):
//! an estimate of work is made of upstream times, which grow with what is in flight. A bound in such work
//! would move by itself whenever it is reached.
//!
//! `auto` is ours. The method of incremental steps and the parabola are here for the papers' experiments;
//! whatever else serves to compare comes from [outside](crate::outside).

mod fixed;
mod incremental_steps;
mod interval;
mod parabola;
mod search;

use alloc::boxed::Box;

use crate::outside::Control;
use crate::policy::{Capacity, Controller};
use crate::work::Work;
use fixed::Fixed;

/// Found capacities are looked for up to here, whatever the budget of connections.
pub(crate) const FOUND_MAX: u32 = 10_000;

/// A controller has moved what it found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// By how much the throughput changed, as a share of what it was, if that was the reason.
    pub(crate) gain: Option<f64>,
}

/// The bound in force on what is in flight.
#[derive(Debug)]
pub(crate) enum Room {
    /// Nothing but the connections bounds what is in flight.
    Unlimited,
    /// A fixed amount of work.
    Fixed(Fixed),
    /// A number of requests that a controller finds.
    Found(Found),
}

/// A controller, and the number that it has found.
#[derive(Debug)]
pub(crate) struct Found {
    controller: Controller,
    control: Box<dyn Control>,
    /// The number that [`Found::take_move`] last reported.
    told: u32,
}

impl Found {
    fn new(controller: Controller, top: u32) -> Self {
        let control = control(controller, top);
        Self { controller, told: control.found(), control }
    }

    /// What it has moved since this was asked.
    pub(crate) fn take_move(&mut self) -> Option<Move> {
        let to = self.control.found();
        let from = core::mem::replace(&mut self.told, to);
        (from != to).then(|| Move { from, to, gain: self.control.gain() })
    }

    /// The search goes on from what another one has found.
    pub(crate) fn begin_with(&mut self, capacity: u32) {
        self.control.begin_with(capacity);
        self.told = self.control.found();
    }

    /// The controller that finds it.
    pub(crate) fn control(&mut self) -> &mut dyn Control {
        self.control.as_mut()
    }
}

impl Room {
    /// The bound that the operator chose, with this many connections.
    pub(crate) fn new(capacity: Capacity, connections: u32) -> Self {
        let top = connections.clamp(1, FOUND_MAX);
        match capacity {
            Capacity::Unlimited => Self::Unlimited,
            Capacity::Fixed(most) => Self::Fixed(Fixed::new(most)),
            Capacity::Found(controller) => Self::Found(Found::new(controller, top)),
        }
    }

    /// What the operator chooses from now on. A controller that goes on keeps what it has found.
    pub(crate) fn change(&mut self, capacity: Capacity, connections: u32) {
        match self {
            Self::Found(found) if capacity == Capacity::Found(found.controller) => {
                found.control.set_top(connections.clamp(1, FOUND_MAX));
            }
            _ => *self = Self::new(capacity, connections),
        }
    }

    /// Whether this work fits beside the load of the requests in flight. With nothing in flight everything
    /// fits. So a request larger than the whole capacity runs alone, and doesn't wait for ever.
    pub(crate) fn admits(&self, load: impl FnOnce() -> Work, in_flight: u32, work: Work) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Fixed(fixed) => in_flight == 0 || fixed.admits(load(), work),
            Self::Found(found) => in_flight < found.control.most(),
        }
    }

    /// The most work that may be in flight, if that is what bounds it.
    pub(crate) fn most_work(&self) -> Option<Work> {
        match self {
            Self::Fixed(fixed) => Some(fixed.most()),
            Self::Unlimited | Self::Found(_) => None,
        }
    }

    /// The most requests that may be in flight, if a controller bounds them.
    pub(crate) fn most_requests(&self) -> Option<u32> {
        self.control().map(Control::most)
    }

    /// The number that a controller has found, if there is one.
    pub(crate) fn found_requests(&self) -> Option<u32> {
        self.control().map(Control::found)
    }

    fn control(&self) -> Option<&dyn Control> {
        match self {
            Self::Found(found) => Some(&*found.control),
            Self::Unlimited | Self::Fixed(_) => None,
        }
    }

    /// What a controller finds, if there is one.
    pub(crate) fn found(&mut self) -> Option<&mut Found> {
        match self {
            Self::Found(found) => Some(found),
            Self::Unlimited | Self::Fixed(_) => None,
        }
    }
}

fn control(controller: Controller, top: u32) -> Box<dyn Control> {
    match controller {
        Controller::Auto => Box::new(search::Search::new(top)),
        Controller::IncrementalSteps => Box::new(incremental_steps::IncrementalSteps::new(top)),
        Controller::Parabola => Box::new(parabola::Parabola::new(top)),
        Controller::Other(maker) => (maker.make)(top),
    }
}
