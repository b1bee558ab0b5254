//! What the server has said of the texts that clients prepare: their parameters and their columns.
//!
//! A text that the server has described a moment ago is valid, and its description is known. So a group that
//! only prepares and describes such texts is answered without the server.
//!
//! A description holds for the sessions of one pool, for the settings that a text is read by, and for at most
//! [`AGE_MAX`]. Tables change. A change that the gate sees makes all descriptions void when its transaction
//! ends ([`Descriptions::tables_have_changed`]). Changes that the gate can't see (made beside it, or by a
//! function) are the reason for the bound in time, and for a second look: before a statement runs for the
//! first time on a connection, its description there is compared with the one that its client was told
//! ([`Description::promises`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;
use wire::postgres::codec::HEADER_LEN;

use super::prepared::Prepared;

/// How long a description counts.
const AGE_MAX: Duration = Duration::from_secs(60);
/// The most bytes of texts and descriptions that one gate remembers.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most bytes of one text with its description. A longer one is asked for each time.
const ENTRY_BYTES_MAX: usize = 64 * 1024;
/// What an entry takes beside its texts, roughly.
const ENTRY_BYTES: usize = 512;

/// ParameterDescription, then RowDescription or NoData, as the server sent them.
#[derive(Debug)]
pub(crate) struct Description {
    frames: Bytes,
    /// How much of that is the ParameterDescription.
    split: usize,
    /// When the server was asked for it.
    epoch: Epoch,
    /// Something has shown that it holds no longer.
    is_void: AtomicBool,
}

impl Description {
    /// The description made of these two frames, for which the server was asked in this epoch.
    pub(crate) fn new(parameters: &[u8], result: &[u8], epoch: Epoch) -> Self {
        let frames = Bytes::from([parameters, result].concat());
        Self { frames, split: parameters.len(), epoch, is_void: AtomicBool::new(false) }
    }

    /// Whether the gate has seen no table change since, when it is this epoch now.
    pub(crate) fn is_of(&self, epoch: Epoch) -> bool {
        self.epoch == epoch
    }

    /// Both frames.
    pub(crate) fn frames(&self) -> &Bytes {
        &self.frames
    }

    /// The frame that tells of parameters.
    pub(crate) fn parameters(&self) -> Bytes {
        self.frames.slice(..self.split)
    }

    /// Whether it tells of a statement without rows.
    pub(crate) fn has_no_rows(&self) -> bool {
        self.frames.get(self.split) == Some(&b'n')
    }

    /// Whether a client that was told this may use a statement with this description. The types of its
    /// parameters must be equal, as must names, types and modifiers of its columns: what PostgreSQL compares
    /// of a plan.
    pub(crate) fn promises(&self, parameters: &[u8], result: &[u8]) -> bool {
        let (own_parameters, own_result) = self.frames.split_at(self.split);
        own_parameters == parameters && (own_result == result || is_same(own_result, result))
    }

    /// Marks a description that has turned out not to hold.
    pub(crate) fn void(&self) {
        self.is_void.store(true, Ordering::Relaxed);
    }
}

/// Whether two answers to Describe tell of the same columns.
fn is_same(ours: &[u8], theirs: &[u8]) -> bool {
    let (Some(ours), Some(theirs)) = (columns(ours), columns(theirs)) else { return false };
    ours == theirs
}

/// Each column's name, type and type modifier. `None`: malformed.
fn columns(frame: &[u8]) -> Option<Vec<(&[u8], u32, i32)>> {
    let (tag, mut body) = (frame.first()?, frame.get(HEADER_LEN..)?);
    if *tag == b'n' {
        return Some(Vec::new());
    }
    let count = body.try_get_u16().ok()?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let end = memchr::memchr(0, body)?;
        let (name, rest) = (&body[..end], &body[end + 1..]);
        // Table and column number, type, its length, its modifier, format.
        let (mut fields, rest) = rest.split_at_checked(18)?;
        fields.advance(6);
        let kind = fields.get_u32();
        fields.advance(2);
        columns.push((name, kind, fields.get_i32()));
        body = rest;
    }
    Some(columns)
}

/// All that decides what a text means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Text {
    /// The pool's number. It is never used again.
    pub(crate) pool: u64,
    /// See [`SessionSettings::read_by`](super::settings::SessionSettings::read_by).
    pub(crate) read_by: Bytes,
    pub(crate) sql: Bytes,
    pub(crate) parameter_types: Bytes,
}

impl Text {
    fn bytes(&self) -> usize {
        self.read_by.len() + self.sql.len() + self.parameter_types.len()
    }
}

/// How often the gate has seen tables change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

/// The descriptions that one gate remembers.
#[derive(Debug)]
pub(crate) struct Descriptions {
    epoch: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// The one used longest ago goes first.
    entries: LruCache<Text, Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    description: Arc<Description>,
    /// The text as it was read, so that it needn't be read again.
    _statement: Arc<Prepared>,
    epoch: Epoch,
    at: Instant,
    bytes: usize,
}

impl Default for Descriptions {
    fn default() -> Self {
        let kept = Mutex::new(Kept { entries: LruCache::unbounded(), bytes: 0 });
        Self { epoch: AtomicU64::new(0), kept }
    }
}

impl Descriptions {
    /// The epoch now: to be taken before the server is asked for a description.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// A transaction has ended that may have changed what texts mean.
    pub(crate) fn tables_have_changed(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The description of a text, if it is known.
    pub(crate) fn find(&self, text: &Text, now: Instant) -> Option<Arc<Description>> {
        let epoch = self.epoch();
        let mut kept = self.kept.lock();
        let entry = kept.entries.get(text)?;
        let holds = entry.epoch == epoch
            && now.saturating_duration_since(entry.at) < AGE_MAX
            && !entry.description.is_void.load(Ordering::Relaxed);
        if holds {
            return Some(Arc::clone(&entry.description));
        }
        kept.forget(text);
        None
    }

    /// Remembers a description for which the server was asked in this epoch.
    pub(crate) fn remember(
        &self,
        text: Text,
        statement: &Arc<Prepared>,
        description: &Arc<Description>,
        (epoch, now): (Epoch, Instant),
    ) {
        let bytes = text.bytes() + description.frames.len() + ENTRY_BYTES;
        if bytes > ENTRY_BYTES_MAX || epoch != self.epoch() {
            return;
        }
        let (description, _statement) = (Arc::clone(description), Arc::clone(statement));
        let mut kept = self.kept.lock();
        kept.forget(&text);
        kept.bytes += bytes;
        kept.entries.put(text, Entry { description, _statement, epoch, at: now, bytes });
        while kept.bytes > BYTES_MAX {
            let Some((_, oldest)) = kept.entries.pop_lru() else { break };
            kept.bytes -= oldest.bytes;
        }
    }
}

impl Kept {
    fn forget(&mut self, text: &Text) {
        if let Some(entry) = self.entries.pop(text) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::classify::Analysis;
    use bytes::{BufMut, BytesMut};

    /// A RowDescription of one column.
    fn row(name: &str, table: u32, kind: u32, modifier: i32) -> Vec<u8> {
        let mut body = BytesMut::new();
        body.put_u16(1);
        body.put_slice(name.as_bytes());
        body.put_u8(0);
        body.put_u32(table);
        body.put_u16(1);
        body.put_u32(kind);
        body.put_i16(4);
        body.put_i32(modifier);
        body.put_u16(0);
        frame(b'T', &body)
    }

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag], length.to_be_bytes().as_slice(), body].concat()
    }

    fn text(sql: &str) -> Text {
        let (read_by, parameter_types) = (Bytes::new(), Bytes::from_static(b"\0\0"));
        Text { pool: 1, read_by, sql: Bytes::copy_from_slice(sql.as_bytes()), parameter_types }
    }

    fn described(length: usize) -> (Arc<Prepared>, Arc<Description>) {
        let statement = Prepared::new(b"SELECT 1", b"\0\0", Analysis::default());
        (
            statement,
            Arc::new(Description::new(&frame(b't', b"\0\0"), &frame(b'T', &vec![0; length]), Epoch(0))),
        )
    }

    #[test]
    fn a_column_of_another_name_type_or_modifier_breaks_a_promise() {
        let parameters = frame(b't', b"\0\0");
        let told = Description::new(&parameters, &row("a", 7, 23, -1), Epoch(0));
        assert!(told.promises(&parameters, &row("a", 7, 23, -1)));
        assert!(told.promises(&parameters, &row("a", 8, 23, -1)), "the table was made anew");
        for other in [row("b", 7, 23, -1), row("a", 7, 20, -1), row("a", 7, 23, 5), frame(b'n', b"")] {
            assert!(!told.promises(&parameters, &other), "{other:?}");
        }
        assert!(!told.promises(&frame(b't', b"\0\x01\0\0\0\x17"), &row("a", 7, 23, -1)));
        let nothing = Description::new(&parameters, &frame(b'n', b""), Epoch(0));
        assert!(nothing.promises(&parameters, &frame(b'n', b"")));
        assert!(!nothing.promises(&parameters, &row("a", 7, 23, -1)));
    }

    #[test]
    fn a_malformed_description_promises_nothing() {
        let parameters = frame(b't', b"\0\0");
        let told = Description::new(&parameters, &row("a", 7, 23, -1), Epoch(0));
        for other in [frame(b'T', b""), frame(b'T', b"\0\x01a"), frame(b'T', b"\0\x01a\0\0"), b"T".to_vec()] {
            assert!(!told.promises(&parameters, &other), "{other:?}");
        }
    }

    #[test]
    fn a_description_counts_for_a_minute_and_until_tables_change() {
        let (known, (statement, description)) = (Descriptions::default(), described(2));
        let (now, late) = (Instant::now(), Instant::now() + AGE_MAX);
        let remember = || known.remember(text("a"), &statement, &description, (known.epoch(), now));
        remember();
        assert!(known.find(&text("a"), now).is_some());
        assert!(known.find(&Text { pool: 2, ..text("a") }, now).is_none());
        assert!(known.find(&Text { read_by: Bytes::from_static(b"x"), ..text("a") }, now).is_none());
        assert!(known.find(&text("a"), late).is_none());
        remember();
        known.tables_have_changed();
        assert!(known.find(&text("a"), now).is_none());
        remember();
        description.void();
        assert!(known.find(&text("a"), now).is_none());
        assert_eq!(known.kept.lock().bytes, 0);
    }

    #[test]
    fn what_was_asked_before_tables_changed_is_not_remembered() {
        let (known, (statement, description)) = (Descriptions::default(), described(2));
        let (before, now) = (known.epoch(), Instant::now());
        known.tables_have_changed();
        known.remember(text("a"), &statement, &description, (before, now));
        assert!(known.find(&text("a"), now).is_none());
    }

    #[test]
    fn no_more_bytes_are_remembered_than_the_bound() {
        let (known, now) = (Descriptions::default(), Instant::now());
        let (statement, large) = described(ENTRY_BYTES_MAX / 2);
        for number in 0..2_000 {
            known.remember(text(&number.to_string()), &statement, &large, (known.epoch(), now));
        }
        let kept = known.kept.lock();
        assert!(kept.bytes <= BYTES_MAX && kept.entries.len() < 1_000);
        assert_eq!(kept.bytes, kept.entries.iter().map(|(_, entry)| entry.bytes).sum::<usize>());
        drop(kept);
        assert!(known.find(&text("1999"), now).is_some() && known.find(&text("0"), now).is_none());
        let (statement, huge) = described(ENTRY_BYTES_MAX);
        known.remember(text("huge"), &statement, &huge, (known.epoch(), now));
        assert!(known.find(&text("huge"), now).is_none());
    }
}
