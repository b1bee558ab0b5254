//! The beginning of a request's body, as far as it came along with the head.

use std::borrow::Cow;
use std::future::poll_fn;
use std::task::Poll;

use http_body::Frame;
use tokio::task::yield_now;

use super::{Broken, ToService};

/// How often what has come of a body is looked at: first it is asked for, then there.
const TURNS: usize = 2;

impl ToService {
    /// Takes in what has come of it, up to so many bytes, and waits for no more than what lies in buffers.
    ///
    /// # Errors
    /// The client has gone, or sends what isn't a body; or there is no room for what was read.
    pub(crate) async fn take_in(&mut self, most: usize) -> Result<(), Broken> {
        // hyper reads a body once it is asked for: at its next turn.
        for _ in 0..TURNS {
            let taken = poll_fn(|context| {
                while self.read < most {
                    match self.poll_rest(context) {
                        Poll::Ready(Some(frame)) => self.keep(frame?)?,
                        Poll::Ready(None) => break,
                        Poll::Pending => return Poll::Ready(Ok(false)),
                    }
                }
                Poll::Ready(Ok::<_, Broken>(true))
            });
            if taken.await? {
                break;
            }
            yield_now().await;
        }
        // Nobody waits for it now.
        self.waiting = None;
        Ok(())
    }

    /// The first bytes of what has come of it, at most so many.
    pub(crate) fn beginning(&self, most: usize) -> Cow<'_, [u8]> {
        let mut data = self.ahead.iter().filter_map(Frame::data_ref);
        let first = data.next().map_or(&[][..], |data| &data[..data.len().min(most)]);
        let mut beginning = Cow::Borrowed(first);
        for data in data {
            let room = most - beginning.len();
            beginning.to_mut().extend_from_slice(&data[..data.len().min(room)]);
        }
        beginning
    }
}
