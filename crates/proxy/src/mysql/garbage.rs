//! Bodies of fuzz targets for what is private here: what a session must know of a client's text.

use wire::mysql::capabilities::Status;

use super::classify::{self, Analysis, Killing};
use super::readings::{Wide, analyze};

/// Collations by which a character's second byte may be ASCII, and one where none is.
const COLLATIONS: [u8; 3] = [13, 28, 45];

/// A text of a client; the first byte chooses how texts are read. A comment that some servers skip makes no
/// text more trusted, and no longer text the beginning or the end of a transaction.
///
/// # Panics
/// If it is.
pub fn reading(data: &[u8]) {
    let Some((&choice, sql)) = data.split_first() else { return };
    let flag = |bit: u8, flag: Status| if choice & bit == 0 { 0 } else { flag.0 };
    let status = Status(flag(1, Status::ANSI_QUOTES) | flag(2, Status::NO_BACKSLASH_ESCAPES));
    let dialect = classify::dialect(status);
    let wide = Wide::of_collation(COLLATIONS[usize::from(choice >> 2) % COLLATIONS.len()].into());
    let alone = analyze(sql, dialect, wide);
    let behind = analyze(&[b"/*!80000 */ ", sql].concat(), dialect, wide);
    assert!(!is_trusted(&behind) || is_trusted(&alone), "{behind:?} behind a comment, {alone:?} without");
    let longer = analyze(&[sql, b"\n/*!80000 ,1 */"].concat(), dialect, wide);
    let (is_begin, is_end) = (alone.begins && longer.begins, alone.ends && longer.ends);
    let is_next = alone.next.is_some() && longer.next.is_some();
    assert!(!is_begin && !is_end && !is_next, "{longer:?} before a comment, {alone:?} without");
}

/// Whether the connection may serve another session behind the text.
fn is_trusted(analysis: &Analysis) -> bool {
    analysis.pin.is_none() && analysis.kills == Killing::Nothing
}
