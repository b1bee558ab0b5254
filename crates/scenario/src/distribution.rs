//! A distribution of times, written in words: `"lognormal 60ms cv 0.5"`.

use std::time::Duration;

use sim::Distribution;
use toml::de::DeValue;

use config::reader::{self, Complaint};

const FORMS: &str = "write such as \"5ms\", \"exponential 5ms\", \"lognormal 5ms cv 0.5\", \"hyperexponential 5ms cv 3\", \"uniform 1ms to 9ms\" or \"pareto 1.1 from 1ms to 10s\"";

/// Reads a distribution.
pub(super) fn read(value: &DeValue<'_>) -> Result<Distribution, Complaint> {
    let text = reader::text(value)?;
    let found = parse(&text).ok_or_else(|| Complaint::new("isn't a distribution of times").hint(FORMS))?;
    match found.fault() {
        Some(fault) => Err(Complaint::new(format!("can't be: {fault}"))),
        None => Ok(found),
    }
}

fn parse(text: &str) -> Option<Distribution> {
    let (kind, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    Some(match kind {
        "exponential" => Distribution::Exponential { mean: time(rest)? },
        "lognormal" => {
            let (mean, cv) = rest.split_once("cv")?;
            Distribution::Lognormal { mean: time(mean)?, cv: number(cv)? }
        }
        "hyperexponential" => {
            let (mean, cv) = rest.split_once("cv")?;
            Distribution::Hyperexponential { mean: time(mean)?, cv: number(cv)? }
        }
        "uniform" => {
            let (least, most) = rest.split_once("to")?;
            Distribution::Uniform { least: time(least)?, most: time(most)? }
        }
        "pareto" => {
            let (alpha, range) = rest.split_once("from")?;
            let (least, most) = range.split_once("to")?;
            Distribution::BoundedPareto { alpha: number(alpha)?, least: time(least)?, most: time(most)? }
        }
        _ => Distribution::Fixed(time(text)?),
    })
}

fn time(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok()
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn each_form_is_read() {
        let forms = [
            ("5ms", Distribution::Fixed(ms(5))),
            ("1s 5ms", Distribution::Fixed(ms(1005))),
            ("exponential 1s 5ms", Distribution::Exponential { mean: ms(1005) }),
            ("lognormal 60ms cv 0.5", Distribution::Lognormal { mean: ms(60), cv: 0.5 }),
            ("hyperexponential 60ms cv 3", Distribution::Hyperexponential { mean: ms(60), cv: 3.0 }),
            ("uniform 1ms to 9ms", Distribution::Uniform { least: ms(1), most: ms(9) }),
            (
                "pareto 1.1 from 1ms to 10s",
                Distribution::BoundedPareto { alpha: 1.1, least: ms(1), most: ms(10_000) },
            ),
        ];
        for (text, expected) in forms {
            assert_eq!(read(&DeValue::String(text.into())), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        let wrong =
            ["", "5", "exponential", "lognormal 5ms", "uniform 9ms to 1ms", "pareto 1ms", "normal 5ms"];
        for text in wrong {
            assert!(read(&DeValue::String(text.into())).is_err(), "{text}");
        }
    }
}
