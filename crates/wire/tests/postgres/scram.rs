//! SCRAM's texts: the dialogue of RFC 7677, what PostgreSQL refuses, and garbage.

use bytes::BytesMut;
use proptest::prelude::*;
use wire::postgres::authentication::{
    SaslInitial, parse_password, parse_sasl_initial, write_md5_challenge, write_password, write_sasl,
    write_sasl_continue, write_sasl_final, write_sasl_initial, write_sasl_response,
};
use wire::postgres::backend::{Authentication, parse_authentication};
use wire::postgres::codec::{HEADER_LEN, backend_frame, frontend_frame};
use wire::postgres::scram::{
    ChannelBinding, KEY_BYTES, NONCE_MAX, SALT_MAX, ScramError, client_final, client_final_without_proof,
    client_first_bare, parse_client_final, parse_client_first, parse_server_final, parse_server_first,
    server_final, server_first,
};

/// The example of RFC 7677, section 3.
const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER_FIRST: &str =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                            p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

#[test]
fn the_dialogue_of_the_rfc_is_read_and_written() {
    let first = parse_client_first(CLIENT_FIRST.as_bytes()).unwrap();
    assert_eq!(first.binding, ChannelBinding::Unsupported);
    assert_eq!((first.header, first.bare), ("n,,", "n=user,r=rOprNGfwEbeRWgbNEkqO"));
    assert_eq!(first.nonce, "rOprNGfwEbeRWgbNEkqO");

    let challenge = parse_server_first(SERVER_FIRST.as_bytes()).unwrap();
    assert_eq!((challenge.salt.len(), challenge.iterations), (16, 4096));
    assert_eq!(server_first(challenge.nonce, &challenge.salt, challenge.iterations), SERVER_FIRST);

    let last = parse_client_final(CLIENT_FINAL.as_bytes()).unwrap();
    assert_eq!((&last.channel[..], last.nonce), (&b"n,,"[..], challenge.nonce));
    assert_eq!(client_final_without_proof(&last.channel, last.nonce), last.without_proof);
    assert_eq!(client_final(last.without_proof, &last.proof), CLIENT_FINAL);

    let signature = parse_server_final(SERVER_FINAL.as_bytes()).unwrap();
    assert_eq!(server_final(&signature), SERVER_FINAL);
}

#[test]
fn what_a_client_says_about_its_channel_is_read() {
    let binding = |text: &'static str| parse_client_first(text.as_bytes()).map(|first| first.binding);
    assert_eq!(binding("y,,n=,r=x"), Ok(ChannelBinding::Unused));
    assert_eq!(binding("p=tls-server-end-point,,n=,r=x"), Ok(ChannelBinding::Bound("tls-server-end-point")));
    for wrong in ["", "n", "x,,n=,r=x", "p,,n=,r=x", ",,n=,r=x"] {
        assert_eq!(binding(wrong), Err(ScramError::Flag), "{wrong}");
    }
}

#[test]
fn what_is_not_spoken_here_is_refused() {
    let first = |text: &'static str| parse_client_first(text.as_bytes()).unwrap_err();
    assert_eq!(first("n,a=other,n=,r=x"), ScramError::AuthorizationIdentity);
    assert_eq!(first("n,b=other,n=,r=x"), ScramError::Expected('a'));
    assert_eq!(first("n,,m=ext,n=,r=x"), ScramError::Extension);
    assert_eq!(first("n,,r=x"), ScramError::Expected('n'));
    assert_eq!(first("n,,n="), ScramError::Expected('r'));
    assert_eq!(first("n,,n=,r="), ScramError::Value('r'));
    assert_eq!(first("n,,n=,r=a b"), ScramError::Value('r'));
    assert_eq!(first("n,,n=,r=\u{e9}"), ScramError::Value('r'));
    assert_eq!(parse_client_first(b"n,,n=,r=\xff").unwrap_err(), ScramError::NotUtf8);
    // Extensions behind the nonce are ignored, as the server does.
    assert_eq!(parse_client_first(b"n,,n=,r=x,z=1").unwrap().nonce, "x");

    let challenge = |text: &'static str| parse_server_first(text.as_bytes()).unwrap_err();
    assert_eq!(challenge("r=x,s=AA==,i=0"), ScramError::Value('i'));
    assert_eq!(challenge("r=x,s=AA==,i=+1"), ScramError::Value('i'));
    assert_eq!(challenge("r=x,s=AA==,i=4294967296"), ScramError::Value('i'));
    assert_eq!(challenge("r=x,s=A,i=1"), ScramError::Value('s'));
    assert_eq!(challenge("m=x,r=x,s=AA==,i=1"), ScramError::Extension);

    let last = |text: &'static str| parse_client_final(text.as_bytes()).unwrap_err();
    assert_eq!(last("c=biws,r=x"), ScramError::Expected('p'));
    assert_eq!(last("c=biws,r=x,p=AA=="), ScramError::Value('p'));
    assert_eq!(last("r=x,c=biws,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="), ScramError::Expected('c'));
    assert_eq!(parse_server_final(b"e=invalid-proof").unwrap_err(), ScramError::ServerError);
    assert_eq!(parse_server_final(b"v=AA==").unwrap_err(), ScramError::Value('v'));
}

#[test]
fn nonces_and_salts_have_bounds() {
    let first = |length| format!("n,,n=,r={}", "x".repeat(length));
    assert!(parse_client_first(first(NONCE_MAX).as_bytes()).is_ok());
    assert!(parse_client_first(first(NONCE_MAX + 1).as_bytes()).is_err());
    let challenge = |length| server_first("x", &vec![0; length], 1);
    assert!(parse_server_first(challenge(SALT_MAX).as_bytes()).is_ok());
    assert!(parse_server_first(challenge(SALT_MAX + 1).as_bytes()).is_err());
}

fn written(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    write(&mut out);
    out.to_vec()
}

#[test]
fn challenges_are_what_a_client_of_the_protocol_reads() {
    let read = |bytes: &[u8]| {
        assert_eq!(backend_frame(bytes).unwrap().unwrap().len, bytes.len());
        format!("{:?}", parse_authentication(&bytes[HEADER_LEN..]).unwrap())
    };
    let said = |authentication: Authentication<'_>| format!("{authentication:?}");
    let mechanisms = vec!["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];
    assert_eq!(read(&written(|out| write_sasl(out, &mechanisms))), said(Authentication::Sasl { mechanisms }));
    assert_eq!(
        read(&written(|out| write_sasl_continue(out, b"x"))),
        said(Authentication::SaslContinue(b"x"))
    );
    assert_eq!(read(&written(|out| write_sasl_final(out, b"y"))), said(Authentication::SaslFinal(b"y")));
    let salt = [1, 2, 3, 0];
    assert_eq!(read(&written(|out| write_md5_challenge(out, salt))), said(Authentication::Md5 { salt }));
}

#[test]
fn answers_are_read_as_they_were_written() {
    for data in [None, Some(&b""[..]), Some(b"n,,n=,r=x")] {
        let initial = SaslInitial { mechanism: b"SCRAM-SHA-256", data };
        let bytes = written(|out| write_sasl_initial(out, &initial));
        assert_eq!(frontend_frame(&bytes).unwrap().unwrap().len, bytes.len());
        let body = &bytes[HEADER_LEN..];
        assert_eq!(parse_sasl_initial(body), Ok(initial));
        for end in 0..body.len() {
            assert!(parse_sasl_initial(&body[..end]).is_err());
        }
        assert!(parse_sasl_initial(&[body, b"x"].concat()).is_err());
    }
    assert!(parse_sasl_initial(b"X\0\xff\xff\xff\xfe").is_err());
    assert_eq!(parse_password(&written(|out| write_password(out, b"me"))[HEADER_LEN..]), Ok(&b"me"[..]));
    assert!(parse_password(b"me").is_err() && parse_password(b"me\0x").is_err());
    assert_eq!(&written(|out| write_sasl_response(out, b"z"))[HEADER_LEN..], b"z");
}

/// Pieces of which nearly every message is nearly one.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 18] = [
        b"n", b"y", b"p=", b",", b",", b"a=", b"m=", b"n=", b"r=", b"s=", b"i=", b"c=", b"v=", b"e=",
        b"biws", b"=", b"4096", b"\xff",
    ];
    prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_read_without_a_panic(bytes in prop_oneof![pieces(), prop::collection::vec(any::<u8>(), 0..200)]) {
        if let Ok(first) = parse_client_first(&bytes) {
            let whole = [first.header, first.bare].concat();
            prop_assert_eq!(whole.as_bytes(), &bytes[..]);
        }
        if let Ok(challenge) = parse_server_first(&bytes) {
            prop_assert!(challenge.iterations > 0 && challenge.salt.len() <= SALT_MAX);
        }
        if let Ok(last) = parse_client_final(&bytes) {
            prop_assert!(bytes.starts_with(last.without_proof.as_bytes()));
        }
        let _ = parse_server_final(&bytes);
        let _ = parse_sasl_initial(&bytes);
        let _ = parse_password(&bytes);
    }

    #[test]
    fn what_is_written_is_read(
        nonce in "[!-+\\--~]{1,50}",
        salt in prop::collection::vec(any::<u8>(), 0..40),
        iterations in 1_u32..,
        proof in any::<[u8; KEY_BYTES]>(),
        channel in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let bare = client_first_bare(&nonce);
        let first = format!("n,,{bare}");
        prop_assert_eq!(parse_client_first(first.as_bytes()).unwrap().nonce, &nonce);
        let challenge = server_first(&nonce, &salt, iterations);
        let read = parse_server_first(challenge.as_bytes()).unwrap();
        prop_assert_eq!((read.nonce, read.salt, read.iterations), (&nonce[..], salt, iterations));
        let last = client_final(&client_final_without_proof(&channel, &nonce), &proof);
        let read = parse_client_final(last.as_bytes()).unwrap();
        prop_assert_eq!((read.channel, read.nonce, read.proof), (channel, &nonce[..], proof));
        prop_assert_eq!(parse_server_final(server_final(&proof).as_bytes()), Ok(proof));
    }
}
