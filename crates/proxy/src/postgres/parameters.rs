//! The settings that a server reports (ParameterStatus): a small sorted list.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use wire::postgres::backend::parse_parameter_status;
use wire::sql::is_readable_encoding;

/// The most settings that are remembered. PostgreSQL 18 reports 15; more than this is no PostgreSQL, and is
/// ignored.
const PARAMETERS_MAX: usize = 64;

/// How many different lists are remembered for being shared; the one that was remembered first makes room.
const COMMON_MAX: usize = 64;

/// Names and values as last reported. Names are compared as they are written: servers always write them
/// alike.
///
/// Nearly all sessions and connections of a gate have the same, so that a list is shared until it is changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    list: Arc<List>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct List {
    sorted: Vec<(Box<str>, Box<str>)>,
    reading: Reading,
}

/// What of the settings decides how a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// A backslash in an ordinary literal is a backslash.
    pub(crate) standard_strings: bool,
    /// No byte of a longer character looks like a character of its own.
    pub(crate) is_readable: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self { standard_strings: true, is_readable: true }
    }
}

impl PartialEq for Parameters {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.list, &other.list) || self.list == other.list
    }
}

impl Parameters {
    /// The value of a setting.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.list.find(name).ok().map(|index| &*self.list.sorted[index].1)
    }

    /// How a text is read with these.
    pub(crate) fn reading(&self) -> Reading {
        self.list.reading
    }

    /// Sets a value; says whether that changed anything.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> bool {
        match self.list.find(name) {
            Ok(index) if &*self.list.sorted[index].1 == value => return false,
            Ok(index) => Arc::make_mut(&mut self.list).sorted[index].1 = value.into(),
            Err(_) if self.list.sorted.len() >= PARAMETERS_MAX => return false,
            Err(index) => Arc::make_mut(&mut self.list).sorted.insert(index, (name.into(), value.into())),
        }
        let reading = &mut Arc::make_mut(&mut self.list).reading;
        match name {
            "standard_conforming_strings" => reading.standard_strings = value != "off",
            "client_encoding" => reading.is_readable = is_readable_encoding(value),
            _ => {}
        }
        true
    }

    /// Takes the body of a ParameterStatus to heart; a malformed one is ignored.
    pub(crate) fn note(&mut self, body: &[u8]) {
        if let Ok((name, value)) = parse_parameter_status(body) {
            self.set(name, value);
        }
    }

    /// All of them, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.sorted.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Says whether both are the same; then they are one list from now on, so that the next comparison is
    /// one of addresses. The lower address wins: sessions and connections that meet often come to share one
    /// list.
    pub(crate) fn unite(&mut self, other: &mut Self) -> bool {
        if Arc::ptr_eq(&self.list, &other.list) {
            return true;
        }
        if self.list != other.list {
            return false;
        }
        if Arc::as_ptr(&self.list) < Arc::as_ptr(&other.list) {
            other.list = Arc::clone(&self.list);
        } else {
            self.list = Arc::clone(&other.list);
        }
        true
    }
}

impl List {
    fn find(&self, name: &str) -> Result<usize, usize> {
        self.sorted.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

/// Lists that sessions were seen with, so that those which come with the same share it.
#[derive(Debug, Default)]
pub(crate) struct Common(Mutex<VecDeque<Parameters>>);

impl Common {
    /// Returns the shared list with these settings.
    pub(crate) fn share(&self, parameters: Parameters) -> Parameters {
        let mut known = self.0.lock();
        if let Some(known) = known.iter().find(|known| **known == parameters) {
            return known.clone();
        }
        if known.len() >= COMMON_MAX {
            known.pop_front();
        }
        known.push_back(parameters.clone());
        parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_reported_counts() {
        let mut parameters = Parameters::default();
        assert!(parameters.set("TimeZone", "UTC"));
        assert!(parameters.set("DateStyle", "ISO, MDY"));
        assert!(!parameters.set("TimeZone", "UTC"));
        assert!(parameters.set("TimeZone", "Europe/Stockholm"));
        assert_eq!(parameters.get("TimeZone"), Some("Europe/Stockholm"));
        assert_eq!(parameters.get("timezone"), None);
        assert_eq!(parameters.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["DateStyle", "TimeZone"]);
    }

    #[test]
    fn a_server_that_reports_endlessly_fills_nothing() {
        let mut parameters = Parameters::default();
        for number in 0..10 * PARAMETERS_MAX {
            parameters.set(&number.to_string(), "x");
        }
        assert_eq!(parameters.iter().count(), PARAMETERS_MAX);
    }

    fn parameters(values: &[(&str, &str)]) -> Parameters {
        let mut parameters = Parameters::default();
        for (name, value) in values {
            parameters.set(name, value);
        }
        parameters
    }

    #[test]
    fn equal_settings_are_one_list_until_one_changes() {
        let common = Common::default();
        let first = common.share(parameters(&[("TimeZone", "UTC")]));
        let mut second = common.share(parameters(&[("TimeZone", "UTC")]));
        assert!(Arc::ptr_eq(&first.list, &second.list));
        assert!(second.set("TimeZone", "CET"));
        assert_eq!((first.get("TimeZone"), second.get("TimeZone")), (Some("UTC"), Some("CET")));
        assert!(!second.unite(&mut first.clone()));

        let mut third = parameters(&[("TimeZone", "CET")]);
        assert!(third.unite(&mut second) && Arc::ptr_eq(&third.list, &second.list));
        for number in 0..2 * COMMON_MAX {
            common.share(parameters(&[("TimeZone", &number.to_string())]));
        }
        assert_eq!(common.0.lock().len(), COMMON_MAX);
    }

    #[test]
    fn how_texts_are_read_follows_the_settings() {
        let mut parameters = Parameters::default();
        assert_eq!(parameters.reading(), Reading { standard_strings: true, is_readable: true });
        parameters.set("standard_conforming_strings", "off");
        parameters.set("client_encoding", "SJIS");
        assert_eq!(parameters.reading(), Reading { standard_strings: false, is_readable: false });
        parameters.set("standard_conforming_strings", "on");
        parameters.set("client_encoding", "UTF8");
        assert_eq!(parameters.reading(), Reading { standard_strings: true, is_readable: true });
    }
}
