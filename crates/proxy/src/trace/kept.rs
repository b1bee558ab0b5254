//! The last hour of a gate that only observes, in memory: the blocks of a trace, which an operator's command
//! replays (`gatekeeper observe`).
//!
//! **Bounds.** At most [`KEPT_BYTES_MAX`] of a gate's blocks are kept, and none that is older than
//! [`KEPT_AGE`]. With some thirty bytes for each request that is room for a quarter of a million.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::recorder::long_limit;
use super::{Encoder, Header, Item, begin, block};
use crate::gate::Driver;

/// The most bytes of blocks.
pub const KEPT_BYTES_MAX: usize = 8 << 20;
/// How long a block is kept.
pub const KEPT_AGE: Duration = Duration::from_secs(3_600);
/// A block of names ends at so many bytes.
const NAMES_BYTES: usize = 64 << 10;

/// The last blocks of a gate.
#[derive(Debug)]
pub(crate) struct Kept {
    header: Header,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// The oldest first.
    all: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Kept {
    pub(super) fn new(header: Header) -> Self {
        Self { header, blocks: Mutex::default() }
    }

    pub(super) fn push(&self, block: Vec<u8>) {
        self.blocks.lock().push(Instant::now(), block);
    }

    /// A whole trace of what is kept. The names of all types come first: a block that told one may be gone.
    pub(crate) fn trace(&self, driver: &Driver) -> io::Result<Vec<u8>> {
        let mut bytes = begin(&self.header)?;
        let mut encoder = Encoder::default();
        encoder.push(&Item::LongLimit(long_limit(driver)));
        for (request_type, label) in driver.labels() {
            encoder.push(&Item::Type { request_type, label: label.to_string() });
            if encoder.len() >= NAMES_BYTES {
                bytes.extend(block(&encoder.take()));
            }
        }
        bytes.extend(block(&encoder.take()));
        let mut blocks = self.blocks.lock();
        blocks.forget(Instant::now());
        blocks.all.iter().for_each(|(_, block)| bytes.extend_from_slice(block));
        Ok(bytes)
    }
}

impl Blocks {
    fn push(&mut self, now: Instant, block: Vec<u8>) {
        self.bytes += block.len();
        self.all.push_back((now, block));
        self.forget(now);
    }

    fn forget(&mut self, now: Instant) {
        let is_old = |since: Instant| now.saturating_duration_since(since) > KEPT_AGE;
        while let Some((since, block)) = self.all.front() {
            if self.bytes <= KEPT_BYTES_MAX && !is_old(*since) {
                break;
            }
            self.bytes -= block.len();
            self.all.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_an_hour_and_some_megabytes() {
        let begin = Instant::now();
        let mut blocks = Blocks::default();
        for number in 0..200 {
            blocks.push(begin + Duration::from_secs(number), vec![0; 64 << 10]);
            assert!(blocks.bytes <= KEPT_BYTES_MAX);
        }
        assert_eq!((blocks.all.len(), blocks.bytes), (128, 128 * (64 << 10)));
        assert_eq!(blocks.all[0].0, begin + Duration::from_secs(72), "the oldest go");
        blocks.push(begin + KEPT_AGE + Duration::from_secs(190), vec![0; 10]);
        assert_eq!(blocks.all.len(), 11);
        blocks.forget(begin + 3 * KEPT_AGE);
        assert_eq!((blocks.all.len(), blocks.bytes), (0, 0));
    }
}
