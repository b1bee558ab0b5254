//! The access log: a line of JSON for each request, written by a task of its own.
//!
//! ```json
//! {"time":"2026-11-22T10:00:00.000Z","gate":"shop","type":"GET /orders/*","method":"GET","status":200,
//!  "queue_wait_ms":12.5,"upstream_ms":31.0,"total_ms":44.1,"bytes":5120,"end":"complete","trace_id":"4bf9…"}
//! ```
//!
//! `upstream_ms` is from dispatch to the head of the response, `total_ms` from the request's head to the
//! last byte that was handed on. `class` is the service class, where there are several. `reason` stands
//! where the gate answered by itself (`reject.rs`), and then `status` is the gate's own. The type stands
//! for the path: nothing that few have asked for is written, no field's value, no address.
//!
//! A task that serves a request never waits for the disk: a line for which there is no room is lost, and
//! counted in `lost` of the next one.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::sync::mpsc;

use super::record::Record;

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
    #[serde(serialize_with = "some_text", skip_serializing_if = "Option::is_none")]
    class: Option<Arc<str>>,
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

fn some_text<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text.as_deref().unwrap_or_default())
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
                    // A program that reads along sees a line when nothing more is to be written.
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

    /// A request has ended.
    pub(super) fn write(&self, record: &Record) {
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let Ok(place) = self.lines.try_reserve() else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        place.send(Line {
            time: humantime::format_rfc3339_millis(record.began).to_string(),
            gate: Arc::clone(&record.gate),
            r#type: Arc::clone(&record.name),
            class: record.class.clone(),
            method: record.method.as_str().chars().take(16).collect(),
            status: record.status,
            reason: record.reason,
            queue_wait_ms: millis(record.queue_wait.unwrap_or_default()),
            upstream_ms: record.upstream.map(millis),
            total_ms: millis(record.elapsed()),
            bytes: record.bytes,
            end: if record.is_complete { "complete" } else { "client_gone" },
            trace_id: record.trace.map(|trace| format!("{trace:032x}")),
            lost: self.lost.swap(0, Ordering::Relaxed),
        });
    }
}
