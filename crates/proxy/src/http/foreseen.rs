//! What a gate that only watches tells of each request: the field `x-gatekeeper-observed` of its response.
//!
//! | value | what the gate would have done, as far as it is known when the response begins |
//! |---|---|
//! | `dispatched;dur=0.0` | sent it to the service after so many milliseconds |
//! | `waiting;dur=812.4` | kept it waiting for so long, and longer |
//! | `rejected;reason=queue_full` | refused it |

use std::time::Duration;

use http::header::{HeaderName, HeaderValue};

use crate::shadow::Foreseen;

pub(crate) const OBSERVED: HeaderName = HeaderName::from_static("x-gatekeeper-observed");

/// The value of a structured field (RFC 9651): an item with a parameter.
pub(crate) fn value(foreseen: Foreseen) -> Option<HeaderValue> {
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let text = match foreseen {
        Foreseen::Dispatched(wait) => format!("dispatched;dur={:.1}", millis(wait)),
        Foreseen::Waiting(wait) => format!("waiting;dur={:.1}", millis(wait)),
        Foreseen::Rejected(reason) => format!("rejected;reason={}", reason.as_str()),
    };
    HeaderValue::from_str(&text).ok()
}
