//! The page's stream of server-sent events, read by a thread of its own, which goes on trying.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::signal::unix::{SignalKind, signal};

use super::model::{Frame, read};
use crate::Failure;
use crate::remote::{ANSWER_BYTES_MAX, Remote, block_on};

/// The pause before the next try.
const PAUSE: Duration = Duration::from_secs(1);
/// A frame comes each second. A stream that says nothing for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What the screen is told.
pub(super) enum News {
    /// Everything, or what has changed.
    Frame(Box<Frame>),
    /// The gate can't be reached, and why.
    Lost(String),
    /// A signal asks for the end.
    End,
}

/// Tells what the gate tells, until nobody listens.
pub(super) fn follow(remote: &Remote, news: &SyncSender<News>) {
    let followed = block_on(async {
        let mut terminate = signal(SignalKind::terminate())
            .map_err(|error| Failure::Runtime(format!("cannot listen to signals: {error}")))?;
        loop {
            let lost = tokio::select! {
                _ = terminate.recv() => break,
                why = frames(remote, news) => why,
            };
            let Some(why) = lost else { return Ok(()) };
            if news.send(News::Lost(why)).is_err() {
                return Ok(());
            }
            tokio::select! {
                _ = terminate.recv() => break,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        Ok(())
    });
    let end = followed.err().map_or(News::End, |failure| News::Lost(failure.message().to_owned()));
    // The screen may have ended by itself.
    let _ = news.send(end);
}

/// Reads one stream to its end, and returns why it ended; `None` where nobody listens any more.
async fn frames(remote: &Remote, news: &SyncSender<News>) -> Option<String> {
    let mut body = match remote.open("/page/events").await {
        Ok(Ok(body)) => body,
        Ok(Err(answer)) => return Some(refusal(answer.status.as_u16(), &answer.body)),
        Err(failure) => return Some(failure.message().to_owned()),
    };
    let mut text = Text::default();
    loop {
        if let Err(why) = text.more(&mut body).await {
            return Some(why);
        }
        while let Some(data) = text.next() {
            match read(&data) {
                Ok(frame) => news.send(News::Frame(Box::new(frame))).ok()?,
                Err(failure) => return Some(failure.message().to_owned()),
            }
        }
    }
}

fn refusal(status: u16, body: &str) -> String {
    match status {
        // The gate says how many watch already.
        503 => body.trim_end().to_owned(),
        404 => "it answers, but has no live figures: it is no gatekeeper, or an older one".to_owned(),
        _ => format!("it answers {status}: {}", body.trim_end()),
    }
}

/// What has come of a stream, and isn't read yet.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// Up to where no event ends.
    seen: usize,
}

impl Text {
    async fn more(&mut self, body: &mut Incoming) -> Result<(), String> {
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
        match frame.map_err(|_| format!("it has said nothing for {} s", SILENCE_MAX.as_secs()))? {
            None => Err("the gate has ended the stream".to_owned()),
            Some(Err(error)) => Err(format!("the stream has broken off: {error}")),
            Some(Ok(frame)) => {
                self.bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                if self.bytes.len() > ANSWER_BYTES_MAX {
                    return Err(format!("it sends more than {ANSWER_BYTES_MAX} bytes at once"));
                }
                Ok(())
            }
        }
    }

    /// The data of the next event.
    fn next(&mut self) -> Option<String> {
        let from = self.seen.saturating_sub(1);
        let Some(end) = self.bytes[from..].windows(2).position(|pair| pair == b"\n\n") else {
            self.seen = self.bytes.len();
            return None;
        };
        let event: Vec<u8> = self.bytes.drain(..from + end + 2).collect();
        self.seen = 0;
        let event = String::from_utf8_lossy(&event);
        event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned).or(Some(String::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_apart_however_they_arrive() {
        let stream = b"event: hello\nretry: 2000\ndata: {\"a\":1}\n\nevent: frame\ndata: {}\n\n";
        let mut text = Text::default();
        let mut told = Vec::new();
        for byte in stream {
            text.bytes.push(*byte);
            told.extend(text.next());
        }
        assert_eq!(told, ["{\"a\":1}", "{}"]);
        text.bytes.extend_from_slice(stream);
        assert_eq!((text.next().as_deref(), text.next().as_deref()), (Some("{\"a\":1}"), Some("{}")));
        assert_eq!(text.next(), None);
    }
}
