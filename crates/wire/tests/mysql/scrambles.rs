//! Proofs of passwords, against values that Python's hashlib and RFC 8032's reference code have computed.

use wire::mysql::salted::Salted;
use wire::mysql::scramble::{caching_sha2, ed25519, native};

const SCRAMBLE: &[u8; 20] = b"abcdefghijklmnopqrst";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_native_proof_is_the_published_one_and_gives_the_key_to_a_server_that_keeps_its_hash() {
    let key = native::key(b"secret");
    let kept = native::kept(&key);
    assert_eq!(native::parse_kept("*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"), Some(kept));
    let proof = native::prove(&key, SCRAMBLE);
    assert_eq!(hex(&proof), "8817c50fa779daef010ee7577825b0847df9842e");
    assert_eq!(native::check(&kept, SCRAMBLE, &proof), Some(key));
    assert_eq!(native::check(&kept, b"ABCDEFGHIJKLMNOPQRST", &proof), None);
    assert_eq!(native::check(&kept, SCRAMBLE, &proof[1..]), None);
    assert_eq!(native::check(&kept, SCRAMBLE, &[]), None);
}

#[test]
fn what_a_server_keeps_is_read_only_in_its_own_form() {
    for text in [
        "",
        "*",
        "14E65567ABDB5135D0CFD9A70B3032C179A49EE7",
        "*14E6",
        "*+4E65567ABDB5135D0CFD9A70B3032C179A49EE7",
    ] {
        assert_eq!(native::parse_kept(text), None, "{text}");
    }
    let kept = ed25519::kept(b"secret");
    assert_eq!(ed25519::parse_kept("ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY"), Some(kept));
    assert_eq!(ed25519::parse_kept(""), None);
}

#[test]
fn a_caching_sha2_proof_is_the_published_one_and_gives_the_key_to_a_server_that_keeps_its_hash() {
    let key = caching_sha2::key(b"secret");
    let kept = caching_sha2::kept(&key);
    let proof = caching_sha2::prove(&key, SCRAMBLE);
    assert_eq!(hex(&proof), "c76e2898612a4cf042c77fa8c4702c4c64c0c2c557c53c4d75595aaa6abae809");
    assert_eq!(caching_sha2::check(&kept, SCRAMBLE, &proof), Some(key));
    assert_eq!(caching_sha2::check(&kept, &SCRAMBLE[1..], &proof), None);
    let clear = caching_sha2::in_clear(b"secret");
    assert_eq!(clear.as_slice(), b"secret\0");
    let masked = caching_sha2::mask_password(&clear, b"abc");
    assert_eq!(hex(&masked), "12070013071761");
    let uncovered = caching_sha2::mask_password(&masked, b"abc");
    assert_eq!(caching_sha2::from_clear(&uncovered), Some(&b"secret"[..]));
    assert_eq!(caching_sha2::from_clear(b"secret"), None);
}

#[test]
fn an_ed25519_proof_is_checked_with_what_the_server_keeps() {
    let scramble = [7; ed25519::SCRAMBLE_LEN];
    let kept = ed25519::kept(b"secret");
    let proof = ed25519::prove(b"secret", &scramble);
    assert!(ed25519::check(&kept, &scramble, &proof));
    assert!(!ed25519::check(&kept, &[8; 32], &proof));
    assert!(!ed25519::check(&ed25519::kept(b"other"), &scramble, &proof));
    assert!(!ed25519::check(&kept, &scramble, &proof[..63]));
}

/// The example that hashcat publishes for what MySQL 8 keeps (mode 7401); its password is "hashcat".
const KEPT_BY_MYSQL: &str = "0x2441243030 3524 F9CC98CE08892924F50A213B6BC571A2C11778C5 \
    625479393559393965414D45316477456B484F41316E64484742577A2E3162785353526B7554584647562F";

#[test]
fn a_salted_hash_of_mysql_checks_its_password() {
    let text = KEPT_BY_MYSQL.replace(' ', "");
    let kept = Salted::parse(&text).unwrap();
    assert!(kept.is_of(b"hashcat"));
    assert!(!kept.is_of(b"hashcaT") && !kept.is_of(b"") && !kept.is_of(&[b'a'; 257]));
    assert_eq!(kept.to_hexadecimal(), text);
}

#[test]
fn a_salted_hash_is_read_as_tables_show_it_and_only_whole() {
    let made = Salted::new(b"secret", 5, *b"abcdefghijklmnopqrst");
    let hexadecimal = made.to_hexadecimal();
    let bytes = (2..hexadecimal.len()).step_by(2);
    let text: String =
        bytes.map(|at| char::from(u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap())).collect();
    assert!(text.starts_with("$A$005$abcdefghijklmnopqrst"), "{text}");
    assert_eq!(Salted::parse(&text), Some(made));
    for wrong in [&text[1..], &text[..69], &text.replace("$A$005$", "$A$000$"), &text.replace("$A$", "$5$")] {
        assert_eq!(Salted::parse(wrong), None, "{wrong}");
    }
    assert_eq!(Salted::parse(&format!("{}/", hexadecimal.trim_end_matches('0'))), None);
    assert_eq!(format!("{:?}", Salted::parse(&text).unwrap()), "Salted(…)");
}
