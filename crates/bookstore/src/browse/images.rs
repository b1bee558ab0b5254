//! The images of a page, fetched as browsers do: over a few connections at once, each once in a visit.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::connection::{Connector, Line};
use super::visitor::Request;
use crate::interaction::Interaction;

/// Images that a visit remembers to have. Beyond it they are fetched each time.
const CACHE_BOUND: usize = 4_096;

/// What became of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Images {
    /// Came whole.
    pub(crate) done: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Refused with 503 or 429.
    pub(crate) rejected: u64,
    /// Not there in time.
    pub(crate) timed_out: u64,
    /// Another status, no image, or a broken connection.
    pub(crate) failed: u64,
}

impl Images {
    /// Adds the counts of other images.
    pub(crate) fn add(&mut self, other: Self) {
        self.done += other.done;
        self.bytes += other.bytes;
        self.rejected += other.rejected;
        self.timed_out += other.timed_out;
        self.failed += other.failed;
    }
}

/// The lines of one visit, the first of which is that of the pages, and the images that came over them.
#[derive(Debug)]
pub(crate) struct Lines {
    connector: Arc<dyn Connector>,
    lines: Vec<Line>,
    cache: HashSet<String>,
}

#[derive(Debug)]
struct Lane {
    line: Line,
    images: Images,
    done: Vec<String>,
}

impl Lines {
    /// Lines that connect when they are used.
    pub(crate) fn new(connector: Arc<dyn Connector>) -> Self {
        Self { connector, lines: Vec::new(), cache: HashSet::new() }
    }

    /// The line for pages.
    pub(crate) fn first(&mut self) -> &mut Line {
        if self.lines.is_empty() {
            self.lines.push(Line::new(Arc::clone(&self.connector)));
        }
        &mut self.lines[0]
    }

    /// Fetches what isn't there yet, over at most so many connections, until a moment. Dropping it closes
    /// the connections.
    pub(crate) async fn fetch(&mut self, paths: Vec<String>, connections: usize, until: Instant) -> Images {
        let wanted: VecDeque<String> = paths.into_iter().filter(|path| !self.cache.contains(path)).collect();
        if wanted.is_empty() {
            return Images::default();
        }
        let lanes = connections.min(wanted.len());
        let mut free = std::mem::take(&mut self.lines);
        let queue = Arc::new(Mutex::new(wanted));
        let mut fetching = JoinSet::new();
        let mut kept = free.split_off(lanes.min(free.len()));
        free.resize_with(lanes, || Line::new(Arc::clone(&self.connector)));
        for line in free {
            fetching.spawn(lane(line, Arc::clone(&queue), until));
        }
        let mut images = Images::default();
        while let Some(lane) = fetching.join_next().await {
            let Ok(lane) = lane else { continue };
            images.add(lane.images);
            let room = CACHE_BOUND.saturating_sub(self.cache.len());
            self.cache.extend(lane.done.into_iter().take(room));
            self.lines.push(lane.line);
        }
        self.lines.append(&mut kept);
        images.timed_out += queue.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        images
    }
}

async fn lane(mut line: Line, queue: Arc<Mutex<VecDeque<String>>>, until: Instant) -> Lane {
    let (mut images, mut done) = (Images::default(), Vec::new());
    while Instant::now() < until {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(path) = next else { break };
        let request = Request { interaction: Interaction::Home, path, form: None };
        let mut bytes = 0;
        let mut count = |piece: &[u8]| bytes += piece.len() as u64;
        match timeout_at(until, line.exchange(&request, None, &mut count)).await {
            Ok(Ok(head)) if head.status == 200 && head.content_type.starts_with("image/") => {
                images.done += 1;
                images.bytes += bytes;
                done.push(request.path);
            }
            Ok(Ok(head)) if matches!(head.status, 429 | 503) => images.rejected += 1,
            Ok(_) => images.failed += 1,
            Err(_) => images.timed_out += 1,
        }
    }
    Lane { line, images, done }
}
