//! Positions in a text that the server has in another form than the client sent.

/// A place from which on the server's text is shifted against the client's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shift {
    /// Characters of the server's text before that place.
    pub(super) server: usize,
    /// Characters of the client's text before that place.
    pub(super) client: usize,
}

/// The position of an error in the client's text, from that in the server's.
pub(super) fn shifted_back(position: &[u8], shifts: &[Shift]) -> Vec<u8> {
    let number = std::str::from_utf8(position).ok().and_then(|digits| digits.parse::<usize>().ok());
    let shift = number.and_then(|at| shifts.iter().rev().find(|shift| shift.server < at));
    match (number, shift) {
        (Some(at), Some(shift)) => (at - shift.server + shift.client).to_string().into_bytes(),
        _ => position.to_vec(),
    }
}

/// How many characters a text has: PostgreSQL's positions count characters. A text that isn't in UTF-8 is
/// counted by the byte.
pub(crate) fn characters(text: &[u8]) -> usize {
    std::str::from_utf8(text).map_or(text.len(), |text| text.chars().count())
}
