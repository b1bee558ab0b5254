//! How figures and tables write numbers.

use sim::Interval;

/// A value and half its interval.
pub(crate) fn with_interval(found: Interval, show: fn(f64) -> String) -> String {
    if !found.mean.is_finite() {
        return "none".to_owned();
    }
    match found.half_width {
        Some(half) => format!("{} ± {}", show(found.mean), show(half)),
        None => show(found.mean),
    }
}

/// A part as a percentage; nothing where there is none.
pub(crate) fn percent(part: f64) -> String {
    // Not "-0.0".
    let rounded = (part * 1000.0).round() / 10.0 + 0.0;
    if part.is_finite() { format!("{rounded:.1} %") } else { "–".to_owned() }
}

/// A time with three digits or so and its unit.
pub(crate) fn seconds(value: f64) -> String {
    let millis = value * 1e3;
    match millis {
        _ if millis < 0.095 => format!("{:.0} µs", millis * 1e3),
        _ if millis < 9.95 => format!("{millis:.1} ms"),
        _ if millis < 995.0 => format!("{millis:.0} ms"),
        _ if value < 9.95 => format!("{value:.2} s"),
        _ if value < 99.5 => format!("{value:.1} s"),
        _ => format!("{value:.0} s"),
    }
}

/// Formats seconds for an axis: `10 s`, not `10.0 s`.
pub(crate) fn short_seconds(value: f64) -> String {
    if value > 0.0 { seconds(value).replace(".00 ", " ").replace(".0 ", " ") } else { "0".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::PER_MINUTE;

    #[test]
    fn values_are_shown_with_three_digits_and_their_unit() {
        assert_eq!(
            [5e-5, 1.25e-3, 0.0456, 0.0996, 1.5, 12.34, 123.4].map(seconds),
            ["50 µs", "1.2 ms", "46 ms", "100 ms", "1.50 s", "12.3 s", "123 s"]
        );
        assert_eq!([0.5, -0.0001, f64::NAN].map(percent), ["50.0 %", "0.0 %", "–"]);
        let found = Interval { mean: 941.2, half_width: Some(11.7) };
        assert_eq!(with_interval(found, PER_MINUTE.show), "941 ± 12");
        assert_eq!(with_interval(Interval { mean: f64::NAN, half_width: None }, seconds), "none");
    }
}
