//! What clients are asked for, and that nobody can tell which users exist.

use super::secret::scram_secret;
use super::*;

fn authentication(method: Method, lines: &str) -> Authentication {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.txt");
    std::fs::write(&path, lines).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let settings = AuthSettings { method, users_file: Some(path), ..AuthSettings::default() };
    Authentication::load(settings).unwrap()
}

const MD5: &str = "md59d792a3a8853c2411afb9163d088c036";

fn scram(iterations: u32) -> String {
    scram_secret(&Keys::derive("secret", b"0123456789abcdef", iterations).verifier())
}

fn challenge(authentication: &Authentication, user: &str) -> (Challenge, Result<(), Doomed>) {
    authentication.challenge(authentication.user(user).map(|user| &**user))
}

#[test]
fn each_user_is_asked_for_what_is_stored() {
    let lines = format!("\"s\" \"{}\"\n\"m\" \"{MD5}\"\n\"p\" \"plain\"\n\"n\" \"\"\n", scram(4096));
    let of = authentication(Method::Scram, &lines);
    assert_eq!(challenge(&of, "s"), (Challenge::Scram, Ok(())));
    assert_eq!(challenge(&of, "p"), (Challenge::Scram, Ok(())));
    assert_eq!(challenge(&of, "m"), (Challenge::Scram, Err(Doomed::OnlyMd5)));
    assert_eq!(challenge(&of, "n"), (Challenge::Scram, Err(Doomed::NoSecret)));
    assert_eq!(challenge(&of, "?"), (Challenge::Scram, Err(Doomed::Unknown)));
    let of = authentication(Method::Md5, &lines);
    assert_eq!(challenge(&of, "s"), (Challenge::Scram, Ok(())));
    assert_eq!(challenge(&of, "p"), (Challenge::Md5, Ok(())));
    assert_eq!(challenge(&of, "m"), (Challenge::Md5, Ok(())));
    assert_eq!(challenge(&of, "?"), (Challenge::Md5, Err(Doomed::Unknown)));
    let of = authentication(Method::Md5, &format!("\"s\" \"{}\"\n", scram(4096)));
    assert_eq!(challenge(&of, "?"), (Challenge::Scram, Err(Doomed::Unknown)));
}

#[test]
fn an_unknown_user_looks_like_a_known_one() {
    let of = authentication(Method::Scram, &format!("\"s\" \"{}\"\n", scram(7000)));
    let key = of.key_of_nobody();
    let mock = of.mock_verifier("nobody", &key);
    assert_eq!((mock.iterations, mock.salt.len()), (7000, 16));
    assert_ne!(mock.salt, of.mock_verifier("somebody", &key).salt);
    // Also after a restart. Where nothing is secret nobody can compute it either.
    let key_of = |lines: &str| authentication(Method::Scram, lines).key_of_nobody();
    let lines = format!("\"s\" \"{}\"\n", scram(7000));
    assert_eq!(key_of(&lines), key);
    assert_ne!(key_of(&format!("{lines}\"p\" \"plain\"\n")), key);
    assert_ne!(key_of("\"n\" \"\"\n"), key_of("\"n\" \"\"\n"));
}

#[test]
fn a_user_for_the_query_must_be_able_to_log_in() {
    let with = |user: &str| {
        let mut settings = authentication(Method::Scram, "\"s\" \"secret\"\n").settings;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.txt");
        let lines = format!("\"s\" \"{}\"\n\"p\" \"plain\"\n\"m\" \"{MD5}\"\n\"n\" \"\"\n", scram(4096));
        std::fs::write(&path, lines).unwrap();
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
        settings.users_file = Some(path);
        let (database, sql) = ("postgres".to_owned(), AUTH_QUERY.to_owned());
        settings.query = Some(Query { user: user.to_owned(), database, sql });
        Authentication::load(settings).map(|of| of.users())
    };
    assert!(with("s").unwrap_err().to_string().contains("auth_user \"s\""));
    for user in ["p", "m", "n", "elsewhere"] {
        assert_eq!(with(user).unwrap(), 4);
    }
}
