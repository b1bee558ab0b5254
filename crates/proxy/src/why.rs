//! Why a request took what it took: what it waited for, who went before it, how long it was served, how it
//! ended. `gatekeeper why` and the page ask for it.
//!
//! **What is kept.** Everything of the requests that wait or are in flight. Of those that have ended: the
//! last [`RECENT_MAX`], the last [`REFUSED_MAX`] that were refused, and of each of the last [`PERIODS_MAX`]
//! periods of [`PERIOD`] the [`SLOWEST_MAX`] slowest. So the slowest of the last five minutes are always
//! there. That is one MiB for each gate, with the last dispatches (`passed.rs`), and 200 bytes for each
//! request that is present. No text of a statement is in it: types are known by their keys.
//!
//! **What a request waits for** is asked when it arrives, and every [`LOOK_EVERY`] for the [`LOOKED_AT`] that
//! have waited longest. The time since the last look counts for what was seen then.
//!
//! **What it costs:** 40 ns a request, 6 ns more for one that waits, and 2.4 µs every [`LOOK_EVERY`].

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::num::NonZeroU128;
use std::time::Duration;

use admission::{ClassId, Event, Gate, Instant, Obstacle, Outcome, Reason, Request, RequestType, Ticket};

mod passed;

use passed::{Overtaken, Passed};

/// How many of those that ended last are kept.
const RECENT_MAX: usize = 2_048;
/// How many of those that were refused last are kept.
const REFUSED_MAX: usize = 1_024;
/// How many periods keep their slowest.
const PERIODS_MAX: usize = 30;
/// How long one lasts.
const PERIOD: Duration = Duration::from_secs(10);
/// How many of a period are kept.
const SLOWEST_MAX: usize = 16;
/// How often it is asked what requests wait for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For how long the slowest are told of.
const SLOW_FOR: Duration = Duration::from_secs(PERIOD.as_secs() * PERIODS_MAX as u64);
/// For how many of those that have waited longest.
const LOOKED_AT: usize = 32;
/// For how many of the slowest it is counted at each look who went before them.
const COUNTED_AT: usize = 4;
/// For how many stories of an answer it is counted, where it wasn't at a look.
const COUNTED_MOST: usize = 16;
/// The most stories that one question is answered with.
pub(crate) const STORIES_MAX: usize = 100;

/// Where a request comes from, as far as people can ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The trace that it belongs to.
    pub(crate) trace: Option<NonZeroU128>,
    /// The number of its session.
    pub(crate) session: Option<u64>,
    /// The number of its connection, where that carries one request after the other.
    pub(crate) turn: Option<u64>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The service was busy with it for so long.
    Served(Outcome, Duration),
    Refused(Reason),
    /// Its client left the queue.
    Left,
}

/// What is known of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    pub(crate) sequence: u64,
    pub(crate) origin: Origin,
    pub(crate) request_type: RequestType,
    pub(crate) class: ClassId,
    pub(crate) arrived: Instant,
    /// How long it waited, once it waits no longer.
    pub(crate) queue_wait: Option<Duration>,
    pub(crate) end: Option<End>,
    /// How long it waited for what, in microseconds, up to the last look.
    waited: [u32; Obstacle::ALL.len()],
    /// What it waited for at the last look.
    obstacle: Option<Obstacle>,
    looked: Instant,
    /// The most connections that silent clients held while it waited for one.
    pub(crate) thinking: u32,
    /// How long its response waited for the gate's uplink, once that is sent.
    pub(crate) uplink: Duration,
    /// How many had been dispatched when it arrived, and when it stopped waiting.
    dispatches: (u64, Option<u64>),
}

/// The answer to a question.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) story: Story,
    /// Those that went before it, if that is still known.
    pub(crate) overtaken: Option<Overtaken>,
    /// How many that had arrived earlier were dispatched after it.
    pub(crate) overtook: u32,
}

impl Reply {
    /// The types whose names are needed.
    pub(crate) fn types(&self) -> impl Iterator<Item = RequestType> + '_ {
        let others = self.overtaken.iter().flat_map(|it| it.by_type.iter().map(|(kind, _)| *kind));
        std::iter::once(self.story.request_type).chain(others)
    }
}

/// Which requests are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Those that took longest in the last minutes, so many.
    Slowest(usize),
    /// Those of a trace.
    Trace(NonZeroU128),
    /// The one with this number.
    Number(u64),
    /// Those of a session, the last ones first.
    Session(u64),
}

/// The slowest of a time.
#[derive(Debug)]
struct Period {
    began: Instant,
    slowest: Vec<(Story, Option<Overtaken>)>,
    /// The response time of the fastest of them, once there is no room for more.
    least: Duration,
}

/// The stories of a gate.
#[derive(Debug, Default)]
pub(crate) struct Why {
    /// Those that wait or are in flight, by the places of their tickets.
    present: Vec<Option<Story>>,
    /// One whose place was taken before its end was heard of.
    displaced: Option<Story>,
    passed: Passed,
    recent: VecDeque<Story>,
    refused: VecDeque<Story>,
    periods: VecDeque<Period>,
    looked: Instant,
}

impl Story {
    /// From its arrival to its end, or to this instant.
    pub(crate) fn response_time(&self, now: Instant) -> Duration {
        let waited = self.queue_wait.unwrap_or_default();
        match self.end {
            Some(End::Served(_, upstream)) => waited.saturating_add(upstream),
            Some(End::Refused(_) | End::Left) => waited,
            None => now.since(self.arrived),
        }
    }

    /// How long it waited for what, the longest first; up to this instant if it still waits.
    pub(crate) fn waits(mut self, now: Instant) -> Vec<(Obstacle, Duration)> {
        if self.queue_wait.is_none() {
            self.look(now, self.obstacle);
        }
        let spans = Obstacle::ALL.into_iter().zip(self.waited);
        let mut spans: Vec<_> = spans.filter(|(_, micros)| *micros > 0).collect();
        spans.sort_by_key(|&(_, micros)| Reverse(micros));
        spans.into_iter().map(|(what, micros)| (what, Duration::from_micros(micros.into()))).collect()
    }

    /// Those that went before it while it waited.
    fn overtaken(&self, passed: &Passed) -> Overtaken {
        let (from, to) = self.dispatches;
        passed.overtaken(self.sequence, (from, to.unwrap_or(passed.count())))
    }

    /// The time since the last look counts for what was seen then.
    fn look(&mut self, now: Instant, obstacle: Option<Obstacle>) {
        if let Some(before) = self.obstacle {
            let micros = u32::try_from(now.since(self.looked).as_micros()).unwrap_or(u32::MAX);
            let span = &mut self.waited[before as usize];
            *span = span.saturating_add(micros);
        }
        (self.looked, self.obstacle) = (now, obstacle);
    }
}

impl Why {
    /// A request has come with this ticket, and waits for this if it waits.
    pub(crate) fn arrived(
        &mut self,
        now: Instant,
        ticket: Ticket,
        (request, origin): (&Request, Origin),
        obstacle: Option<Obstacle>,
    ) {
        let story = Story {
            sequence: ticket.sequence(),
            origin,
            request_type: request.request_type,
            class: request.class,
            arrived: now,
            queue_wait: None,
            end: None,
            waited: [0; Obstacle::ALL.len()],
            obstacle,
            looked: now,
            thinking: 0,
            uplink: Duration::ZERO,
            dispatches: (self.passed.count(), None),
        };
        if self.present.len() <= ticket.place() {
            self.present.resize(ticket.place() + 1, None);
        }
        self.displaced = self.present[ticket.place()].replace(story);
    }

    /// The session of a request that waits or is in flight.
    pub(crate) fn session_of(&self, ticket: Ticket) -> Option<u64> {
        let story = self.present.get(ticket.place())?.as_ref();
        story.filter(|story| story.sequence == ticket.sequence())?.origin.session
    }

    /// Something has happened. Events of others with a request's place come before its own.
    pub(crate) fn happened(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Dispatched { ticket, request_type, queue_wait, .. } => {
                let number = self.passed.dispatched(ticket.sequence(), request_type);
                self.stop_waiting(ticket, queue_wait, number);
            }
            Event::Completed { ticket, outcome, upstream_time, .. } => {
                self.end(now, ticket, End::Served(outcome, upstream_time));
            }
            Event::Rejected { ticket, reason, queue_wait, .. } => {
                self.stop_waiting(ticket, queue_wait, self.passed.count());
                self.end(now, ticket, End::Refused(reason));
            }
            Event::Left { ticket, queue_wait, .. } => {
                self.stop_waiting(ticket, queue_wait, self.passed.count());
                self.end(now, ticket, End::Left);
            }
            _ => {}
        }
    }

    /// A request in flight is refused. Returns its type and class, unless it has been refused before.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        ticket: Ticket,
        reason: Reason,
    ) -> Option<(RequestType, ClassId)> {
        let of = self.present_mut(ticket).map(|story| (story.request_type, story.class))?;
        self.end(now, ticket, End::Refused(reason));
        Some(of)
    }

    /// The response of a request, which may have ended before, has waited so long for the uplink.
    pub(crate) fn has_waited_for_uplink(&mut self, number: u64, waited: Duration) {
        let slow = self.periods.iter_mut().flat_map(|period| &mut period.slowest).map(|(story, _)| story);
        let present = self.present.iter_mut().flatten();
        let all = self.recent.iter_mut().chain(slow).chain(present);
        all.filter(|story| story.sequence == number).for_each(|story| story.uplink = waited);
    }

    /// Whether it is time to look at those that wait.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.since(self.looked) >= LOOK_EVERY
    }

    /// Looks at those that have waited longest, and counts who went before the slowest.
    pub(crate) fn look(&mut self, now: Instant, gate: &Gate) {
        self.looked = now;
        let waiting = gate.queue(LOOKED_AT);
        let silent = if waiting.is_empty() { None } else { gate.silent() };
        let thinking = silent.map_or(0, |silent| silent.connections);
        for queued in waiting {
            let obstacle = gate.obstacle(queued.ticket);
            let Some(story) = self.present_mut(queued.ticket) else { continue };
            story.look(now, obstacle);
            if obstacle == Some(Obstacle::Connections) {
                story.thinking = story.thinking.max(thinking);
            }
        }
        let passed = &self.passed;
        let last = self.periods.iter_mut().rev().take(2).flat_map(|period| &mut period.slowest);
        for (story, overtaken) in last.filter(|(_, overtaken)| overtaken.is_none()).take(COUNTED_AT) {
            *overtaken = Some(story.overtaken(passed));
        }
    }

    /// The stories that are asked for, at most so many as [`STORIES_MAX`].
    pub(crate) fn tell(&self, now: Instant, ask: Ask) -> Vec<Reply> {
        let kept = self.recent.iter().chain(&self.refused).rev();
        let slow = self.periods.iter().rev().flat_map(|period| &period.slowest).map(|(story, _)| story);
        // Where nothing has ended since, periods stay that are older.
        let last = self.periods.iter().rev().take_while(|period| now.since(period.began) < SLOW_FOR);
        let last = last.flat_map(|period| &period.slowest).map(|(story, _)| story);
        let present = self.present.iter().flatten();
        let is_asked = |story: &&Story| match ask {
            Ask::Slowest(_) => true,
            Ask::Trace(trace) => story.origin.trace == Some(trace),
            Ask::Number(number) => story.sequence == number,
            Ask::Session(session) => story.origin.session == Some(session),
        };
        let mut stories: Vec<Story> = match ask {
            Ask::Slowest(_) => present.chain(last).copied().collect(),
            _ => present.chain(slow).chain(kept).filter(is_asked).copied().collect(),
        };
        stories.sort_by_key(|story| Reverse(story.sequence));
        stories.dedup_by_key(|story| story.sequence);
        let most = if let Ask::Slowest(most) = ask {
            stories.sort_by_key(|story| Reverse(story.response_time(now)));
            most.min(STORIES_MAX)
        } else {
            STORIES_MAX
        };
        stories.truncate(most);
        let mut to_count = COUNTED_MOST;
        stories.into_iter().map(|story| self.told(story, &mut to_count)).collect()
    }

    fn told(&self, story: Story, to_count: &mut usize) -> Reply {
        let mut slow = self.periods.iter().flat_map(|period| &period.slowest);
        let known = slow.find(|(slow, _)| slow.sequence == story.sequence);
        let counted = known.and_then(|(_, overtaken)| overtaken.clone());
        let waited = story.queue_wait.is_none_or(|wait| !wait.is_zero());
        let overtaken = counted.or_else(|| {
            let counts = !waited || *to_count > 0;
            *to_count -= usize::from(waited && counts);
            counts.then(|| story.overtaken(&self.passed))
        });
        let was_refused = matches!(story.end, Some(End::Refused(_) | End::Left));
        let dispatch = story.dispatches.1.filter(|_| *to_count > 0 && !was_refused);
        let overtook = dispatch.map_or(0, |dispatch| self.passed.overtook(story.sequence, dispatch));
        Reply { story, overtaken, overtook }
    }

    /// A request waits no longer, while this dispatch comes, or the next one is to.
    fn stop_waiting(&mut self, ticket: Ticket, queue_wait: Duration, dispatch: u64) {
        if let Some(story) = self.present_mut(ticket) {
            story.dispatches.1 = Some(dispatch);
            // A gate that observes hears of it later.
            story.look(story.arrived.after(queue_wait).max(story.looked), None);
            story.queue_wait = Some(queue_wait);
        }
    }

    fn present_mut(&mut self, ticket: Ticket) -> Option<&mut Story> {
        let is_it = |story: &&mut Story| story.sequence == ticket.sequence();
        let present = self.present.get_mut(ticket.place())?.as_mut();
        present.filter(is_it).or_else(|| self.displaced.as_mut().filter(is_it))
    }

    fn end(&mut self, now: Instant, ticket: Ticket, end: End) {
        let is_it = |story: &mut Story| story.sequence == ticket.sequence();
        let present = self.present.get_mut(ticket.place()).and_then(|place| place.take_if(is_it));
        let Some(mut story) = present.or_else(|| self.displaced.take_if(is_it)) else { return };
        story.end = Some(end);
        self.note_slow(now, &story);
        let (kept, most) = match end {
            End::Refused(_) => (&mut self.refused, REFUSED_MAX),
            End::Served(..) | End::Left => (&mut self.recent, RECENT_MAX),
        };
        if kept.len() >= most {
            kept.pop_front();
        }
        kept.push_back(story);
    }

    fn note_slow(&mut self, now: Instant, story: &Story) {
        if self.periods.back().is_none_or(|period| now.since(period.began) >= PERIOD) {
            let last = if self.periods.len() >= PERIODS_MAX { self.periods.pop_front() } else { None };
            let mut slowest = last.map(|period| period.slowest).unwrap_or_default();
            slowest.clear();
            self.periods.push_back(Period { began: now, slowest, least: Duration::ZERO });
        }
        let Some(period) = self.periods.back_mut() else { return };
        let time = story.response_time(now);
        if period.slowest.len() < SLOWEST_MAX {
            period.slowest.push((*story, None));
        } else if time > period.least {
            let fastest = |(_, a): &(usize, Duration), (_, b): &(usize, Duration)| a.cmp(b);
            let times = |period: &Period| {
                let times = period.slowest.iter().map(|(story, _)| story.response_time(now));
                times.enumerate().min_by(fastest)
            };
            if let Some((place, least)) = times(period) {
                period.least = least;
                if time > least {
                    period.slowest[place] = (*story, None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
