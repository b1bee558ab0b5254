//! What a gate has learned, as a document: so that a restarted gate isn't cold.
//!
//! JSON, a few hundred bytes for each type: the figures of [`admission::Learned`] and the type's label,
//! which holds no literal of any statement. What is no such document (damaged, of another program, of a
//! version that isn't known) is said to be none; single types that make no sense are left out.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use admission::{
    ClassId, Learned, LearnedShare, LearnedSpeed, LearnedType, LearnedVariation, RequestType, Work,
};
use serde::{Deserialize, Serialize};

/// The longest document that is read, in bytes: ten thousand types take 5 MB at most.
pub const BYTES_MAX: usize = 16 << 20;
/// What tells our documents from others'.
const FORMAT: &str = "gatekeeper-state";
/// Raised when the figures, or what a type's number is made of, mean something else.
const VERSION: u32 = 1;

/// Why a text is no such document.
#[derive(Debug, thiserror::Error)]
pub enum NoDocument {
    /// It is longer than [`BYTES_MAX`].
    #[error("it is longer than {BYTES_MAX} bytes")]
    TooLong,
    /// It isn't JSON, or not of this form.
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// It says that it is something else.
    #[error("it is not a state file, but {0:?}")]
    Foreign(String),
    /// It may be made otherwise.
    #[error("it is of version {0}, and {VERSION} is understood")]
    Version(u32),
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    version: u32,
    gatekeeper: String,
    gate: String,
    written_unix_seconds: u64,
    mean_nanos: u64,
    requests: u64,
    types: Vec<Entry>,
    /// Documents of earlier versions don't have it.
    #[serde(default)]
    speeds: Vec<Speed>,
    /// Requests that may be in flight, as found.
    #[serde(default)]
    capacity_found: Option<u32>,
    /// Requests that the service works on at once, as found.
    #[serde(default)]
    width_found: Option<u32>,
    /// What goals of classes have found.
    #[serde(default)]
    shares: Vec<Share>,
}

/// The share of a class.
#[derive(Serialize, Deserialize)]
struct Share {
    /// The class's number in hexadecimal.
    class: String,
    weight: f64,
    share: f64,
}

/// How fast the server is with so many in flight.
#[derive(Serialize, Deserialize)]
struct Speed {
    in_flight: u32,
    times_as_fast: f64,
    executions: u64,
}

/// One type.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// The type's number in hexadecimal: JSON's own numbers don't hold 64 bits everywhere.
    r#type: String,
    label: String,
    samples: u64,
    mean_nanos: u64,
    rank_nanos: u64,
    variation_samples: u64,
    variation_mean_nanos: f64,
    variation_variance: f64,
}

/// Writes what `gate` has learned up to now; `labels` are the names of the types, one for each.
pub fn write(gate: &str, now: SystemTime, learned: &Learned, labels: &[Arc<str>]) -> Vec<u8> {
    let entry = |(known, label): (&LearnedType, &Arc<str>)| Entry {
        r#type: format!("{:016x}", known.request_type.0),
        label: label.to_string(),
        samples: known.samples,
        mean_nanos: known.mean.as_nanos(),
        rank_nanos: known.rank.as_nanos(),
        variation_samples: known.variation.samples,
        variation_mean_nanos: known.variation.mean,
        variation_variance: known.variation.variance,
    };
    let document = Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        gatekeeper: env!("CARGO_PKG_VERSION").to_owned(),
        gate: gate.to_owned(),
        written_unix_seconds: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        mean_nanos: learned.mean.as_nanos(),
        requests: learned.requests,
        types: learned.types.iter().zip(labels).map(entry).collect(),
        speeds: learned.speeds.iter().map(Speed::from).collect(),
        capacity_found: learned.capacity,
        width_found: learned.width,
        shares: learned.shares.iter().map(Share::from).collect(),
    };
    // Nothing in it can fail to be written: no map with odd keys.
    serde_json::to_vec_pretty(&document).unwrap_or_default()
}

impl From<&LearnedShare> for Share {
    fn from(&LearnedShare { class, weight, share }: &LearnedShare) -> Self {
        Self { class: format!("{:016x}", class.0), weight, share }
    }
}

impl From<&LearnedSpeed> for Speed {
    fn from(&LearnedSpeed { in_flight, speed, executions }: &LearnedSpeed) -> Self {
        Self { in_flight, times_as_fast: speed, executions }
    }
}

impl From<Speed> for LearnedSpeed {
    fn from(Speed { in_flight, times_as_fast, executions }: Speed) -> Self {
        Self { in_flight, speed: times_as_fast, executions }
    }
}

/// Reads what was written, and the names of the types.
///
/// # Errors
/// See [`NoDocument`].
pub fn read(bytes: &[u8]) -> Result<(Learned, Vec<Arc<str>>), NoDocument> {
    if bytes.len() > BYTES_MAX {
        return Err(NoDocument::TooLong);
    }
    // The head first: a document of another version may be made otherwise.
    #[derive(Deserialize)]
    struct Head {
        format: String,
        version: u32,
    }
    let head: Head = serde_json::from_slice(bytes)?;
    if head.format != FORMAT {
        return Err(NoDocument::Foreign(head.format));
    }
    if head.version != VERSION {
        return Err(NoDocument::Version(head.version));
    }
    let document: Document = serde_json::from_slice(bytes)?;
    let Document { mean_nanos, requests, types: entries, speeds, .. } = document;
    let (capacity, width) = (document.capacity_found, document.width_found);
    let (mut types, mut labels) = (Vec::new(), Vec::new());
    for entry in entries {
        let Ok(key) = u64::from_str_radix(&entry.r#type, 16) else { continue };
        types.push(LearnedType {
            request_type: RequestType(key),
            mean: Work::from_nanos(entry.mean_nanos),
            rank: Work::from_nanos(entry.rank_nanos),
            samples: entry.samples,
            variation: LearnedVariation {
                samples: entry.variation_samples,
                mean: entry.variation_mean_nanos,
                variance: entry.variation_variance,
            },
        });
        labels.push(Arc::from(entry.label));
    }
    let speeds = speeds.into_iter().map(LearnedSpeed::from).collect();
    let share = |Share { class, weight, share }: Share| {
        let class = ClassId(u64::from_str_radix(&class, 16).ok()?);
        Some(LearnedShare { class, weight, share })
    };
    let shares = document.shares.into_iter().filter_map(share).collect();
    let mean = Work::from_nanos(mean_nanos);
    Ok((Learned { mean, requests, types, speeds, capacity, width, shares }, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned() -> (Learned, Vec<Arc<str>>) {
        let known = |key| LearnedType {
            request_type: RequestType(key),
            mean: Work::from_nanos(1_234_567),
            rank: Work::from_nanos(1_300_000),
            samples: 41,
            variation: LearnedVariation { samples: 41, mean: 1_250_000.5, variance: 0.25 },
        };
        let labels = vec![Arc::from("shop: SELECT \"ü\" = $?\n"), Arc::from("shop: INSERT")];
        (
            Learned {
                mean: Work::from_nanos(999),
                requests: 12,
                types: vec![known(u64::MAX), known(7)],
                speeds: vec![LearnedSpeed { in_flight: 3, speed: 2.5, executions: 41 }],
                capacity: Some(23),
                width: None,
                shares: vec![LearnedShare { class: ClassId::named("gold"), weight: 2.5, share: 0.75 }],
            },
            labels,
        )
    }

    fn written() -> String {
        let (learned, labels) = learned();
        String::from_utf8(write("shop", SystemTime::now(), &learned, &labels)).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(read(written().as_bytes()).unwrap(), learned());
    }

    #[test]
    fn what_is_not_ours_is_told() {
        let why = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert!(why(&written()[1..]).contains("damaged"));
        assert!(why("[1, 2]").contains("damaged"));
        assert!(why(&written().replace("\"requests\"", "\"request\"")).contains("damaged"));
        assert!(why(&written().replace(FORMAT, "something")).contains("something"));
        assert!(why(&written().replace("\"version\": 1", "\"version\": 2")).contains("version 2"));
        assert!(why(&"[".repeat(BYTES_MAX + 1)).contains("longer"));
        assert!(why(&"[".repeat(100_000)).contains("damaged"));
    }

    #[test]
    fn a_document_from_before_speeds_and_capacities_were_kept_is_read() {
        let mut document: serde_json::Value = serde_json::from_str(&written()).unwrap();
        for later in ["speeds", "capacity_found", "width_found", "shares"] {
            document.as_object_mut().unwrap().remove(later);
        }
        let (read, _) = read(document.to_string().as_bytes()).unwrap();
        assert_eq!((read.types, read.speeds, read.capacity), (learned().0.types, Vec::new(), None));
    }

    #[test]
    fn types_that_have_no_number_are_left_out() {
        let (learned, labels) = read(written().replace("0000000000000007", "seven").as_bytes()).unwrap();
        assert_eq!((learned.types.len(), labels.len()), (1, 1));
    }
}
