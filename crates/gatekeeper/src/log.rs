//! The log: lines of `key=value` for people, JSON for collectors, on standard error.

use std::fmt::{self, Debug, Write as _};
use std::{io, panic};

use config::{LogFormat, LogLevel};
use proxy::admin::{Happening, Timeline};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, reload};

/// Changes what is written from now on.
pub(crate) type SetLevel = Box<dyn Fn(LogLevel) + Send + Sync>;

/// Starts the log. What is returned changes its level, unless the environment has the say. The timeline gets
/// the lines that matter, whatever that level is.
pub(crate) fn start(config::Log { format, level }: config::Log, timeline: &Timeline) -> SetLevel {
    let of_environment = EnvFilter::try_from_default_env();
    let is_fixed = of_environment.is_ok();
    let filter = of_environment.unwrap_or_else(|_| EnvFilter::new(level_name(level)));
    let (filter, handle) = reload::Layer::new(filter);
    // Also each move of a bound, which the log has at debug level only.
    let matters = Targets::new().with_default(LevelFilter::INFO).with_target("proxy::observe", Level::DEBUG);
    let kept = Kept(timeline.clone()).with_filter(matters);
    let log = tracing_subscriber::registry().with(kept);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            log.with(lines.with_ansi(false).event_format(Logfmt).with_filter(filter)).init();
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_writer(|| Seen(io::stderr()));
            log.with(lines.with_filter(filter)).init();
        }
    }
    panic::set_hook(Box::new(tell_fault));
    Box::new(move |level| {
        if is_fixed {
            tracing::warn!("the level of the log stays as RUST_LOG says");
        } else if let Err(error) = handle.reload(EnvFilter::new(level_name(level))) {
            tracing::warn!(%error, "the level of the log could not be changed");
        }
    })
}

/// A panic is a line of the log as all others are.
fn tell_fault(fault: &panic::PanicHookInfo<'_>) {
    tracing::error!(%fault, "a fault of gatekeeper's own");
}

fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

/// Keeps lines for the admin listener's page.
struct Kept(Timeline);

impl<S: Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut facts =
            Facts(Happening { level: level_word(*event.metadata().level()), ..Happening::default() });
        event.record(&mut facts);
        self.0.note(facts.0, std::time::SystemTime::now());
    }
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        _ => "info",
    }
}

/// The fields of a line, one by one.
struct Facts(Happening);

impl Visit for Facts {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.0.text),
            "gate" => self.0.gate = Some(value.to_owned()),
            name => self.0.facts.push((name, value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Lines of `key=value`: time, level and message, then what belongs to the message.
struct Logfmt;

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        writer.write_str("ts=")?;
        SystemTime.format_time(&mut writer)?;
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        writeln!(writer, " level={level} msg={}{}", Value(&fields.message), fields.others)
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Fields {
    fn add(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.message = value;
        } else {
            // Writing to a string cannot fail.
            let _ = write!(self.others, " {}={}", field.name(), Value(&value));
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format!("{value:?}"));
    }
}

/// Whether a letter moves the cursor, or hides or turns other letters.
pub(crate) fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// A value, in quotes where it needs them. What comes from clients can't begin another line or field.
struct Value<'a>(&'a str);

impl fmt::Display for Value<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |letter| !is_unseen(letter) && !matches!(letter, ' ' | '=' | '"' | '\\');
        if !self.0.is_empty() && self.0.chars().all(is_plain) {
            return formatter.write_str(self.0);
        }
        formatter.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(formatter, "\\{letter}")?,
                '\n' => formatter.write_str("\\n")?,
                letter if is_unseen(letter) => write!(formatter, "\\u{:04x}", u32::from(letter))?,
                letter => formatter.write_char(letter)?,
            }
        }
        formatter.write_char('"')
    }
}

/// Writes lines of JSON, of which each is one write, with the escapes of JSON for letters that aren't seen:
/// these only stand within its texts.
struct Seen<W>(W);

impl<W: io::Write> io::Write for Seen<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let (mut seen, mut units) = (String::with_capacity(line.len()), [0; 2]);
        for letter in text.chars() {
            if letter == '\n' || !is_unseen(letter) {
                seen.push(letter);
                continue;
            }
            letter.encode_utf16(&mut units).iter().for_each(|unit| _ = write!(seen, "\\u{unit:04x}"));
        }
        self.0.write_all(seen.as_bytes()).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn letters_that_are_not_seen_are_escaped_in_json() {
        let mut written = Vec::new();
        let line = "{\"user\":\"ann\u{202e}bob\u{e0041}größe\"}\n";
        io::Write::write_all(&mut Seen(&mut written), line.as_bytes()).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert_eq!(written, "{\"user\":\"ann\\u202ebob\\udb40\\udc41größe\"}\n");
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parse(&written), parse(line));
    }

    /// What is written to a log.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_one_line_of_the_log() {
        let written = Written::default();
        let into = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || into.clone());
        let log = tracing_subscriber::registry().with(lines.event_format(Logfmt));
        let before = panic::take_hook();
        panic::set_hook(Box::new(tell_fault));
        let ended = tracing::subscriber::with_default(log, || panic::catch_unwind(|| panic!("two\nlines")));
        panic::set_hook(before);
        assert!(ended.is_err());
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        let of_this = text.lines().filter(|line| line.contains("two\\nlines"));
        assert_eq!(of_this.count(), 1, "{text}");
        assert!(text.contains(" level=error msg=\"a fault of gatekeeper's own\" fault="), "{text}");
    }

    #[test]
    fn a_value_is_quoted_where_it_would_be_read_otherwise() {
        let told = |value: &str| Value(value).to_string();
        assert_eq!(told("127.0.0.1:5432"), "127.0.0.1:5432");
        assert_eq!(told(""), "\"\"");
        assert_eq!(told("can't connect"), "\"can't connect\"");
        assert_eq!(told("a=\"b\\\""), "\"a=\\\"b\\\\\\\"\"");
        assert_eq!(told("a\nlevel=error\u{1b}[1m"), "\"a\\nlevel=error\\u001b[1m\"");
        assert_eq!(told("select ? from größe"), "\"select ? from größe\"");
        assert_eq!(told("ann\u{202e}bob\u{2066}\u{feff}"), "\"ann\\u202ebob\\u2066\\ufeff\"");
    }
}
