//! What a server says: the bodies of the answers that carry state, and writers for the answers a proxy
//! gives itself.

use bytes::{BufMut, BytesMut};

use super::read::Reader;
use super::{Fault, ProtocolError, write};

/// The most SASL mechanisms that are read of one request.
pub const MAX_MECHANISMS: usize = 16;

/// The transaction state at ReadyForQuery: the only truth about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// `I`: no transaction.
    Idle,
    /// `T`: within a transaction.
    Transaction,
    /// `E`: within a failed transaction.
    Failed,
}

impl Status {
    /// The byte on the wire.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::Transaction => b'T',
            Self::Failed => b'E',
        }
    }
}

/// How grave an error or notice is; written untranslated into both severity fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The session ends.
    Fatal,
    /// A warning, only in a notice.
    Warning,
    /// A notice.
    Notice,
}

impl Severity {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }
}

/// An ErrorResponse or NoticeResponse to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error<'a> {
    /// How grave it is.
    pub severity: Severity,
    /// The SQLSTATE, five characters.
    pub code: &'a str,
    /// The primary message: one line.
    pub message: &'a str,
    /// More about the problem.
    pub detail: Option<&'a str>,
    /// What to do about it.
    pub hint: Option<&'a str>,
}

/// The fields of an ErrorResponse or NoticeResponse that came. A malformed body reads as one that ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    body: &'a [u8],
}

impl<'a> ErrorFields<'a> {
    /// The untranslated severity (`V`; `S` before PostgreSQL 9.6); empty if there is none.
    #[must_use]
    pub fn severity(&self) -> &'a str {
        self.get(b'V').or_else(|| self.get(b'S')).and_then(ascii).unwrap_or_default()
    }

    /// Whether the session ends with this: FATAL or PANIC.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self.severity(), "FATAL" | "PANIC")
    }

    /// The SQLSTATE; empty if there is none.
    #[must_use]
    pub fn code(&self) -> &'a str {
        self.get(b'C').and_then(ascii).unwrap_or_default()
    }

    /// The primary message in the session's encoding; empty if there is none.
    #[must_use]
    pub fn message(&self) -> &'a [u8] {
        self.get(b'M').unwrap_or_default()
    }

    /// The detail, in the session's encoding.
    #[must_use]
    pub fn detail(&self) -> Option<&'a [u8]> {
        self.get(b'D')
    }

    /// The hint, in the session's encoding.
    #[must_use]
    pub fn hint(&self) -> Option<&'a [u8]> {
        self.get(b'H')
    }

    /// The first field with this code.
    #[must_use]
    pub fn get(&self, field: u8) -> Option<&'a [u8]> {
        self.iter().find(|(code, _)| *code == field).map(|(_, text)| text)
    }

    /// All fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            let (&code, text) = rest.split_first()?;
            if code == 0 {
                return None;
            }
            let end = memchr::memchr(0, text)?;
            rest = &text[end + 1..];
            Some((code, &text[..end]))
        })
    }
}

fn ascii(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok().filter(|text| text.is_ascii())
}

/// Reads the body of an ErrorResponse or NoticeResponse.
#[must_use]
pub fn parse_error(body: &[u8]) -> ErrorFields<'_> {
    ErrorFields { body }
}

/// Reads ParameterStatus: name and value.
///
/// # Errors
/// If the body isn't two texts, or one isn't UTF-8 (a `search_path` reported in another `client_encoding`):
/// such a message is to be forwarded untracked, the connection is sound.
pub fn parse_parameter_status(body: &[u8]) -> Result<(&str, &str), ProtocolError> {
    let mut reader = Reader::new(b'S', body);
    let mut field = |field| {
        let text = reader.text(field)?;
        std::str::from_utf8(text).map_err(|_| Fault::Value { tag: b'S', field })
    };
    let pair = field("name").and_then(|name| Ok((name, field("value")?)));
    pair.and_then(|pair| reader.end().map(|()| pair)).map_err(ProtocolError::Server)
}

/// Reads BackendKeyData: process id and secret (4 bytes with protocol 3.0, up to 256 with 3.2).
///
/// # Errors
/// If the body is shorter than 8 bytes.
pub fn parse_backend_key(body: &[u8]) -> Result<(i32, &[u8]), ProtocolError> {
    let mut reader = Reader::new(b'K', body);
    let process_id = reader.i32("process id").map_err(ProtocolError::Server)?;
    let secret = reader.rest();
    if secret.len() < 4 {
        return Err(ProtocolError::Server(Fault::Truncated { tag: b'K', field: "secret" }));
    }
    Ok((process_id, secret))
}

/// Reads ReadyForQuery.
///
/// # Errors
/// If the body isn't one of the three state bytes.
pub fn parse_ready(body: &[u8]) -> Result<Status, ProtocolError> {
    match body {
        b"I" => Ok(Status::Idle),
        b"T" => Ok(Status::Transaction),
        b"E" => Ok(Status::Failed),
        _ => Err(ProtocolError::Server(Fault::Value { tag: b'Z', field: "transaction status" })),
    }
}

/// A server's authentication request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// The login succeeded.
    Ok,
    /// A password in clear text is wanted.
    CleartextPassword,
    /// A password hashed with this salt is wanted.
    Md5 {
        /// The salt.
        salt: [u8; 4],
    },
    /// SASL with one of these mechanisms, best first.
    Sasl {
        /// At most [`MAX_MECHANISMS`] names.
        mechanisms: Vec<&'a str>,
    },
    /// SASL goes on with this challenge.
    SaslContinue(&'a [u8]),
    /// SASL ends with this.
    SaslFinal(&'a [u8]),
    /// GSSAPI is wanted.
    Gss,
    /// GSSAPI or SSPI goes on with this token.
    GssContinue(&'a [u8]),
    /// SSPI is wanted.
    Sspi,
    /// Another method, by its number.
    Other(i32),
}

/// Reads an Authentication… message.
///
/// # Errors
/// If the body is shorter than what its method needs.
pub fn parse_authentication(body: &[u8]) -> Result<Authentication<'_>, ProtocolError> {
    authentication(Reader::new(b'R', body)).map_err(ProtocolError::Server)
}

fn authentication(mut reader: Reader<'_>) -> Result<Authentication<'_>, Fault> {
    Ok(match reader.i32("method")? {
        0 => Authentication::Ok,
        3 => Authentication::CleartextPassword,
        5 => {
            let salt = reader.bytes(4, "salt")?;
            Authentication::Md5 { salt: [salt[0], salt[1], salt[2], salt[3]] }
        }
        7 => Authentication::Gss,
        8 => Authentication::GssContinue(reader.rest()),
        9 => Authentication::Sspi,
        10 => {
            let mut mechanisms = Vec::new();
            loop {
                let name = reader.text("mechanisms")?;
                if name.is_empty() || mechanisms.len() == MAX_MECHANISMS {
                    break;
                }
                let name = ascii(name).ok_or(Fault::Value { tag: b'R', field: "mechanism" })?;
                mechanisms.push(name);
            }
            Authentication::Sasl { mechanisms }
        }
        11 => Authentication::SaslContinue(reader.rest()),
        12 => Authentication::SaslFinal(reader.rest()),
        other => Authentication::Other(other),
    })
}

/// Reads CommandComplete: the tag, such as `SELECT 5`.
///
/// # Errors
/// If the body isn't one text.
pub fn parse_command_tag(body: &[u8]) -> Result<&[u8], ProtocolError> {
    let mut reader = Reader::new(b'C', body);
    reader.text("command tag").and_then(|tag| reader.end().map(|()| tag)).map_err(ProtocolError::Server)
}

/// Appends an ErrorResponse.
pub fn write_error(out: &mut BytesMut, error: &Error<'_>) {
    write_fields(out, b'E', error);
}

/// Appends a NoticeResponse.
pub fn write_notice(out: &mut BytesMut, notice: &Error<'_>) {
    write_fields(out, b'N', notice);
}

fn write_fields(out: &mut BytesMut, tag: u8, error: &Error<'_>) {
    let severity = Some(error.severity.as_str());
    let fields = [
        (b'S', severity),
        (b'V', severity),
        (b'C', Some(error.code)),
        (b'M', Some(error.message)),
        (b'D', error.detail),
        (b'H', error.hint),
    ];
    write::message(out, tag, |out| {
        for (code, text) in fields {
            if let Some(text) = text {
                out.put_u8(code);
                write::text(out, text.as_bytes());
            }
        }
        out.put_u8(0);
    });
}

/// Appends the ErrorResponse whose body is `body` with the text of its field `replaced` (b'M' is the message)
/// replaced by what `replace` makes of it; all other fields are copied.
pub fn rewrite_error(body: &[u8], out: &mut BytesMut, replaced: u8, replace: impl FnOnce(&[u8]) -> Vec<u8>) {
    let mut replace = Some(replace);
    write::message(out, b'E', |out| {
        for (code, field) in parse_error(body).iter() {
            out.put_u8(code);
            match replace.take_if(|_| code == replaced) {
                Some(replace) => write::text(out, &replace(field)),
                None => write::text(out, field),
            }
        }
        out.put_u8(0);
    });
}

/// Appends a ReadyForQuery.
pub fn write_ready(out: &mut BytesMut, status: Status) {
    write::message(out, b'Z', |out| out.put_u8(status.byte()));
}

/// Appends a CommandComplete with its tag, such as `BEGIN`.
pub fn write_command_complete(out: &mut BytesMut, tag: &[u8]) {
    write::message(out, b'C', |out| write::text(out, tag));
}

/// Appends a ParseComplete.
pub fn write_parse_complete(out: &mut BytesMut) {
    write::message(out, b'1', |_| ());
}

/// Appends a BindComplete.
pub fn write_bind_complete(out: &mut BytesMut) {
    write::message(out, b'2', |_| ());
}

/// Appends a CloseComplete.
pub fn write_close_complete(out: &mut BytesMut) {
    write::message(out, b'3', |_| ());
}

/// Appends a NoData.
pub fn write_no_data(out: &mut BytesMut) {
    write::message(out, b'n', |_| ());
}

/// Appends an EmptyQueryResponse.
pub fn write_empty_query(out: &mut BytesMut) {
    write::message(out, b'I', |_| ());
}

/// Appends a ParameterDescription of no parameters.
pub fn write_parameter_description_empty(out: &mut BytesMut) {
    write::message(out, b't', |out| out.put_u16(0));
}

/// Appends a ParameterStatus.
pub fn write_parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    write::message(out, b'S', |out| {
        write::text(out, name.as_bytes());
        write::text(out, value.as_bytes());
    });
}

/// Appends a BackendKeyData. Process ids should be positive: some drivers refuse others.
pub fn write_backend_key(out: &mut BytesMut, process_id: i32, secret: &[u8]) {
    write::message(out, b'K', |out| {
        out.put_i32(process_id);
        out.put_slice(secret);
    });
}

/// Appends an AuthenticationOk.
pub fn write_authentication_ok(out: &mut BytesMut) {
    write::message(out, b'R', |out| out.put_i32(0));
}
