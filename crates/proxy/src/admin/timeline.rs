//! What has happened lately, for people who come later: the lines of the log that matter, in a ring.
//!
//! A line that repeats within [`MERGED_FOR`] is counted in the entry that is there.
//!
//! **Bounds.** [`EVENTS_MAX`] entries, of [`FACTS_MAX`] facts each; texts are cut at [`CHARS_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;

/// The most entries that are kept.
pub(super) const EVENTS_MAX: usize = 200;
/// The most facts of an entry.
const FACTS_MAX: usize = 12;
/// The longest text or value, in characters.
const CHARS_MAX: usize = 200;
/// A line that repeats within this time is the same entry.
const MERGED_FOR: Duration = Duration::from_secs(60);
/// The number of latest entries that are compared with a new line.
const COMPARED_MAX: usize = 16;

/// Something that has happened, as the log tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Happening {
    /// `info`, `warn` and so on.
    pub level: &'static str,
    /// The line's message.
    pub text: String,
    /// The gate that it is about.
    pub gate: Option<String>,
    /// The line's other fields.
    pub facts: Vec<(&'static str, String)>,
}

/// An entry of the timeline.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Entry {
    /// Never used twice.
    id: u64,
    /// Raised when the entry changes.
    #[serde(skip)]
    stamp: u64,
    began_ms: u64,
    last_ms: u64,
    level: &'static str,
    text: String,
    gate: Option<String>,
    facts: Vec<(&'static str, String)>,
    /// How many lines it stands for.
    lines: u64,
}

/// The timeline of one process.
#[derive(Clone, Debug, Default)]
pub struct Timeline(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Entry>,
    stamp: u64,
}

impl Timeline {
    /// Something has happened.
    pub fn note(&self, happening: Happening, at: SystemTime) {
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        self.0.lock().note(cut_all(happening), u64::try_from(at).unwrap_or(u64::MAX));
    }

    /// The entries that have changed since a stamp, the oldest first, and the stamp of now.
    pub(super) fn since(&self, stamp: u64) -> (u64, Vec<Entry>) {
        let ring = self.0.lock();
        let changed = ring.entries.iter().filter(|entry| entry.stamp > stamp);
        (ring.stamp, changed.cloned().collect())
    }
}

impl Ring {
    fn note(&mut self, Happening { level, text, gate, facts }: Happening, at: u64) {
        self.stamp += 1;
        let stamp = self.stamp;
        let merged_for = u64::try_from(MERGED_FOR.as_millis()).unwrap_or(u64::MAX);
        let subject = subject(&facts);
        let is_same = |entry: &&mut Entry| {
            (entry.level, &entry.text, &entry.gate) == (level, &text, &gate)
                && self::subject(&entry.facts) == subject
                && at.saturating_sub(entry.last_ms) <= merged_for
        };
        if let Some(entry) = self.entries.iter_mut().rev().take(COMPARED_MAX).find(is_same) {
            entry.facts = merged(&entry.facts, facts);
            (entry.last_ms, entry.stamp, entry.lines) = (at, stamp, entry.lines + 1);
            return;
        }
        if self.entries.len() >= EVENTS_MAX {
            self.entries.pop_front();
        }
        let entry = Entry { id: stamp, stamp, began_ms: at, last_ms: at, level, text, gate, facts, lines: 1 };
        self.entries.push_back(entry);
    }
}

/// What lines about the same thing have in common, beside their text.
fn subject(facts: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let named = facts.iter().filter(|(name, _)| matches!(*name, "reason" | "type" | "group" | "address"));
    named.cloned().collect()
}

/// The newer facts, but with the older beginning of a move, and with counts added.
fn merged(
    older: &[(&'static str, String)],
    mut newer: Vec<(&'static str, String)>,
) -> Vec<(&'static str, String)> {
    let end = newer.iter().find(|(name, _)| *name == "to").map(|(_, value)| value.clone());
    for (name, value) in &mut newer {
        let Some((_, before)) = older.iter().find(|(known, _)| known == name) else { continue };
        match *name {
            // What has moved back would be no move.
            "from" if end.as_ref() != Some(before) => value.clone_from(before),
            "count" | "withheld" | "changes" => {
                if let (Ok(now), Ok(before)) = (value.parse::<u64>(), before.parse::<u64>()) {
                    *value = now.saturating_add(before).to_string();
                }
            }
            _ => {}
        }
    }
    newer
}

fn cut_all(mut happening: Happening) -> Happening {
    cut(&mut happening.text);
    happening.facts.truncate(FACTS_MAX);
    happening.facts.iter_mut().for_each(|(_, value)| cut(value));
    happening
}

fn cut(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(CHARS_MAX) {
        text.truncate(at);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reason: &str, count: u64) -> Happening {
        let facts = vec![("reason", reason.to_owned()), ("count", count.to_string())];
        Happening { level: "warn", text: "requests were refused".into(), gate: Some("shop".into()), facts }
    }

    fn told(timeline: &Timeline, stamp: u64) -> Vec<(String, u64)> {
        let (_, entries) = timeline.since(stamp);
        entries.into_iter().map(|entry| (entry.facts[1].1.clone(), entry.lines)).collect()
    }

    #[test]
    fn a_line_that_repeats_within_a_minute_is_one_entry_with_the_sum() {
        let (timeline, at) = (Timeline::default(), |seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        timeline.note(refused("queue_timeout", 3), at(100));
        timeline.note(refused("queue_full", 1), at(101));
        let stamp = timeline.since(0).0;
        timeline.note(refused("queue_timeout", 4), at(130));
        assert_eq!(told(&timeline, stamp), [("7".to_owned(), 2)]);
        timeline.note(refused("queue_timeout", 5), at(191));
        let all = [("7".to_owned(), 2), ("1".to_owned(), 1), ("5".to_owned(), 1)];
        assert_eq!(told(&timeline, 0), all);
    }

    #[test]
    fn a_move_that_goes_on_keeps_its_beginning() {
        let moved = |from: u32, to: u32| Happening {
            text: "another capacity".into(),
            facts: vec![("from", from.to_string()), ("to", to.to_string())],
            ..Happening::default()
        };
        let timeline = Timeline::default();
        timeline.note(moved(12, 14), UNIX_EPOCH);
        timeline.note(moved(14, 20), UNIX_EPOCH);
        let (_, entries) = timeline.since(0);
        assert_eq!(entries[0].facts, [("from", "12".to_owned()), ("to", "20".to_owned())]);
        timeline.note(moved(20, 12), UNIX_EPOCH);
        let (_, entries) = timeline.since(0);
        assert_eq!(entries[0].facts, [("from", "20".to_owned()), ("to", "12".to_owned())]);
    }

    #[test]
    fn entries_and_their_texts_have_a_bound() {
        let timeline = Timeline::default();
        for number in 0..=EVENTS_MAX {
            let text = format!("{number} {}", "ü".repeat(CHARS_MAX));
            let facts = vec![("fact", "x".repeat(CHARS_MAX + 1)); FACTS_MAX + 1];
            timeline.note(Happening { text, facts, ..Happening::default() }, UNIX_EPOCH);
        }
        let (_, entries) = timeline.since(0);
        assert_eq!((entries.len(), entries[0].facts.len()), (EVENTS_MAX, FACTS_MAX));
        assert!(entries.iter().all(|entry| entry.text.chars().count() == CHARS_MAX + 1));
    }
}
