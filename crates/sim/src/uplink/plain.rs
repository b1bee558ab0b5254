//! A link alone: requests need nothing but the link, so that theory can be its referee.

use admission::{Egress, EgressPolicy, Ending, Instant, Priority, RequestType, Size, Stream};
use std::collections::BTreeMap;

use super::{Download, Response, Served};

/// What the scheduler is told of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// All of them.
    Known,
    /// The type, of which there is one for each doubling of the size.
    Types,
    /// Nothing.
    Unknown,
}

/// Sends the responses over a link of so many bytes per second, without headers, until the last has been sent
/// or `until` seconds have passed.
pub fn plain(policy: EgressPolicy, told: Plain, rate: f64, requests: &[Download], until: f64) -> Served {
    let mut egress = Egress::new(policy);
    let mut open: BTreeMap<Stream, (usize, u64)> = BTreeMap::new();
    let mut responses: Vec<Response> = requests
        .iter()
        .map(|one| Response { at: one.at.as_secs_f64(), bytes: one.bytes, first_byte: None, response: None })
        .collect();
    let (mut now, mut arrived) = (0.0, 0);
    let kind = |bytes: u64| RequestType(u64::from(bytes.ilog2()));
    loop {
        while responses.get(arrived).is_some_and(|next| next.at <= now) {
            let bytes = responses[arrived].bytes;
            let size = match told {
                Plain::Known => Size::Known(bytes),
                Plain::Types => Size::OfType(kind(bytes)),
                Plain::Unknown => Size::Unknown,
            };
            if let Some(stream) = egress.open(size, Priority::default()) {
                egress.offer(stream, bytes);
                open.insert(stream, (arrived, bytes));
            }
            arrived += 1;
        }
        let grant = egress.next(Instant::from_nanos((now * 1e9) as u64));
        let Some(grant) = grant else {
            match responses.get(arrived) {
                Some(next) => now = next.at,
                None => break,
            }
            continue;
        };
        if now > until {
            break;
        }
        let Some((index, left)) = open.get_mut(&grant.stream) else { break };
        now += grant.bytes as f64 / rate;
        *left -= grant.bytes;
        let response = &mut responses[*index];
        response.first_byte = response.first_byte.or(Some(now - response.at));
        if *left == 0 {
            response.response = Some(now - response.at);
            let bytes = response.bytes;
            open.remove(&grant.stream);
            egress.close(grant.stream, Some(kind(bytes)), Ending::Whole);
        }
    }
    Served { responses, seconds: Vec::new() }
}
