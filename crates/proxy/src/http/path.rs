//! The form of a path by which the rules of the configuration and the request types compare paths.
//!
//! A service reads `/api/%62ulk/1`, `/api/./bulk/1` and `/api//bulk;v=1/1` as `/api/bulk/1`. A client could
//! choose its class or its request type by such a spelling. So each segment is taken without its parameters
//! (`;…`) and percent-decoded. Then dot segments are resolved and empty segments dropped. The service gets
//! the target as it came.
//!
//! | byte | in the normal form |
//! |---|---|
//! | visible ASCII | itself |
//! | `/`, `;`, `%` and `*` within a segment, and every other byte | its percent-escape in capitals |
//!
//! So an escaped slash (`%2F`) separates no segments, and a `*` that a request has is no `*` of a rule.

use std::borrow::Cow;
use std::fmt::Write;

/// The path of a request in its normal form. It begins with a slash, and ends with none unless it is that
/// slash.
pub(crate) fn normal(path: &str) -> Cow<'_, str> {
    // Nearly all paths are in their normal form, and are left as they are.
    if is_normal(path.as_bytes()) {
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len());
    for segment in path.split('/') {
        add(&mut normal, segment);
    }
    if normal.is_empty() {
        normal.push('/');
    }
    Cow::Owned(normal)
}

/// The segments of a rule's path in the form in which those of requests are. `*` and `**` stay what they are.
pub fn rule_segments(path: &str) -> Vec<String> {
    let mut normal = String::with_capacity(path.len());
    for segment in path.split('/') {
        match segment {
            "*" | "**" => _ = write!(normal, "/{segment}"),
            segment => add(&mut normal, segment),
        }
    }
    normal.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// Whether a path is surely in its normal form. A segment that begins with a dot may be, and is looked at
/// more closely.
fn is_normal(path: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b';' | b'*');
    let begins_or_ends = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.');
    path.first() == Some(&b'/')
        && (path.len() == 1 || path.last() != Some(&b'/'))
        && path.iter().all(is_plain)
        && !path.windows(2).any(begins_or_ends)
}

/// Adds a segment as it came to a path.
fn add(path: &mut String, segment: &str) {
    let begin = path.len();
    path.push('/');
    let named = segment.split(';').next().unwrap_or("").as_bytes();
    let mut at = 0;
    while let Some(&byte) = named.get(at) {
        let escaped = if byte == b'%' { named.get(at + 1..at + 3).and_then(hex) } else { None };
        at += if escaped.is_some() { 3 } else { 1 };
        match escaped.unwrap_or(byte) {
            byte if byte.is_ascii_graphic() && !matches!(byte, b'/' | b';' | b'%' | b'*') => {
                path.push(char::from(byte));
            }
            byte => _ = write!(path, "%{byte:02X}"),
        }
    }
    match &path[begin..] {
        "/" | "/." => path.truncate(begin),
        "/.." => path.truncate(path[..begin].rfind('/').unwrap_or(0)),
        _ => {}
    }
}

/// The byte of two hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let (high, low) = (value(*digits.first()?)?, value(*digits.get(1)?)?);
    u8::try_from(high * 16 + low).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_normal_form_however_it_is_spelled() {
        let cases = [
            ("/api/bulk/1", "/api/bulk/1"),
            ("/api/%62ulk/1", "/api/bulk/1"),
            ("/%61%50%69/bulk", "/aPi/bulk"),
            ("//api///bulk/", "/api/bulk"),
            ("/api;v=1/bulk;jsessionid=5/1", "/api/bulk/1"),
            ("/api/./bulk/x/../1", "/api/bulk/1"),
            ("/x/%2e%2E/api/%2E/bulk", "/api/bulk"),
            ("/x/..;a=b/api", "/api"),
            ("/../../api", "/api"),
            ("/api/..", "/"),
            ("/;a", "/"),
            ("", "/"),
            ("/", "/"),
            ("/.well-known/x..y", "/.well-known/x..y"),
            ("/api%2fbulk", "/api%2Fbulk"),
            ("/api%2Fbulk", "/api%2Fbulk"),
            ("/a%3bb/%2562ulk", "/a%3Bb/%2562ulk"),
            ("/100%/%zz/%6", "/100%25/%25zz/%256"),
            ("/100%25", "/100%25"),
            ("/caf\u{e9}/a b", "/caf%C3%A9/a%20b"),
            ("/caf%c3%a9/a%20b%00", "/caf%C3%A9/a%20b%00"),
            ("*", "/%2A"),
            ("/a/*/%2a", "/a/%2A/%2A"),
        ];
        for (path, expected) in cases {
            assert_eq!(normal(path), expected, "{path}");
            assert_eq!(normal(expected), expected, "{path}: normal already");
        }
    }

    #[test]
    fn a_rule_is_read_as_a_request_is_but_for_its_stars() {
        let rule = rule_segments("/%61pi//caf\u{e9};x/y/../*/%2a/**");
        assert_eq!(rule, ["api", "caf%C3%A9", "*", "%2A", "**"]);
        assert!(rule_segments("/").is_empty());
    }
}
