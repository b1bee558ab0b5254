//! Plays requests against an uplink, from event to event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use admission::{Duration, Ending};

use self::paced::Paced;
use super::queue::{Before, Load, Packet};
use super::sender::Sender;
use super::{Demand, Download, Response, Second, Served, Setup, Tcp};
use crate::agenda::nanos;
use crate::chance::{Chance, Purpose};

mod opening;
mod paced;

/// A client sends a lost request again after this, at least, in nanoseconds.
const AGAIN_MIN: u64 = 200_000_000;
/// A connection with nothing on its way, whose packet found the host's own queue full, tries again after
/// this, in nanoseconds (Linux's `TCP_RESOURCE_PROBE_INTERVAL`).
const PROBE: u64 = 500_000_000;
/// After so many of these tries in a row the server's kernel ends the connection, and tells its client
/// nothing (`tcp_retries2`).
const PROBES_MAX: u32 = 15;
/// Doublings of a time-out.
const DOUBLINGS_MAX: u32 = 6;
const SECOND: u64 = 1_000_000_000;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The link has sent its packet.
    Free,
    /// A user sends a request, for the n-th time.
    Try(u32, u32),
    /// A client opens a connection, for the n-th time.
    Syn(u32, u32),
    /// The server answers that, for the n-th time.
    SynAck(u32, u32),
    /// A request arrives at the server, sent for the n-th time.
    Request(u32, u32),
    /// The acknowledgment of a segment arrives.
    Ack { connection: u32, response: u32, segment: u32, number: u64, sent: u64, landed: u64 },
    /// Perhaps a time-out.
    Timeout(u32),
    /// A connection tries again whose packet found the host's own queue full.
    Probe(u32),
    /// A user's patience ends in the n-th try.
    Abort(u32, u32),
    /// The state is recorded.
    Second,
    /// A client of a closed loop has thought.
    Thought,
    /// A gate that finds the rate looks at its connections.
    Look,
    /// The next turn of such a gate.
    Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The server doesn't know of it yet.
    Connecting,
    HalfOpen,
    /// It waits for a worker.
    Waiting,
    Served,
    Closed,
}

#[derive(Debug)]
struct Connection {
    stage: Stage,
    user: u32,
    /// How many requests it has served.
    served: u32,
    sender: Sender,
    /// Bytes that were offered to the scheduler and not granted.
    offered: u64,
    /// Bytes of the response that the socket was given, and when it sent some last.
    written: u64,
    last: u64,
    /// Packets in the kernel's queue.
    queued: u32,
    /// Whether its own packets in that queue hold up the next.
    held_up: bool,
    /// Whether a probe is due, and how many have found no room.
    probing: bool,
    probes: u32,
    /// When its time-out is, and whether somebody will look.
    deadline: u64,
    watched: bool,
    /// When the answer to its opening was sent last, if it was sent once.
    greeted: Option<u64>,
    /// Whether an answer to its opening is on its way, or has come.
    answered: bool,
}

#[derive(Clone, Copy, Debug)]
struct User {
    attempt: u32,
    connection: Option<u32>,
}

struct Playback<'a> {
    setup: &'a Setup,
    demand: &'a Demand,
    now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    come: u64,
    before: Before,
    paced: Option<Paced>,
    sending: Option<Packet>,
    connections: Vec<Connection>,
    users: Vec<User>,
    responses: Vec<Response>,
    idle: Vec<u32>,
    half_open: usize,
    backlog: VecDeque<u32>,
    busy: usize,
    loss: Chance,
    thinking: Chance,
    state: Second,
    seconds: Vec<Second>,
}

/// Plays the demand against the setup until that time.
pub fn serve(setup: &Setup, demand: &Demand, until: Duration, seed: u64) -> Served {
    let mut engine = Playback {
        setup,
        demand,
        now: 0,
        heap: BinaryHeap::new(),
        come: 0,
        before: Before::new(&setup.queue),
        paced: Paced::new(&setup.queue, setup.segment),
        sending: None,
        connections: Vec::new(),
        users: Vec::new(),
        responses: Vec::new(),
        idle: Vec::new(),
        half_open: 0,
        backlog: VecDeque::new(),
        busy: 0,
        loss: Chance::new(seed, Purpose::Retries, 0),
        thinking: Chance::new(seed, Purpose::Client, 0),
        state: Second::default(),
        seconds: Vec::new(),
    };
    engine.begin();
    engine.run(nanos(until));
    Served { responses: engine.responses, seconds: engine.seconds }
}

fn doubled(timeout: u64, times: u32) -> u64 {
    timeout.saturating_mul(1 << times.min(DOUBLINGS_MAX))
}

impl Playback<'_> {
    fn begin(&mut self) {
        self.due(SECOND, Due::Second);
        match self.demand {
            Demand::Open(requests) => requests.iter().for_each(|&request| self.arrive(request)),
            Demand::Closed { clients, .. } => (0..*clients).for_each(|_| self.think()),
        }
    }

    fn run(&mut self, until: u64) {
        while let Some(Reverse((at, _, due))) = self.heap.pop() {
            if at > until {
                return;
            }
            self.now = at;
            match due {
                Due::Free => self.freed(),
                Due::Try(user, attempt) => self.attempt(user, attempt),
                Due::Syn(connection, times) => self.opened(connection, times),
                Due::SynAck(connection, times) => self.greet(connection, times),
                Due::Request(connection, times) => self.requested(connection, times),
                Due::Ack { connection, response, segment, number, sent, landed } => {
                    if self.connections[connection as usize].served == response {
                        self.acknowledged(connection, (segment, number, sent), landed);
                    }
                }
                Due::Timeout(connection) => self.timeout(connection),
                Due::Probe(connection) => self.probe(connection),
                Due::Abort(user, attempt) => self.abort(user, attempt),
                Due::Second => {
                    self.state.connections = self.busy;
                    self.state.waiting = self.half_open + self.backlog.len();
                    self.seconds.push(self.state);
                    self.due(SECOND, Due::Second);
                }
                Due::Thought => self.thought(until),
                Due::Look => self.look(),
                Due::Turn => self.turned(),
            }
            self.transmit();
        }
    }

    fn due(&mut self, after: u64, due: Due) {
        self.come += 1;
        self.heap.push(Reverse((self.now.saturating_add(after), self.come, due)));
    }

    fn arrive(&mut self, request: Download) {
        let user = self.users.len() as u32;
        let at = request.at.as_secs_f64();
        self.responses.push(Response { at, bytes: request.bytes, first_byte: None, response: None });
        self.users.push(User { attempt: 0, connection: None });
        self.due(nanos(request.at).saturating_sub(self.now), Due::Try(user, 0));
    }

    fn think(&mut self) {
        if let Demand::Closed { think, .. } = self.demand {
            let time = nanos(*think) as f64 * self.thinking.exponential();
            self.due(time as u64, Due::Thought);
        }
    }

    fn thought(&mut self, end: u64) {
        if let Demand::Closed { sizes, until, .. } = self.demand
            && self.now < end.min(nanos(*until))
        {
            let bytes = sizes[self.users.len() % sizes.len()];
            self.arrive(Download { at: Duration::from_nanos(self.now), bytes });
        }
    }

    /// One way between a client and the server.
    fn way(&self) -> u64 {
        nanos(self.setup.round_trip) / 2
    }

    fn is_lost(&mut self) -> bool {
        self.loss.unit() < self.setup.loss
    }

    /// Gives connections that wait to workers that are free.
    fn employ(&mut self) {
        while self.busy < self.setup.workers {
            let Some(connection) = self.backlog.pop_front() else { return };
            if self.stage(connection) == Stage::Waiting {
                self.busy += 1;
                self.connections[connection as usize].stage = Stage::Served;
                self.respond(connection);
            }
        }
    }

    fn respond(&mut self, connection: u32) {
        let one = &self.connections[connection as usize];
        let (bytes, is_first) = (self.responses[one.user as usize].bytes, one.served == 0);
        if is_first {
            (0..self.setup.acknowledgments).for_each(|_| self.push_bare(connection, 0));
        }
        if self.has_gate() && self.setup.head > 0 {
            self.push_bare(connection, self.setup.head);
        }
        let segments = self.size(connection).div_ceil(u64::from(self.setup.segment)).max(1) as u32;
        let one = &mut self.connections[connection as usize];
        one.sender.begin(segments);
        one.offered = 0;
        self.before.open(connection, bytes);
        self.open_paced(connection, bytes);
        self.forward(connection);
    }

    fn has_gate(&self) -> bool {
        matches!(self.before, Before::Gate { .. }) || self.paced.is_some()
    }

    /// The bytes that a connection's segments carry.
    fn size(&self, connection: u32) -> u64 {
        let bytes = self.responses[self.connections[connection as usize].user as usize].bytes;
        if self.has_gate() { bytes } else { bytes + self.setup.head }
    }

    fn push_bare(&mut self, connection: u32, bytes: u64) {
        self.push(Packet { connection, bytes, load: Load::Bare }, 0);
    }

    fn length(&self, bytes: u64, segment: u32) -> u64 {
        let full = u64::from(self.setup.segment);
        (bytes - full * u64::from(segment)).min(full)
    }

    /// Sends what the window lets, or offers it to the scheduler.
    fn forward(&mut self, connection: u32) {
        let (full, bytes) = (u64::from(self.setup.segment), self.size(connection));
        let gate = matches!(self.before, Before::Gate { .. });
        loop {
            let one = &mut self.connections[connection as usize];
            let offered = one.offered.div_ceil(full) as usize;
            let Some(segment) = one.sender.ready(offered) else { break };
            if gate {
                let length = self.length(bytes, segment);
                self.connections[connection as usize].offered += length;
                self.before.offer(connection, length);
                continue;
            }
            one.held_up = !one.sender.may_queue(one.queued);
            if one.held_up || one.written < bytes.min(full * (u64::from(segment) + 1)) {
                break;
            }
            if !self.send(connection, segment) && self.setup.tcp == Tcp::Linux {
                self.refused(connection);
                break;
            }
        }
        self.watch(connection);
    }

    /// The host's own queue was full, and TCP has heard of it.
    fn refused(&mut self, connection: u32) {
        let one = &mut self.connections[connection as usize];
        one.sender.refused();
        if !one.sender.waits() && !one.probing {
            (one.probing, one.probes) = (true, 0);
            let after = one.sender.timeout().max(AGAIN_MIN);
            self.due(after, Due::Probe(connection));
        }
    }

    fn probe(&mut self, connection: u32) {
        let one = &mut self.connections[connection as usize];
        if one.stage != Stage::Served || one.sender.waits() {
            one.probing = false;
            return;
        }
        if one.probes == PROBES_MAX {
            // Its client waits on.
            self.close(connection, Ending::Broken);
            self.leave(connection);
            return;
        }
        self.forward(connection);
        let one = &mut self.connections[connection as usize];
        one.probing = one.stage == Stage::Served && !one.sender.waits() && !one.sender.is_done();
        if one.probing {
            one.probes += 1;
            self.due(PROBE, Due::Probe(connection));
        }
    }

    /// One segment leaves its socket; whether the kernel's queue had room for it.
    fn send(&mut self, connection: u32, segment: u32) -> bool {
        let (now, bytes) = (self.now, self.size(connection));
        let one = &mut self.connections[connection as usize];
        let number = one.sender.send(segment);
        one.last = now;
        // The socket's band is that of what it hasn't sent yet, also for what it sends again.
        let unsent = u64::from(one.sender.unsent()) * u64::from(self.setup.segment);
        let load = Load::Data { response: one.served, segment, number, sent: now };
        let length = self.length(bytes, segment);
        let has_room = self.push(Packet { connection, bytes: length, load }, unsent + length);
        if !has_room && self.setup.tcp == Tcp::Published {
            self.connections[connection as usize].sender.out(number);
        }
        has_room
    }

    /// A packet goes into the kernel's queue; whether it found room.
    fn push(&mut self, packet: Packet, remaining: u64) -> bool {
        let is_in = self.before.push(packet, remaining).is_ok();
        self.state.dropped += u64::from(!is_in);
        self.connections[packet.connection as usize].queued += u32::from(is_in);
        is_in
    }

    /// Looks for the time-out of what is on its way.
    fn watch(&mut self, connection: u32) {
        let now = self.now;
        let one = &mut self.connections[connection as usize];
        if one.sender.waits() {
            one.deadline = now + one.sender.timeout();
            if !one.watched {
                one.watched = true;
                let after = one.deadline - now;
                self.due(after, Due::Timeout(connection));
            }
        }
    }

    fn timeout(&mut self, connection: u32) {
        let now = self.now;
        let one = &mut self.connections[connection as usize];
        one.watched = false;
        if one.stage != Stage::Served || !one.sender.waits() {
            return;
        }
        if now < one.deadline {
            one.watched = true;
            let after = one.deadline - now;
            self.due(after, Due::Timeout(connection));
            return;
        }
        // What is still in the kernel's own queue isn't sent again.
        if one.queued == 0 {
            one.sender.timed_out();
            self.forward(connection);
        }
        self.watch(connection);
    }

    fn transmit(&mut self) {
        while self.sending.is_none() {
            while let Some((connection, bytes)) = self.before.grant(self.now, self.setup.standing) {
                let one = &mut self.connections[connection as usize];
                one.offered = one.offered.saturating_sub(bytes);
                if let Some(segment) = one.sender.ready(0) {
                    self.send(connection, segment);
                    self.watch(connection);
                }
            }
            let Some(packet) = self.before.next() else { return };
            let one = &mut self.connections[packet.connection as usize];
            one.queued -= 1;
            if let Load::Data { number, .. } = packet.load {
                one.sender.out(number);
            }
            let goes_on = std::mem::take(&mut one.held_up) && one.stage == Stage::Served;
            self.sending = Some(packet);
            let lasts = (packet.bytes + self.setup.overhead) as f64 * 8e9 / self.setup.bits;
            self.due(lasts as u64, Due::Free);
            if goes_on {
                self.forward(packet.connection);
            }
        }
    }

    fn freed(&mut self) {
        let Some(packet) = self.sending.take() else { return };
        self.state.sent += packet.bytes + self.setup.overhead;
        let connection = packet.connection;
        match packet.load {
            Load::Bare | Load::SynAck { lost: true } => {}
            Load::SynAck { lost: false } => {
                let way = self.way();
                self.ask(connection, way);
            }
            Load::Data { response, segment, number, sent } => {
                if !self.is_lost() {
                    let (way, landed) = (self.way(), self.now + self.way());
                    let ack = Due::Ack { connection, response, segment, number, sent, landed };
                    self.due(2 * way, ack);
                }
            }
        }
    }

    fn acknowledged(&mut self, connection: u32, (segment, number, sent): (u32, u64, u64), landed: u64) {
        let round_trip = self.now - sent;
        let one = &mut self.connections[connection as usize];
        if one.stage != Stage::Served {
            return;
        }
        one.sender.acknowledged(segment, number, round_trip);
        let (user, is_done) = (one.user, one.sender.is_done());
        let response = &mut self.responses[user as usize];
        let time = landed as f64 / 1e9 - response.at;
        response.first_byte = response.first_byte.or(Some(time));
        if !is_done {
            self.forward(connection);
            self.feed(connection);
            return;
        }
        response.response = Some(time);
        self.users[user as usize].connection = None;
        self.close(connection, Ending::Whole);
        self.think();
        let one = &mut self.connections[connection as usize];
        one.served += 1;
        if one.served < self.setup.reuse {
            self.idle.push(connection);
        } else {
            self.push_bare(connection, 0);
            self.leave(connection);
        }
    }

    fn close(&mut self, connection: u32, ending: Ending) {
        self.before.close(connection, ending);
        if let Some(paced) = &mut self.paced {
            paced.close(connection, ending);
        }
    }

    /// A connection ends.
    fn leave(&mut self, connection: u32) {
        let one = &mut self.connections[connection as usize];
        let stage = std::mem::replace(&mut one.stage, Stage::Closed);
        one.sender.begin(0);
        match stage {
            Stage::HalfOpen => self.half_open -= 1,
            Stage::Served => {
                self.busy -= 1;
                self.employ();
            }
            Stage::Connecting | Stage::Waiting | Stage::Closed => {}
        }
    }

    fn abort(&mut self, user: u32, attempt: u32) {
        let User { attempt: current, connection: Some(connection) } = self.users[user as usize] else {
            return;
        };
        if attempt != current {
            return;
        }
        self.users[user as usize].connection = None;
        self.close(connection, Ending::Broken);
        self.leave(connection);
        if attempt < self.setup.retries {
            self.due(0, Due::Try(user, attempt + 1));
        } else {
            self.think();
        }
    }

    fn stage(&self, connection: u32) -> Stage {
        self.connections[connection as usize].stage
    }
}
