//! Values of a plan that are written as words: times, memory, draws, what a figure is compared with.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::load::Draw;

/// A length of time with its unit: `"250ms"`, `"2s"`, `"1m 30s"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Time(pub Duration);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        humantime::parse_duration(&text).map(Self).map_err(|_| {
            format!("`{text}` isn't a length of time; write one such as \"250ms\", \"2s\" or \"1m\"")
        })
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        humantime::format_duration(time.0).to_string()
    }
}

/// An amount of memory: `"600MB"`, in units of 1024 as PostgreSQL has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Memory(pub u64);

impl TryFrom<String> for Memory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let megabytes = text
            .strip_suffix("GB")
            .map(|number| (number, 1024))
            .or_else(|| text.strip_suffix("MB").map(|number| (number, 1)));
        megabytes
            .and_then(|(number, unit)| number.trim().parse::<u64>().ok()?.checked_mul(unit << 20))
            .filter(|&bytes| bytes > 0)
            .map(Self)
            .ok_or_else(|| {
                format!("`{text}` isn't an amount of memory; write one such as \"600MB\" or \"2GB\"")
            })
    }
}

impl From<Memory> for String {
    fn from(memory: Memory) -> Self {
        format!("{}MB", memory.0 >> 20)
    }
}

/// How values of a request are drawn: `"1..100"`, `"3 of 1..20"` (different ones, ascending), `"3 of 1..20
/// in any order"`, `"7"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Drawn {
    text: String,
    /// What it means.
    pub draw: Draw,
}

impl TryFrom<String> for Drawn {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` says nothing to draw; write \"1..100\", \"3 of 1..20\", \"3 of 1..20 in any order\" or \"7\""
            )
        };
        let draw = draw(&text).ok_or_else(wrong)?;
        Ok(Self { text, draw })
    }
}

impl From<Drawn> for String {
    fn from(drawn: Drawn) -> Self {
        drawn.text
    }
}

fn draw(text: &str) -> Option<Draw> {
    let range = |text: &str| -> Option<(i64, i64)> {
        let (low, high) = text.trim().split_once("..")?;
        Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
    };
    if let Some((count, rest)) = text.split_once(" of ") {
        let count = count.trim().parse().ok()?;
        let (from, shuffled) = rest.strip_suffix(" in any order").map_or((rest, false), |from| (from, true));
        let (low, high) = range(from)?;
        return Some(if shuffled {
            Draw::Shuffled { count, low, high }
        } else {
            Draw::Distinct { count, low, high }
        });
    }
    match range(text) {
        Some((low, high)) => Some(Draw::Uniform { low, high }),
        None => text.trim().parse().ok().map(Draw::Constant),
    }
}

/// What a goal's figure is divided by.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub enum Reference {
    /// The figure of another variant under the same load.
    Variant(String),
    /// The best figure of the variant itself under any load.
    Peak,
    /// The best figure of any variant under any load.
    Best,
    /// The figure of the variant itself with only the bystanders there (`clients = 0`).
    Idle,
}

impl From<String> for Reference {
    fn from(text: String) -> Self {
        match text.as_str() {
            "own peak" => Self::Peak,
            "best" => Self::Best,
            "idle" => Self::Idle,
            _ => Self::Variant(text),
        }
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        match reference {
            Reference::Variant(name) => name,
            Reference::Peak => "own peak".to_owned(),
            Reference::Best => "best".to_owned(),
            Reference::Idle => "idle".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_read_as_they_are_written() {
        let read = |text: &str| Drawn::try_from(text.to_owned()).map(|drawn| drawn.draw);
        assert_eq!(read("1..100"), Ok(Draw::Uniform { low: 1, high: 100 }));
        assert_eq!(read("3 of 1..20"), Ok(Draw::Distinct { count: 3, low: 1, high: 20 }));
        assert_eq!(read("3 of 1..20 in any order"), Ok(Draw::Shuffled { count: 3, low: 1, high: 20 }));
        assert_eq!(read("-7"), Ok(Draw::Constant(-7)));
        assert!(read("three").unwrap_err().contains("3 of 1..20"));
    }

    #[test]
    fn times_and_memory_need_a_unit() {
        assert_eq!(Time::try_from("1m 30s".to_owned()), Ok(Time(Duration::from_secs(90))));
        assert!(Time::try_from("90".to_owned()).unwrap_err().contains("\"2s\""));
        assert_eq!(Memory::try_from("2GB".to_owned()), Ok(Memory(2 << 30)));
        assert_eq!(String::from(Memory(600 << 20)), "600MB");
        for wrong in ["600", "0MB", "some GB"] {
            assert!(Memory::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
