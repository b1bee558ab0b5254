//! The server processes of the gate's own connections, so that it can tell what others hold.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A server process may take so long to end behind a closed connection.
const ENDING: Duration = Duration::from_secs(5);
/// The most closed connections that are remembered.
const ENDING_MAX: usize = 1024;

/// The process ids of one gate's server connections.
#[derive(Debug, Default)]
pub(crate) struct Ours(Mutex<Processes>);

#[derive(Debug, Default)]
struct Processes {
    living: BTreeSet<i32>,
    ending: VecDeque<(Instant, i32)>,
}

/// One of the gate's server connections, until it is closed.
#[derive(Debug)]
pub(crate) struct Enrolled {
    ours: Arc<Ours>,
    process_id: i32,
}

impl Ours {
    /// A connection with this server process exists.
    pub(crate) fn enroll(self: &Arc<Self>, process_id: i32) -> Enrolled {
        self.0.lock().living.insert(process_id);
        Enrolled { ours: Arc::clone(self), process_id }
    }

    /// The process ids with commas between them, for the text of an array.
    pub(super) fn text(&self) -> String {
        let mut processes = self.0.lock();
        while processes.ending.front().is_some_and(|(at, _)| at.elapsed() > ENDING) {
            processes.ending.pop_front();
        }
        let all = processes.living.iter().chain(processes.ending.iter().map(|(_, process_id)| process_id));
        let mut text = String::new();
        for process_id in all {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{process_id}");
        }
        text
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut processes = self.ours.0.lock();
        processes.living.remove(&self.process_id);
        if processes.ending.len() >= ENDING_MAX {
            processes.ending.pop_front();
        }
        processes.ending.push_back((Instant::now(), self.process_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn processes_that_are_about_to_end_are_the_gates_own() {
        let ours = Arc::new(Ours::default());
        let (one, _two) = (ours.enroll(1), ours.enroll(2));
        assert_eq!(ours.text(), "1,2");
        drop(one);
        assert_eq!(ours.text(), "2,1");
        tokio::time::advance(ENDING * 2).await;
        assert_eq!(ours.text(), "2");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_processes_that_end_are_remembered() {
        let ours = Arc::new(Ours::default());
        for process_id in 0..2000 {
            drop(ours.enroll(process_id));
        }
        assert_eq!(ours.0.lock().ending.len(), ENDING_MAX);
    }
}
