//! Identities: what clients prove, what servers ask, and what is stored of users.

use std::sync::LazyLock;

use wire::postgres::authentication::parse_sasl_initial;
use wire::postgres::scram::{ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, parse_client_first};

use super::super::auth::scram::{Channel, Keys, Prover, Verification, Verifier};
use super::super::auth::secret::{Md5Hash, Secret};
use super::super::auth::users::Users;
use super::super::auth_query::row;
use super::super::login::expects_binding;
use super::super::server::first_column;

/// The keys of somebody, derived in no time.
static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys::derive("pencil", b"0123456789abcdef", 1));
static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| KEYS.verifier());
/// Our part of every nonce.
const NONCE: &str = "ours";

/// Parts of the input, each behind its length.
fn parts<const N: usize>(mut data: &[u8]) -> [&[u8]; N] {
    std::array::from_fn(|_| {
        let Some((length, rest)) = data.split_first() else { return &[][..] };
        let (part, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        part
    })
}

/// Both sides of a SCRAM exchange with a client that says anything: none is let in that doesn't know the
/// keys.
pub fn scram(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let channel = (choice & 1 == 1).then_some(&b"channel"[..]);
    let mechanism = if choice & 2 == 0 { SCRAM_SHA_256 } else { SCRAM_SHA_256_PLUS };
    let [first, last, challenge, signature] = parts(rest);
    verify(channel, mechanism, first, last);
    let said = match (choice >> 2 & 3, channel) {
        (0, _) | (_, None) => Channel::None,
        (1, _) => Channel::Unoffered,
        (_, Some(data)) => Channel::Bound(data),
    };
    prove(&Prover::new(NONCE.to_owned(), said), challenge, signature);
}

fn verify(channel: Option<&[u8]>, mechanism: &str, first: &[u8], last: &[u8]) {
    let begun = Verification::begin(&VERIFIER, channel, mechanism.as_bytes(), first, NONCE);
    let Ok(verification) = begun else { return };
    let read = parse_client_first(first).expect("an exchange begins with a message of SCRAM");
    assert_eq!(matches!(read.binding, ChannelBinding::Bound(_)), mechanism == SCRAM_SHA_256_PLUS);
    // A client that knows the keys, and says the same about the channel, gets in.
    let said = match (read.binding, channel) {
        (ChannelBinding::Bound(_), Some(data)) => Channel::Bound(data),
        (ChannelBinding::Unused, _) => Channel::Unoffered,
        _ => Channel::None,
    };
    let prover = Prover::new(read.nonce.to_owned(), said);
    let challenge = verification.server_first.as_bytes();
    assert!(prover.read(challenge).is_ok_and(|asked| asked == (VERIFIER.salt.clone(), 1)));
    let (honest, signature) = prover.answer(challenge, &KEYS).expect("the keys fit");
    if prover.client_first().as_bytes() == first {
        let (taken, signed) = verification.finish(honest.as_bytes()).expect("the proof is right");
        signature.check(signed.as_bytes()).expect("the verifier knows the secret");
        assert!(taken.verifier() == *VERIFIER, "the keys that are taken over are the user's");
    }
    assert!(verification.finish(last).is_err() || last == honest.as_bytes());
}

fn prove(prover: &Prover, challenge: &[u8], signature: &[u8]) {
    let Ok((salt, iterations)) = prover.read(challenge) else { return };
    match prover.answer(challenge, &KEYS) {
        Ok((_, expected)) => {
            assert!(KEYS.fit(&salt, iterations));
            assert!(expected.check(signature).is_err(), "a server that doesn't know the secret can't sign");
        }
        Err(_) => assert!(!KEYS.fit(&salt, iterations)),
    }
}

/// A users file: a user that is written down is read as it is, and any other text without a panic.
pub fn users(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Users::parse(text) {
        Ok(users) => {
            assert!(users.len() <= text.lines().count() && users.secrets().count() <= users.len());
            users.secrets().for_each(use_secret);
        }
        Err((line, why, _)) => assert!((1..=text.lines().count()).contains(&line) && !why.is_empty()),
    }
    let (name, secret) = text.split_once('\n').unwrap_or((text, ""));
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    if name.is_empty() || text.contains('\0') || secret.contains('\n') {
        return;
    }
    let Ok(users) = Users::parse(&format!("{} {}", quoted(name), quoted(secret))) else {
        return assert!(secret.starts_with("SCRAM-SHA-256$"));
    };
    match &users.get(name).expect("the user is known").secret {
        None => assert!(secret.is_empty()),
        Some(Secret::Plain(password)) => assert_eq!(password.as_str(), secret),
        Some(read) => use_secret(read),
    }
}

fn use_secret(secret: &Secret) {
    let salt = [1, 2, 3, 4];
    match secret {
        Secret::Md5(hash) => assert!(hash.accepts(salt, hash.response(salt).as_bytes())),
        Secret::Plain(password) => {
            let hash = Md5Hash::new("ann", password.as_str());
            assert!(!hash.accepts(salt, password.as_str().as_bytes()));
        }
        Secret::Scram(verifier) => {
            let first = b"n,,n=,r=x";
            let begun = Verification::begin(verifier, None, SCRAM_SHA_256.as_bytes(), first, NONCE);
            let challenge = begun.expect("any stored secret can be asked for").server_first;
            let asked = Prover::new("x".to_owned(), Channel::None).read(challenge.as_bytes());
            assert!(asked.is_ok_and(|asked| asked == (verifier.salt.clone(), verifier.iterations)));
        }
    }
}

/// Rows: what `auth_query` returns, and the values of our own statements.
pub fn rows(data: &[u8]) {
    let value = first_column(data);
    if let Ok((name, _)) = row(data) {
        assert_eq!(value.as_deref(), Some(name.as_bytes()));
    }
    let [name, secret] = parts(data);
    let mut body = vec![0, 2];
    for column in [name, secret] {
        body.extend_from_slice(&u32::try_from(column.len()).expect("a part is short").to_be_bytes());
        body.extend_from_slice(column);
    }
    assert_eq!(first_column(&body).as_deref(), Some(name));
    if let Ok((read, user)) = row(&body) {
        assert_eq!((read.as_bytes(), user.secret.is_none()), (name, secret.is_empty()));
        user.secret.iter().for_each(use_secret);
    }
    assert!(first_column(&body[..body.len() - secret.len()]).is_some());
    assert!(secret.is_empty() || row(&body[..body.len() - 1]).is_err());
}

/// A client's first SASL message on its way to a server: one that binds to a channel, or could have, isn't
/// overlooked.
pub fn sasl_initial(data: &[u8]) {
    let expects = expects_binding(data);
    let Ok(initial) = parse_sasl_initial(data) else { return };
    if let Ok(first) = parse_client_first(initial.data.unwrap_or_default()) {
        assert_eq!(expects, first.binding != ChannelBinding::Unsupported);
    }
}
