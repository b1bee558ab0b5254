//! Request types as data: what an application sends, how often, with which parameters.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::Error;

/// The most values that one request draws.
pub const VALUES_MAX: usize = 32;

/// How some of a request's parameters are chosen. The values are numbered in the order of the draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// One value, each of `low..=high` equally likely.
    Uniform {
        /// Smallest value.
        low: i64,
        /// Largest value.
        high: i64,
    },
    /// `count` different values of `low..=high`, in ascending order.
    Distinct {
        /// How many.
        count: usize,
        /// Smallest value.
        low: i64,
        /// Largest value.
        high: i64,
    },
    /// `count` different values of `low..=high`, in any order.
    Shuffled {
        /// How many.
        count: usize,
        /// Smallest value.
        low: i64,
        /// Largest value.
        high: i64,
    },
    /// Always the same value.
    Constant(i64),
}

impl Draw {
    fn check(self) -> Result<usize, Error> {
        match self {
            Self::Constant(_) => Ok(1),
            Self::Uniform { low, high } if low <= high => Ok(1),
            Self::Distinct { count, low, high } | Self::Shuffled { count, low, high }
                if low <= high && i64::try_from(count).is_ok_and(|n| n <= high - low + 1) =>
            {
                Ok(count)
            }
            Self::Uniform { .. } | Self::Distinct { .. } | Self::Shuffled { .. } => {
                Err(Error::Experiment(format!("{self:?} has too few values to draw from")))
            }
        }
    }

    fn draw(self, random: &mut StdRng, values: &mut Vec<i64>) {
        match self {
            Self::Constant(value) => values.push(value),
            Self::Uniform { low, high } => values.push(random.random_range(low..=high)),
            Self::Distinct { count, low, high } => {
                let start = values.len();
                Self::Shuffled { count, low, high }.draw(random, values);
                values[start..].sort_unstable();
            }
            Self::Shuffled { count, low, high } => {
                let start = values.len();
                while values.len() < start + count {
                    let value = random.random_range(low..=high);
                    if !values[start..].contains(&value) {
                        values.push(value);
                    }
                }
            }
        }
    }
}

/// A statement's text with places for the drawn values: `{0}` is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Text before each place, with the value's number.
    places: Vec<(String, usize)>,
    /// Text after the last place.
    rest: String,
}

impl Statement {
    /// Reads a template such as `SELECT name FROM items WHERE id = {0}`.
    ///
    /// # Errors
    /// If a brace isn't part of a place or a place has no number.
    pub fn parse(template: &str) -> Result<Self, Error> {
        let wrong = || Error::Experiment(format!("`{template}` is no statement template"));
        let mut places = Vec::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (number, after) = after.split_once('}').ok_or_else(wrong)?;
            places.push((before.to_owned(), number.parse().map_err(|_| wrong())?));
            rest = after;
        }
        Ok(Self { places, rest: rest.to_owned() })
    }

    /// The statement with `values` in its places.
    pub fn render(&self, values: &[i64]) -> String {
        let mut text = String::with_capacity(self.rest.len() + self.places.len() * 64);
        for (before, number) in &self.places {
            text.push_str(before);
            text.push_str(&values[*number].to_string());
        }
        text.push_str(&self.rest);
        text
    }

    fn highest(&self) -> Option<usize> {
        self.places.iter().map(|&(_, number)| number).max()
    }
}

/// What holds a request's statements together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing: each statement commits by itself.
    Statements,
    /// An explicit transaction, BEGIN and COMMIT sent as statements of their own.
    Transaction,
    /// An explicit transaction at isolation level SERIALIZABLE, BEGIN and COMMIT sent as statements of their
    /// own.
    Serializable,
}

impl Unit {
    /// What opens it, if anything does.
    const fn begin(self) -> Option<&'static str> {
        match self {
            Self::Statements => None,
            Self::Transaction => Some("BEGIN"),
            Self::Serializable => Some("BEGIN ISOLATION LEVEL SERIALIZABLE"),
        }
    }
}

/// One kind of request.
#[derive(Clone, Debug)]
pub struct RequestType {
    /// What tables and plots call it.
    pub name: String,
    /// How often it comes, relative to the other types.
    pub weight: f64,
    unit: Unit,
    draws: Vec<Draw>,
    statements: Vec<Statement>,
    /// SQLSTATEs after which it is tried again.
    retried: Vec<String>,
}

impl RequestType {
    /// Describes a request type; each statement is sent by itself and waits for its answer.
    ///
    /// # Errors
    /// If a template or draw is wrong or the weight isn't a positive number.
    pub fn new(
        name: &str,
        weight: f64,
        unit: Unit,
        draws: &[Draw],
        templates: &[&str],
    ) -> Result<Self, Error> {
        if !(weight.is_finite() && weight > 0.0) {
            return Err(Error::Experiment(format!("the weight {weight} of `{name}` is not positive")));
        }
        let mut drawn = 0;
        for draw in draws {
            drawn += draw.check()?;
        }
        if drawn > VALUES_MAX {
            return Err(Error::Experiment(format!("`{name}` draws more than {VALUES_MAX} values")));
        }
        let statements: Vec<_> =
            templates.iter().map(|text| Statement::parse(text)).collect::<Result<_, _>>()?;
        if statements.iter().filter_map(Statement::highest).any(|highest| highest >= drawn) {
            return Err(Error::Experiment(format!("`{name}` uses a value that it doesn't draw")));
        }
        Ok(Self {
            name: name.to_owned(),
            weight,
            unit,
            draws: draws.to_vec(),
            statements,
            retried: Vec::new(),
        })
    }

    /// Sends a request again after one of these SQLSTATEs, with the same parameters, for as long as its
    /// client waits.
    #[must_use]
    pub fn retrying(self, states: &[String]) -> Self {
        Self { retried: states.to_vec(), ..self }
    }

    /// Sets how often this type comes, relative to the other types.
    #[must_use]
    pub fn weighing(self, weight: f64) -> Self {
        Self { weight, ..self }
    }

    /// Whether it is sent again after this SQLSTATE.
    pub(super) fn retries(&self, state: &str) -> bool {
        self.retried.iter().any(|known| known == state)
    }

    /// What the application sends, one round trip each, for the parameters that belong to `seed`.
    pub fn script(&self, seed: u64) -> Vec<String> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut values = Vec::new();
        for draw in &self.draws {
            draw.draw(&mut random, &mut values);
        }
        let statements = self.statements.iter().map(|statement| statement.render(&values));
        match self.unit.begin() {
            None => statements.collect(),
            Some(begin) => std::iter::once(begin.to_owned())
                .chain(statements)
                .chain(std::iter::once("COMMIT".to_owned()))
                .collect(),
        }
    }

    /// Whether an error leaves a transaction open that the client must roll back.
    pub fn is_transaction(&self) -> bool {
        self.unit != Unit::Statements
    }
}

/// The request types of a load, with their weights.
#[derive(Clone, Debug)]
pub struct Mix {
    types: Vec<RequestType>,
    total: f64,
}

impl Mix {
    /// A mix of at least one type.
    ///
    /// # Errors
    /// If there is no type, or more than a record can number.
    pub fn new(types: Vec<RequestType>) -> Result<Self, Error> {
        if types.is_empty() || types.len() > usize::from(u16::MAX) {
            return Err(Error::Experiment(format!("a mix can't have {} request types", types.len())));
        }
        let total = types.iter().map(|request_type| request_type.weight).sum();
        Ok(Self { types, total })
    }

    /// The types, in the order that records number them.
    pub fn types(&self) -> &[RequestType] {
        &self.types
    }

    /// The type with this number.
    pub fn get(&self, number: u16) -> &RequestType {
        &self.types[usize::from(number)]
    }

    /// Chooses a type by the weights.
    pub(super) fn choose(&self, random: &mut StdRng) -> u16 {
        let mut left = random.random::<f64>() * self.total;
        for (number, request_type) in (0u16..).zip(&self.types) {
            left -= request_type.weight;
            if left < 0.0 {
                return number;
            }
        }
        // Rounding can leave a hair's breadth; it belongs to the last type.
        u16::try_from(self.types.len() - 1).unwrap_or(u16::MAX)
    }
}

/// The types in turn, each as often as its weight says, spread as evenly as can be (smooth weighted round
/// robin).
///
/// A closed loop is there to find out what a server can do. If it drew its types, the few heavy ones of a
/// short window would decide by their chance number.
#[derive(Debug)]
pub(super) struct Rotation {
    credits: Vec<f64>,
}

impl Rotation {
    pub(super) fn new(mix: &Mix) -> Self {
        Self { credits: vec![0.0; mix.types.len()] }
    }

    /// The type whose turn it is.
    pub(super) fn next(&mut self, mix: &Mix) -> u16 {
        let mut chosen = 0;
        for (number, request_type) in mix.types.iter().enumerate() {
            self.credits[number] += request_type.weight;
            if self.credits[number] > self.credits[chosen] {
                chosen = number;
            }
        }
        self.credits[chosen] -= mix.total;
        // A mix has no more types than a record can number.
        u16::try_from(chosen).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_sorted_distinct_values_inside_a_transaction() {
        let draws = [Draw::Distinct { count: 3, low: 1, high: 3 }, Draw::Constant(7)];
        let order = RequestType::new("order", 1.0, Unit::Transaction, &draws, &["UPDATE {0},{1},{2} TO {3}"]);
        assert_eq!(order.unwrap().script(5), ["BEGIN", "UPDATE 1,2,3 TO 7", "COMMIT"]);
    }

    #[test]
    fn values_in_any_order_are_distinct_and_not_always_ascending() {
        let draws = [Draw::Shuffled { count: 3, low: 1, high: 20 }];
        let order = RequestType::new("order", 1.0, Unit::Serializable, &draws, &["{0} {1} {2}"]).unwrap();
        let mut ascending = 0;
        for seed in 0..100 {
            let script = order.script(seed);
            assert_eq!(script[0], "BEGIN ISOLATION LEVEL SERIALIZABLE");
            let values: Vec<i64> = script[1].split(' ').map(|value| value.parse().unwrap()).collect();
            ascending += usize::from(values.is_sorted());
            assert!(values[0] != values[1] && values[1] != values[2] && values[0] != values[2]);
        }
        // One in six by chance.
        assert!((1..50).contains(&ascending), "{ascending}");
    }

    #[test]
    fn the_same_seed_gives_the_same_parameters() {
        let draws = [Draw::Uniform { low: 1, high: 1_000_000 }];
        let read = RequestType::new("read", 1.0, Unit::Statements, &draws, &["SELECT {0}"]).unwrap();
        assert_eq!(read.script(9), read.script(9));
        assert_ne!(read.script(9), read.script(10));
    }

    #[test]
    fn a_rotation_gives_every_type_its_share_at_any_time() {
        let read = |weight| RequestType::new("read", weight, Unit::Statements, &[], &["SELECT 1"]).unwrap();
        let mix = Mix::new(vec![read(2.0), read(7.0), read(1.0)]).unwrap();
        let mut rotation = Rotation::new(&mix);
        let mut counts = [0.0; 3];
        for turn in 1..=1000 {
            counts[usize::from(rotation.next(&mix))] += 1.0;
            for (count, weight) in counts.iter().zip([0.2, 0.7, 0.1]) {
                let due: f64 = weight * f64::from(turn);
                assert!((due - count).abs() <= 1.0, "{counts:?} after {turn}");
            }
        }
    }

    #[test]
    fn a_wrong_description_is_refused() {
        let too_few = [Draw::Distinct { count: 3, low: 1, high: 2 }];
        assert!(RequestType::new("x", 1.0, Unit::Statements, &too_few, &[]).is_err());
        assert!(RequestType::new("x", 0.0, Unit::Statements, &[], &["SELECT 1"]).is_err());
        assert!(RequestType::new("x", 1.0, Unit::Statements, &[], &["SELECT {0}"]).is_err());
        assert!(RequestType::new("x", 1.0, Unit::Statements, &[], &["SELECT {x"]).is_err());
        assert!(Mix::new(Vec::new()).is_err());
        let many = [Draw::Distinct { count: VALUES_MAX + 1, low: 1, high: 1000 }];
        assert!(RequestType::new("x", 1.0, Unit::Statements, &many, &[]).is_err());
    }
}
