//! What is written of a gate is read again, and what is broken is said.

use admission::{Connection, Entry as Admission, Policy, Refused, Request};

use super::*;
use crate::gate::{Arrival, Driver};
use crate::observe::{REASONS, TypeName};
use crate::why::Origin;

fn header() -> Header {
    Header {
        gatekeeper: "1.2.3".to_owned(),
        gate: "shop".to_owned(),
        mode: "enforce".to_owned(),
        configuration: "[[gate]]\n".to_owned(),
        began_unix_seconds: 7,
    }
}

fn entry(at: u64, sequence: u64, what: What) -> Item {
    Item::Entry(Entry { at: Instant::from_nanos(at), sequence, what })
}

fn of_class(class: ClassId) -> What {
    let (request_type, pool) = (RequestType(3), PoolId::default());
    What::Arrived { request_type, class, pool, held: false, immediate: false, deadline: None }
}

/// One of each kind, with the extremes of what they may hold.
fn items() -> Vec<Item> {
    let request_type = RequestType(u64::MAX);
    let pool = PoolId::new(63).expect("a pool");
    let mut items = vec![
        Item::Type { request_type, label: "shop: select ?".to_owned() },
        Item::Lost(u64::MAX),
        Item::LongLimit(None),
        Item::LongLimit(Some(0)),
        Item::LongLimit(Some(4)),
    ];
    let whats = [
        What::Arrived {
            request_type,
            class: ClassId::DEFAULT,
            pool,
            held: true,
            immediate: false,
            deadline: None,
        },
        of_class(ClassId::named("gold")),
        of_class(ClassId(u64::MAX)),
        of_class(ClassId::named("gold")),
        What::Arrived {
            request_type: RequestType(0),
            class: ClassId(1),
            pool: PoolId::default(),
            held: false,
            immediate: true,
            deadline: Some(Duration::from_nanos(u64::MAX)),
        },
        What::Dispatched { work: Work::from_nanos(u64::MAX) },
        What::Completed { outcome: Outcome::Success, upstream_time: Duration::ZERO },
        What::Completed { outcome: Outcome::Failure, upstream_time: Duration::from_secs(1) },
        What::Completed { outcome: Outcome::Canceled, upstream_time: Duration::from_secs(2) },
        What::Completed { outcome: Outcome::Conflict, upstream_time: Duration::from_secs(3) },
        What::Left,
        What::Suspended,
        What::Resumed,
    ];
    let reasons = REASONS.map(What::Rejected);
    for (at, what) in [5, u64::MAX, 0, 3, 2].into_iter().cycle().zip(whats.into_iter().chain(reasons)) {
        items.push(entry(at, u64::MAX - at, what));
    }
    items
}

fn file(blocks: &[&[Item]]) -> Vec<u8> {
    let mut bytes = begin(&header()).expect("a header");
    let mut encoder = Encoder::default();
    for items in blocks {
        items.iter().for_each(|item| encoder.push(item));
        bytes.extend(block(&encoder.take()));
    }
    bytes
}

fn read(bytes: &[u8]) -> (Vec<Item>, Option<TraceError>) {
    let mut items = Vec::new();
    let mut reader = match TraceReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (items, Some(error)),
    };
    assert_eq!(reader.header(), &header());
    loop {
        match reader.next_item() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, None),
            Err(error) => return (items, Some(error)),
        }
    }
}

#[test]
fn what_was_written_reads_the_same() {
    let items = items();
    let (read, error) = read(&file(&[&items[..9], &items[9..], &[]]));
    assert!(error.is_none() && read == items, "{error:?} {read:?}");
}

#[test]
fn an_ordinary_request_takes_some_thirty_bytes() {
    let mut encoder = Encoder::default();
    let request_type = RequestType(0x1234_5678_9abc_def0);
    for sequence in 0..100 {
        let at = 1_000_000_000 + sequence * 1_000_000;
        let pool = PoolId::default();
        let class = if sequence % 2 == 0 { ClassId::DEFAULT } else { ClassId::named("gold") };
        let arrived =
            What::Arrived { request_type, class, pool, held: false, immediate: false, deadline: None };
        encoder.push(&entry(at, sequence, arrived));
        encoder.push(&entry(at + 1_000, sequence, What::Dispatched { work: Work::from_nanos(400_000) }));
        let upstream_time = Duration::from_micros(400);
        encoder.push(&entry(
            at + 401_000,
            sequence,
            What::Completed { outcome: Outcome::Success, upstream_time },
        ));
    }
    assert!(encoder.len() < 3_700, "{}", encoder.len());
}

#[test]
fn a_trace_from_before_classes_is_read_and_a_class_that_no_block_told_is_not() {
    // As they were written: the time, the number, the type, the pool.
    let (items, error) = read(&[begin(&header()).expect("a header"), block(&[ARRIVED, 2, 2, 3, 0])].concat());
    assert!(error.is_none() && items == [entry(1, 1, of_class(ClassId::DEFAULT))], "{error:?} {items:?}");
    let unknown = block(&[ARRIVED_OF_CLASS, 2, 2, 3, 0, 1]);
    let (_, error) = read(&[begin(&header()).expect("a header"), unknown].concat());
    assert!(error.is_some_and(|error| error.to_string().contains("there is no such class")));
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_read_up_to_there_and_said_to_be() {
    let items = items();
    let bytes = file(&[&items[..9], &items[9..]]);
    let whole = read(&bytes[..bytes.len()]).0.len();
    let first = file(&[&items[..9]]).len();
    let start = file(&[]).len();
    for length in 0..bytes.len() {
        let (read, error) = read(&bytes[..length]);
        let between = length == start || length == first;
        assert_eq!(error.is_none(), between, "{length}: {error:?}");
        assert_eq!(read.len(), if length >= first { 9 } else { 0 });
        if let Some(TraceError { offset, fault }) = error {
            assert!(
                offset <= length as u64 && matches!(fault, Fault::Truncated | Fault::Foreign),
                "{length}: {fault}"
            );
            assert!(length < first || offset == first as u64, "{length}: {offset}");
        }
    }
    assert_eq!(whole, items.len());
}

#[test]
fn a_changed_byte_is_found_with_its_block() {
    let items = items();
    let bytes = file(&[&items]);
    let start = file(&[]).len();
    for place in start + 4..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        let (read, error) = read(&damaged);
        let error = error.expect("it is found");
        assert!(read.is_empty() && error.offset == start as u64, "{place}: {error}");
        assert!(matches!(error.fault, Fault::Checksum), "{error}");
    }
}

#[test]
fn what_makes_no_sense_is_said_with_its_offset() {
    let start = file(&[]).len() as u64;
    for (payload, place, why) in [
        (&[99][..], 0, "there is no such item"),
        (&[LOST, 1, LOST], 2, "an item is cut off"),
        (&[LOST, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], 0, "a number is too large"),
        (&[TYPE, 1, 0xff, 0x7f], 0, "a name is too long"),
        (&[TYPE, 1, 2, b'a'], 0, "a name is cut off"),
        (&[TYPE, 1, 1, 0xff], 0, "a name isn't UTF-8"),
        (&[ARRIVED, 0, 0, 0, 0xff, 0x7f], 0, "there is no such pool"),
        (&[COMPLETED, 0, 0, 4, 0], 0, "there is no such outcome"),
        (&[REJECTED, 0, 0, 99], 0, "there is no such reason"),
    ] {
        let mut bytes = file(&[]);
        bytes.extend(block(payload));
        let error = read(&bytes).1.expect("it is found");
        assert_eq!(error.to_string(), format!("byte {}: is damaged: {why}", start + 8 + place));
    }
}

#[test]
fn what_is_no_trace_is_said_to_be_none() {
    let said = |bytes: &[u8]| read(bytes).1.expect("it is none").to_string();
    assert_eq!(said(b""), "byte 0: is no trace of a gatekeeper");
    assert_eq!(said(b"PNG and more"), "byte 0: is no trace of a gatekeeper");
    assert_eq!(said(b"GKTRACE\x02"), "byte 7: is a trace of version 2, and 1 is understood");
    assert_eq!(said(b"GKTRACE\x01\xff\xff\xff\xff\0\0\0\0"), "byte 8: is damaged: a block is too long");
    let mut foreign = b"GKTRACE\x01".to_vec();
    foreign.extend(block(b"{}"));
    assert_eq!(said(&foreign), "byte 16: is damaged: its header can't be read");
}

#[test]
fn long_names_are_cut_at_a_letter() {
    let label = "é".repeat(LABEL_BYTES_MAX);
    let mut encoder = Encoder::default();
    encoder.push(&Item::Type { request_type: RequestType(1), label });
    let payload = encoder.take();
    let Ok(Some(Item::Type { label, .. })) = Decoder::new(&payload).next_item() else { panic!("no name") };
    assert_eq!(label.len(), LABEL_BYTES_MAX);
}

fn request(request_type: u64) -> Request {
    Request {
        request_type: RequestType(request_type),
        class: ClassId::DEFAULT,
        pool: PoolId::default(),
        connection: Connection::Needed,
        entry: Admission::Queued,
        client: None,
        tenant: None,
        deadline: None,
    }
}

/// A gate with one connection, and its trace.
fn recorded(path: &std::path::Path, bytes_max: u64, full: Full, requests: u64) {
    let policy = Policy {
        connections: 1,
        queue_max: 0,
        long_limit: Some(admission::LongLimit::Fixed(3)),
        ..Policy::default()
    };
    let driver = Driver::new("shop", policy, 1);
    driver.set_pool(PoolId::default(), 1);
    let recording =
        record(&driver, header(), Some(TraceFile { path: path.to_owned(), bytes_max, full })).unwrap();
    for number in 0..requests {
        let name = |key| TypeName::new(RequestType(key), format!("type {key}").into());
        let kind = number % 2;
        let Arrival::Dispatched(permit) =
            driver.arrive(request(kind), Origin::default(), None, || name(kind))
        else {
            panic!("it waits")
        };
        if number == 0 {
            // There is room for one, and for none that waits.
            assert!(matches!(
                driver.arrive(request(2), Origin::default(), None, || name(2)),
                Arrival::Rejected(Refused { reason: Reason::QueueFull, .. }, _)
            ));
        }
        permit.complete(Outcome::Success, Duration::from_micros(number));
    }
    recording.finish();
}

#[tokio::test]
async fn a_gate_is_recorded_as_it_was_asked_and_as_it_did() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.trace");
    recorded(&path, 1 << 30, Full::Stop, 3);
    let bytes = std::fs::read(&path).unwrap();
    let (items, error) = read(&bytes);
    assert!(error.is_none(), "{error:?}");
    let names: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Item::Type { label, .. } => Some(label.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["type 0", "type 2", "type 1"]);
    assert!(items.contains(&Item::LongLimit(Some(3))));
    let told: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Item::Entry(Entry { sequence, what, .. }) => Some((*sequence, *what)),
            _ => None,
        })
        .collect();
    let kinds: Vec<_> = told
        .iter()
        .map(|(sequence, what)| {
            let what = match what {
                What::Arrived { request_type, .. } => format!("arrived {}", request_type.0),
                What::Dispatched { .. } => "dispatched".to_owned(),
                What::Completed { upstream_time, .. } => format!("completed {}", upstream_time.as_micros()),
                What::Rejected(reason) => format!("rejected {}", reason.as_str()),
                _ => "other".to_owned(),
            };
            format!("{sequence} {what}")
        })
        .collect();
    let expected = [
        "0 arrived 0",
        "0 dispatched",
        "1 arrived 2",
        "1 rejected queue_full",
        "0 completed 0",
        "2 arrived 1",
        "2 dispatched",
        "2 completed 1",
        "3 arrived 0",
        "3 dispatched",
        "3 completed 2",
    ];
    assert_eq!(kinds, expected);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    // Another recording puts this one aside.
    recorded(&path, 1 << 30, Full::Stop, 1);
    assert_eq!(std::fs::read(directory.path().join("shop.trace.1")).unwrap(), bytes);
}

#[tokio::test]
async fn a_type_that_gets_a_name_of_its_own_has_that_in_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("site.trace");
    let driver = Driver::new("site", Policy { connections: 1, ..Policy::default() }, 1);
    driver.set_pool(PoolId::default(), 1);
    let file = TraceFile { path: path.clone(), bytes_max: 1 << 30, full: Full::Stop };
    let recording = record(&driver, header(), Some(file)).unwrap();
    let key = RequestType(1);
    let seen_with_others = TypeName { key, row: RequestType(9), label: "GET /*/*".into() };
    for name in [seen_with_others, TypeName::new(key, "GET /report/*".into())] {
        let Arrival::Dispatched(permit) = driver.arrive(request(1), Origin::default(), None, || name) else {
            panic!("it waits")
        };
        permit.complete(Outcome::Success, Duration::from_micros(1));
    }
    recording.finish();
    let (items, _) = read(&std::fs::read(&path).unwrap());
    let last = items.iter().rev().find_map(|item| match item {
        Item::Type { request_type, label } if *request_type == key => Some(label.as_str()),
        _ => None,
    });
    assert_eq!(last, Some("GET /report/*"));
}

#[tokio::test]
async fn a_full_file_stops_or_goes_aside_and_each_can_be_read_by_itself() {
    const MAX: u64 = 400_000;
    let directory = tempfile::tempdir().unwrap();
    for (name, full) in [("stop", Full::Stop), ("rotate", Full::Rotate)] {
        let path = directory.path().join(name);
        recorded(&path, MAX, full, 40_000);
        let before = directory.path().join(format!("{name}.1"));
        assert_eq!(before.exists(), full == Full::Rotate);
        for path in [Some(path), Some(before).filter(|path| path.exists())].into_iter().flatten() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(bytes.len() as u64 <= MAX, "{}", bytes.len());
            let (items, error) = read(&bytes);
            assert!(error.is_none(), "{error:?}");
            let named =
                items.iter().any(|item| matches!(item, Item::Type { label, .. } if label == "type 1"));
            assert!(named && items.contains(&Item::LongLimit(Some(3))), "{name}");
        }
    }
}
