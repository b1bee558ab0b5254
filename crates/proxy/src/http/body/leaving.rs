//! Whether the client of a response has left, while nothing can be written to it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::http::socket::Watched;

/// How it is noticed that the client has gone, while nothing can be written to it.
#[derive(Default)]
pub(super) enum Leaving {
    /// Its stream is reset, or all of it is there: nobody looks.
    #[default]
    Unwatched,
    /// Nothing had to be waited for until now.
    Unlooked(Watched, End),
    Watched(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// What the end of a client's stream says while its response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing: it may wait for the rest.
    Waits,
    /// It has left: a stream of events has no rest to wait for.
    Leaves,
}

impl Leaving {
    /// Whether the client has gone.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Self::Unlooked(watched, end) = self {
            let (watched, end) = (watched.clone(), *end);
            *self = Self::Watched(Box::pin(async move {
                match end {
                    End::Waits => watched.lost().await,
                    End::Leaves => watched.ended().await,
                }
            }));
        }
        match self {
            Self::Watched(leaving) => leaving.as_mut().poll(context),
            Self::Unwatched | Self::Unlooked(..) => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for Leaving {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Leaving")
    }
}
