//! Variables of the environment in a file: `${NAME}` in a text stands for the value of `NAME`, and `$${` for
//! the two characters.
//!
//! A text is filled in after the file has been read as TOML: no value can end its quotes or add a key. Errors
//! quote what the file has. A value of the environment they show only where a number was expected: no such
//! key holds a secret.

use std::collections::HashMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, quoted};

/// What an environment has for a name.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The variables that a file names.
pub(crate) struct Values {
    /// Each with its value, if it has one.
    known: HashMap<String, Option<String>>,
    /// Whether a key takes numbers or booleans.
    takes_numbers: fn(&str) -> bool,
}

/// What is wrong with a text, and what to do.
type Wrong = (String, &'static str);

/// Hears of a text that can't be filled in: where it begins, and what is wrong.
pub(crate) type Note<'a> = &'a mut dyn FnMut(usize, Error);

impl Values {
    pub(crate) fn of(text: &str, variables: Variables<'_>, takes_numbers: fn(&str) -> bool) -> Self {
        let names = text.match_indices("${").filter_map(|(at, open)| named(&text[at + open.len()..]));
        let known = names.map(|name| (name.to_owned(), variables(name))).collect();
        Self { known, takes_numbers }
    }

    /// Fills in every text of a table and of what is below it.
    pub(crate) fn fill_in<'v>(&'v self, table: &mut DeTable<'v>, note: Note<'_>) {
        for (key, value) in table.iter_mut() {
            self.fill_value(key.get_ref(), value, note);
        }
    }

    fn fill_value<'v>(&'v self, key: &str, value: &mut Spanned<DeValue<'v>>, note: Note<'_>) {
        let start = value.span().start;
        let filled = match value.get_ref() {
            DeValue::String(text) if text.contains("${") => self.filled(key, text),
            _ => Ok(None),
        };
        match (filled, value.get_mut()) {
            (Err((why, hint)), _) => {
                let (key, hint) = (Some(key.to_owned()), Some(hint.to_owned()));
                note(start, Error { key, hint, ..Error::new(why) });
            }
            (Ok(Some(filled)), value) => *value = filled,
            (Ok(None), DeValue::Array(values)) => {
                values.iter_mut().for_each(|value| self.fill_value(key, value, note));
            }
            (Ok(None), DeValue::Table(table)) => self.fill_in(table, note),
            (Ok(None), _) => {}
        }
    }

    fn filled<'v>(&'v self, key: &str, text: &str) -> Result<Option<DeValue<'v>>, Wrong> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, open) = rest.split_at(at);
            let open = &open[2..];
            if let Some(before) = before.strip_suffix('$') {
                filled += before;
                filled += "${";
                rest = open;
                continue;
            }
            let name = named(open).ok_or_else(|| {
                let why = "has a `${` without the name of a variable and `}` behind it";
                (why.to_owned(), "write ${NAME}, or $${ for the two characters themselves")
            })?;
            let value = self.value_of(name)?;
            rest = &open[name.len() + 1..];
            if before.is_empty() && filled.is_empty() && rest.is_empty() {
                return Ok(Some(self.alone(key, value)));
            }
            filled += before;
            filled += value;
        }
        Ok(Some(DeValue::String((filled + rest).into())))
    }

    /// A value that is a whole text: the number or boolean that it looks like, where the key may take one.
    fn alone<'v>(&self, key: &str, value: &'v str) -> DeValue<'v> {
        let read = if (self.takes_numbers)(key) { DeValue::parse(value).ok() } else { None };
        match read.map(Spanned::into_inner) {
            Some(read @ (DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_))) => read,
            _ => DeValue::String(value.into()),
        }
    }

    /// Says what the variable held that is all that a value has, where the key takes a number.
    pub(crate) fn add_to(&self, error: &mut Error) {
        let (Some(key), Some(value)) = (&error.key, &error.value) else { return };
        let name = value.trim_matches('"').strip_prefix("${").and_then(named);
        let held = name.and_then(|name| Some((name, self.known.get(name)?.as_deref()?)));
        let is_of_number = (self.takes_numbers)(key) && error.why.contains("isn't a number");
        let Some((name, held)) = held.filter(|_| is_of_number) else { return };
        error.why += &format!(" ({name} is {:?})", quoted(held));
    }

    fn value_of(&self, name: &str) -> Result<&str, Wrong> {
        self.known.get(name).and_then(Option::as_deref).ok_or_else(|| {
            let why = format!("the environment has no variable {name} (of UTF-8)");
            (why, "set it for the process that reads the file, or write the value here")
        })
    }
}

/// The name before the first `}`, if it is one.
fn named(text: &str) -> Option<&str> {
    let (name, _) = text.split_once('}')?;
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = name.bytes().all(is_of_name) && !name.starts_with(|first: char| first.is_ascii_digit());
    (is_name && !name.is_empty()).then_some(name)
}
