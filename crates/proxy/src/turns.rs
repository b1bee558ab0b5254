//! Places that no single address can keep to itself.
//!
//! A client that opens connections and then says nothing holds a place with each until its time is up. Two
//! rules keep it from holding up everybody else:
//!
//! * of those that wait, the next one comes from the address that holds the fewest places; among equals, the
//!   one that came first;
//! * a quarter of the places (from four on) is out of reach for an address that holds the other three, so
//!   that somebody from elsewhere needn't wait until one of those ends.
//!
//! A place is *free*, or *held* by a [`Turn`], which gives it back when dropped. A waiting
//! client stands in its source's line until it is called. From then on the place is the client's, which
//! gives it back even if it never comes for it ([`InLine`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::source::Source;

/// One place in so many is kept from an address that holds the others.
const KEPT: u32 = 4;

/// Places whose number can change while they are held. More places are there at once. Fewer are reached when
/// places are given back.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    places: u32,
    held: u32,
    /// The number of the next arrival. Those that wait are numbered in order of arrival.
    arrivals: u64,
    /// Of each source that holds a place, or waits for one.
    lines: HashMap<Source, Line>,
    /// The sources of those that wait, by what they hold and which came first.
    order: BTreeSet<(u32, u64, Source)>,
}

#[derive(Debug, Default)]
struct Line {
    held: u32,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A place, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Turn {
    state: Arc<Mutex<State>>,
    source: Source,
}

/// One that waits.
struct InLine<'a> {
    state: &'a Mutex<State>,
    source: Source,
    arrival: u64,
    has_come: bool,
}

impl Turns {
    pub(crate) fn new(places: u32) -> Self {
        Self(Arc::new(Mutex::new(State { places, ..State::default() })))
    }

    /// Waits for a place. Cancel-safe.
    pub(crate) async fn take(&self, source: Source) -> Turn {
        let (call, called) = oneshot::channel();
        let mut in_line = {
            let mut state = self.0.lock();
            let arrival = state.arrivals;
            state.arrivals += 1;
            state.change(source, |line| _ = line.waiting.insert(arrival, call));
            state.call();
            InLine { state: &self.0, source, arrival, has_come: false }
        };
        // It fails only if nobody is left to call, and each that waits holds the line.
        let _ = called.await;
        in_line.has_come = true;
        Turn { state: Arc::clone(&self.0), source }
    }

    /// How many are held.
    pub(crate) fn taken(&self) -> u32 {
        self.0.lock().held
    }

    /// Changes the number of places.
    pub(crate) fn set(&self, places: u32) {
        let mut state = self.0.lock();
        state.places = places;
        state.call();
    }
}

impl State {
    /// Changes a source's line, and its place in the order with it.
    fn change(&mut self, source: Source, change: impl FnOnce(&mut Line)) {
        let line = self.lines.entry(source).or_default();
        if let Some(rank) = line.rank(source) {
            self.order.remove(&rank);
        }
        change(line);
        match line.rank(source) {
            Some(rank) => _ = self.order.insert(rank),
            None if line.held == 0 => _ = self.lines.remove(&source),
            None => {}
        }
    }

    /// Calls those whose turn it is.
    fn call(&mut self) {
        let share = self.places - self.places / KEPT;
        while self.held < self.places {
            // Every source behind the first one in the order holds no less.
            let Some(&(held, arrival, source)) = self.order.first().filter(|(held, ..)| *held < share) else {
                return;
            };
            self.held += 1;
            self.change(source, |line| {
                line.held = held + 1;
                // One that isn't there any more gives the place back.
                let _ = line.waiting.remove(&arrival).map(|call| call.send(()));
            });
        }
    }

    fn give_back(&mut self, source: Source) {
        self.held -= 1;
        self.change(source, |line| line.held -= 1);
        self.call();
    }
}

impl Line {
    fn rank(&self, source: Source) -> Option<(u32, u64, Source)> {
        self.waiting.first_key_value().map(|(arrival, _)| (self.held, *arrival, source))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.state.lock().give_back(self.source);
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        if self.has_come {
            return;
        }
        let mut state = self.state.lock();
        let mut was_called = true;
        state.change(self.source, |line| was_called = line.waiting.remove(&self.arrival).is_none());
        if was_called {
            state.give_back(self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::FutureExt as _;

    use super::*;

    fn from(network: u8) -> Source {
        Source::Network([192, 0, 2, network].into())
    }

    type Waiting<'a> = Pin<Box<dyn Future<Output = Turn> + 'a>>;

    impl Turns {
        fn now(&self, source: Source) -> Option<Turn> {
            self.take(source).now_or_never()
        }

        /// One that has taken its place in the line.
        fn wait(&self, source: Source) -> Waiting<'_> {
            let mut waiting: Waiting<'_> = Box::pin(self.take(source));
            assert!((&mut waiting).now_or_never().is_none(), "there is a place");
            waiting
        }

        fn assert_at_rest(&self) {
            let state = self.0.lock();
            assert_eq!((state.held, state.lines.len(), state.order.len()), (0, 0, 0));
        }
    }

    fn fill(turns: &Turns, source: Source) -> Vec<Turn> {
        std::iter::from_fn(|| turns.now(source)).collect()
    }

    #[test]
    fn one_address_waits_in_the_order_of_arrival() {
        let turns = Turns::new(2);
        let mut held = fill(&turns, from(1));
        assert_eq!((held.len(), turns.taken()), (2, 2));
        let (first, second) = (turns.wait(from(1)), turns.wait(from(1)));
        held.pop();
        let first = first.now_or_never().expect("it is his turn");
        assert!(second.now_or_never().is_none());
        drop((held, first));
        turns.assert_at_rest();
    }

    #[test]
    fn who_comes_from_where_fewest_places_are_held_is_next() {
        let turns = Turns::new(3);
        let mut held = fill(&turns, from(1));
        assert_eq!(held.len(), 3);
        let (same, other) = (turns.wait(from(1)), turns.wait(from(2)));
        let another = turns.wait(from(2));
        held.pop();
        let other = other.now_or_never().expect("it is his turn");
        // Now one holds two, and the other one.
        held.pop();
        let same = same.now_or_never().expect("one each, and he came first");
        held.pop();
        let another = another.now_or_never().expect("the last one");
        drop((same, other, another));
        turns.assert_at_rest();
    }

    #[test]
    fn a_quarter_of_the_places_is_kept_from_who_holds_the_others() {
        for (places, reach) in [(1, 1), (3, 3), (4, 3), (16, 12)] {
            let turns = Turns::new(places);
            let greedy = fill(&turns, from(1));
            assert_eq!(greedy.len(), reach, "of {places}");
            let waiting = turns.wait(from(1));
            let others = fill(&turns, Source::Unix);
            assert_eq!(others.len(), places as usize - reach);
            // The kept ones don't fall to him when they are given back.
            drop(others);
            assert!(waiting.now_or_never().is_none() || places < KEPT);
            drop(greedy);
            turns.assert_at_rest();
        }
    }

    #[test]
    fn who_gives_up_leaves_nothing_behind() {
        let turns = Turns::new(1);
        let held = turns.now(from(1)).expect("there is a place");
        let (gone, called, stays) = (turns.wait(from(2)), turns.wait(from(3)), turns.wait(from(1)));
        drop(gone);
        drop(held);
        // Called, and gone before he came.
        drop(called);
        drop(stays.now_or_never().expect("it is his turn"));
        turns.assert_at_rest();
    }

    #[test]
    fn more_places_are_there_at_once_and_fewer_as_they_are_given_back() {
        let turns = Turns::new(1);
        let first = turns.now(from(1)).expect("there is a place");
        let second = turns.wait(from(2));
        turns.set(2);
        let second = second.now_or_never().expect("there is another place");
        turns.set(1);
        let third = turns.wait(from(3));
        drop(first);
        let mut third = third;
        assert!((&mut third).now_or_never().is_none(), "one of one is held");
        drop(second);
        drop(third.now_or_never().expect("it is his turn"));
        turns.assert_at_rest();
    }
}
