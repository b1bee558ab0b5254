//! The rows of a shop that has just opened: what TPC-W says of each column, made from a seed.
//!
//! Rows are text with tabs between the columns and a newline behind each, which both `COPY` and MariaDB's
//! `LOAD DATA` read. Nothing here knows a database. Where this differs from the specification,
//! `docs/guide/bookstore.md` says how.

use std::fmt::{Display, Write};
use std::ops::RangeInclusive;

use super::chance::{Chance, Purpose};
use super::words::{self, Pool};
use crate::calendar::Day;
use crate::money::{Cents, Totals};
use crate::names::{self, Scale};
use crate::schema::Table;

/// The day on which the shop opens: dates are counted from it and not from the clock, or no two fillings
/// were the same.
pub(crate) const OPENING: Day = Day::new(2026, 1, 1);
/// The oldest publication.
const FIRST_PUBLICATION: Day = Day::new(1930, 1, 1);
/// Orders were placed within this many days before the opening.
const ORDER_DAYS: i32 = 60;
/// Seconds of a day.
const DAY: u32 = 86_400;

/// Which of the books' covers a book shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Covers {
    /// How many covers there are; books beyond share them in turn. At least 1.
    pub(super) count: u32,
}

impl Covers {
    /// The cover of a book.
    pub(crate) fn of(self, item: u32) -> u32 {
        (item - 1) % self.count.max(1) + 1
    }
}

/// Makes the rows of every table.
pub(super) struct Rows {
    seed: u64,
    scale: Scale,
    covers: Covers,
    pool: Pool,
}

/// A row that is being written.
struct Row<'a> {
    text: &'a mut String,
    is_first: bool,
}

impl<'a> Row<'a> {
    fn new(text: &'a mut String) -> Self {
        Self { text, is_first: true }
    }

    /// Adds a column. None of the shop's texts has a tab, a newline or a backslash.
    fn add(&mut self, value: impl Display) -> &mut Self {
        if !std::mem::replace(&mut self.is_first, false) {
            self.text.push('\t');
        }
        write!(self.text, "{value}").expect("a string takes everything");
        self
    }

    /// A day and a second of it.
    fn instant(&mut self, day: Day, second: u32) -> &mut Self {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        self.add(format_args!("{day} {hour:02}:{minute:02}:{second:02}"))
    }

    fn end(&mut self) {
        self.text.push('\n');
    }
}

/// What is known of a book without its row.
pub(crate) struct Book {
    pub(crate) title: String,
    pub(crate) author: u32,
    pub(crate) subject: &'static str,
    pub(crate) list_price: Cents,
    pub(crate) price: Cents,
}

/// An order's amounts and lines.
struct Order {
    customer: u32,
    discount: i32,
    lines: Vec<(u32, i32, Cents)>,
    totals: Totals,
    placed: (Day, u32),
    ships: Day,
}

impl Rows {
    /// Of a shop of this scale.
    #[must_use]
    pub(super) fn new(seed: u64, scale: Scale, covers: Covers) -> Self {
        Self { seed, scale, covers, pool: Pool::new(&mut Chance::of(seed, Purpose::Trimmings, u32::MAX)) }
    }

    /// How many keys a table's rows are counted by: orders for their lines.
    #[must_use]
    pub(super) fn keys(&self, table: Table) -> u32 {
        match table {
            Table::Address => self.scale.addresses(),
            Table::Author => self.scale.authors(),
            Table::CcXacts | Table::OrderLine | Table::Orders => self.scale.orders(),
            Table::Country => names::COUNTRIES.len() as u32,
            Table::Customer => self.scale.customers,
            Table::Item => self.scale.items,
            Table::ShoppingCart | Table::ShoppingCartLine => 0,
        }
    }

    /// Writes the rows of these keys of a table, which begin with 1, and returns how many they are.
    pub(super) fn write(&self, table: Table, keys: RangeInclusive<u32>, text: &mut String) -> u64 {
        let mut count = 0;
        for key in keys {
            match table {
                Table::Address => self.address(key, Row::new(text)),
                Table::Author => self.author(key, Row::new(text)),
                Table::CcXacts => self.payment(key, Row::new(text)),
                Table::Country => country(key, Row::new(text)),
                Table::Customer => self.customer(key, Row::new(text)),
                Table::Item => self.item(key, Row::new(text)),
                Table::Orders => self.order_row(key, Row::new(text)),
                Table::OrderLine => {
                    count += self.lines(key, text);
                    continue;
                }
                Table::ShoppingCart | Table::ShoppingCartLine => continue,
            }
            count += 1;
        }
        count
    }

    /// What is known of a book without its row; the same as in its row.
    pub(crate) fn book(&self, item: u32) -> Book {
        self.book_and_chance(item).0
    }

    fn book_and_chance(&self, item: u32) -> (Book, Chance) {
        let mut chance = Chance::of(self.seed, Purpose::Book, item);
        let list_price = Cents(i64::from(chance.between(600, 9_000)));
        let price = list_price.less(chance.between(0, 50));
        // A quarter of the books are one by each author, so that each has written one.
        let authors = self.scale.authors();
        let any = 1 + chance.below(authors);
        let author = if item <= authors { item } else { any };
        let subject = names::SUBJECTS[chance.below(names::SUBJECTS.len() as u32) as usize];
        let title = words::title(&names::title_word(item, self.scale.items), &mut chance);
        (Book { title, author, subject, list_price, price }, chance)
    }

    /// An author's first and last name.
    pub(crate) fn author_name(&self, author: u32) -> (&'static str, String) {
        let first = Chance::of(self.seed, Purpose::Author, author).choose(&words::FIRST_NAMES);
        (first, names::last_name(author, self.scale.items))
    }

    fn item(&self, item: u32, mut row: Row<'_>) {
        let (book, mut chance) = self.book_and_chance(item);
        let published = Day(chance.between(FIRST_PUBLICATION.0, OPENING.0 - 1));
        row.add(item).add(&book.title).add(book.author).add(published).add(words::publisher(&mut chance));
        let least = chance.between(100, 400).unsigned_abs() as usize;
        row.add(book.subject).add(words::prose(least, &mut chance));
        for related in self.related(item, &mut chance) {
            row.add(related);
        }
        let cover = self.covers.of(item);
        row.add(format_args!("thumbnail/{cover}.svg")).add(format_args!("cover/{cover}.svg"));
        row.add(book.list_price).add(book.price).add(Day(published.0 + chance.between(1, 30)));
        row.add(chance.between(10, 30));
        row.add(format_args!("978{:010}", chance.next() % 10_000_000_000)).add(chance.between(20, 999));
        row.add(chance.choose(&words::BACKINGS));
        let side = |chance: &mut Chance| f64::from(chance.between(100, 400)) / 10.0;
        let (height, width) = (side(&mut chance), side(&mut chance));
        row.add(format_args!("{height:.1} x {width:.1} x {:.1} cm", f64::from(chance.between(5, 60)) / 10.0))
            .end();
    }

    /// Five different other books.
    fn related(&self, item: u32, chance: &mut Chance) -> [u32; 5] {
        let mut related = [0; 5];
        for index in 0..related.len() {
            let mut candidate = 1 + chance.below(self.scale.items);
            while candidate == item || related[..index].contains(&candidate) {
                candidate = candidate % self.scale.items + 1;
            }
            related[index] = candidate;
        }
        related
    }

    fn author(&self, author: u32, mut row: Row<'_>) {
        let (first, last) = self.author_name(author);
        let mut chance = Chance::of(self.seed, Purpose::Author, author);
        chance.next();
        row.add(author).add(first).add(last).add(chance.choose(&words::FIRST_NAMES));
        row.add(Day(chance.between(Day::new(1800, 1, 1).0, Day::new(1990, 1, 1).0)));
        row.add(self.pool.piece(125, 500, &mut chance)).end();
    }

    fn address(&self, address: u32, mut row: Row<'_>) {
        let mut chance = Chance::of(self.seed, Purpose::Address, address);
        row.add(address).add(format_args!("{} {}", chance.between(1, 9_999), chance.choose(&words::STREETS)));
        row.add(format_args!("Apartment {}", chance.between(1, 999))).add(chance.choose(&words::TOWNS));
        row.add(chance.choose(&words::TOWNS)).add(format_args!("{:05}", chance.between(0, 99_999)));
        row.add(1 + chance.below(names::COUNTRIES.len() as u32)).end();
    }

    /// A customer's discount in per cent, and the rest of its stream.
    fn discount(&self, customer: u32) -> (i32, Chance) {
        let mut chance = Chance::of(self.seed, Purpose::Customer, customer);
        (chance.between(0, 50), chance)
    }

    fn customer(&self, customer: u32, mut row: Row<'_>) {
        let (discount, mut chance) = self.discount(customer);
        let name = names::user_name(customer);
        let (first, last) = (chance.choose(&words::FIRST_NAMES), words::surname(&mut chance));
        row.add(customer).add(&name).add(names::password(customer)).add(first).add(last);
        row.add(1 + chance.below(self.scale.addresses().max(1)));
        row.add(format_args!("{:010}", chance.next() % 10_000_000_000))
            .add(format_args!("{name}@example.com"));
        let since = OPENING.0 - chance.between(1, 730);
        let last_login = (since + chance.between(0, 60)).min(OPENING.0 - 1);
        let second = chance.below(DAY - 7_200);
        row.add(Day(since)).add(Day(last_login));
        row.instant(Day(last_login), second).instant(Day(last_login), second + 7_200);
        row.add(percent(discount)).add("0.00").add(Cents(i64::from(chance.between(0, 99_999))));
        row.add(Day(chance.between(Day::new(1880, 1, 1).0, Day::new(2005, 1, 1).0)));
        row.add(self.pool.piece(100, 500, &mut chance)).end();
    }

    fn order(&self, order: u32) -> Order {
        let mut chance = Chance::of(self.seed, Purpose::Order, order);
        let customer = 1 + chance.below(self.scale.customers.max(1));
        let discount = self.discount(customer).0;
        let lines: Vec<(u32, i32, Cents)> = (0..chance.between(1, 5))
            .map(|_| {
                let item = 1 + chance.below(self.scale.items);
                let mut of_book = Chance::of(self.seed, Purpose::Book, item);
                let list_price = Cents(i64::from(of_book.between(600, 9_000)));
                (item, chance.between(1, 10), list_price.less(of_book.between(0, 50)))
            })
            .collect();
        let totals = Totals::of(lines.iter().map(|(_, quantity, price)| (*price, *quantity)), discount);
        // Later orders have higher numbers, as in a shop that has been open for a while.
        let window = u64::from(DAY) * ORDER_DAYS.unsigned_abs() as u64;
        let second = window * u64::from(order - 1) / u64::from(self.scale.orders().max(1));
        let placed = Day(OPENING.0 - ORDER_DAYS + (second / u64::from(DAY)) as i32);
        let ships = Day(placed.0 + chance.between(0, 6));
        Order { customer, discount, lines, totals, placed: (placed, (second % u64::from(DAY)) as u32), ships }
    }

    fn order_row(&self, key: u32, mut row: Row<'_>) {
        let order = self.order(key);
        let mut chance = self.trimmings(key, 0);
        row.add(key).add(order.customer).instant(order.placed.0, order.placed.1);
        row.add(order.totals.sub_total).add(order.totals.tax).add(order.totals.total);
        row.add(chance.choose(&names::SHIPPING)).instant(order.ships, order.placed.1);
        let addresses = self.scale.addresses().max(1);
        row.add(1 + chance.below(addresses)).add(1 + chance.below(addresses));
        row.add(chance.choose(&["PROCESSING", "SHIPPED", "PENDING", "DENIED"])).end();
    }

    fn lines(&self, key: u32, text: &mut String) -> u64 {
        let order = self.order(key);
        let mut chance = self.trimmings(key, 1);
        for (number, (item, quantity, price)) in order.lines.iter().enumerate() {
            let mut row = Row::new(text);
            row.add(number + 1).add(key).add(item).add(quantity).add(percent(order.discount));
            row.add(self.pool.piece(20, 100, &mut chance)).add(price).end();
        }
        order.lines.len() as u64
    }

    fn payment(&self, key: u32, mut row: Row<'_>) {
        let order = self.order(key);
        let mut chance = self.trimmings(key, 2);
        row.add(key).add(chance.choose(&names::CARD_TYPES));
        row.add(format_args!("{:016}", chance.next() % 10_000_000_000_000_000));
        row.add(format_args!("{} {}", chance.choose(&words::FIRST_NAMES), words::surname(&mut chance)));
        row.add(Day(OPENING.0 + chance.between(10, 730))).add(self.pool.piece(15, 15, &mut chance));
        row.add(order.totals.total).instant(order.placed.0, order.placed.1);
        row.add(1 + chance.below(names::COUNTRIES.len() as u32)).end();
    }

    /// Chance for what isn't an amount of an order: one stream for each of its tables.
    fn trimmings(&self, order: u32, table: u64) -> Chance {
        Chance::of(self.seed ^ (table << 40), Purpose::Trimmings, order)
    }
}

/// A fraction, as the database has it.
fn percent(percent: i32) -> impl Display {
    format!("0.{percent:02}")
}

/// A country with a currency; the rates are of no consequence.
fn country(country: u32, mut row: Row<'_>) {
    let currency = ["Dollars", "Pounds", "Euros", "Yen", "Francs", "Crowns", "Pesos"][country as usize % 7];
    let mut chance = Chance::of(0, Purpose::Address, country);
    row.add(country).add(names::COUNTRIES[country as usize - 1]);
    row.add(format_args!("{}.{:06}", chance.between(0, 120), chance.between(1, 999_999))).add(currency).end();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Rows {
        Rows::new(1, Scale { items: 100, customers: 500 }, Covers { count: 10 })
    }

    fn written(rows: &Rows, table: Table) -> Vec<Vec<String>> {
        let mut text = String::new();
        rows.write(table, 1..=rows.keys(table), &mut text);
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn a_book_has_five_different_relations_and_a_cover_that_exists() {
        for row in written(&rows(), Table::Item) {
            let mut related: Vec<&String> = row[7..12].iter().collect();
            related.sort();
            related.dedup();
            assert_eq!(related.len(), 5);
            assert!(!related.contains(&&row[0]));
            let number: u32 = row[0].parse().expect("a number");
            assert_eq!(row[13], format!("cover/{}.svg", (number - 1) % 10 + 1));
        }
    }

    #[test]
    fn an_order_is_the_sum_of_its_lines_in_all_three_tables() {
        let rows = rows();
        let (lines, payments) = (written(&rows, Table::OrderLine), written(&rows, Table::CcXacts));
        let orders = written(&rows, Table::Orders);
        assert_eq!((orders.len(), payments.len()), (450, 450));
        for (order, payment) in orders.iter().zip(&payments) {
            let own = lines.iter().filter(|line| line[1] == order[0]);
            let parsed = own.map(|line| {
                let discount: i32 = line[4].trim_start_matches("0.").parse().expect("a per cent");
                (Cents::parse(&line[6]).expect("an amount"), line[3].parse().expect("a number"), discount)
            });
            let parsed: Vec<(Cents, i32, i32)> = parsed.collect();
            let totals = Totals::of(parsed.iter().map(|line| (line.0, line.1)), parsed[0].2);
            assert_eq!(
                order[3..6],
                [totals.sub_total, totals.tax, totals.total].map(|amount| amount.to_string())
            );
            assert_eq!(payment[6], order[5]);
        }
    }

    #[test]
    fn dates_are_spread() {
        let mut days: Vec<String> =
            written(&rows(), Table::Item).into_iter().map(|row| row[3].clone()).collect();
        days.sort();
        days.dedup();
        assert!(days.len() > 95, "{}", days.len());
        assert!(days[0].as_str() < "1945" && days[days.len() - 1].as_str() > "2010");
    }
}
