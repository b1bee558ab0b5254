//! Files below a directory that a route names, which the gate serves by itself.
//!
//! `tower-http` answers the request: ranges, validators, compressed variants, `index.html`. The kernel keeps
//! what is opened beneath the directory ([`ResolveFlags::BENEATH`]): no dot segment and no symbolic link
//! leads out of it, however the tree changes meanwhile. The directory is opened for each request, so that a
//! deployment may swap a symbolic link to it.

use std::fs;
use std::future::{self, Future, Ready};
use std::io::{self, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tokio::task::spawn_blocking;
use tower_http::services::ServeDir;
use tower_http::services::fs::{Backend, File};

/// A name may change while the kernel follows it. After so many tries the file counts as busy.
const TRIES: usize = 4;

/// A directory whose files a route serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The directory.
    pub directory: PathBuf,
    /// The [`rule_segments`](super::rule_segments) of paths that aren't part of a file's name.
    pub prefix: Vec<String>,
}

impl Files {
    /// Whether the directory can be served from.
    ///
    /// # Errors
    /// The directory can't be opened, or the kernel can't keep to it.
    pub fn examine(directory: &Path) -> io::Result<()> {
        match beneath(directory, Path::new("."), OFlags::PATH) {
            Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => {
                Err(io::Error::other("the kernel has no openat2; Linux 5.6 has"))
            }
            opened => opened.map(drop),
        }
    }

    /// What a request for one of these files asks for. Its path has this normal form.
    pub(crate) fn asked(self: &Arc<Self>, asked: &Uri, path: &str) -> Asked {
        Asked { files: Arc::clone(self), target: self.target(asked, path) }
    }

    async fn respond<B>(&self, request: Request<B>, target: Option<Uri>) -> Response<FileBody> {
        let Some(target) = target else { return empty(StatusCode::NOT_FOUND) };
        let mut request = request.map(|_| Empty::<Bytes>::new());
        *request.uri_mut() = target;
        let prefix: String = self.prefix.iter().flat_map(|segment| ["/", segment]).collect();
        let mut service = ServeDir::with_backend("", Directory(self.directory.clone()))
            .redirect_path_prefix(prefix)
            .precompressed_gzip()
            .precompressed_br();
        match ranged(&mut service, request).await {
            Ok(response) => {
                let left = length(&response);
                response.map(|body| FileBody { file: body.boxed_unsync(), left })
            }
            Err(error) if is_missing(error.kind()) => empty(StatusCode::NOT_FOUND),
            Err(error) => {
                tracing::warn!(directory = %self.directory.display(), %error, "a file can't be served");
                empty(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// What a request asks for, as a path below the directory. `None`: a name that no file here may have.
    fn target(&self, asked: &Uri, path: &str) -> Option<Uri> {
        let mut target = String::with_capacity(path.len() + 1);
        for segment in path.split('/').filter(|segment| !segment.is_empty()).skip(self.prefix.len()) {
            let is_hidden = segment.starts_with('.') && segment != ".well-known";
            if is_hidden || segment.contains("%2F") || segment.contains("%00") || segment.contains('\\') {
                return None;
            }
            target.push('/');
            target.push_str(segment);
        }
        // A normal form doesn't tell a directory from a file.
        if target.is_empty() || asked.path().ends_with('/') {
            target.push('/');
        }
        if let Some(query) = asked.query() {
            target.push('?');
            target.push_str(query);
        }
        target.parse().ok()
    }
}

/// A file that a request asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    files: Arc<Files>,
    /// `None`: no file has such a name.
    target: Option<Uri>,
}

impl Asked {
    /// The response to the request.
    pub(crate) async fn respond<B>(self, request: Request<B>) -> Response<FileBody> {
        self.files.respond(request, self.target).await
    }
}

/// The response to a request, with the rule for `If-Range` (RFC 9110, 13.1.5), which `ServeDir` doesn't know:
/// the part that is asked for only of the version that the client has a part of, else the whole file.
async fn ranged(service: &mut Service, mut request: Request<Empty<Bytes>>) -> io::Result<Served> {
    let asked = request.headers_mut().remove(header::RANGE).filter(|_| request.method() == Method::GET);
    if let Some(range) = asked.and_then(|range| one_part(range.as_bytes())) {
        request.headers_mut().insert(header::RANGE, range);
    }
    let known = request.headers_mut().remove(header::IF_RANGE);
    let Some(known) = known.filter(|_| request.headers().contains_key(header::RANGE)) else {
        return part(service, request).await;
    };
    let mut for_whole = request.clone();
    for_whole.headers_mut().remove(header::RANGE);
    let whole = service.try_call(for_whole).await?;
    // A tag that isn't weak; a date is none, because a file may change twice in a second.
    if !known.as_bytes().starts_with(b"\"") || whole.headers().get(header::ETAG) != Some(&known) {
        return Ok(whole);
    }
    let part = part(service, request).await?;
    // It may have changed in between. What can't be satisfied has no tag.
    let is_of_same = part.status() == StatusCode::RANGE_NOT_SATISFIABLE
        || part.headers().get(header::ETAG) == Some(&known);
    Ok(if is_of_same { part } else { whole })
}

/// The response to a request for one part. More last bytes than the file has are all of them (RFC 9110,
/// 14.1.2), but `ServeDir` refuses them. An empty file has no part, so the response is whole.
async fn part(service: &mut Service, request: Request<Empty<Bytes>>) -> io::Result<Served> {
    let asked = request.headers().get(header::RANGE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_suffix = asked.starts_with(b"bytes=-") && asked != b"bytes=-0";
    let mut again = request.clone();
    let served = service.try_call(request).await?;
    let found = served.headers().get(header::CONTENT_RANGE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_refused = served.status() == StatusCode::RANGE_NOT_SATISFIABLE;
    if is_refused && !is_suffix || !is_refused && !found.ends_with(b"/0") {
        return Ok(served);
    }
    if found.ends_with(b"/0") {
        again.headers_mut().remove(header::RANGE);
    } else {
        again.headers_mut().insert(header::RANGE, HeaderValue::from_static("bytes=0-"));
    }
    service.try_call(again).await
}

/// The plain form of a `Range` that asks for one part in bytes, of which large numbers stay as large as can
/// be. One in another unit must be ignored, and one of several parts or a malformed one may be (RFC 9110,
/// 14.2): `ServeDir` refuses them.
fn one_part(range: &[u8]) -> Option<HeaderValue> {
    let (unit, part) = std::str::from_utf8(range).ok()?.split_once('=')?;
    let (first, last) = part.split_once('-').filter(|_| unit.eq_ignore_ascii_case("bytes"))?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let plain = match (number(first), number(last)) {
        (None, Some(last)) if first.is_empty() => format!("bytes=-{last}"),
        (Some(first), Some(last)) if last < u64::MAX => format!("bytes={first}-{last}"),
        (Some(first), Some(_)) => format!("bytes={first}-"),
        (Some(first), None) if last.is_empty() => format!("bytes={first}-"),
        _ => return None,
    };
    plain.parse().ok()
}

type Service = ServeDir<tower_http::services::fs::DefaultServeDirFallback, Directory>;
type Served = Response<tower_http::services::fs::ServeFileSystemResponseBody>;

fn is_missing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied)
}

fn empty(status: StatusCode) -> Response<FileBody> {
    let file = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(FileBody { file, left: 0 });
    *response.status_mut() = status;
    response
}

/// The bytes of a response's body.
fn length<B: Body>(response: &Response<B>) -> u64 {
    if response.body().is_end_stream() {
        return 0;
    }
    let told = response.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let exact = response.body().size_hint().exact();
    told.and_then(|told| told.parse().ok()).or(exact).unwrap_or(0)
}

/// A file, or a part of it, on its way.
#[derive(Debug)]
pub(crate) struct FileBody {
    file: UnsyncBoxBody<Bytes, io::Error>,
    left: u64,
}

impl FileBody {
    /// How many bytes are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes. A file that has grown ends where its length was told. If the file has shrunk, the rest
    /// is an error.
    pub(crate) fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.file).poll_frame(context)).transpose();
        Poll::Ready(Some(match frame.map(|frame| frame.and_then(|frame| frame.into_data().ok())) {
            Ok(Some(mut data)) => {
                data.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= data.len() as u64;
                Ok(data)
            }
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        }))
    }
}

/// A directory as `tower-http` opens files in it.
#[derive(Clone, Debug)]
struct Directory(PathBuf);

/// An open file.
struct Opened {
    file: tokio::fs::File,
    metadata: fs::Metadata,
}

type Opening<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl Backend for Directory {
    type File = Opened;
    type Metadata = fs::Metadata;
    type OpenFuture = Opening<Opened>;
    type MetadataFuture = Opening<fs::Metadata>;

    fn open(&self, path: PathBuf) -> Self::OpenFuture {
        let directory = self.0.clone();
        on_disk(move || {
            // Without waiting for the other end of a pipe.
            let file = beneath(&directory, &path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
            let file = fs::File::from(file);
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(Opened { file: tokio::fs::File::from_std(file), metadata })
        })
    }

    fn metadata(&self, path: PathBuf) -> Self::MetadataFuture {
        let directory = self.0.clone();
        on_disk(move || fs::File::from(beneath(&directory, &path, OFlags::PATH)?).metadata())
    }
}

fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Opening<T> {
    Box::pin(async move { spawn_blocking(work).await.map_err(io::Error::other)? })
}

/// Opens what lies beneath a directory.
///
/// # Errors
/// Nothing can be opened there. What would lead out of the directory isn't found.
fn beneath(directory: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let root = openat(CWD, directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let root = root
        .map_err(|error| io::Error::other(format!("{}: {}", directory.display(), io::Error::from(error))))?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::XDEV | Errno::LOOP | Errno::NXIO | Errno::NAMETOOLONG) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            opened => return opened.map_err(io::Error::from),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

impl File for Opened {
    type Metadata = fs::Metadata;
    type MetadataFuture<'a> = Ready<io::Result<fs::Metadata>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        future::ready(Ok(self.metadata.clone()))
    }
}

impl AsyncRead for Opened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_read(context, buffer)
    }
}

impl AsyncSeek for Opened {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        Pin::new(&mut self.file).start_seek(position)
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.file).poll_complete(context)
    }
}
