//! The uplink of a gate: the bodies of all its responses leave through one scheduler, paced just under the
//! uplink's rate.
//!
//! A [`Share`] is one response's part in it. hyper asks a body for its next frame when it can write more to
//! its client. Only then a frame is read from the service and offered to [`admission::Egress`]; the body
//! yields what is granted. So one frame of each response waits here, the service feels the client's pace, and
//! a client that reads nothing holds up nobody. Bytes that are granted lie in buffers of hyper and the kernel
//! until the network takes them.
//!
//! A response that offers bytes also gives what is due. A task gives what becomes due while nobody offers
//! anything; it ends with the uplink. One lock guards the scheduler and what was granted; it is never held
//! across an await.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use admission::{Egress, EgressOrder, EgressPolicy, Ending, Instant, RequestType, Size, Stream};
use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::body::Broken;
use crate::clock::Clock;

/// The part of the uplink's rate that bodies take, in percent: a full packet over Ethernet is 95 % data, and
/// the kernel's queue stays empty only below that.
const BODIES: u64 = 94;
/// A turn lasts for a two-hundredth of a second at most, but has a packet's bytes at least.
const TURNS: u64 = 200;
const TURN_MIN: u64 = 1_460;
const TURN_MAX: u64 = 64 * 1024;
/// A large response is overdue when a fair uplink would have sent it.
const AGING: f64 = 1.0;

/// What a gate's uplink is told to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkSettings {
    /// Its rate, in bits per second.
    pub bits: u64,
    /// In which order responses share it.
    pub order: EgressOrder,
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
}

/// The uplink that the responses of a gate share.
#[derive(Debug)]
pub(crate) struct Uplink {
    settings: UplinkSettings,
    state: Mutex<State>,
    clock: Clock,
    /// Something waits for its turn, or the uplink is gone.
    changed: Arc<Notify>,
}

impl Uplink {
    /// To be called within the runtime.
    pub(crate) fn start(settings: UplinkSettings, clock: Clock) -> Arc<Self> {
        let rate = (settings.bits / 8).saturating_mul(BODIES) / 100;
        let aging = matches!(settings.order, EgressOrder::ShortestRemaining).then_some(AGING);
        let policy = EgressPolicy {
            order: settings.order.clone(),
            aging,
            quantum: u32::try_from((rate / TURNS).clamp(TURN_MIN, TURN_MAX)).unwrap_or(u32::MAX),
            rate: Some(rate),
            ..EgressPolicy::default()
        };
        let state = State { egress: Egress::new(policy), granted: HashMap::new() };
        let changed = Arc::new(Notify::new());
        let uplink =
            Arc::new(Self { settings, state: Mutex::new(state), clock, changed: Arc::clone(&changed) });
        let weak = Arc::downgrade(&uplink);
        tokio::spawn(async move {
            while let Some(uplink) = weak.upgrade() {
                let due = uplink.give();
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

    /// Gives what is due now, and says when more is.
    fn give(&self) -> Option<Instant> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let State { egress, granted } = &mut *state;
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

    /// A response of this type begins; its length, if that is known. `None`: there are too many, and it
    /// passes freely.
    pub(crate) fn share(self: &Arc<Self>, kind: RequestType, length: Option<u64>) -> Option<Share> {
        let size = length.map_or(Size::OfType(kind), Size::Known);
        let mut state = self.state.lock();
        let stream = state.egress.open(size)?;
        state.granted.insert(stream, Granted::default());
        drop(state);
        Some(Share { uplink: Arc::clone(self), stream, kind, held: Bytes::new(), ending: Ending::Broken })
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// One response's part in an uplink.
#[derive(Debug)]
pub(crate) struct Share {
    uplink: Arc<Uplink>,
    stream: Stream,
    kind: RequestType,
    /// What waits for its turn.
    held: Bytes,
    ending: Ending,
}

/// What a source of frames says next.
type Next = Option<Result<Frame<Bytes>, Broken>>;

impl Share {
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
        if self.held.is_empty() {
            let data = match ready!(source(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            };
            if data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.uplink.state.lock().egress.offer(self.stream, data.len() as u64);
            self.held = data;
            if self.uplink.give().is_some() {
                self.uplink.changed.notify_one();
            }
        }
        let mut state = self.uplink.state.lock();
        let Some(granted) = state.granted.get_mut(&self.stream) else { return Poll::Pending };
        if granted.bytes == 0 {
            granted.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let bytes = granted.bytes.min(self.held.len() as u64);
        granted.bytes -= bytes;
        drop(state);
        Poll::Ready(Some(Ok(Frame::data(self.held.split_to(bytes as usize)))))
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
    }
}
