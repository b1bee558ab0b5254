//! Amounts of money in whole cents, and what an order comes to.
//!
//! The rule is TPC-W's: the customer's discount off the sum of the lines, 8.25 % tax on that, 3.00 for
//! shipping and 1.00 more for each copy. Halves of a cent are rounded up, as PostgreSQL's `round` does, so
//! that the database can check what the shop has computed.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};

/// An amount in cents, never negative in this shop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cents(pub i64);

/// What shipping costs an order at least.
const SHIPPING: Cents = Cents(300);
/// What shipping costs for each copy.
const SHIPPING_PER_COPY: i64 = 100;
/// Tax in hundredths of a per cent.
const TAX: i64 = 825;

impl Cents {
    /// The price of this many copies.
    #[must_use]
    pub fn times(self, copies: i32) -> Self {
        Self(self.0 * i64::from(copies))
    }

    /// The amount less this many per cent, rounded to the cent. Values above 100 count as 100.
    #[must_use]
    pub fn less(self, percent: i32) -> Self {
        Self((self.0 * (100 - i64::from(percent.clamp(0, 100))) + 50) / 100)
    }

    /// Reads `12`, `12.3` or `12.34`; `None` if it is anything else, or above a million.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || whole.len() > 7 || part.len() > 2 {
            return None;
        }
        let cents: i64 = part.parse().ok()?;
        let cents = if part.len() == 1 { cents * 10 } else { cents };
        let amount = whole.parse::<i64>().ok()? * 100 + cents;
        (amount <= 100_000_000).then_some(Self(amount))
    }
}

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl Add for Cents {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Cents {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Sum for Cents {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

/// What an order comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// The lines, less the customer's discount.
    pub sub_total: Cents,
    /// Tax on that.
    pub tax: Cents,
    /// Shipping.
    pub shipping: Cents,
    /// All of it.
    pub total: Cents,
}

impl Totals {
    /// Of lines, each a price and a number of copies, for a customer who gets so many per cent off.
    #[must_use]
    pub fn of(lines: impl IntoIterator<Item = (Cents, i32)>, discount: i32) -> Self {
        let (mut sum, mut copies) = (Cents::default(), 0);
        for (price, quantity) in lines {
            sum = sum + price.times(quantity);
            copies += i64::from(quantity);
        }
        let sub_total = sum.less(discount);
        let tax = Cents((sub_total.0 * TAX + 5_000) / 10_000);
        let shipping = SHIPPING + Cents(SHIPPING_PER_COPY * copies);
        Self { sub_total, tax, shipping, total: sub_total + tax + shipping }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_to_lines_less_discount_and_tax_and_shipping() {
        // 2 × 10.01 + 1 × 5.05 = 25.07; less 13 %: 21.8109; tax: 1.799325; shipping: 3 + 3 × 1.
        let totals = Totals::of([(Cents(1_001), 2), (Cents(505), 1)], 13);
        assert_eq!(totals.sub_total, Cents(2_181));
        assert_eq!(totals.tax, Cents(180));
        assert_eq!(totals.shipping, Cents(600));
        assert_eq!(totals.total, Cents(2_961));
    }

    #[test]
    fn halves_of_a_cent_are_rounded_up() {
        assert_eq!(Cents(150).less(1), Cents(149));
        assert_eq!(Cents(50).less(1), Cents(50));
    }

    #[test]
    fn amounts_are_read_as_they_are_shown() {
        for (text, cents) in [("12", 1_200), ("12.3", 1_230), ("12.34", 1_234), ("0.05", 5)] {
            assert_eq!(Cents::parse(text), Some(Cents(cents)), "{text}");
        }
        assert_eq!(Cents::parse(&Cents(98_705).to_string()), Some(Cents(98_705)));
        for text in ["", ".", "1.", ".5", "-1", "1.234", "1e3", "10000000", "1,5", "٣"] {
            assert_eq!(Cents::parse(text), None, "{text}");
        }
    }
}
