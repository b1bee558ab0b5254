//! Who is not worth serving: the length of the queue, the time in it, and the request's own deadline.
//!
//! Nothing else is refused (the paper refuses nothing at all); a refusal always has a reason. Each rule is a file. An
//! immediate request, which holds others up while it waits, is refused only for the time in the queue (and at
//! [`Line::Immediate`](crate::tickets::Line)'s own bound).

pub(crate) mod deadline;
pub(crate) mod queue_length;
pub(crate) mod queue_timeout;
