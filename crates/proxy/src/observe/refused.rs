//! What was refused most since the log was told: of which type and class, and what it waited for.

use std::collections::HashMap;
use std::sync::Arc;

use admission::{ClassId, Obstacle, Reason, RequestType, Ticket};

/// The most kinds that are counted between two looks. Others aren't among the most.
const KINDS_MAX: usize = 256;

/// Requests that are refused alike.
pub(crate) type Kind = (Reason, RequestType, ClassId, Option<Obstacle>);

/// Refusals since the last look.
#[derive(Debug, Default)]
pub(super) struct Refused {
    kinds: HashMap<Kind, u64>,
    /// Those that were refused behind their dispatch, as they needed a connection of their own. Each counts
    /// once: its end doesn't.
    pub(super) in_flight: Vec<Ticket>,
}

impl Refused {
    pub(super) fn note(&mut self, kind: Kind) {
        if self.kinds.len() < KINDS_MAX || self.kinds.contains_key(&kind) {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// A request has ended. Whether it has counted as refused.
    pub(super) fn ends(&mut self, ticket: Ticket) -> bool {
        let place = self.in_flight.iter().position(|refused| *refused == ticket);
        place.map(|place| self.in_flight.swap_remove(place)).is_some()
    }

    /// The kinds since the last call, the one with most requests last.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Kind> {
        let mut kinds: Vec<_> = std::mem::take(&mut self.kinds).into_iter().collect();
        kinds.sort_unstable_by_key(|&(kind, count)| (count, kind));
        kinds.into_iter().map(|(kind, _)| kind)
    }
}

/// The requests that were refused most for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Most {
    /// Their type, as people know it.
    pub(crate) label: Option<Arc<str>>,
    /// Their class, where there are several.
    pub(crate) class: Option<String>,
    /// What they waited for.
    pub(crate) obstacle: Option<Obstacle>,
}

#[cfg(test)]
mod tests {
    use admission::{Duration, Event};

    use super::*;
    use crate::observe::tests::ticket;
    use crate::observe::{Observer, TypeName};

    #[test]
    fn what_is_refused_most_is_told_by_reason_and_counted_anew() {
        let mut observer = Observer::new(10);
        observer.name_classes(vec![(ClassId::DEFAULT, "default".into()), (ClassId(7), "gold".into())]);
        let mut refuse = |key: u64, class: ClassId, reason: Reason, times: usize| {
            observer.describe(&TypeName::new(RequestType(key), format!("t{key}").into()));
            for _ in 0..times {
                observer.record(&Event::Rejected {
                    ticket: ticket(),
                    request_type: RequestType(key),
                    class,
                    reason,
                    obstacle: Some(Obstacle::LongLane),
                    queue_wait: Duration::ZERO,
                });
            }
        };
        refuse(1, ClassId::DEFAULT, Reason::QueueTimeout, 2);
        refuse(2, ClassId(7), Reason::QueueTimeout, 3);
        refuse(3, ClassId::DEFAULT, Reason::QueueFull, 1);
        let told = observer.take_refused();
        let most = |label: &str, class: &str| Most {
            label: Some(label.into()),
            class: Some(class.to_owned()),
            obstacle: Some(Obstacle::LongLane),
        };
        assert_eq!(told[&Reason::QueueTimeout], most("t2", "gold"));
        assert_eq!(told[&Reason::QueueFull], most("t3", "default"));
        assert!(observer.take_refused().is_empty());
    }

    #[test]
    fn kinds_of_refusals_have_a_bound() {
        let mut refused = Refused::default();
        for key in 0..=KINDS_MAX as u64 {
            refused.note((Reason::QueueFull, RequestType(key), ClassId::DEFAULT, None));
        }
        assert_eq!(refused.kinds.len(), KINDS_MAX);
    }
}
