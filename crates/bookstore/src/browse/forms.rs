//! What a visitor writes into the shop's forms. Lengths are those of TPC-W 1.8, clause 2; letters include
//! such as have to be encoded.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngExt;
use rand::rngs::StdRng;

use crate::names;

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const BETWEEN: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 &+'-=%<";
/// How many of a hundred orders go to another address.
const ELSEWHERE_OF_HUNDRED: u32 = 5;
/// A year of the Gregorian calendar.
const SECONDS_OF_YEAR: u64 = 31_556_952;

/// Fields as a form is sent.
pub(super) fn encoded(fields: &[(&str, &str)]) -> String {
    serde_urlencoded::to_string(fields).expect("pairs of strings can always be encoded")
}

/// Name and password of a customer, after other fields.
pub(super) fn sign_in(before: &[(&str, &str)], customer: u32) -> String {
    let (name, password) = (names::user_name(customer), names::password(customer));
    let mut fields = before.to_vec();
    fields.extend([("uname", name.as_str()), ("password", password.as_str())]);
    encoded(&fields)
}

/// A new customer.
pub(super) fn register(random: &mut StdRng) -> String {
    let mut fields = vec![("returning", "no".to_owned())];
    fields.push(("first_name", text(random, 8, 15)));
    fields.push(("last_name", text(random, 8, 15)));
    fields.extend(address(random));
    fields.push(("phone", digits(random, 9, 16)));
    fields.push(("email", format!("{}@{}.com", letters(random, 8, 15), letters(random, 2, 9))));
    fields.push(("birth_date", date(random, 1880, 2000)));
    fields.push(("data", text(random, 100, 500)));
    encode(&fields)
}

/// A payment, and for a few orders another address.
pub(super) fn pay(random: &mut StdRng) -> String {
    let year =
        1970 + SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs()) / SECONDS_OF_YEAR;
    let year = u32::try_from(year).unwrap_or(2100);
    let mut fields = vec![("card_type", pick(random, &names::CARD_TYPES).to_owned())];
    fields.push(("card_number", digits(random, 16, 16)));
    fields.push(("card_name", format!("{} {}", letters(random, 8, 14), letters(random, 8, 14))));
    fields.push(("card_expiry", date(random, year + 1, year + 2)));
    fields.push(("shipping", pick(random, &names::SHIPPING).to_owned()));
    if random.random_range(0..100) < ELSEWHERE_OF_HUNDRED {
        fields.extend(address(random));
    }
    encode(&fields)
}

/// Other quantities for some of the cart's lines: for one line 1 to 10, of several for at least one another
/// number up to 9, and 0 takes the book out (clause 2.4.5.1).
pub(super) fn quantities(random: &mut StdRng, lines: &[(u32, u32)]) -> String {
    let mut chosen = lines.to_vec();
    let changes = if lines.len() > 1 { random.random_range(1..=lines.len()) } else { lines.len() };
    let mut fields = Vec::with_capacity(changes);
    for place in 0..changes {
        let other = random.random_range(place..chosen.len());
        chosen.swap(place, other);
        let (book, old) = chosen[place];
        let quantity = if lines.len() == 1 {
            random.random_range(1..=10)
        } else {
            let quantity = random.random_range(0..9);
            quantity + u32::from(quantity >= old)
        };
        fields.push((format!("quantity.{book}"), quantity.to_string()));
    }
    encode(&fields)
}

/// Another price of a book. Its images stay: they are files that exist.
pub(super) fn change(random: &mut StdRng, covers: &(Option<String>, Option<String>)) -> String {
    let cost = format!("{}.{:02}", random.random_range(1..=9_999), random.random_range(0..100));
    let (image, thumbnail) = (covers.0.clone().unwrap_or_default(), covers.1.clone().unwrap_or_default());
    encode(&[("cost", cost), ("image", image), ("thumbnail", thumbnail)])
}

fn encode<Name: AsRef<str>>(fields: &[(Name, String)]) -> String {
    let fields: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_ref(), value.as_str())).collect();
    encoded(&fields)
}

fn address(random: &mut StdRng) -> [(&'static str, String); 6] {
    [
        ("street1", text(random, 15, 40)),
        ("street2", text(random, 15, 40)),
        ("city", text(random, 4, 30)),
        ("state", text(random, 2, 20)),
        ("zip", letters(random, 5, 10)),
        ("country", pick(random, &names::COUNTRIES).to_owned()),
    ]
}

fn pick(random: &mut StdRng, from: &[&'static str]) -> &'static str {
    from[random.random_range(0..from.len())]
}

fn drawn(random: &mut StdRng, from: &[u8], least: usize, most: usize) -> String {
    let length = random.random_range(least..=most);
    (0..length).map(|_| char::from(from[random.random_range(0..from.len())])).collect()
}

fn letters(random: &mut StdRng, least: usize, most: usize) -> String {
    drawn(random, LETTERS, least, most)
}

fn digits(random: &mut StdRng, least: usize, most: usize) -> String {
    drawn(random, b"0123456789", least, most)
}

/// Text with letters at both ends, so that nobody can trim it.
fn text(random: &mut StdRng, least: usize, most: usize) -> String {
    let (first, last) = (letters(random, 1, 1), letters(random, 1, 1));
    format!("{first}{}{last}", drawn(random, BETWEEN, least - 2, most - 2))
}

fn date(random: &mut StdRng, first: u32, last: u32) -> String {
    let (year, month) = (random.random_range(first..=last), random.random_range(1..=12));
    format!("{year}-{month:02}-{:02}", random.random_range(1..=28))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn read(form: &str) -> Vec<(String, String)> {
        serde_urlencoded::from_str(form).unwrap()
    }

    #[test]
    fn fields_have_the_lengths_that_the_shop_has_room_for() {
        let mut random = StdRng::seed_from_u64(3);
        for _ in 0..200 {
            for (name, value) in read(&register(&mut random)).into_iter().chain(read(&pay(&mut random))) {
                let room = match name.as_str() {
                    "first_name" | "last_name" => 15,
                    "street1" | "street2" => 40,
                    "city" | "card_name" => 30,
                    "state" | "card_number" | "phone" => 20,
                    "zip" | "birth_date" | "card_expiry" | "card_type" | "shipping" => 10,
                    "country" | "email" => 50,
                    "data" => 500,
                    _ => 3,
                };
                assert!((1..=room).contains(&value.chars().count()), "{name}: {value}");
            }
        }
    }

    #[test]
    fn other_quantities_differ_from_those_that_were() {
        let mut random = StdRng::seed_from_u64(4);
        for _ in 0..500 {
            let one = read(&quantities(&mut random, &[(7, 3)]));
            assert!(
                matches!(one[..], [(ref name, ref value)] if name == "quantity.7" && (1..=10).contains(&value.parse::<u32>().unwrap()))
            );
            let lines = [(1, 0), (2, 5), (3, 12)];
            let changed = read(&quantities(&mut random, &lines));
            assert!((1..=3).contains(&changed.len()));
            for (index, (name, value)) in changed.iter().enumerate() {
                let book: u32 = name.strip_prefix("quantity.").unwrap().parse().unwrap();
                let old = lines.iter().find(|line| line.0 == book).unwrap().1;
                let new: u32 = value.parse().unwrap();
                assert!(new != old && new <= 9, "{name}={value}");
                assert!(changed[..index].iter().all(|earlier| earlier.0 != *name));
            }
        }
        assert_eq!(quantities(&mut random, &[]), "");
    }
}
