//! Service classes: each has lines of its own, and the classes take turns by their weights.
//!
//! **Idea.** A class that asks for more than its share must not make others wait. So each class has its own
//! queue in the gate's order of service. The class that has been given least for its weight sends its next
//! request. Other classes get what a class leaves: the service never idles for fairness.
//!
//! **Formula.** Start-time fair queueing. The request that class i sends next has the start tag S_i; when
//! it is sent, the virtual time v becomes S_i, and
//!
//! ```text
//! S_i := S_i + work / weight_i          when it is sent, by what it is expected to take
//! S_i := S_i + (took − work) / weight_i when it has ended, by what it took
//! S_i := max(S_i, v)                    when the class begins to wait
//! ```
//!
//! Of the classes that have a request that could start (a connection, a seat in the long lane, room in its
//! group), the one with the least tag goes next. A class without such a request at its turn is passed over
//! and owed nothing: its tag becomes that of the class that went. So no class has credit for the past,
//! neither for idling nor for waiting. A head that doesn't fit the capacity isn't passed over: it waits for
//! room, as without classes.
//!
//! **Source.** Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996, section 2; with many requests
//! in flight and charges by estimate: Jin, Chase, Kaur, "Interposed Proportional Sharing for a Storage
//! Service Utility", SIGMETRICS 2004 (SFQ(D)). Two classes that both wait differ in work per weight by at
//! most (l_i / weight_i + l_j / weight_j), l being the largest request, for each request that may be in
//! flight.
//!
//! **Parameters.** The weights are the operator's. What a request took counts for at most
//! [`CORRECTION_MAX`] times what was expected. Otherwise an outage of the service would keep its class
//! waiting for as long again.
//!
//! **When it fails.** The first requests of an unknown type are charged the mean, with a bounded correction.
//! Where the capacity isn't bounded, no request waits and no class takes turns: the service shares itself.

use alloc::vec::Vec;

use crate::action::Reason;
use crate::goals::{Promised, Standing};
use crate::lanes::Patience;
use crate::order::Sequence;
use crate::policy::{ServiceClass, Turns, Weight};
use crate::request::ClassId;
use crate::snapshot::ClassSnapshot;
use crate::tenants::Tenants;
use crate::tickets::{List, Through};
use crate::time::Duration;
use crate::work::Work;

/// The measured work of one request counts for at most this multiple of its expected work.
const CORRECTION_MAX: u64 = 16;

/// The least sum of adapted weights.
const SUM_MIN: f64 = 10.0;

/// The place of the class of all requests that belong to no other.
pub(crate) const DEFAULT: u8 = 0;

/// Two lines of waiting requests: those that pass freely, and those that share the long lane.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) short: Sequence,
    pub(crate) long: Sequence,
}

impl Lines {
    /// Two empty lines.
    pub(crate) fn new() -> Self {
        Self { short: Sequence::new(), long: Sequence::new() }
    }

    /// How many wait in both.
    pub(crate) fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

/// One class.
#[derive(Debug)]
pub(crate) struct Class {
    chosen: ServiceClass,
    /// The weight in force: the operator's, or an adapted one.
    weight: Weight,
    /// S: when its next request goes, in virtual time.
    tag: u128,
    pub(crate) lines: Lines,
    /// Requests that waited through a stall, or for too long: they go behind all newcomers.
    pub(crate) late: Lines,
    pub(crate) patience: Patience,
    /// All waiting requests of the class, in order of arrival.
    pub(crate) waiting: List,
    /// Waiting requests of the class that still wait in their tenants' shards.
    pub(crate) tenants: Tenants,
    in_flight: u32,
    /// Requests in flight that the service is busy with.
    pub(crate) busy: u32,
    dispatched: u64,
    rejected: u64,
    over_share: u64,
    served: Work,
    queue_wait: Duration,
}

impl Class {
    fn new(chosen: ServiceClass, tag: u128) -> Self {
        Self {
            chosen,
            weight: chosen.weight,
            tag,
            lines: Lines::new(),
            late: Lines::new(),
            patience: Patience::default(),
            waiting: List::new(Through::Arrival),
            tenants: Tenants::default(),
            in_flight: 0,
            busy: 0,
            dispatched: 0,
            rejected: 0,
            over_share: 0,
            served: Work::ZERO,
            queue_wait: Duration::ZERO,
        }
    }

    /// Whether it gets only what the others leave.
    pub(crate) fn is_background(&self) -> bool {
        self.chosen.turns == Turns::Background
    }

    /// The lines of its late requests, or of the others.
    pub(crate) fn lines_of(&mut self, late: bool) -> &mut Lines {
        if late { &mut self.late } else { &mut self.lines }
    }

    /// Its part of what all weigh where one has to go.
    fn counts(&self) -> u64 {
        if self.is_background() { 0 } else { u64::from(self.weight.thousandths()) }
    }

    /// How many requests wait or are being served.
    pub(crate) fn present(&self) -> u32 {
        self.waiting.len().saturating_add(self.busy)
    }

    /// Converts work to virtual time, without a rounding loss for any weight.
    fn virtual_of(&self, work: Work) -> u128 {
        (u128::from(work.as_nanos()) << 32) / u128::from(self.weight.thousandths())
    }
}

/// The class that has to lose a request when there is one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surplus {
    /// No class has more than its share: the surplus is everybody's.
    All,
    /// The class of the newcomer has more than its share, counting the newcomer.
    Own,
    /// The class in this place exceeds its share by the most, and the newcomer's class doesn't exceed its
    /// own.
    Other(u8),
}

/// All classes, in the order of the policy; [`DEFAULT`] first.
#[derive(Debug)]
pub(crate) struct Classes {
    list: Vec<Class>,
    /// The virtual time v.
    now: u128,
    /// The classes in which requests wait, one bit each.
    waits: u64,
    waiting: u32,
}

impl Classes {
    /// The classes that the operator has chosen.
    pub(crate) fn new(chosen: &[ServiceClass]) -> Self {
        let list = in_order(chosen).map(|class| Class::new(class, 0)).collect();
        Self { list, now: 0, waits: 0, waiting: 0 }
    }

    /// Whether there is only one class, so that no class takes turns.
    pub(crate) fn is_one(&self) -> bool {
        self.list.len() == 1
    }

    /// The place of a class; [`DEFAULT`] for an unknown one.
    pub(crate) fn find(&self, id: ClassId) -> u8 {
        if id == ClassId::DEFAULT {
            return DEFAULT;
        }
        let place = self.list.iter().position(|class| class.chosen.id == id);
        place.map_or(DEFAULT, |place| place as u8)
    }

    pub(crate) fn id_of(&self, place: u8) -> ClassId {
        self.at(place).chosen.id
    }

    pub(crate) fn at(&self, place: u8) -> &Class {
        &self.list[usize::from(place)]
    }

    pub(crate) fn at_mut(&mut self, place: u8) -> &mut Class {
        &mut self.list[usize::from(place)]
    }

    /// How many wait in all.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// How many wait, but for those of background classes: these wait whatever the gate lets in.
    pub(crate) fn waiting_by_right(&self) -> u32 {
        let background = self.waits().map(|place| self.at(place)).filter(|class| class.is_background());
        self.waiting - background.map(|class| class.waiting.len()).sum::<u32>()
    }

    /// With how many requests of background classes the service is busy.
    pub(crate) fn background_busy(&self) -> u32 {
        if self.is_one() {
            return 0;
        }
        self.list.iter().filter(|class| class.is_background()).map(|class| class.busy).sum()
    }

    /// The classes in which requests wait, one bit each.
    pub(crate) fn waits(&self) -> Set {
        Set(self.waits)
    }

    /// Whether anybody waits in a line of longs.
    pub(crate) fn has_longs(&self) -> bool {
        self.waits().any(|place| !self.at(place).lines.long.is_empty())
    }

    /// How many wait behind newcomers.
    pub(crate) fn late(&self) -> usize {
        self.list.iter().map(|class| class.late.len()).sum()
    }

    /// Notes that a request of this class is about to wait or to go at once. A class without waiting
    /// requests has no claim from before.
    pub(crate) fn come(&mut self, place: u8) {
        if self.waits >> place & 1 == 0 {
            let now = self.now;
            let class = self.at_mut(place);
            class.tag = class.tag.max(now);
        }
    }

    /// Counts a waiting request of this class, which its list has already.
    pub(crate) fn wait(&mut self, place: u8) {
        self.waits |= 1 << place;
        self.waiting += 1;
    }

    /// Takes back [`Self::wait`] for a request that waits no longer.
    pub(crate) fn stop_waiting(&mut self, place: u8) {
        self.waiting -= 1;
        if self.at(place).waiting.is_empty() {
            self.waits &= !(1 << place);
        }
    }

    /// Takes the class whose turn it is out of these.
    pub(crate) fn next_of(&self, left: &mut Set) -> Option<u8> {
        let place =
            left.clone().min_by_key(|&place| (self.at(place).chosen.turns.rank(), self.at(place).tag))?;
        left.0 &= !(1 << place);
        Some(place)
    }

    /// Gives a class its turn: one of its requests starts, with this expected work.
    pub(crate) fn take_turn(&mut self, place: u8, work: Work) {
        if self.is_one() {
            return;
        }
        let tag = self.at(place).tag;
        self.now = self.now.max(tag);
        // A class with a smaller tag had no request that could start: it was passed over.
        for passed in self.waits() {
            let class = self.at_mut(passed);
            class.tag = class.tag.max(tag);
        }
        self.charge(place, work);
    }

    /// Charges a class for a request that starts out of turn.
    pub(crate) fn charge(&mut self, place: u8, work: Work) {
        if self.is_one() {
            return;
        }
        let class = self.at_mut(place);
        class.tag = class.tag.saturating_add(class.virtual_of(work));
    }

    /// Replaces the charge for a request that has ended by the work that it took.
    pub(crate) fn correct(&mut self, place: u8, charged: Work, took: Work) {
        if self.is_one() {
            return;
        }
        let took = took.min(Work::from_nanos(charged.as_nanos().saturating_mul(CORRECTION_MAX)));
        let class = self.at_mut(place);
        class.served = class.served.saturating_add(took);
        let (more, less) = (took.saturating_sub(charged), charged.saturating_sub(took));
        class.tag = class.tag.saturating_add(class.virtual_of(more)).saturating_sub(class.virtual_of(less));
    }

    /// Counts a request that is in flight from now on, after this wait.
    pub(crate) fn start(&mut self, place: u8, queue_wait: Duration) {
        let class = self.at_mut(place);
        class.in_flight += 1;
        class.dispatched += 1;
        class.queue_wait = class.queue_wait.saturating_add(queue_wait);
    }

    /// Takes back [`Self::start`] for a request that has left the service.
    pub(crate) fn land(&mut self, place: u8) {
        self.at_mut(place).in_flight -= 1;
    }

    /// Counts a refused request.
    pub(crate) fn reject(&mut self, place: u8, reason: Reason) {
        let class = self.at_mut(place);
        class.rejected += 1;
        class.over_share += u64::from(reason == Reason::OverShare);
    }

    /// A request of this class comes, and one request is too many for this reason. Finds the class that has
    /// more requests present than its weight's part among the classes present. With one class alone there is
    /// none. Background classes add nothing to what a target bounds, so refusing theirs makes no room there.
    pub(crate) fn surplus(&self, place: u8, reason: Reason) -> Surplus {
        if self.is_one() {
            return Surplus::All;
        }
        let present = |at: u8| u64::from(self.at(at).present()) + u64::from(at == place);
        let counts = |at: u8| reason != Reason::Target || !self.at(at).is_background();
        let there = || (0..self.list.len() as u8).filter(|&at| present(at) > 0 && counts(at));
        let weight = |at: u8| self.at(at).counts();
        let (all, weights) = (there().map(present).sum::<u64>(), there().map(weight).sum::<u64>());
        let is_over = |&at: &u8| present(at) * weights > weight(at) * all;
        if is_over(&place) {
            return Surplus::Own;
        }
        // By cross products: the exact order of the shares.
        let most = there()
            .filter(is_over)
            .max_by(|&a, &b| (present(a) * weight(b)).cmp(&(present(b) * weight(a))).then(b.cmp(&a)));
        most.map_or(Surplus::All, Surplus::Other)
    }

    /// How many requests go before the next of this class, if so many of its own do: classes with waiting
    /// requests take their turns meanwhile.
    pub(crate) fn ahead(&self, place: u8, own: usize) -> usize {
        if self.is_one() {
            return own;
        }
        let weight = |at: u8| self.at(at).counts() as usize;
        let others = self.waits().filter(|&at| at != place);
        others.fold(own, |ahead, at| {
            let turns = own.saturating_mul(weight(at)).checked_div(weight(place)).unwrap_or(usize::MAX);
            ahead.saturating_add(turns.min(self.at(at).waiting.len() as usize))
        })
    }

    /// Takes other weights of the same classes. `false`: these are other classes, and nothing has changed.
    pub(crate) fn reweigh(&mut self, chosen: &[ServiceClass]) -> bool {
        let is_same =
            in_order(chosen).map(|class| class.id).eq(self.list.iter().map(|class| class.chosen.id));
        if is_same {
            for (class, chosen) in self.list.iter_mut().zip(in_order(chosen)) {
                class.weight = chosen.weight;
                class.chosen = chosen;
            }
        }
        is_same
    }

    /// What the adapter of weights needs to know of the classes, if any has a goal.
    pub(crate) fn promised(&self) -> Option<Vec<Promised>> {
        let promised = |class: &Class| Promised {
            class: class.chosen.id,
            weight: class.chosen.weight.as_f64(),
            goal: class.chosen.goal,
            importance: class.chosen.importance,
            floor: class.chosen.floor,
            ceiling: class.chosen.ceiling,
        };
        let has_goals = !self.is_one() && self.list.iter().any(|class| class.chosen.goal.is_some());
        has_goals.then(|| self.list.iter().map(promised).collect())
    }

    /// Weights by shares of the whole. Their sum stays that of the operator's weights, but at least
    /// [`SUM_MIN`], so that thousandths of a weight are fine enough.
    pub(crate) fn adapt(&mut self, share: impl Fn(usize) -> f64) {
        let sum: f64 = self.list.iter().map(|class| class.chosen.weight.as_f64()).sum();
        for (place, class) in self.list.iter_mut().enumerate() {
            let weight = (share(place) * sum.max(SUM_MIN)).min(Weight::MAX.as_f64());
            class.weight = Weight::new(weight).unwrap_or(Weight::MIN);
        }
    }

    /// Takes other classes, while no class has waiting requests. Returns the new place of each old one. A
    /// class that stays keeps its share; a new class has no claim.
    pub(crate) fn change(&mut self, chosen: &[ServiceClass]) -> Vec<u8> {
        let now = self.now;
        let mut before = core::mem::take(&mut self.list);
        let places: Vec<ClassId> = before.iter().map(|class| class.chosen.id).collect();
        for chosen in in_order(chosen) {
            let kept = before.iter().position(|old| old.chosen.id == chosen.id);
            self.list.push(match kept {
                Some(at) => Class { weight: chosen.weight, chosen, ..before.swap_remove(at) },
                None => Class::new(chosen, now),
            });
        }
        for gone in before {
            let default = self.at_mut(DEFAULT);
            default.in_flight += gone.in_flight;
            default.busy += gone.busy;
        }
        places.into_iter().map(|id| self.find(id)).collect()
    }

    /// The classes, if there is more than one.
    pub(crate) fn snapshot(&self) -> Vec<ClassSnapshot> {
        if self.is_one() {
            return Vec::new();
        }
        let of = |class: &Class| ClassSnapshot {
            goal: class.chosen.goal,
            observed: None,
            standing: Standing::InReach,
            class: class.chosen.id,
            weight: class.weight,
            turns: class.chosen.turns,
            queued: class.waiting.len(),
            in_flight: class.in_flight,
            dispatched: class.dispatched,
            rejected: class.rejected,
            over_share: class.over_share,
            served: class.served,
            queue_wait: class.queue_wait,
        };
        self.list.iter().map(of).collect()
    }
}

/// The default class first (with weight 1 if it isn't named), then the others as they stand; what is too
/// much or twice is left out.
fn in_order(chosen: &[ServiceClass]) -> impl Iterator<Item = ServiceClass> + '_ {
    let named = chosen.iter().find(|class| class.id == ClassId::DEFAULT).copied();
    let first = named.unwrap_or(ServiceClass::new(ClassId::DEFAULT, Weight::ONE));
    let is_new = |at: usize| chosen[..at].iter().all(|before| before.id != chosen[at].id);
    let others = (0..chosen.len())
        .filter(move |&at| chosen[at].id != ClassId::DEFAULT && is_new(at))
        .map(|at| chosen[at]);
    core::iter::once(first).chain(others.take(ServiceClass::MOST - 1))
}

/// A set of places.
#[derive(Clone, Debug)]
pub(crate) struct Set(u64);

impl Iterator for Set {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let place = (self.0 != 0).then(|| self.0.trailing_zeros() as u8)?;
        self.0 &= self.0 - 1;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn class(id: u64, weight: f64) -> ServiceClass {
        ServiceClass::new(ClassId(id), Weight::new(weight).expect("a weight"))
    }

    fn ms(ms: u64) -> Work {
        Work::from_nanos(ms * 1_000_000)
    }

    /// Lets all classes take `turns` turns, while each always has requests.
    fn turns(classes: &mut Classes, work: &[u64], turns: usize) -> Vec<u64> {
        let mut given = vec![0; work.len()];
        for _ in 0..turns {
            let mut all = Set((1 << work.len()) - 1);
            let place = classes.next_of(&mut all).expect("somebody");
            classes.take_turn(place, ms(work[usize::from(place)]));
            given[usize::from(place)] += work[usize::from(place)];
        }
        given
    }

    #[test]
    fn turns_go_by_weight_whatever_the_size_of_requests() {
        let mut classes = Classes::new(&[class(0, 6.0), class(1, 5.0), class(2, 1.0)]);
        let given = turns(&mut classes, &[7, 1, 40], 20_000);
        let unit: u64 = given.iter().sum::<u64>() / 12;
        for (given, weight) in given.into_iter().zip([6, 5, 1]) {
            assert!(given.abs_diff(weight * unit) <= 80, "{given} of {}", weight * unit);
        }
    }

    #[test]
    fn nobody_has_credit_for_having_been_away() {
        let mut classes = Classes::new(&[class(1, 1.0)]);
        for _ in 0..1_000 {
            classes.take_turn(1, ms(10));
        }
        classes.come(0);
        assert_eq!(classes.at(0).tag, classes.now, "from now on, not from the beginning");
        assert_eq!(turns(&mut classes, &[10, 10], 100), [510, 490], "one turn, not a thousand");
    }

    #[test]
    fn what_a_request_took_counts_but_not_without_bound() {
        let mut classes = Classes::new(&[class(1, 1.0)]);
        classes.take_turn(1, ms(10));
        classes.correct(1, ms(10), ms(30));
        assert_eq!(classes.at(1).tag, classes.at(1).virtual_of(ms(30)));
        classes.correct(1, ms(30), ms(1));
        assert_eq!(classes.at(1).tag, classes.at(1).virtual_of(ms(1)));
        classes.correct(1, ms(1), ms(100_000));
        assert_eq!(classes.at(1).tag, classes.at(1).virtual_of(ms(16)));
    }

    #[test]
    fn who_has_the_most_above_its_share_is_one_too_many() {
        let mut classes = Classes::new(&[class(1, 2.0), class(2, 1.0)]);
        classes.at_mut(1).busy = 8;
        assert_eq!(classes.surplus(1, Reason::QueueFull), Surplus::All, "alone there");
        classes.at_mut(2).busy = 2;
        assert_eq!(classes.surplus(1, Reason::QueueFull), Surplus::Own);
        assert_eq!(classes.surplus(2, Reason::QueueFull), Surplus::Other(1));
        assert_eq!(classes.surplus(0, Reason::QueueFull), Surplus::Other(1));
        (classes.at_mut(1).busy, classes.at_mut(2).busy) = (4, 1);
        assert_eq!(classes.surplus(2, Reason::QueueFull), Surplus::All, "all have their shares");
    }

    #[test]
    fn classes_that_are_gone_are_the_default_and_no_more_than_there_may_be() {
        let mut classes = Classes::new(&[class(7, 1.0), class(8, 2.0)]);
        classes.at_mut(1).in_flight = 3;
        assert_eq!(classes.change(&[class(9, 1.0), class(8, 5.0)]), [0, 0, 2]);
        assert_eq!((classes.at(0).in_flight, classes.find(ClassId(7)), classes.find(ClassId(8))), (3, 0, 2));
        assert!(classes.reweigh(&[class(9, 3.0), class(8, 5.0)]) && !classes.reweigh(&[class(8, 5.0)]));
        let many: Vec<_> = (0..100).map(|id| class(id, 1.0)).collect();
        assert_eq!(Classes::new(&many).list.len(), ServiceClass::MOST);
    }
}
