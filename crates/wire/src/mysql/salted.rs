//! What a server of MySQL 8 keeps for `caching_sha2_password`: a salted hash of many rounds.
//!
//! The hash is SHA-crypt by U. Drepper ("Unix crypt using SHA-256 and SHA-512", 2007), but with a salt of 20
//! bytes. It checks a password that is known. No proof of the fast way can be checked by it.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Bytes of a salt.
const SALT_LEN: usize = 20;
/// Bytes of a hash.
const HASH_LEN: usize = 32;
/// What comes before the salt: the kind of hash, and the thousands of its rounds in hexadecimal digits.
const HEAD_LEN: usize = "$A$005$".len();
/// Characters of a hash.
const DIGITS_LEN: usize = 43;
/// Characters of the whole.
const TEXT_LEN: usize = HEAD_LEN + SALT_LEN + DIGITS_LEN;
/// The longest password that a server takes, in bytes.
const PASSWORD_MAX: usize = 256;
/// The digits of crypt's own Base64.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A salted hash.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Salted {
    rounds: u32,
    salt: [u8; SALT_LEN],
    digits: [u8; DIGITS_LEN],
}

impl std::fmt::Debug for Salted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Salted(…)")
    }
}

impl Salted {
    /// The hash of a password with so many thousands of rounds, at most 4,095.
    #[must_use]
    pub fn new(password: &[u8], thousands: u16, salt: [u8; SALT_LEN]) -> Self {
        let rounds = u32::from(thousands.min(0xfff)) * 1_000;
        let digits = digits(&crypt(password, &salt, rounds));
        Self { rounds, salt, digits }
    }

    /// A hash of so many thousands of rounds, at most 4,095. It is that of no password that anybody knows if
    /// the bytes are random.
    #[must_use]
    pub fn of_nobody(thousands: u16, random: [u8; SALT_LEN + DIGITS_LEN]) -> Self {
        let rounds = u32::from(thousands.min(0xfff)) * 1_000;
        let mut salted = Self { rounds, salt: [0; SALT_LEN], digits: [0; DIGITS_LEN] };
        let (salt, rest) = random.split_at(SALT_LEN);
        salted.salt.copy_from_slice(salt);
        for (digit, byte) in salted.digits.iter_mut().zip(rest) {
            *digit = DIGITS[usize::from(byte & 63)];
        }
        salted
    }

    /// How many thousands of rounds it has.
    #[must_use]
    pub fn thousands(&self) -> u16 {
        // At most 4,095: it has three hexadecimal digits.
        u16::try_from(self.rounds / 1_000).unwrap_or(u16::MAX)
    }

    /// Reads what a server keeps as its tables show it, or as `0x…` with all of it in hexadecimal digits, as
    /// `print_identified_with_as_hex` has it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hexadecimal) => decode(hexadecimal)?,
            None => text.as_bytes().to_vec(),
        };
        let bytes: &[u8; TEXT_LEN] = bytes.as_slice().try_into().ok()?;
        let rest = bytes.strip_prefix(b"$A$")?;
        let (rounds, rest) = rest.split_first_chunk::<3>()?;
        let (salt, digits) = rest.strip_prefix(b"$")?.split_first_chunk::<SALT_LEN>()?;
        let rounds = std::str::from_utf8(rounds).ok().filter(|text| !text.starts_with('+'))?;
        let rounds = u32::from_str_radix(rounds, 16).ok().filter(|rounds| *rounds > 0)? * 1_000;
        let is_digit = |byte: &u8| DIGITS.contains(byte);
        let digits: [u8; DIGITS_LEN] = digits.try_into().ok().filter(|_| digits.iter().all(is_digit))?;
        Some(Self { rounds, salt: *salt, digits })
    }

    /// Whether this is the hash of a password. Takes milliseconds of a processor.
    #[must_use]
    pub fn is_of(&self, password: &[u8]) -> bool {
        if password.len() > PASSWORD_MAX {
            return false;
        }
        digits(&crypt(password, &self.salt, self.rounds)).ct_eq(&self.digits).into()
    }

    /// What [`Salted::parse`] reads, in hexadecimal digits: a salt may hold any character.
    #[must_use]
    pub fn to_hexadecimal(&self) -> String {
        let mut out = "0x".to_owned();
        let head = format!("$A${:03x}$", self.rounds / 1_000);
        for byte in head.bytes().chain(self.salt).chain(self.digits) {
            let _ = write!(out, "{byte:02X}");
        }
        out
    }
}

fn decode(hexadecimal: &str) -> Option<Vec<u8>> {
    if hexadecimal.len() != 2 * TEXT_LEN || !hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(hexadecimal.get(at..at + 2)?, 16).ok();
    (0..hexadecimal.len()).step_by(2).map(pair).collect()
}

/// `bytes`, repeated or cut to a length.
fn stretched(bytes: &[u8; HASH_LEN], length: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(bytes.iter().copied().cycle().take(length).collect())
}

/// SHA-crypt, by the steps of Drepper's text.
fn crypt(password: &[u8], salt: &[u8], rounds: u32) -> [u8; HASH_LEN] {
    let other: [u8; HASH_LEN] =
        Sha256::new().chain_update(password).chain_update(salt).chain_update(password).finalize().into();
    let mut first = Sha256::new().chain_update(password).chain_update(salt);
    first.update(&*stretched(&other, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        if bits & 1 == 1 {
            first.update(other);
        } else {
            first.update(password);
        }
        bits >>= 1;
    }
    let mut hash: [u8; HASH_LEN] = first.finalize().into();
    let repeated = |bytes: &[u8], times: usize| -> [u8; HASH_LEN] {
        let mut hasher = Sha256::new();
        for _ in 0..times {
            hasher.update(bytes);
        }
        hasher.finalize().into()
    };
    let of_password = stretched(&repeated(password, password.len()), password.len());
    let of_salt = stretched(&repeated(salt, 16 + usize::from(hash[0])), salt.len());
    for round in 0..rounds {
        let is_odd = round % 2 == 1;
        let mut hasher = Sha256::new();
        hasher.update(if is_odd { &of_password[..] } else { &hash[..] });
        if round % 3 > 0 {
            hasher.update(&*of_salt);
        }
        if round % 7 > 0 {
            hasher.update(&*of_password);
        }
        hasher.update(if is_odd { &hash[..] } else { &of_password[..] });
        hash = hasher.finalize().into();
    }
    hash
}

/// A hash in crypt's own Base64, which takes three bytes from three places each time.
fn digits(hash: &[u8; HASH_LEN]) -> [u8; DIGITS_LEN] {
    let mut out = [0; DIGITS_LEN];
    let mut places = [0, 10, 20];
    for group in out.chunks_mut(4) {
        // The last two bytes have no third one before them.
        let [high, middle, low] = if group.len() == 3 { [HASH_LEN, 31, 30] } else { places };
        let byte = |at: usize| hash.get(at).map_or(0, |byte| u32::from(*byte));
        let mut word = byte(high) << 16 | byte(middle) << 8 | byte(low);
        for digit in group {
            *digit = DIGITS[(word & 63) as usize];
            word >>= 6;
        }
        places = [places[2] + 1, places[0] + 1, places[1] + 1];
    }
    out
}
