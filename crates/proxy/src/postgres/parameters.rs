//! The settings that a server reports (ParameterStatus): a small sorted list.

use wire::postgres::backend::parse_parameter_status;

/// The most settings that are remembered. PostgreSQL 18 reports 15; more than this is no PostgreSQL, and is ignored.
const PARAMETERS_MAX: usize = 64;

/// Names and values as last reported. Names are compared as they are written: servers always write them alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    sorted: Vec<(String, String)>,
}

impl Parameters {
    /// The value of a setting.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.find(name).ok().map(|index| self.sorted[index].1.as_str())
    }

    /// Sets a value; says whether that changed anything.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> bool {
        match self.find(name) {
            Ok(index) if self.sorted[index].1 == value => false,
            Ok(index) => {
                value.clone_into(&mut self.sorted[index].1);
                true
            }
            Err(_) if self.sorted.len() >= PARAMETERS_MAX => false,
            Err(index) => {
                self.sorted.insert(index, (name.to_owned(), value.to_owned()));
                true
            }
        }
    }

    /// Takes the body of a ParameterStatus to heart; a malformed one is ignored.
    pub(crate) fn note(&mut self, body: &[u8]) {
        if let Ok((name, value)) = parse_parameter_status(body) {
            self.set(name, value);
        }
    }

    /// All of them, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sorted.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.sorted.binary_search_by(|(known, _)| known.as_str().cmp(name))
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
}
