//! Recorded traces.

use admission::Duration;

use super::Download;

/// A line of a trace that is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?} isn't `seconds,bytes` or `seconds,bytes,status`{order}")]
pub struct Malformed {
    line: usize,
    text: String,
    order: &'static str,
}

/// A trace of lines `seconds,bytes[,status…]` behind a heading. Answers other than 200 and empty ones are
/// left out.
///
/// # Errors
/// The first line that is no request, or that lies before the last one.
pub fn read_trace(text: &str) -> Result<Vec<Download>, Malformed> {
    let mut requests: Vec<Download> = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let malformed = |order| Malformed { line: number + 1, text: line.chars().take(80).collect(), order };
        let Some((request, is_whole)) = request(line) else { return Err(malformed("")) };
        if requests.last().is_some_and(|last| last.at > request.at) {
            return Err(malformed(" at or after the line before"));
        }
        if is_whole && request.bytes > 0 {
            requests.push(request);
        }
    }
    Ok(requests)
}

/// A request, and whether it was answered with 200.
fn request(line: &str) -> Option<(Download, bool)> {
    let mut columns = line.split(',');
    let at = Duration::try_from_secs_f64(columns.next()?.parse().ok()?).ok()?;
    let bytes = columns.next()?.parse().ok()?;
    Some((Download { at, bytes }, columns.next().is_none_or(|status| status == "200")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_without_its_heading_and_without_what_failed() {
        let text = "t_s,bytes,status,url_id\n0,1713,200,0\n4.5,8677,404,1\n6,0,200,2\n7,41\n";
        let request = |seconds: f64, bytes| Download { at: Duration::from_secs_f64(seconds), bytes };
        assert_eq!(read_trace(text).unwrap(), [request(0.0, 1_713), request(7.0, 41)]);
    }

    #[test]
    fn what_is_no_request_is_named_by_its_line() {
        let error = read_trace("minute_utc,requests,bytes\n1998-04-30 21:30,2,49472\n").unwrap_err();
        assert!(error.to_string().starts_with("line 2: \"1998-04-30 21:30,2,49472\""), "{error}");
        assert!(read_trace("t_s,bytes\n2,1\n1,1\n").unwrap_err().to_string().contains("line 3"));
        assert!(read_trace("t_s,bytes\n-1,1\n").is_err());
    }
}
