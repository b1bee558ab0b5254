//! The access log: a line of JSON for each request, written by a task of its own.
//!
//! ```json
//! {"time":"2026-11-22T10:00:00.000Z","gate":"shop","type":"GET /orders/*","method":"GET","status":200,
//!  "queue_wait_ms":12.5,"upstream_ms":31.0,"total_ms":44.1,"bytes":5120,"end":"complete","trace_id":"4bf9…"}
//! ```
//!
//! `upstream_ms` is from dispatch to the head of the response, `total_ms` from the request's head to the last byte that was
//! handed on. `reason` stands where the gate answered by itself (`reject.rs`), and then `status` is the gate's own. The type
//! stands for the path: nothing that few have asked for is written, no field's value, no address.
//!
//! Whoever serves a request never waits for the disk: a line for which there is no room is lost, and counted in `lost` of
//! the next one.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method};
use serde::{Serialize, Serializer};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Lines that may wait for the disk.
const LINES_MAX: usize = 8_192;

/// What is said of a request.
#[derive(Debug, Serialize)]
struct Line {
    time: String,
    #[serde(serialize_with = "text")]
    gate: Arc<str>,
    #[serde(serialize_with = "text")]
    r#type: Arc<str>,
    method: String,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    queue_wait_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_ms: Option<f64>,
    total_ms: f64,
    bytes: u64,
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// Where lines go.
#[derive(Clone, Debug)]
pub struct AccessLog {
    lines: mpsc::Sender<Line>,
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// Writes to the end of this file, from a thread of its own, until the last clone is gone.
    ///
    /// # Errors
    /// The file can't be opened.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let (lines, mut waiting) = mpsc::channel::<Line>(LINES_MAX);
        let shown = path.display().to_string();
        let write = move || {
            let mut writer = BufWriter::new(file);
            while let Some(line) = waiting.blocking_recv() {
                let written = serde_json::to_writer(&mut writer, &line)
                    .map_err(std::io::Error::from)
                    .and_then(|()| writer.write_all(b"\n"))
                    // Whoever reads along sees a line when nothing more is to be written.
                    .and_then(|()| if waiting.is_empty() { writer.flush() } else { Ok(()) });
                if let Err(error) = written {
                    tracing::error!(file = shown, %error, "the access log ends here");
                    return;
                }
            }
        };
        std::thread::Builder::new().name("access-log".to_owned()).spawn(write)?;
        Ok(Self { lines, lost: Arc::default() })
    }

    /// A request of this type has come.
    pub(crate) fn begin(
        &self,
        gate: &str,
        name: &Arc<str>,
        method: &Method,
        fields: &HeaderMap,
    ) -> Box<Record> {
        Box::new(Record {
            log: self.clone(),
            arrived: Instant::now(),
            queue_wait: Duration::ZERO,
            upstream: None,
            is_complete: false,
            line: Line {
                time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
                gate: Arc::from(gate),
                r#type: Arc::clone(name),
                method: method.as_str().chars().take(16).collect(),
                status: 0,
                reason: None,
                queue_wait_ms: 0.0,
                upstream_ms: None,
                total_ms: 0.0,
                bytes: 0,
                end: "client_gone",
                trace_id: trace_id(fields),
                lost: 0,
            },
        })
    }
}

/// The trace that a request belongs to (W3C Trace Context: version, trace, parent, flags).
fn trace_id(fields: &HeaderMap) -> Option<String> {
    let parent = fields.get("traceparent")?.to_str().ok()?;
    let id = parent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}

/// What is known of one request so far. Dropped, it is written.
#[derive(Debug)]
pub(crate) struct Record {
    log: AccessLog,
    arrived: Instant,
    pub(crate) queue_wait: Duration,
    /// From dispatch to the head of the response.
    pub(crate) upstream: Option<Duration>,
    is_complete: bool,
    line: Line,
}

impl Record {
    /// So it is answered; `reason` if by the gate itself.
    pub(crate) fn answer(&mut self, status: u16, reason: Option<&'static str>) {
        (self.line.status, self.line.reason) = (status, reason);
    }

    /// So many bytes more of the response's body are on their way.
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.line.bytes += bytes as u64;
    }

    /// That was the last of it.
    pub(crate) fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let Ok(place) = self.log.lines.try_reserve() else {
            self.log.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let line = &mut self.line;
        if self.is_complete {
            line.end = "complete";
        }
        place.send(Line {
            time: std::mem::take(&mut line.time),
            gate: Arc::clone(&line.gate),
            r#type: Arc::clone(&line.r#type),
            method: std::mem::take(&mut line.method),
            trace_id: line.trace_id.take(),
            queue_wait_ms: millis(self.queue_wait),
            upstream_ms: self.upstream.map(millis),
            total_ms: millis(self.arrived.elapsed()),
            lost: self.log.lost.swap(0, Ordering::Relaxed),
            status: line.status,
            reason: line.reason,
            bytes: line.bytes,
            end: line.end,
        });
    }
}
