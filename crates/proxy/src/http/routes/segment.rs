//! The segments of a path, and which of them look like data, whichever client asks for them.

/// A longer segment is data.
const SEGMENT_MAX: usize = 40;
/// Extensions that say what kind of thing is asked for; of all others nothing is shown.
const EXTENSIONS: [&str; 36] = [
    "avif", "asp", "aspx", "cgi", "css", "csv", "do", "gif", "gz", "htm", "html", "ico", "jpeg", "jpg", "js",
    "json", "jsp", "map", "md", "mjs", "mp3", "mp4", "otf", "pdf", "php", "png", "svg", "ttf", "txt", "wasm",
    "webm", "webp", "woff", "woff2", "xml", "zip",
];

/// What a segment is before anything is learned of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment<'a> {
    /// It may be part of the site.
    Word(&'a str),
    /// An identifier.
    Any,
    /// An identifier with an extension.
    File(&'static str),
}

/// The segments of a path in its normal form (`path.rs`), or of a label.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

pub(super) fn look_at(segment: &str) -> Segment<'_> {
    if !is_data(segment) {
        return Segment::Word(segment);
    }
    let extension = segment.rsplit_once('.').map(|(_, extension)| extension);
    let known =
        extension.and_then(|extension| EXTENSIONS.iter().find(|known| known.eq_ignore_ascii_case(extension)));
    known.map_or(Segment::Any, |known| Segment::File(known))
}

/// Whether a segment looks like an identifier, whichever client asks for it.
fn is_data(segment: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'+');
    if segment.len() > SEGMENT_MAX || !segment.bytes().all(allowed) {
        return true;
    }
    segment.split(['-', '_', '.', '~', '+']).any(is_identifier)
}

/// Whether a value is of letters and few signs, and nothing in it looks like an identifier. Words that are
/// only joined by their capitals (`getUserById`) may be any.
pub(crate) fn is_plain_name(value: &str) -> bool {
    let sign = |byte: u8| matches!(byte, b'-' | b'_' | b'.' | b'/' | b':');
    let is_token = |part: &str| {
        is_made_by_a_machine(part) || part.bytes().any(|byte| byte.is_ascii_digit()) && has_random_case(part)
    };
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || sign(byte))
        && !value.split(['-', '_', '.', '/', ':']).any(is_token)
}

fn is_identifier(part: &str) -> bool {
    is_made_by_a_machine(part) || has_random_case(part)
}

/// A number of more than a version's length, or what only a machine would call something.
fn is_made_by_a_machine(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let letters = part.len() - digits;
    let is_hex = part.bytes().all(|byte| byte.is_ascii_hexdigit());
    (digits > 0 && letters == 0)
        || (is_hex && digits > 0 && part.len() >= 6)
        || (part.len() >= 8 && digits >= 3)
        || (part.len() >= 16 && digits > 0)
}

/// Letters that change their case more often than words do: base64.
fn has_random_case(part: &str) -> bool {
    let bytes = part.as_bytes();
    let changes = bytes
        .windows(2)
        .filter(|pair| {
            pair[0].is_ascii_uppercase() && pair[1].is_ascii_lowercase()
                || pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()
        })
        .count();
    part.len() >= 10 && changes * 2 >= part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_data_is_data() {
        let data = [
            "1",
            "20240131",
            "2024-01-31",
            "9f86d081884c7d65",
            "c0ffee12",
            "item42a7f99",
            "ann@example.org",
            "a%20b",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            "eyJhbGciOiJIUzI1NiJ9",
            "dQw4w9WgXcQ",
            "x=1",
            "naïve",
            "a-segment-that-is-too-long-to-be-part-of-a-site",
        ];
        for segment in data {
            assert!(is_data(segment), "{segment}");
        }
        for word in [
            "v1",
            "v2",
            "api",
            "oauth2",
            "2fa",
            "index.html",
            "best-sellers",
            "ProductDetail",
            "wp-admin",
            "x86",
        ] {
            assert!(!is_data(word), "{word}");
        }
    }
}
