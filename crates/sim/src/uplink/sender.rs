//! The sending side of a TCP connection, in segments of one response.
//!
//! Congestion control is Reno with selective acknowledgments, as in the kernels of the paper's time: slow
//! start from two segments, a segment counts as lost when three that were sent after it have arrived, one
//! halving for each window, and a time-out that doubles (RFC 2988 with Linux's least time-out of 200 ms). The
//! client's window is 32 KB.
//!
//! [`Tcp::Linux`] begins with ten segments, shrinks the window to seven tenths (CUBIC, RFC 9438), and its
//! client opens its window as far as needed. "TCP small queues" bound what one connection has in the host's
//! own queue: two packets, or what it sends in a millisecond.

use std::collections::{BTreeSet, VecDeque};

use super::Tcp;

/// The client's window, in bytes.
const WINDOW: u32 = 32 * 1024;
/// The most that a client of today opens its window to.
const WINDOW_MAX: u32 = 6 << 20;
/// Linux sends this many times faster than the window each round trip, for the bound on its own queue.
const PACING: f64 = 2.0;
/// What a packet in the host's own queue takes of its memory, beside its data.
const BOOKKEEPING: f64 = 856.0;
/// A segment counts as lost when this many segments that were sent later have arrived.
const REORDERED: u64 = 3;
/// The least time-out, in nanoseconds.
const TIMEOUT_MIN: u64 = 200_000_000;
/// The most.
const TIMEOUT_MAX: u64 = 120_000_000_000;

/// A segment that is on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    segment: u32,
    number: u64,
    /// The how-manieth it was to leave the host's own queue, or to find that full.
    out: Option<u64>,
}

/// The state of one connection's sending side.
#[derive(Debug)]
pub(super) struct Sender {
    /// Which segments have arrived.
    arrived: Vec<bool>,
    left: u32,
    /// How many have arrived without a gap.
    in_order: u32,
    /// The next that was never sent.
    next: u32,
    /// Lost ones, to be sent again.
    lost: BTreeSet<u32>,
    on_the_way: VecDeque<Sent>,
    flight: u32,
    numbered: u64,
    /// How many have left the host's own queue, and the last of those that arrived.
    gone: u64,
    latest: u64,
    /// Losses of those that were sent before this number don't halve the window again.
    halved: u64,
    tcp: Tcp,
    segment: f64,
    window: f64,
    window_max: f64,
    threshold: f64,
    smoothed: Option<(f64, f64)>,
    shortest: u64,
    timeout: u64,
    backoff: u32,
}

impl Sender {
    pub(super) fn new(tcp: Tcp, segment: u32, first_timeout: u64) -> Self {
        let (window, most) = match tcp {
            Tcp::Published => (2.0, WINDOW),
            Tcp::Linux => (10.0, WINDOW_MAX),
        };
        Self {
            tcp,
            segment: f64::from(segment),
            arrived: Vec::new(),
            left: 0,
            in_order: 0,
            next: 0,
            lost: BTreeSet::new(),
            on_the_way: VecDeque::new(),
            flight: 0,
            numbered: 0,
            gone: 0,
            latest: 0,
            halved: 0,
            window,
            window_max: f64::from((most / segment).max(2)),
            threshold: f64::INFINITY,
            smoothed: None,
            shortest: u64::MAX,
            timeout: first_timeout,
            backoff: 0,
        }
    }

    /// Begins a response of `segments` segments.
    pub(super) fn begin(&mut self, segments: u32) {
        self.arrived = vec![false; segments as usize];
        (self.left, self.in_order, self.next, self.flight) = (segments, 0, 0, 0);
        self.lost.clear();
        self.on_the_way.clear();
    }

    /// The segment that may be sent now behind `before` others, if the window lets it.
    pub(super) fn ready(&self, before: usize) -> Option<u32> {
        let window = self.window.min(self.window_max).max(1.0).floor() as usize;
        if self.flight as usize + before >= window {
            return None;
        }
        let new = u64::from(self.next) + before.saturating_sub(self.lost.len()) as u64;
        let new = u32::try_from(new).ok().filter(|&new| (new as usize) < self.arrived.len());
        self.lost.iter().nth(before).copied().or(new)
    }

    /// A segment goes to the link (or into a queue before it). Its number tells it apart from the same
    /// segment sent again.
    pub(super) fn send(&mut self, segment: u32) -> u64 {
        if !self.lost.remove(&segment) {
            self.next = self.next.max(segment + 1);
        }
        self.numbered += 1;
        self.flight += 1;
        self.on_the_way.push_back(Sent { segment, number: self.numbered, out: None });
        self.numbered
    }

    /// Segments of which none was sent yet.
    pub(super) fn unsent(&self) -> u32 {
        self.arrived.len() as u32 - self.next
    }

    /// The first segment that was never sent.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// How many segments have arrived without a gap.
    pub(super) fn in_order(&self) -> u32 {
        self.in_order
    }

    /// Segments that are on their way, as far as it knows.
    pub(super) fn under_way(&self) -> u32 {
        self.flight
    }

    /// Whether it sends again what was lost before its window shrank.
    pub(super) fn repairs(&self) -> bool {
        !self.lost.is_empty() || self.on_the_way.front().is_some_and(|sent| sent.number <= self.halved)
    }

    /// The shortest round trip in nanoseconds; 0: none was measured.
    pub(super) fn shortest(&self) -> u64 {
        self.shortest % u64::MAX
    }

    /// The mean of the last round trips in nanoseconds.
    pub(super) fn smoothed(&self) -> u64 {
        self.smoothed.map_or(0, |(smoothed, _)| smoothed as u64)
    }

    /// A segment has arrived; `round_trip` since it was sent, in nanoseconds.
    pub(super) fn acknowledged(&mut self, segment: u32, number: u64, round_trip: u64) {
        if self.arrived.get(segment as usize).is_none_or(|&arrived| arrived) {
            return;
        }
        self.arrived[segment as usize] = true;
        self.left -= 1;
        while self.arrived.get(self.in_order as usize) == Some(&true) {
            self.in_order += 1;
        }
        self.lost.remove(&segment);
        self.backoff = 0;
        self.measure(round_trip);
        if let Some(at) = self.on_the_way.iter().position(|sent| sent.number == number) {
            let out = self.on_the_way.remove(at).and_then(|sent| sent.out);
            self.latest = self.latest.max(out.unwrap_or(0));
            self.flight -= 1;
        }
        self.window += if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
        self.window = self.window.min(self.window_max);
        self.find_lost();
    }

    fn find_lost(&mut self) {
        let (mut on_the_way, mut halve) = (std::mem::take(&mut self.on_the_way), false);
        on_the_way.retain(|sent| {
            let arrived = self.arrived[sent.segment as usize];
            let lost = !arrived && sent.out.is_some_and(|out| out + REORDERED <= self.latest);
            if lost {
                self.lost.insert(sent.segment);
                halve |= sent.number > self.halved;
            }
            self.flight -= u32::from(arrived || lost);
            !(arrived || lost)
        });
        self.on_the_way = on_the_way;
        if halve {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        let to = if self.tcp == Tcp::Linux { 0.7 } else { 0.5 };
        self.halved = self.numbered;
        self.threshold = (self.window * to).max(2.0);
        self.window = self.threshold;
    }

    /// The segment that was sent last found the host's own queue full: it isn't sent.
    pub(super) fn refused(&mut self) {
        let Some(sent) = self.on_the_way.pop_back() else { return };
        self.flight -= 1;
        self.lost.insert(sent.segment);
        if sent.number > self.halved {
            self.shrink();
        }
    }

    /// Whether another packet may join `queued` ones of this connection in the host's own queue.
    pub(super) fn may_queue(&self, queued: u32) -> bool {
        let packet = self.segment + BOOKKEEPING;
        let rate =
            self.smoothed.map_or(0.0, |(smoothed, _)| PACING * self.window * self.segment / smoothed * 1e9);
        let bound = (2.0 * packet).max(rate / 1024.0);
        self.tcp == Tcp::Published || self.flight <= 1 || f64::from(queued) * packet < bound
    }

    /// A segment has left the host's own queue, or found it full. Until then it can't be lost.
    pub(super) fn out(&mut self, number: u64) {
        if let Ok(at) = self.on_the_way.binary_search_by_key(&number, |sent| sent.number) {
            self.gone += 1;
            self.on_the_way[at].out = Some(self.gone);
        }
    }

    /// A round trip of this many nanoseconds.
    pub(super) fn measure(&mut self, round_trip: u64) {
        let sample = round_trip as f64;
        self.shortest = self.shortest.min(round_trip);
        let (smoothed, deviation) = match self.smoothed {
            None => (sample, sample / 2.0),
            Some((smoothed, deviation)) => {
                let error = (sample - smoothed).abs();
                (smoothed + (sample - smoothed) / 8.0, deviation + (error - deviation) / 4.0)
            }
        };
        self.smoothed = Some((smoothed, deviation));
        self.timeout = ((smoothed + 4.0 * deviation) as u64).max(TIMEOUT_MIN);
    }

    /// Nothing was heard for [`Sender::timeout`]: all that is on its way is lost.
    pub(super) fn timed_out(&mut self) {
        self.threshold = (f64::from(self.flight) / 2.0).max(2.0);
        self.window = 1.0;
        self.backoff += 1;
        self.halved = self.numbered;
        for sent in self.on_the_way.drain(..) {
            if !self.arrived[sent.segment as usize] {
                self.lost.insert(sent.segment);
            }
        }
        self.flight = 0;
    }

    /// After how long something is lost that wasn't acknowledged.
    pub(super) fn timeout(&self) -> u64 {
        self.timeout.saturating_mul(1 << self.backoff.min(10)).min(TIMEOUT_MAX)
    }

    /// Whether something is on its way.
    pub(super) fn waits(&self) -> bool {
        self.flight > 0
    }

    /// Whether all has arrived.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sender: &mut Sender) -> Vec<(u32, u64)> {
        let sent: Vec<_> =
            std::iter::from_fn(|| sender.ready(0).map(|segment| (segment, sender.send(segment)))).collect();
        sent.iter().for_each(|&(_, number)| sender.out(number));
        sent
    }

    #[test]
    fn the_window_doubles_with_each_round_trip() {
        let mut sender = Sender::new(Tcp::Published, 1460, 3_000_000_000);
        sender.begin(100);
        for expected in [2, 4, 8, 16] {
            let round = sent(&mut sender);
            assert_eq!(round.len(), expected);
            round.iter().for_each(|&(segment, number)| sender.acknowledged(segment, number, 1_000_000));
        }
    }

    #[test]
    fn a_segment_is_sent_again_when_three_later_ones_have_arrived() {
        let mut sender = Sender::new(Tcp::Published, 1460, 3_000_000_000);
        sender.begin(100);
        sender.window = 8.0;
        let round = sent(&mut sender);
        round[1..4].iter().for_each(|&(segment, number)| sender.acknowledged(segment, number, 1_000_000));
        // The window had grown to 11 and was halved; four are on their way.
        assert_eq!(sent(&mut sender).iter().map(|&(segment, _)| segment).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_time_out_sends_everything_again_one_by_one_and_doubles() {
        let mut sender = Sender::new(Tcp::Published, 1460, 3_000_000_000);
        sender.begin(2);
        assert_eq!(sent(&mut sender).len(), 2);
        sender.timed_out();
        assert_eq!(sender.timeout(), 6_000_000_000);
        let again = sent(&mut sender);
        assert_eq!(again.len(), 1);
        sender.acknowledged(again[0].0, again[0].1, 1_000_000);
        assert_eq!(sender.timeout(), TIMEOUT_MIN);
        let rest = sent(&mut sender);
        sender.acknowledged(rest[0].0, rest[0].1, 1_000_000);
        assert!(sender.is_done());
    }

    #[test]
    fn linux_keeps_two_packets_in_its_own_queue_and_hears_when_that_is_full() {
        let mut sender = Sender::new(Tcp::Linux, 1448, 1_000_000_000);
        sender.begin(100);
        sender.measure(100_000_000);
        let round: Vec<u64> = (0..10).map(|segment| sender.send(segment)).collect();
        assert_eq!(sender.ready(0), None);
        assert!(sender.may_queue(1) && !sender.may_queue(2));
        // The last one is taken back, and the window shrinks from ten to seven.
        sender.refused();
        (0..2).for_each(|at| sender.acknowledged(at, round[at as usize], 100_000_000));
        assert_eq!(sender.ready(0), None);
        sender.acknowledged(2, round[2], 100_000_000);
        assert_eq!(sender.ready(0), Some(9));
    }
}
