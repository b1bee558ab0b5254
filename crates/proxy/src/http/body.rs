//! Bodies on their way: a request's towards the service, and a response's towards the client.
//!
//! Neither is kept: what one side sends is taken as the other side takes it, a frame at a time. A request's
//! body may have a beginning that was read while the request waited.

use std::collections::VecDeque;
use std::error::Error as _;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::fields::strip_trailers;
use super::files::FileBody;
use super::flight::{Flight, Leisure};
use super::frames::{FRAME, ROOM};
use super::record::Record;
use super::reject::Refusal;
use super::socket::{UnderWay, Watched};
use super::uplink::{Share, WaitsFor};
use super::upload::Upload;
use crate::memory::{self, Held};

mod beginning;
mod leaving;

use leaving::{End, Leaving};

/// What is read of a request's body while the request waits: it tells that its client has gone, if that
/// stands behind it.
pub(crate) const READ_AHEAD: usize = 64 * 1024;
/// A body of a known length up to this has to be there before its request stands in line: forms and API
/// calls. So a client that sends it slowly keeps nobody waiting. Of a larger one its client hears early that
/// it is refused. Over HTTP/1.1 so much of a body without a length has to be there, or its end. Over HTTP/2
/// such a body may be one half of a conversation, whose other half its client waits for.
const GATHERED: usize = 16 * 1024;
/// A client that pauses for this long within a body in chunks may be waiting for an answer to what has come.
/// The service gets that part.
const PAUSE: Duration = Duration::from_secs(1);
/// A frame is a part of the buffer that it was read into, all of which is there for as long as the frame
/// is. Of one below this size a copy is kept, so that what is kept takes little more than its bytes.
const COPIED: usize = 4 * 1024;

/// Why a body ended before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// One of the two connections is lost, or says what it may not.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The client sends nothing.
    #[error("the client sent nothing of its body for {0:?}")]
    Late(Duration),
    /// The client takes no more of a response.
    #[error("the client has gone")]
    Left,
    /// There is more of it than is allowed.
    #[error("the client's body is too large")]
    Large,
    /// The process has no room for it.
    #[error("the gate has no room for the client's body")]
    NoRoom,
    /// Its upload had given its place back, and gets none for its end.
    #[error("the gate has no place for the end of an upload")]
    Refused(Refusal),
    /// A file can't be read to its end.
    #[error("a file can't be read: {0}")]
    File(io::Error),
}

/// Whether an error of hyper's says that a client's bytes are no body, rather than that none come. The kinds
/// are those of hyper's decoder of chunks.
pub(crate) fn is_malformed(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause
        .is_some_and(|cause| matches!(cause.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput))
}

/// Whose body a request's is.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    /// Of HTTP/1: its connection hears of it if the request ends before its body.
    Alone(Watched),
    /// Of HTTP/2: its connection counts what isn't taken.
    Stream(Watched),
}

/// A request's body.
#[derive(Debug, Default)]
pub(crate) struct ToService {
    ahead: VecDeque<Frame<Bytes>>,
    rest: Option<Incoming>,
    read: usize,
    wait_max: Duration,
    /// How many more bytes may come.
    left: Option<u64>,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Whether something of it has been taken, so that it can't be sent again.
    taken: bool,
    /// The upload that it is of, for as long as somebody holds that.
    upload: Weak<Upload>,
    client: Option<Client>,
    /// Bytes of its request's head that count until the service gets it.
    head: usize,
    /// What was read ahead counts while it waits.
    held: Held,
}

impl ToService {
    /// What a client sends, which may pause for so long and send so much.
    pub(crate) fn new(
        incoming: Incoming,
        client: Client,
        wait_max: Duration,
        bytes_max: Option<u64>,
    ) -> Self {
        let rest = (!incoming.is_end_stream()).then_some(incoming);
        let client = Some(client).filter(|_| rest.is_some());
        let mut body = Self::default();
        (body.rest, body.wait_max, body.left, body.client) = (rest, wait_max, bytes_max, client);
        body
    }

    /// Counts a head of so many bytes until the service gets it.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn count_head(&mut self, bytes: usize) -> Result<(), Broken> {
        self.head = bytes;
        self.count(0)
    }

    /// Counts what was read ahead, and so much more.
    fn count(&mut self, more: usize) -> Result<(), Broken> {
        let room = if matches!(self.client, Some(Client::Alone(_))) { ROOM } else { 1 };
        let bytes = self.head + (self.read + more) * room;
        self.held.set(bytes).map_err(|memory::Full| Broken::NoRoom)
    }

    /// Counts a frame of data, and takes out of trailers what only the gate says.
    fn allow(&mut self, frame: &mut Frame<Bytes>) -> Result<(), Broken> {
        if let Some(trailers) = frame.trailers_mut() {
            strip_trailers(trailers);
        } else if let Some(data) = frame.data_ref() {
            if let Some(Client::Stream(connection)) = &self.client {
                connection.takes(data.len());
            }
            if let Some(left) = &mut self.left {
                *left = left.checked_sub(data.len() as u64).ok_or(Broken::Large)?;
            }
        }
        Ok(())
    }

    /// Whether it can be sent once more: nothing is missing of it.
    pub(crate) fn is_whole(&self) -> bool {
        !self.taken
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.rest.is_none()
    }

    /// What comes after what was read ahead.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        match Pin::new(rest).poll_frame(context) {
            Poll::Ready(frame) => {
                self.waiting = None;
                if frame.is_none() {
                    self.rest = None;
                }
                Poll::Ready(frame.map(|frame| {
                    let mut frame = frame?;
                    self.allow(&mut frame)?;
                    Ok(frame)
                }))
            }
            Poll::Pending => {
                let wait_max = self.wait_max;
                if self.waiting.is_none()
                    && let Some(upload) = self.upload.upgrade()
                {
                    upload.waits();
                }
                let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(wait_max)));
                ready!(waiting.as_mut().poll(context));
                waiting.as_mut().reset(Instant::now() + wait_max);
                Poll::Ready(Some(Err(Broken::Late(wait_max))))
            }
        }
    }

    /// Whether something of it hasn't come.
    pub(crate) fn is_coming(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| !rest.is_end_stream())
    }

    /// Tells an upload how it goes on.
    pub(crate) fn tell(&mut self, upload: &Arc<Upload>) {
        self.upload = Arc::downgrade(upload);
    }

    /// How much of it has to be there first, if anything.
    pub(crate) fn to_be_gathered(&self) -> Option<usize> {
        match self.rest.as_ref()?.size_hint().exact() {
            Some(length) => usize::try_from(length).ok().filter(|length| *length <= GATHERED),
            // Over HTTP/1.1.
            None => matches!(self.client, Some(Client::Alone(_))).then_some(GATHERED),
        }
    }

    /// Whether its length isn't known.
    fn is_endless(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.size_hint().exact().is_none())
    }

    /// Has so much of it there, or its end; or what has come after `wait_max`, if its client goes on sending
    /// little by little; or what has come of a body in chunks before a [`PAUSE`].
    ///
    /// # Errors
    /// The client has gone, sends nothing for too long, or sends what isn't a body; or there is no room.
    pub(crate) async fn gather(&mut self, length: usize) -> Result<(), Broken> {
        // Often all of it has come with the head.
        let mut gathered = BytesMut::new();
        let (wait_max, began) = (self.wait_max, Instant::now());
        let is_endless = self.is_endless();
        loop {
            let next = poll_fn(|context| self.poll_rest(context));
            let frame = match is_endless {
                true => timeout(PAUSE, next).await.unwrap_or_default(),
                false => next.await,
            };
            let Some(frame) = frame else { break };
            match frame?.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) if data.len() >= length => {
                    self.keep_gathered(&mut gathered)?;
                    self.keep(Frame::data(data))?;
                }
                Ok(data) => {
                    if gathered.is_empty() && !is_endless {
                        gathered.reserve(length);
                    }
                    gathered.extend_from_slice(&data);
                    self.count(gathered.len())?;
                }
                Err(trailers) => {
                    self.keep_gathered(&mut gathered)?;
                    self.keep(trailers)?;
                }
            }
            // Each pause is bounded by itself.
            let is_enough = is_endless && self.read + gathered.len() >= length;
            if is_enough || began.elapsed() >= wait_max {
                break;
            }
        }
        self.keep_gathered(&mut gathered)
    }

    fn keep_gathered(&mut self, gathered: &mut BytesMut) -> Result<(), Broken> {
        if !gathered.is_empty() {
            self.read += gathered.len();
            self.ahead.push_back(Frame::data(gathered.split().freeze()));
        }
        self.count(0)
    }

    fn keep(&mut self, frame: Frame<Bytes>) -> Result<(), Broken> {
        // A frame without bytes counts as well: nobody may send any number of them.
        self.read += frame.data_ref().map_or(0, Bytes::len).max(FRAME);
        self.ahead.push_back(
            frame.map_data(|data| if data.len() < COPIED { Bytes::copy_from_slice(&data) } else { data }),
        );
        self.count(0)
    }

    /// Keeps back what was taken last, until it may go on.
    fn keep_back(&mut self, frame: Option<Frame<Bytes>>) -> Result<(), Broken> {
        self.read = frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        self.ahead.extend(frame);
        self.count(0)
    }

    /// Whether all bytes of a known length are there, but not the end of their stream, which HTTP/2 may say
    /// in a frame of its own. A service that counts would answer before it, the stream would be reset
    /// behind the response as one whose body nobody wants, and some clients take that for a failure.
    fn awaits_only_its_end(&self) -> bool {
        let is_known = |rest: &Incoming| !rest.is_end_stream() && rest.size_hint().exact() == Some(0);
        self.ahead.is_empty() && self.rest.as_ref().is_some_and(is_known)
    }

    /// Whether nothing stands behind what was taken last.
    fn is_at_end(&self) -> bool {
        self.ahead.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Reads on, up to [`READ_AHEAD`] bytes. Then, or at the end, never resolves. Cancel-safe.
    ///
    /// # Errors
    /// The client has gone, or sends what isn't a body; or there is no room for what was read.
    pub(crate) async fn read_ahead(&mut self) -> Result<std::convert::Infallible, Broken> {
        loop {
            let told = self.held.told();
            let told = async {
                match told {
                    Some(told) => told.await,
                    None => pending().await,
                }
            };
            let next = async {
                match &mut self.rest {
                    Some(rest) if self.read < READ_AHEAD => rest.frame().await,
                    _ => pending().await,
                }
            };
            let next = tokio::select! {
                next = next => next,
                () = told => return Err(Broken::NoRoom),
            };
            match next {
                Some(frame) => {
                    let mut frame = frame?;
                    self.allow(&mut frame)?;
                    self.keep(frame)?;
                }
                None => self.rest = None,
            }
        }
    }
}

impl Drop for ToService {
    fn drop(&mut self) {
        if let (Some(Client::Alone(client)), Some(rest)) = (&self.client, &self.rest)
            && !rest.is_end_stream()
        {
            client.answered_early();
        }
    }
}

impl Body for ToService {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        (this.taken, this.head) = (true, 0);
        let frame = this.ahead.pop_front();
        if this.ahead.is_empty() {
            // Less has room.
            let _ = this.held.set(0);
        }
        let frame = match frame {
            None => ready!(this.poll_rest(context)).transpose()?,
            frame => frame,
        };
        if frame.as_ref().is_some_and(Frame::is_data) && this.awaits_only_its_end() {
            match this.poll_rest(context) {
                Poll::Pending => {
                    this.keep_back(frame)?;
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(trailers))) => this.ahead.push_back(trailers),
                Poll::Ready(Some(Err(broken))) => return Poll::Ready(Some(Err(broken))),
                Poll::Ready(None) => {}
            }
        }
        if let Some(upload) = this.upload.upgrade() {
            if this.is_at_end() {
                match upload.poll_end(context) {
                    Poll::Ready(allowed) => allowed.map_err(Broken::Refused)?,
                    Poll::Pending => {
                        this.keep_back(frame)?;
                        return Poll::Pending;
                    }
                }
            }
            upload.moves();
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.is_at_end()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead: u64 = self.ahead.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
        let mut hint = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint.set_lower(hint.lower().saturating_add(ahead));
        hint
    }
}

/// A response's body.
#[derive(Debug)]
pub(crate) struct ToClient {
    source: Source,
    record: Option<Box<Record>>,
    /// Why it ends before its end, once what came before that can be sent.
    broken: Option<Broken>,
    /// Until it is sent.
    under_way: Option<UnderWay>,
    leaving: Leaving,
    /// Its part in the gate's uplink, if that has a rate.
    share: Option<Share>,
}

#[derive(Debug)]
enum Source {
    /// The gate's own words.
    Own(Full<Bytes>),
    /// What the service sends, and what ends when that does.
    Passed(Incoming, Flight),
    File(FileBody),
}

impl ToClient {
    /// The gate's own words.
    pub(crate) fn own(text: impl Into<Bytes>) -> Self {
        Self::from(Source::Own(Full::new(text.into())))
    }

    /// What the service sends.
    pub(crate) fn passed(incoming: Incoming, flight: Flight) -> Self {
        Self::from(Source::Passed(incoming, flight))
    }

    pub(crate) fn file(file: FileBody) -> Self {
        Self::from(Source::File(file))
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    fn from(source: Source) -> Self {
        Self { source, record: None, broken: None, under_way: None, leaving: Leaving::default(), share: None }
    }

    /// Looks whether a client of HTTP/1 has gone, while there is nothing to be written. One that closes its
    /// side leaves a stream of events, and waits for the rest of anything else.
    pub(crate) fn watch(&mut self, client: &Watched, is_events: bool) {
        let end = if is_events { End::Leaves } else { End::Waits };
        self.leaving = Leaving::Unlooked(client.clone(), end);
    }

    /// Goes to the client of an HTTP/2 connection.
    pub(crate) fn is_one_of(&self, leisure: Arc<Leisure>) {
        if let Source::Passed(_, flight) = &self.source {
            flight.is_one_of(leisure);
        }
    }

    /// Leaves through the gate's uplink.
    pub(crate) fn share(&mut self, share: Option<Share>) {
        let request = if let Source::Passed(_, flight) = &self.source { flight.request() } else { None };
        self.share = share.map(|share| share.of(request));
    }

    /// Its request is under way until it is dropped.
    pub(crate) fn hold(&mut self, under_way: UnderWay) {
        self.under_way = Some(under_way);
    }

    /// To be written down when it has ended, in whatever way.
    pub(crate) fn note(&mut self, mut record: Box<Record>) {
        if self.is_end_stream() {
            record.complete();
        }
        self.record = Some(record);
    }
}

impl Source {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self {
            Self::Own(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Passed(incoming, flight) => {
                let frame =
                    ready!(flight.ask(context, |context| Pin::new(&mut *incoming).poll_frame(context)));
                match &frame {
                    None => flight.land(),
                    Some(Err(_)) => flight.crash(),
                    // The end may be known with the last frame, and nobody need ask again.
                    Some(Ok(_)) if incoming.is_end_stream() => flight.land(),
                    Some(Ok(_)) => flight.answered(),
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Broken::from)))
            }
            Self::File(body) => body
                .poll_data(context)
                .map(|data| data.map(|data| data.map(Frame::data).map_err(Broken::File))),
        }
    }
}

impl Body for ToClient {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if let Some(broken) = this.broken.take() {
            return Poll::Ready(Some(Err(broken)));
        }
        let source = &mut this.source;
        let frame = match &mut this.share {
            None => source.poll_frame(context),
            Some(share) => share.poll(context, |context| source.poll_frame(context)),
        };
        let Poll::Ready(frame) = frame else {
            if let (Some(share), Source::Passed(_, flight)) = (&this.share, &this.source) {
                match share.waits() {
                    WaitsFor::Service => {}
                    WaitsFor::Client => flight.is_left(),
                    WaitsFor::Turn => flight.makes_way(),
                }
            }
            return this.leaving.poll(context).map(|()| Some(Err(Broken::Left)));
        };
        if let Some(record) = &mut this.record {
            match &frame {
                Some(Ok(frame)) => record.pass(frame.data_ref().map_or(0, Bytes::len)),
                Some(Err(_)) => this.record = None,
                None => {}
            }
        }
        if let Some(Err(broken)) = frame {
            // hyper forgets what it hasn't written when a body breaks off, even the head. It writes while
            // it waits for more.
            this.broken = Some(broken);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // A body in chunks knows of its end only with it.
        if frame.is_none() || this.is_end_stream() {
            if let Some(record) = &mut this.record {
                record.complete();
            }
            if let Some(share) = &mut this.share {
                share.complete();
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        if self.share.as_ref().is_some_and(|share| share.held() > 0) {
            return false;
        }
        match &self.source {
            Source::Own(body) => body.is_end_stream(),
            Source::Passed(incoming, _) => incoming.is_end_stream(),
            Source::File(body) => body.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = match &self.source {
            Source::Own(body) => body.size_hint(),
            Source::Passed(incoming, _) => incoming.size_hint(),
            Source::File(body) => SizeHint::with_exact(body.left()),
        };
        if let Some(share) = &self.share {
            let held = share.held() as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper.saturating_add(held));
            }
            hint.set_lower(hint.lower().saturating_add(held));
        }
        hint
    }
}

#[cfg(test)]
mod tests;
