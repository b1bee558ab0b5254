//! The uplink of a gate: the bodies of all its responses leave through one scheduler, paced so that no
//! queue stands in the kernel.
//!
//! A [`Share`] is one response's part in it. hyper asks a body for its next frame when it can write more to
//! its client. Only then, and while its socket takes more, a frame is read from the service. A turn's bytes
//! of it are offered to [`admission::Egress`]; the body yields what is granted. So one frame of each response
//! waits here, the service feels the client's pace, and a client that reads nothing holds up nobody. Bytes
//! that are granted lie in buffers of hyper and the kernel until the network takes them.
//!
//! With [`UplinkRate::Kernel`] every offer is granted at once, and the kernel's [`bands`] order the packets.
//!
//! [`finding`] finds the rate, below the one that is set if one is. Without a set rate every offer is granted
//! at once until a queue in the kernel says that the uplink is the bottleneck.
//!
//! A response that offers bytes also gives what is due. A task gives what becomes due while nobody offers
//! anything; it ends with the uplink. One lock guards the scheduler and what was granted, one what is found.
//! The second is taken first, and none is held across an await.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use admission::{Egress, EgressOrder, EgressPolicy, Ending, Instant, Priority, RequestType, Size, Stream};
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::body::{Broken, ToClient};
use super::siblings::{Sibling, Siblings};
use crate::clock::Clock;
use crate::gate::Driver;
use crate::memory::Held;
use crate::view::UplinkReport;

mod bands;
mod disciplines;
mod finding;
mod priority;
mod room;

pub use bands::KernelBands;
use finding::{Finding, Watch};
pub(crate) use priority::said;
use room::Room;

/// A turn lasts for a two-hundredth of a second at most, but has a packet's bytes at least.
const TURNS: u64 = 200;
/// Bytes of a packet over Ethernet beside TCP's time stamps. Turns have whole ones, to save headers.
const PACKET: u64 = 1_448;
const TURN_MAX: u64 = 128 * 1024;
/// A large response is overdue when a fair uplink would have sent it.
const AGING: u32 = 1;

/// A shorter wait is no part of a request's story.
const TOLD: Duration = Duration::from_millis(1);

/// What a gate's uplink is told to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkSettings {
    /// How many bits it carries.
    pub rate: UplinkRate,
    /// In which order responses share it.
    pub order: EgressOrder,
    /// A response is overdue when a fair uplink would have sent it so many times over; `None`: never.
    pub aging: Option<u32>,
}

impl UplinkSettings {
    /// These, with the usual aging of their order.
    pub fn new(rate: UplinkRate, order: EgressOrder) -> Self {
        let aging = (order == EgressOrder::ShortestRemaining).then_some(AGING);
        Self { rate, order, aging }
    }
}

/// How many bits an uplink carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UplinkRate {
    /// Bits per second that the operator has set.
    Set(u64),
    /// What is found, while the uplink is the bottleneck.
    Found,
    /// The kernel has the queue, and orders it by bands.
    Kernel(KernelBands),
}

/// The bytes of a response that were granted, and the task that waits for more.
#[derive(Debug, Default)]
struct Granted {
    bytes: u64,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct State {
    egress: Egress,
    granted: HashMap<Stream, Granted>,
    /// The bytes that responses have taken of what was granted.
    taken: u64,
}

/// The uplink that the responses of a gate share.
#[derive(Debug)]
pub(crate) struct Uplink {
    settings: UplinkSettings,
    state: Mutex<State>,
    clock: Clock,
    /// Something waits for its turn, or the uplink is gone.
    changed: Arc<Notify>,
    finding: Mutex<Finding>,
}

/// The most bytes of one turn at this rate.
fn quantum(rate: Option<u64>) -> u32 {
    let bytes = rate.map_or(TURN_MAX, |rate| (rate / TURNS).clamp(PACKET, TURN_MAX));
    u32::try_from(bytes / PACKET * PACKET).unwrap_or(u32::MAX)
}

impl Uplink {
    /// To be called within the runtime.
    pub(crate) fn start(settings: UplinkSettings, clock: Clock) -> Arc<Self> {
        let rate = match settings.rate {
            UplinkRate::Set(bits) => Some(bits / 8),
            UplinkRate::Found | UplinkRate::Kernel(_) => None,
        };
        let policy = EgressPolicy {
            order: settings.order.clone(),
            aging: settings.aging.map(f64::from),
            quantum: quantum(rate),
            rate,
            ..EgressPolicy::default()
        };
        let state = State { egress: Egress::new(policy), granted: HashMap::new(), taken: 0 };
        let changed = Arc::new(Notify::new());
        let uplink = Arc::new(Self {
            settings,
            state: Mutex::new(state),
            clock,
            changed: Arc::clone(&changed),
            finding: Mutex::new(Finding::new(rate)),
        });
        let weak = Arc::downgrade(&uplink);
        tokio::spawn(async move {
            while let Some(uplink) = weak.upgrade() {
                let look = uplink.look();
                let due = uplink.give().into_iter().chain(look).min();
                drop(uplink);
                match due {
                    Some(due) => tokio::select! {
                        () = sleep_until(clock.at(due)) => {}
                        () = changed.notified() => {}
                    },
                    None => changed.notified().await,
                }
            }
        });
        uplink
    }

    pub(crate) fn settings(&self) -> &UplinkSettings {
        &self.settings
    }

    pub(crate) fn report(&self) -> UplinkReport {
        let bits_per_second = self.finding.lock().rate().map(|rate| rate.saturating_mul(8));
        let backlog = self.state.lock().egress.backlog();
        UplinkReport {
            bits_per_second,
            bytes_waiting: backlog.bytes,
            responses_waiting: backlog.responses,
            responses_overdue: backlog.overdue,
        }
    }

    /// Looks at the clients' connections, and says when to do so again.
    fn look(&self) -> Option<Instant> {
        let mut finding = self.finding.lock();
        let now = self.clock.now();
        if finding.next()? <= now {
            let mut state = self.state.lock();
            finding.look(&self.clock, state.taken, state.egress.backlog().bytes);
            let pace = finding.pace();
            state.egress.set_pace(pace, quantum(pace));
        }
        finding.next()
    }

    /// Gives what is due now, and says when more is.
    fn give(&self) -> Option<Instant> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let State { egress, granted, .. } = &mut *state;
        while let Some(grant) = egress.next(now) {
            if let Some(granted) = granted.get_mut(&grant.stream) {
                granted.bytes += grant.bytes;
                if let Some(waker) = granted.waker.take() {
                    waker.wake();
                }
            }
        }
        egress.next_timeout()
    }

    /// A response of this type begins, of which its request has asked for this priority, and which is written
    /// to this socket, over HTTP/2 beside these others. Where there are too many it passes freely.
    pub(crate) fn order(
        self: &Arc<Self>,
        response: &mut Response<ToClient>,
        kind: RequestType,
        asked: Priority,
        socket: Option<Arc<TcpStream>>,
        others: Option<Arc<Siblings>>,
    ) {
        let length = response.body().size_hint().exact();
        let priority = said(asked, response.headers());
        let mut share = self.share((kind, priority), length, socket);
        let others = others.filter(|_| self.settings.order == EgressOrder::ShortestRemaining);
        if let Some((share, others)) = share.as_mut().zip(others) {
            share.sibling = Some(Sibling::join(others, priority.urgency));
        }
        response.body_mut().share(share);
    }

    fn share(
        self: &Arc<Self>,
        (kind, priority): (RequestType, Priority),
        length: Option<u64>,
        socket: Option<Arc<TcpStream>>,
    ) -> Option<Share> {
        let size = length.map_or(Size::OfType(kind), Size::Known);
        let mut state = self.state.lock();
        let stream = state.egress.open(size, priority)?;
        state.granted.insert(stream, Granted::default());
        drop(state);
        let is_kernels = matches!(self.settings.rate, UplinkRate::Kernel(_));
        if let Some(socket) = socket.as_ref().filter(|_| is_kernels) {
            KernelBands::prepare(socket);
        }
        let uplink = Arc::clone(self);
        Some(Share {
            uplink,
            stream,
            kind,
            room: socket.clone().filter(|_| !is_kernels).map(Room::of),
            socket,
            sibling: None,
            held: Bytes::new(),
            offered: 0,
            memory: Held::default(),
            waits: WaitsFor::Service,
            ending: Ending::Broken,
            request: None,
            waits_since: None,
            waited: Duration::ZERO,
        })
    }

    fn is_paced(&self) -> bool {
        self.finding.lock().pace().is_some()
    }

    /// Bytes are about to be written to this socket.
    fn watch(&self, socket: &Arc<TcpStream>) {
        if self.finding.lock().watch(self.clock.now(), socket) == Watch::Begins {
            self.changed.notify_one();
        }
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// What a response waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// More from the service.
    Service,
    /// Its client's socket has to take more.
    Client,
    /// Its turn.
    Turn,
}

/// One response's part in an uplink.
#[derive(Debug)]
pub(crate) struct Share {
    uplink: Arc<Uplink>,
    stream: Stream,
    kind: RequestType,
    socket: Option<Arc<TcpStream>>,
    /// Tells when that takes more. The kernel's bands order what stands in it.
    room: Option<Room>,
    /// Tells when no more urgent response of its connection goes before it.
    sibling: Option<Sibling>,
    /// A frame, and how many of its bytes wait for their turn.
    held: Bytes,
    offered: u64,
    /// Counts the frame until the client's side has all of it.
    memory: Held,
    waits: WaitsFor,
    ending: Ending,
    /// The request whose story hears of the wait.
    request: Option<(Arc<Driver>, u64)>,
    waits_since: Option<Instant>,
    waited: Duration,
}

/// What a source of frames says next.
type Next = Option<Result<Frame<Bytes>, Broken>>;

impl Share {
    /// The share of this request's response.
    pub(crate) fn of(mut self, request: Option<(Arc<Driver>, u64)>) -> Self {
        self.request = request;
        self
    }

    /// What a response waits for that can't go on.
    pub(crate) fn waits(&self) -> WaitsFor {
        self.waits
    }

    /// How many bytes wait.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// The next part of a frame whose turn it is. A new frame is asked for when nothing of the last one
    /// waits.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut source: impl FnMut(&mut Context<'_>) -> Poll<Next>,
    ) -> Poll<Next> {
        self.waits = WaitsFor::Client;
        if self.offered == 0 {
            if let Some(room) = &mut self.room {
                ready!(room.poll(context));
            }
            // The service is asked before the response waits for others: it may have nothing left to do.
            if self.held.is_empty() {
                let Poll::Ready(next) = source(context) else {
                    self.waits = WaitsFor::Service;
                    if let Some(sibling) = &self.sibling {
                        sibling.pauses();
                    }
                    return Poll::Pending;
                };
                let data = match next {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    },
                    other => return Poll::Ready(other),
                };
                // Without room to wait in, bytes pass as if the uplink had no order. Others keep half of the
                // room: a client that never takes its bytes must not have all.
                if data.is_empty() || !self.memory.set_if_free(data.len()) {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                self.held = data;
            }
            self.waits = WaitsFor::Turn;
            if let Some(sibling) = self.sibling.as_mut().filter(|_| self.uplink.is_paced()) {
                ready!(sibling.poll(context));
            }
            self.offer();
        }
        self.waits = WaitsFor::Turn;
        let mut state = self.uplink.state.lock();
        let Some(granted) = state.granted.get_mut(&self.stream) else { return Poll::Pending };
        if granted.bytes == 0 {
            granted.waker = Some(context.waker().clone());
            self.waits_since.get_or_insert_with(|| self.uplink.clock.now());
            return Poll::Pending;
        }
        let bytes = granted.bytes.min(self.offered);
        granted.bytes -= bytes;
        state.taken += bytes;
        drop(state);
        self.offered -= bytes;
        if let Some(sibling) = self.sibling.as_ref().filter(|_| self.offered == 0) {
            sibling.has_had();
        }
        self.stop_waiting();
        if let Some(socket) = &self.socket
            && !matches!(self.uplink.settings.rate, UplinkRate::Kernel(_))
        {
            self.uplink.watch(socket);
        }
        let data = self.held.split_to(bytes as usize);
        if self.held.is_empty() {
            let _ = self.memory.set(0);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    /// Offers the next bytes of what is held: a turn's, so that a socket that takes no more has no more.
    fn offer(&mut self) {
        let mut state = self.uplink.state.lock();
        let band = state.egress.band(self.stream);
        self.offered = state.egress.turn().min(self.held.len() as u64);
        state.egress.offer(self.stream, self.offered);
        drop(state);
        if let Some(sibling) = &self.sibling {
            sibling.waits();
        }
        self.write_to(band);
        if self.uplink.give().is_some() {
            self.uplink.changed.notify_one();
        }
    }

    /// Bytes of this band are about to be written.
    fn write_to(&mut self, band: u64) {
        if let (UplinkRate::Kernel(bands), Some(socket)) = (self.uplink.settings.rate, &self.socket) {
            bands.follow(socket, band);
        }
    }

    fn stop_waiting(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.waited += self.uplink.clock.now().since(since);
        }
    }

    /// All of the response has been taken.
    pub(crate) fn complete(&mut self) {
        self.ending = Ending::Whole;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.uplink.state.lock();
        state.granted.remove(&self.stream);
        state.egress.close(self.stream, Some(self.kind), self.ending);
        drop(state);
        self.stop_waiting();
        if let Some((driver, number)) = self.request.take().filter(|_| self.waited >= TOLD) {
            driver.has_waited_for_uplink(number, self.waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// What a response gets of a frame of 20,000 bytes, with this memory to hold it in, on a full uplink.
    async fn got(uplink: &Arc<Uplink>, memory: Held) -> Option<usize> {
        let mut share =
            uplink.share((RequestType(1), Priority::default()), Some(100_000), None).expect("there is room");
        share.memory = memory;
        let frame = || Frame::data(Bytes::from_static(&[7; 20_000]));
        let next = poll_fn(|context| Poll::Ready(share.poll(context, |_| Poll::Ready(Some(Ok(frame()))))));
        match next.await {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|data| data.len()),
            Poll::Pending => None,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_response_passes_where_there_is_no_room_for_it_to_wait_in() {
        let settings = UplinkSettings::new(UplinkRate::Set(8), EgressOrder::ShortestRemaining);
        let uplink = Uplink::start(settings, Clock::start());
        // The first turn.
        assert_eq!(got(&uplink, Held::within(1 << 20)).await, Some(PACKET as usize));
        assert_eq!(got(&uplink, Held::within(1 << 20)).await, None);
        assert_eq!(got(&uplink, Held::within(10_000)).await, Some(20_000));
    }

    #[test]
    fn a_turn_has_whole_packets_and_a_two_hundredth_of_a_second_at_most() {
        assert_eq!(quantum(Some(10_000_000 / 8)), 4 * 1_448);
        assert_eq!(quantum(Some(8_000)), 1_448);
        assert_eq!((quantum(None), quantum(Some(u64::MAX))), (90 * 1_448, 90 * 1_448));
    }
}
