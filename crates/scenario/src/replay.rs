//! Recorded requests, from a CSV file: seconds, type, and if known the seconds that each took alone.

use std::path::Path;
use std::time::Duration;

use config::reader::Complaint;
use sim::{Arrival, Arrivals};

use super::read_file;

/// The longest file of recorded requests: some ten million of them.
const BYTES_MAX: u64 = 1 << 28;
/// More seconds than anybody records.
const SECONDS_MAX: f64 = 1e9;

/// Reads the recorded requests. A first line that doesn't begin with a number is a heading.
pub(super) fn read(path: &Path, names: &[&str]) -> Result<Arrivals, Complaint> {
    let text = read_file(path, BYTES_MAX)?;
    parse(&text, names)
}

fn parse(text: &str, names: &[&str]) -> Result<Arrivals, Complaint> {
    let mut arrivals = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let is_heading = number == 0 && !line.starts_with(|first: char| first.is_ascii_digit());
        if line.trim().is_empty() || is_heading {
            continue;
        }
        let wrong = |what: &str| Complaint::new(format!("line {}: {what}", number + 1));
        let mut cells = line.split(',').map(str::trim);
        let at = cells.next().and_then(seconds).ok_or_else(|| wrong("doesn't begin with seconds"))?;
        let name = cells.next().unwrap_or_default();
        let kind = names.iter().position(|known| *known == name);
        let kind = kind.ok_or_else(|| wrong(&format!("there is no type {name:?}")))? as u32;
        let service_time = match cells.next().filter(|cell| !cell.is_empty()) {
            Some(cell) => Some(seconds(cell).ok_or_else(|| wrong("the service time isn't in seconds"))?),
            None => None,
        };
        arrivals.push(Arrival { at, kind, service_time });
    }
    // Recorders write down ends, or run side by side.
    arrivals.sort_by_key(|arrival| arrival.at);
    if arrivals.is_empty() {
        Err(Complaint::new("holds no requests"))
    } else {
        Ok(Arrivals::Replayed(arrivals.into()))
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..=SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_with_and_without_what_they_took_and_put_in_order() {
        let text = "seconds,type,service\n1.5,read,0.002\n\n0.5, report ,\n2,read\n";
        let Ok(Arrivals::Replayed(arrivals)) = parse(text, &["read", "report"]) else { panic!("not read") };
        let millis = |time: Duration| time.as_millis();
        let found: Vec<_> = arrivals
            .iter()
            .map(|arrival| (millis(arrival.at), arrival.kind, arrival.service_time.map(millis)))
            .collect();
        assert_eq!(found, [(500, 1, None), (1500, 0, Some(2)), (2000, 0, None)]);
    }

    #[test]
    fn what_cannot_be_read_is_said_with_its_line() {
        for (text, why) in [
            ("", "holds no requests"),
            ("1,write", "line 1: there is no type \"write\""),
            ("0,read\nx,read", "line 2: doesn't begin with seconds"),
            ("0,read,-1", "line 1: the service time isn't in seconds"),
        ] {
            assert_eq!(parse(text, &["read"]).map_err(|complaint| complaint.why), Err(why.to_owned()));
        }
    }
}
