//! Looks for requests whose length two readers would take differently (request smuggling).
//!
//! A request with both Transfer-Encoding and Content-Length is either an attack or a mistake: of two
//! servers in a row one may go by the one and one by the other, and the second sees a request in what the
//! first took for a body (RFC 9112, section 6.1). hyper goes by the former and hides the latter, so that it
//! can't be seen in what it hands over. This looks at the bytes on their way to hyper.
//!
//! It doesn't follow the framing, which would be a parser of its own to be deceived. It looks at *blocks*,
//! lines up to a blank one: a head is the end of a block (behind the rest of the body before it, if that
//! ended without a blank line). So a head that has both fields can't be missed; a body that shows both in
//! one block, in front of a chunked request on the same connection, is taken for one, and that request is
//! refused.

/// The longest name that is looked for, and its colon.
const NAME_MAX: usize = 18;
const LENGTH: &[u8] = b"content-length";
const ENCODING: &[u8] = b"transfer-encoding";

/// What was seen of the bytes of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sniffer {
    /// The beginning of the present line.
    line: [u8; NAME_MAX],
    /// How long the present line is so far, at most one more than what is kept of it.
    filled: usize,
    has_length: bool,
    has_encoding: bool,
    is_ambiguous: bool,
}

impl Sniffer {
    /// The next bytes.
    pub(crate) fn see(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            if self.filled == 0 {
                // Nearly always: the whole line is there, and nothing has to be kept of it.
                self.end_line(&bytes[..end]);
            } else {
                self.take(&bytes[..end]);
                let (line, filled) = (self.line, self.filled);
                self.filled = 0;
                self.end_line(&line[..filled.min(NAME_MAX)]);
            }
            bytes = &bytes[end + 1..];
        }
        self.take(bytes);
    }

    /// Whether a block since the last call had both fields.
    pub(crate) fn take_ambiguous(&mut self) -> bool {
        std::mem::take(&mut self.is_ambiguous)
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = NAME_MAX.saturating_sub(self.filled);
        let taken = bytes.len().min(room);
        self.line[self.filled.min(NAME_MAX)..][..taken].copy_from_slice(&bytes[..taken]);
        self.filled = (self.filled + bytes.len()).min(NAME_MAX + 1);
    }

    /// A line has ended, of which this is the beginning.
    fn end_line(&mut self, line: &[u8]) {
        match line.first() {
            // A blank line, as strict and as lenient readers know it.
            None | Some(b'\r') if line.len() <= 1 => (self.has_length, self.has_encoding) = (false, false),
            Some(b'c' | b'C') if is_field(line, LENGTH) => self.has_length = true,
            Some(b't' | b'T') if is_field(line, ENCODING) => self.has_encoding = true,
            _ => {}
        }
        self.is_ambiguous |= self.has_length && self.has_encoding;
    }
}

/// Whether a line is this field, whatever stands between its name and the colon.
fn is_field(line: &[u8], name: &[u8]) -> bool {
    line.len() > name.len()
        && line[..name.len()].eq_ignore_ascii_case(name)
        && matches!(line[name.len()], b':' | b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ambiguous(parts: &[&str]) -> bool {
        let mut sniffer = Sniffer::default();
        for part in parts {
            sniffer.see(part.as_bytes());
        }
        sniffer.take_ambiguous()
    }

    #[test]
    fn both_fields_in_one_head_are_seen_however_they_are_written() {
        let both = [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\ncontent-LENGTH:3\r\n\r\n",
            "POST / HTTP/1.1\nTransfer-Encoding : x\nContent-Length\t: 3\n\n",
            "rest of a bodyPOST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: identity\r\n",
        ];
        for text in both {
            assert!(is_ambiguous(&[text]), "{text:?}");
            for at in 1..text.len() {
                assert!(is_ambiguous(&[&text[..at], &text[at..]]), "{text:?} cut at {at}");
            }
            let single: Vec<&str> = (0..text.len()).map(|at| &text[at..=at]).collect();
            assert!(is_ambiguous(&single), "{text:?} byte by byte");
        }
    }

    #[test]
    fn ordinary_requests_in_a_row_are_not_ambiguous() {
        let text = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
                    GET / HTTP/1.1\r\nX-Content-Length: 3\r\nContent-Lengths: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!is_ambiguous(&[text]));
    }

    #[test]
    fn it_says_so_once() {
        let mut sniffer = Sniffer::default();
        sniffer.see(b"Content-Length: 3\nTransfer-Encoding: chunked\n\n");
        assert!(sniffer.take_ambiguous());
        assert!(!sniffer.take_ambiguous());
    }
}
