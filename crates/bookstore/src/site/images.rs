//! The books' covers, the style sheet and the icon: files, with what caches want to know.
//!
//! A cover's path is one of two words, a number and `.svg`: there is no other path to follow anywhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::{Path as Parameters, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::failure::Failure;
use super::shop::Shop;

/// How long a browser may keep a cover without asking: a day. They only change when the shop is filled anew.
const KEEP: HeaderValue = HeaderValue::from_static("public, max-age=86400");
/// How long a browser may keep a style sheet or an icon, which change with the program: an hour.
const KEEP_STYLE: HeaderValue = HeaderValue::from_static("public, max-age=3600");

const SVG: HeaderValue = HeaderValue::from_static("image/svg+xml");
const CSS: HeaderValue = HeaderValue::from_static("text/css; charset=utf-8");

/// The shop's only style sheet.
const STYLE: &str = include_str!("style.css");
/// The tab's icon: an open book.
const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 32 32\"><rect width=\"32\" height=\"32\" rx=\"7\" \
    fill=\"#7a2e2e\"/><path d=\"M16 10c-2-2-6-2.5-9-2v14c3-.5 7 0 9 2 2-2 6-2.5 9-2V8c-3-.5-7 0-9 2zm0 0v14\" fill=\"none\" \
    stroke=\"#fdf6ec\" stroke-width=\"2\" stroke-linejoin=\"round\"/></svg>\n";

/// The file of a picture, if its path is one that covers have: `thumbnail/12.svg`.
pub(super) fn file_of(kind: &str, name: &str) -> Option<PathBuf> {
    let number = name.strip_suffix(".svg")?;
    let is_number = (1..=10).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && matches!(kind, "thumbnail" | "cover")).then(|| Path::new(kind).join(name))
}

/// `GET /images/{kind}/{name}`
pub(super) async fn image(
    State(shop): State<Arc<Shop>>,
    Parameters((kind, name)): Parameters<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let missing = || Failure::NotFound("picture");
    let directory = shop.images.as_ref().ok_or_else(missing)?;
    let path = directory.join(file_of(&kind, &name).ok_or_else(missing)?);
    // Covers have few and equal sizes: reading them whole takes less than sending them in pieces.
    let read = tokio::task::spawn_blocking(move || {
        let modified = std::fs::metadata(&path)?.modified()?;
        let age = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        std::io::Result::Ok((std::fs::read(&path)?, age))
    });
    let (content, age) = read.await.map_err(|_| missing())?.map_err(|_| missing())?;
    let tag = format!("\"{age:x}-{:x}\"", content.len());
    Ok(file(content, &tag, SVG, KEEP, &headers))
}

/// `GET /style.css`
pub(super) async fn style(headers: HeaderMap) -> Response {
    file(STYLE, &tag_of(STYLE), CSS, KEEP_STYLE, &headers)
}

/// `GET /icon.svg`
pub(super) async fn icon(headers: HeaderMap) -> Response {
    file(ICON, &tag_of(ICON), SVG, KEEP_STYLE, &headers)
}

/// A tag of a text that is part of the program, by FNV-1a.
fn tag_of(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("\"{hash:x}\"")
}

/// A file, or that it is what the browser has already.
fn file(
    content: impl IntoResponse,
    tag: &str,
    kind: HeaderValue,
    keep: HeaderValue,
    headers: &HeaderMap,
) -> Response {
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known
        .is_some_and(|known| known.split(',').any(|known| matches!(known.trim(), t if t == tag || t == "*")));
    let mut response =
        if is_known { StatusCode::NOT_MODIFIED.into_response() } else { content.into_response() };
    let answered = response.headers_mut();
    if !is_known {
        answered.insert(CONTENT_TYPE, kind);
    }
    answered.insert(CACHE_CONTROL, keep);
    if let Ok(tag) = HeaderValue::try_from(tag) {
        answered.insert(ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_covers_are_files() {
        assert_eq!(file_of("cover", "12.svg"), Some(PathBuf::from("cover/12.svg")));
        for (kind, name) in [
            ("..", "12.svg"),
            ("cover", "../12.svg"),
            ("cover", ".svg"),
            ("cover", "12.png"),
            ("cover", "12.svg/../../x.svg"),
            ("/etc", "1.svg"),
            ("cover", "12345678901.svg"),
        ] {
            assert_eq!(file_of(kind, name), None, "{kind}/{name}");
        }
    }
}
