//! Names and numbers that the shop's data and its visitors have in common: the code that fills the
//! database and the code that fills a form must mean the same customer, the same subject and the same book.
//!
//! All from TPC-W 1.8: the scale from clause 4.3, names from clauses 4.6 and 4.7, NURand from 2.1.13, its
//! constants from 2.3.2 (customers) and 2.10.5.1 (search strings).

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// The subjects of books (clause 4.7.1, `I_SUBJECT`).
pub const SUBJECTS: [&str; 24] = [
    "ARTS",
    "BIOGRAPHIES",
    "BUSINESS",
    "CHILDREN",
    "COMPUTERS",
    "COOKING",
    "HEALTH",
    "HISTORY",
    "HOME",
    "HUMOR",
    "LITERATURE",
    "MYSTERY",
    "NON-FICTION",
    "PARENTING",
    "POLITICS",
    "REFERENCE",
    "RELIGION",
    "ROMANCE",
    "SELF-HELP",
    "SCIENCE-NATURE",
    "SCIENCE-FICTION",
    "SPORTS",
    "YOUTH",
    "TRAVEL",
];

/// The countries, in the order of their ids: the first is 1 (clause 4.7.1).
#[rustfmt::skip]
pub const COUNTRIES: [&str; 92] = [
    "United States", "United Kingdom", "Canada", "Germany", "France", "Japan", "Netherlands", "Italy", "Switzerland",
    "Australia", "Algeria", "Argentina", "Armenia", "Austria", "Azerbaijan", "Bahamas", "Bahrain", "Bangla Desh",
    "Barbados", "Belarus", "Belgium", "Bermuda", "Bolivia", "Botswana", "Brazil", "Bulgaria", "Cayman Islands", "Chad",
    "Chile", "China", "Christmas Island", "Colombia", "Croatia", "Cuba", "Cyprus", "Czech Republic", "Denmark",
    "Dominican Republic", "Eastern Caribbean", "Ecuador", "Egypt", "El Salvador", "Estonia", "Ethiopia",
    "Falkland Island", "Faroe Island", "Fiji", "Finland", "Gabon", "Gibraltar", "Greece", "Guam", "Hong Kong",
    "Hungary", "Iceland", "India", "Indonesia", "Iran", "Iraq", "Ireland", "Israel", "Jamaica", "Jordan", "Kazakhstan",
    "Kuwait", "Lebanon", "Luxembourg", "Malaysia", "Mexico", "Mauritius", "New Zealand", "Norway", "Pakistan",
    "Philippines", "Poland", "Portugal", "Romania", "Russia", "Saudi Arabia", "Singapore", "Slovakia", "South Africa",
    "South Korea", "Spain", "Sudan", "Sweden", "Taiwan", "Thailand", "Trinidad", "Turkey", "Venezuela", "Zambia",
];

/// The issuers of credit cards (clause 4.7.1, `CX_TYPE`).
pub const CARD_TYPES: [&str; 5] = ["VISA", "MASTERCARD", "DISCOVER", "AMEX", "DINERS"];

/// How an order is shipped (clause 4.7.1, `O_SHIP_TYPE`).
pub const SHIPPING: [&str; 6] = ["AIR", "UPS", "FEDEX", "SHIP", "COURIER", "MAIL"];

/// The syllables of the ten digits (clause 4.6.2.8).
const SYLLABLES: [&str; 10] = ["BA", "OG", "AL", "RI", "RE", "SE", "AT", "UL", "IN", "NG"];

/// Syllables of a word that is searched for (clause 2.10.5.1).
const WORD_SYLLABLES: usize = 7;

/// `DigSyl(number, syllables)`: a syllable for each digit of the number, padded with zeros to this many
/// syllables. With `syllables` 0 nothing is padded, and the number 0 gives an empty text.
#[must_use]
pub fn dig_syl(number: u32, syllables: usize) -> String {
    let digits = if number == 0 { String::new() } else { number.to_string() };
    let zeros = "0".repeat(syllables.saturating_sub(digits.len()));
    zeros.bytes().chain(digits.bytes()).map(|digit| SYLLABLES[usize::from(digit - b'0')]).collect()
}

/// The name by which a customer signs in (`C_UNAME`, clause 4.6.2.9); ids begin with 1.
#[must_use]
pub fn user_name(customer: u32) -> String {
    dig_syl(customer, 0)
}

/// A customer's password (`C_PASSWD`): the user name in lower case.
#[must_use]
pub fn password(customer: u32) -> String {
    user_name(customer).to_lowercase()
}

/// The last name of an author. There are a tenth as many last names as books, so two or three authors share
/// each.
///
/// Only the first letter is a capital ("Bababaogalrire"); the specification writes all letters as capitals.
#[must_use]
pub fn last_name(author: u32, items: u32) -> String {
    search_word(author % last_names(items))
}

/// The first word of a book's title. There are a fifth as many words as books, so five books share each.
#[must_use]
pub fn title_word(item: u32, items: u32) -> String {
    search_word(item % title_words(items))
}

/// How many last names authors have: those of `0..=items / 10` (clause 2.10.5.1).
#[must_use]
pub fn last_names(items: u32) -> u32 {
    items / 10 + 1
}

/// How many words titles begin with: those of `0..=items / 5` (clause 2.10.5.1).
#[must_use]
pub fn title_words(items: u32) -> u32 {
    items / 5 + 1
}

/// A word of seven syllables, with a capital.
fn search_word(number: u32) -> String {
    let syllables = dig_syl(number, WORD_SYLLABLES);
    let (first, rest) = syllables.split_at(1);
    format!("{first}{}", rest.to_lowercase())
}

/// `NURand(a, low, high)`: a number from `low` to `high`, unevenly distributed: some come far oftener than
/// others (clause 2.1.13).
///
/// # Panics
///
/// If `low` is above `high`.
pub fn nurand<R: Rng + ?Sized>(random: &mut R, a: u32, low: u32, high: u32) -> u32 {
    let (any, one) = (random.random_range(0..=a), random.random_range(low..=high));
    ((u64::from(any | one) % (u64::from(high - low) + 1)) as u32) + low
}

/// The size of the shop. `GET /scale` answers with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Books.
    pub items: u32,
    /// Customers at the beginning, whose ids are `1..=customers`.
    pub customers: u32,
}

impl Scale {
    /// The scale that the specification prescribes for a number of emulated browsers: 2,880 customers each.
    #[must_use]
    pub fn of_browsers(browsers: u32, items: u32) -> Self {
        Self { items, customers: browsers.saturating_mul(2_880) }
    }

    /// Addresses at the beginning: two for each customer.
    #[must_use]
    pub fn addresses(self) -> u32 {
        self.customers.saturating_mul(2)
    }

    /// Orders at the beginning, and as many payments by credit card: 0.9 for each customer.
    #[must_use]
    pub fn orders(self) -> u32 {
        (u64::from(self.customers) * 9 / 10) as u32
    }

    /// Authors: one for four books, and at least one.
    #[must_use]
    pub fn authors(self) -> u32 {
        (self.items / 4).max(1)
    }

    /// The customer that a visitor is: drawn by [`nurand`] with the constant of clause 2.3.2.
    pub fn customer<R: Rng + ?Sized>(self, random: &mut R) -> u32 {
        nurand(random, self.customer_constant(), 1, self.customers.max(1))
    }

    /// The last name for which a visitor searches.
    pub fn searched_last_name<R: Rng + ?Sized>(self, random: &mut R) -> String {
        search_word(nurand(random, self.item_constant(), 0, last_names(self.items) - 1))
    }

    /// The first word of a title for which a visitor searches.
    pub fn searched_title_word<R: Rng + ?Sized>(self, random: &mut R) -> String {
        search_word(nurand(random, self.item_constant(), 0, title_words(self.items) - 1))
    }

    /// NURand's constant for customers: 1,023 below 10,000 customers, and four times as much (and one less)
    /// with each fourfold number of them.
    #[must_use]
    pub fn customer_constant(self) -> u32 {
        let (mut bound, mut constant) = (10_000_u64, 1_023_u32);
        while u64::from(self.customers) >= bound && constant < 67_108_863 {
            (bound, constant) = (bound * 4, constant * 4 + 3);
        }
        constant
    }

    /// NURand's constant for books: that of the specification's next scale at or above this one.
    #[must_use]
    pub fn item_constant(self) -> u32 {
        match self.items {
            0..=1_000 => 63,
            1_001..=10_000 => 511,
            10_001..=100_000 => 4_095,
            100_001..=1_000_000 => 32_767,
            _ => 524_287,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn a_customer_signs_in_with_the_syllables_of_its_id() {
        assert_eq!(user_name(1), "OG");
        assert_eq!(user_name(288_000), "ALININBABABA");
        assert_eq!(password(47), "reul");
        assert_eq!(dig_syl(1_203, 7), "BABABAOGALBARI");
        assert_eq!(dig_syl(0, 7), "BA".repeat(7));
        assert_eq!(dig_syl(0, 0), "");
    }

    #[test]
    fn what_a_visitor_searches_for_exists() {
        let scale = Scale { items: 1_000, customers: 2_880 };
        let mut random = StdRng::seed_from_u64(1);
        let names: Vec<String> = (1..=scale.authors()).map(|author| last_name(author, scale.items)).collect();
        let words: Vec<String> = (1..=scale.items).map(|item| title_word(item, scale.items)).collect();
        for _ in 0..10_000 {
            assert!(names.contains(&scale.searched_last_name(&mut random)));
            assert!(words.contains(&scale.searched_title_word(&mut random)));
        }
        assert_eq!(names[0], "Babababababaog");
    }

    #[test]
    fn constants_are_those_of_the_specification() {
        let by_customers = [
            (1, 1_023),
            (9_999, 1_023),
            (10_000, 4_095),
            (39_999, 4_095),
            (40_000, 16_383),
            (160_000, 65_535),
            (639_999, 65_535),
            (640_000, 262_143),
            (163_840_000, 67_108_863),
            (u32::MAX, 67_108_863),
        ];
        for (customers, constant) in by_customers {
            assert_eq!(Scale { items: 1_000, customers }.customer_constant(), constant, "{customers}");
        }
        for (items, constant) in [(1_000, 63), (10_000, 511), (100_000, 4_095), (10_000_000, 524_287)] {
            assert_eq!(Scale { items, customers: 1 }.item_constant(), constant, "{items}");
        }
    }

    #[test]
    fn customers_are_chosen_unevenly_and_all_exist() {
        let scale = Scale::of_browsers(100, 10_000);
        assert_eq!(
            (scale.customers, scale.addresses(), scale.orders(), scale.authors()),
            (288_000, 576_000, 259_200, 2_500)
        );
        let mut random = StdRng::seed_from_u64(2);
        let mut low_bits_set = 0;
        for _ in 0..10_000 {
            let customer = scale.customer(&mut random);
            assert!((1..=scale.customers).contains(&customer));
            low_bits_set += u32::from((customer - 1) & 0xff == 0xff);
        }
        // Two random numbers joined by "or" have all of eight bits set with probability 0.75^8 = 10 %, one
        // has them with 0.4 %.
        assert!((800..1_200).contains(&low_bits_set), "{low_bits_set}");
    }
}
