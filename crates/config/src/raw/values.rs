//! Typed values out of TOML: each function reads one kind of value, or says what is wrong with it and what
//! to write.

use std::ops::RangeInclusive;
use std::time::Duration;

use admission::{Capacity, Controller};
use toml::de::DeValue;

use super::{Before, Yardsticks};
use crate::complaint::Complaint;

/// No time-out is longer: an operator who means "never" should say what he waits for.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// No simulation lasts longer: its clock has room for 584 years.
const LONG_TIME_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
/// The longest name of a user: PostgreSQL's own bound.
const USER_BYTES_MAX: usize = 63;
/// The most users in a list.
const USERS_MAX: usize = 1000;
/// More than this many times its own work is no bound.
const AGING_MAX: f64 = 1e6;

/// A string.
pub fn text(value: &DeValue<'_>) -> Result<String, Complaint> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        other => Err(Complaint::new(format!("{} isn't a string", what(other))).hint("put it in quotes")),
    }
}

/// A list of strings, or one string with commas between them. Empty ones are none.
pub fn texts(value: &DeValue<'_>) -> Result<Vec<String>, Complaint> {
    let texts: Vec<String> = match value {
        DeValue::Array(values) => {
            values.iter().map(|value| text(value.get_ref())).collect::<Result<_, _>>()?
        }
        other => text(other)?.split(',').map(|text| text.trim().to_owned()).collect(),
    };
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// Names of users.
pub(crate) fn users(value: &DeValue<'_>) -> Result<Vec<String>, Complaint> {
    let mut users: Vec<String> = Vec::new();
    for name in texts(value)? {
        if name.len() > USER_BYTES_MAX || name.contains('\0') {
            return Err(Complaint::new(format!("a user's name has at most {USER_BYTES_MAX} bytes")));
        }
        if !users.contains(&name) {
            users.push(name);
        }
    }
    if users.len() > USERS_MAX {
        return Err(Complaint::new(format!("names more than {USERS_MAX} users")));
    }
    Ok(users)
}

/// `true` or `false`.
pub fn boolean(value: &DeValue<'_>) -> Result<bool, Complaint> {
    match value {
        DeValue::Boolean(value) => Ok(*value),
        DeValue::String(text) if matches!(&**text, "true" | "false") => {
            Err(Complaint::new("is a string").hint(format!("write {text} without quotes")))
        }
        other => Err(Complaint::new(format!("{} is neither true nor false", what(other)))),
    }
}

/// A whole number in a range.
pub fn integer(value: &DeValue<'_>, range: RangeInclusive<u64>) -> Result<u64, Complaint> {
    let outside = || Complaint::new(format!("must be from {} to {}", range.start(), range.end()));
    match value {
        DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|number| range.contains(number))
            .ok_or_else(outside),
        DeValue::String(text) if text.parse::<u64>().is_ok() => {
            Err(Complaint::new("is a string").hint(format!("write {text} without quotes")))
        }
        other => {
            let hint = format!("write a whole number from {} to {}", range.start(), range.end());
            Err(Complaint::new(format!("{} isn't a whole number", what(other))).hint(hint))
        }
    }
}

/// One of several names.
pub fn choice<T: Copy>(value: &DeValue<'_>, choices: &[(&str, T)]) -> Result<T, Complaint> {
    let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
    let hint = format!("write {}", names.join(" or "));
    let DeValue::String(text) = value else {
        return Err(Complaint::new(format!("{} isn't a string", what(value))).hint(hint));
    };
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == &**text) {
        return Ok(*value);
    }
    let hint = match meant(text, choices.iter().map(|(name, _)| *name)) {
        Some(meant) => format!("did you mean {meant:?}? Else {hint}"),
        None => hint,
    };
    Err(Complaint::new("isn't known").hint(hint))
}

/// Other names of what a value stands for, in small letters.
const ALIASES: [(&str, &str); 5] = [
    ("mariadb", "mysql"),
    ("postgresql", "postgres"),
    ("pg", "postgres"),
    ("pgsql", "postgres"),
    ("https", "http"),
];

/// Which of these names may have been meant.
fn meant<'a>(text: &str, mut names: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let lower = text.to_ascii_lowercase().replace('_', "-");
    if let Some((_, name)) = ALIASES.iter().find(|(alias, _)| *alias == lower) {
        return names.find(|known| known == name);
    }
    let distance = |name: &&str| strsim::damerau_levenshtein(&lower, name);
    // A third of the letters may be wrong: more is another word. Of digits none stands for another.
    let names = names.filter(|_| lower.contains(|letter: char| letter.is_ascii_alphabetic()));
    names.min_by_key(distance).filter(|near| distance(near) <= near.len() / 3)
}

/// A duration above zero.
pub fn some_time(value: &DeValue<'_>) -> Result<Duration, Complaint> {
    let time = at_most_a_day(value)?;
    if time.is_zero() { Err(Complaint::new("must be more than zero")) } else { Ok(time) }
}

/// A duration from zero to a day.
pub fn at_most_a_day(value: &DeValue<'_>) -> Result<Duration, Complaint> {
    let time = duration(value)?;
    if time > DAY { Err(Complaint::new("must be at most \"24h\"")) } else { Ok(time) }
}

/// A duration of a simulation, which may last for years.
pub fn long_time(value: &DeValue<'_>) -> Result<Duration, Complaint> {
    let time = duration(value)?;
    if time > LONG_TIME_MAX { Err(Complaint::new("must be at most \"10years\"")) } else { Ok(time) }
}

/// Such a duration; `None` for none.
pub fn time_or_none(value: &DeValue<'_>) -> Result<Option<Duration>, Complaint> {
    match value {
        DeValue::String(text) if text == "none" => Ok(None),
        other => long_time(other).map(Some),
    }
}

/// A number.
pub(crate) fn real(value: &DeValue<'_>) -> Result<f64, Complaint> {
    let number = match value {
        DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| Complaint::new(format!("{} isn't a number", what(value))))
}

/// A number from 0.
pub fn amount(value: &DeValue<'_>) -> Result<f64, Complaint> {
    let number = real(value)?;
    if number.is_finite() && number >= 0.0 {
        Ok(number)
    } else {
        Err(Complaint::new("must be a number from 0"))
    }
}

/// Steps of an amount, in order of time: `[["0s", 100], ["1m", 200]]`.
pub fn steps(value: &DeValue<'_>) -> Result<Vec<(Duration, f64)>, Complaint> {
    let wrong =
        || Complaint::new("isn't a list of steps").hint("write such as [[\"0s\", 100], [\"1m\", 200]]");
    let DeValue::Array(values) = value else { return Err(wrong()) };
    let step = |value: &DeValue<'_>| match value {
        DeValue::Array(pair) if pair.len() == 2 => {
            Ok((long_time(pair[0].get_ref())?, amount(pair[1].get_ref())?))
        }
        _ => Err(wrong()),
    };
    let steps = values.iter().map(|value| step(value.get_ref())).collect::<Result<Vec<_>, _>>()?;
    if steps.is_sorted_by(|a, b| a.0 < b.0) {
        Ok(steps)
    } else {
        Err(Complaint::new("the steps aren't in order of time"))
    }
}

/// Whole numbers, in order, with an amount each: `[[1, 1.0], [50, 0.9]]`.
pub fn curve(value: &DeValue<'_>) -> Result<Vec<(u32, f64)>, Complaint> {
    let wrong = || Complaint::new("isn't a list of points").hint("write such as [[1, 1.0], [50, 0.9]]");
    let DeValue::Array(values) = value else { return Err(wrong()) };
    let point = |value: &DeValue<'_>| match value {
        DeValue::Array(pair) if pair.len() == 2 => {
            let at = integer(pair[0].get_ref(), 0..=1_000_000)? as u32;
            Ok((at, amount(pair[1].get_ref())?))
        }
        _ => Err(wrong()),
    };
    values.iter().map(|value| point(value.get_ref())).collect()
}

/// A list of what `each` takes, not empty.
pub fn list<T>(
    value: &DeValue<'_>,
    each: impl Fn(&DeValue<'_>) -> Result<T, Complaint>,
) -> Result<Vec<T>, Complaint> {
    match value {
        DeValue::Array(values) if values.len() > LIST_MAX => {
            Err(Complaint::new(format!("has more than {LIST_MAX} values")))
        }
        DeValue::Array(values) if !values.is_empty() => {
            values.iter().map(|value| each(value.get_ref())).collect()
        }
        DeValue::Array(_) => Err(Complaint::new("is empty").hint("write at least one value")),
        other => Err(Complaint::new(format!("{} isn't a list", what(other))).hint("write such as [1, 2, 3]")),
    }
}

/// The longest list.
const LIST_MAX: usize = 1000;

/// One amount from the beginning on, or steps of it.
pub fn amount_or_steps(value: &DeValue<'_>) -> Result<Vec<(Duration, f64)>, Complaint> {
    match value {
        DeValue::Array(_) => steps(value),
        other => Ok(vec![(Duration::ZERO, amount(other)?)]),
    }
}

/// Names with an amount each: `{ read = 95, report = 5 }`.
pub fn weights(value: &DeValue<'_>) -> Result<Vec<(String, f64)>, Complaint> {
    let DeValue::Table(table) = value else {
        let hint = "write such as { read = 95, report = 5 }";
        return Err(Complaint::new(format!("{} isn't a table", what(value))).hint(hint));
    };
    let weights = table.iter().map(|(key, value)| {
        let name: &str = key.get_ref();
        Ok((name.to_owned(), amount(value.get_ref())?))
    });
    weights.collect()
}

/// A whole number for each of some names.
pub fn counts(value: &DeValue<'_>) -> Result<Vec<(String, u32)>, Complaint> {
    let DeValue::Table(table) = value else {
        let hint = "write such as { file = 4 }";
        return Err(Complaint::new(format!("{} isn't a table", what(value))).hint(hint));
    };
    let counts = table.iter().map(|(key, value)| {
        let name: &str = key.get_ref();
        Ok((name.to_owned(), integer(value.get_ref(), 1..=1000)? as u32))
    });
    counts.collect()
}

/// A duration for each of some names.
pub fn times(value: &DeValue<'_>) -> Result<Vec<(String, Duration)>, Complaint> {
    let DeValue::Table(table) = value else {
        let hint = "write such as { read = \"20ms\", report = \"3s\" }";
        return Err(Complaint::new(format!("{} isn't a table", what(value))).hint(hint));
    };
    let times = table.iter().map(|(key, value)| {
        let name: &str = key.get_ref();
        Ok((name.to_owned(), long_time(value.get_ref())?))
    });
    times.collect()
}

fn duration(value: &DeValue<'_>) -> Result<Duration, Complaint> {
    let form = DURATION_FORM;
    match value {
        DeValue::Integer(number) => Err(Complaint::new("needs a unit").hint(units(number.as_str()))),
        DeValue::Float(_) => {
            Err(Complaint::new("needs a unit").hint("write a whole number with one, such as \"250ms\""))
        }
        DeValue::String(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(Complaint::new("needs a unit").hint(units(text)))
        }
        DeValue::String(text) => {
            humantime::parse_duration(text).map_err(|error| not_a_duration(text, &error))
        }
        other => Err(Complaint::new(format!("{} isn't a duration", what(other))).hint(form)),
    }
}

const DURATION_FORM: &str = "write a duration such as \"250ms\", \"1s\" or \"2m\"";

/// What is wrong with a text that should be a duration; of a misspelled unit, which one is near.
fn not_a_duration(text: &str, error: &humantime::DurationError) -> Complaint {
    // What people write, and what is to be written.
    const UNITS: [(&str, &str); 12] = [
        ("ms", "ms"),
        ("s", "s"),
        ("m", "m"),
        ("h", "h"),
        ("milliseconds", "ms"),
        ("millisecond", "ms"),
        ("microseconds", "us"),
        ("nanoseconds", "ns"),
        ("seconds", "seconds"),
        ("minutes", "minutes"),
        ("hours", "hours"),
        ("days", "days"),
    ];
    let humantime::DurationError::UnknownUnit { unit, .. } = error else {
        return Complaint::new(format!("isn't a duration ({error})")).hint(DURATION_FORM);
    };
    let complaint = Complaint::new(format!("isn't a duration: there is no unit {unit:?}"));
    let lower = unit.to_ascii_lowercase();
    let distance = |(known, _): &&(&str, &str)| strsim::damerau_levenshtein(&lower, known);
    match UNITS.iter().min_by_key(distance).filter(|near| distance(near) <= near.0.len() / 3) {
        Some((_, meant)) => {
            // Abbreviations stand next to their number.
            let spaced = if meant.len() <= 2 { format!(" {unit}") } else { unit.clone() };
            let meant = text.replace(&spaced, meant).replace(unit.as_str(), meant);
            complaint.hint(format!("did you mean {meant:?}?"))
        }
        None => complaint.hint(DURATION_FORM),
    }
}

/// Which unit is meant, only the author of the number knows.
fn units(number: &str) -> String {
    format!("write \"{number}ms\", \"{number}s\" or \"{number}m\", as you mean it")
}

/// The controllers by the names that they have in a configuration.
pub(crate) const CONTROLLERS: &[(&str, Controller)] = &[
    ("auto", Controller::Auto),
    ("incremental-steps", Controller::IncrementalSteps),
    ("parabola", Controller::Parabola),
];

/// What an operator may know from papers and find in no gate before a service.
const YARDSTICKS: [&str; 3] = ["vegas", "gradient2", "aimd"];

/// What is wrong with a method of the laboratory before a service.
pub(crate) fn laboratory(instead: &str) -> Complaint {
    let hint = format!("{instead}; a gate of `gatekeeper simulate` still takes this one");
    Complaint::new("went to the laboratory, since it only serves to compare").hint(hint)
}

/// Work, written as a duration; the controller that finds how many requests; or nothing.
pub(crate) fn capacity(value: &DeValue<'_>, before: Before) -> Result<Capacity, Complaint> {
    let DeValue::String(text) = value else {
        return some_time(value).map(|time| Capacity::Fixed(time.into()));
    };
    if text == "none" {
        return Ok(Capacity::Unlimited);
    }
    match before {
        Before::Simulation(Yardsticks { capacities, .. }) => {
            if let Some(&maker) = capacities.iter().find(|maker| maker.name == &**text) {
                return Ok(Capacity::Found(Controller::Other(maker)));
            }
        }
        Before::Service if YARDSTICKS.contains(&&**text) => return Err(laboratory("write \"auto\"")),
        Before::Service => {}
    }
    match CONTROLLERS.iter().find(|(name, _)| *name == &**text) {
        Some((_, controller)) => Ok(Capacity::Found(*controller)),
        None if text.starts_with(|first: char| first.is_ascii_digit()) => {
            some_time(value).map(|time| Capacity::Fixed(time.into()))
        }
        None => {
            let names: Vec<_> = CONTROLLERS.iter().map(|(name, _)| format!("{name:?}")).collect();
            let hint = format!(
                "write an amount of work such as \"20s\", \"none\", or who finds it: {}",
                names.join(", ")
            );
            Err(Complaint::new("isn't known").hint(hint))
        }
    }
}

/// Megabytes; `None` for what is found.
pub(crate) fn memory(value: &DeValue<'_>) -> Result<Option<u32>, Complaint> {
    match value {
        DeValue::String(text) if text == "auto" => Ok(None),
        DeValue::String(_) => {
            Err(Complaint::new("isn't an amount").hint("write \"auto\", or megabytes as a whole number"))
        }
        other => Ok(u32::try_from(integer(other, 16..=1_000_000)?).ok()),
    }
}

/// A bound; `None` for none.
pub fn bound(value: &DeValue<'_>, most: u64) -> Result<Option<u64>, Complaint> {
    match value {
        DeValue::String(text) if text == "none" => Ok(None),
        DeValue::String(_) => Err(Complaint::new("isn't a bound").hint("write a whole number, or \"none\"")),
        other => Ok(Some(integer(other, 0..=most)?).filter(|bound| *bound > 0)),
    }
}

/// A string that isn't empty and fits into a start-up message or a file name.
pub fn some_text(value: &DeValue<'_>) -> Result<String, Complaint> {
    let text = text(value)?;
    if text.is_empty() {
        Err(Complaint::new("is empty").hint("leave it out"))
    } else if text.contains('\0') {
        Err(Complaint::new("contains a zero byte"))
    } else {
        Ok(text)
    }
}

/// How often its own work a request may be overtaken by; `None` for no bound.
pub(crate) fn aging(value: &DeValue<'_>) -> Result<Option<f64>, Complaint> {
    let number = match value {
        DeValue::String(text) if text == "none" => return Ok(None),
        DeValue::Integer(number) => number.as_str().parse::<f64>().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    };
    let Some(number) = number else {
        return Err(Complaint::new(format!("{} isn't a number", what(value)))
            .hint("write a number from 0, or \"none\" for no bound"));
    };
    if number.is_finite() && (0.0..=AGING_MAX).contains(&number) {
        Ok(Some(number))
    } else {
        Err(Complaint::new("must be from 0 to 1000000").hint("write \"none\" for no bound"))
    }
}

fn what(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
