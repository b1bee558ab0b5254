//! Whatever the bytes: an answer or an error, never a panic; and frames that come back as they went.

use bytes::BytesMut;
use proptest::prelude::*;
use wire::postgres::backend;
use wire::postgres::codec::{Frame, HEADER_LEN, backend_frame, frontend_frame};
use wire::postgres::frontend::{self, Message, Target};
use wire::postgres::startup;

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1_u8.., 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), tag in any::<u8>()) {
        if let Ok(Some((_, taken))) = startup::parse(&bytes) {
            prop_assert!(taken <= bytes.len());
        }
        for frame in [frontend_frame(&bytes), backend_frame(&bytes)].into_iter().flatten().flatten() {
            prop_assert!(frame.len >= HEADER_LEN);
            let _ = frontend::parse(frame.tag, frame.body(&bytes).unwrap_or_default());
        }
        let _ = frontend::parse(tag, &bytes);
        let fields = backend::parse_error(&bytes);
        let _ = (fields.severity(), fields.code(), fields.iter().count());
        let _ = backend::parse_parameter_status(&bytes);
        let _ = backend::parse_backend_key(&bytes);
        let _ = backend::parse_ready(&bytes);
        let _ = backend::parse_authentication(&bytes);
        let _ = backend::parse_command_tag(&bytes);
        let mut out = BytesMut::new();
        backend::rewrite_error(&bytes, &mut out, b'M', <[u8]>::to_vec);
        let whole = Frame { tag: b'E', len: out.len() };
        prop_assert_eq!(backend_frame(&out), Ok(Some(whole)));
    }

    #[test]
    fn a_startup_packet_of_any_bytes_is_read_without_a_panic(
        body in prop::collection::vec(prop::sample::select(vec![&b"user\0"[..], b"a\0", b"\0", b"\xff", b"x", b"_pq_.y\0"]), 0..30),
        code in prop::sample::select(vec![196_608_u32, 196_610, 80_877_102, 80_877_103, 80_877_104, 131_072]),
        lie in -2_i32..3,
    ) {
        let body = body.concat();
        let length = i32::try_from(body.len()).unwrap() + 8 + lie;
        let packet = [&length.to_be_bytes()[..], &code.to_be_bytes(), &body].concat();
        if let Ok(Some((startup::Startup::Session { parameters, .. }, taken))) = startup::parse(&packet) {
            prop_assert!(taken <= packet.len());
            prop_assert!(!startup::user(&parameters).is_empty() && !startup::database(&parameters).is_empty());
            let mut again = BytesMut::new();
            startup::write_startup(&mut again, &parameters);
            let (read, _) = startup::parse(&again).unwrap().unwrap();
            prop_assert_eq!(read, startup::Startup::Session { minor: 0, parameters });
        }
    }

    #[test]
    fn what_is_written_is_read_again(
        (first, second, third) in (name(), name(), name()),
        types in prop::collection::vec(any::<u32>(), 0..10),
        values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..20)), 0..10),
        max_rows in any::<i32>(),
    ) {
        let count = u16::try_from(types.len()).unwrap().to_be_bytes();
        let types: Vec<u8> = count.into_iter().chain(types.iter().flat_map(|oid| oid.to_be_bytes())).collect();
        let mut rest = vec![0, 0];
        rest.extend(u16::try_from(values.len()).unwrap().to_be_bytes());
        for value in &values {
            let length = value.as_ref().map_or(-1, |value| i32::try_from(value.len()).unwrap());
            rest.extend(length.to_be_bytes());
            rest.extend(value.iter().flatten());
        }
        rest.extend([0, 0]);
        let mut out = BytesMut::new();
        frontend::write_parse(&mut out, &first, &second, &types);
        frontend::write_bind(&mut out, &first, &second, &rest);
        frontend::write_describe(&mut out, Target::Portal, &third);
        frontend::write_execute(&mut out, &third, max_rows);
        frontend::write_sync(&mut out);
        let expected = [
            Message::Parse { name: &first, sql: &second, parameter_types: &types },
            Message::Bind { portal: &first, statement: &second, rest: &rest },
            Message::Describe { target: Target::Portal, name: &third },
            Message::Execute { portal: &third, max_rows },
            Message::Sync,
        ];
        let mut buffer = &out[..];
        for message in expected {
            let frame = frontend_frame(buffer).unwrap().unwrap();
            let body = frame.body(buffer).unwrap();
            prop_assert_eq!(frontend::parse(frame.tag, body), Ok(message));
            // No body but the whole one is that message; of a Bind, only the names are read.
            let read = if frame.tag == b'B' { body.len() - rest.len() } else { body.len() };
            for end in 0..read {
                prop_assert!(frontend::parse(frame.tag, &body[..end]).is_err());
            }
            buffer = &buffer[frame.len..];
        }
        prop_assert_eq!(frontend::bind_counts(&rest), Ok((0, u16::try_from(values.len()).unwrap())));
        prop_assert_eq!(frontend::check_bind(&rest), Ok(()));
        for end in 0..rest.len() {
            prop_assert!(frontend::check_bind(&rest[..end]).is_err());
        }
        prop_assert!(buffer.is_empty());
    }
}
