//! The messages of a login that somebody answers instead of passing it on: challenges to a client, answers
//! to a server.
//!
//! What a server asks is read by [`backend::parse_authentication`](super::backend::parse_authentication);
//! the texts within SASL messages are [`scram`](super::scram)'s.

use bytes::{BufMut, BytesMut};

use super::read::Reader;
use super::{Fault, ProtocolError, write};

/// A client's first SASL message: which mechanism it chose, and what it says at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaslInitial<'a> {
    /// The mechanism's name.
    pub mechanism: &'a [u8],
    /// The mechanism's first message, if it came along.
    pub data: Option<&'a [u8]>,
}

/// Reads the body of a SASLInitialResponse.
///
/// # Errors
/// If it isn't a name, a length (−1 for nothing) and so many bytes.
pub fn parse_sasl_initial(body: &[u8]) -> Result<SaslInitial<'_>, ProtocolError> {
    sasl_initial(Reader::new(b'p', body)).map_err(ProtocolError::Client)
}

fn sasl_initial(mut reader: Reader<'_>) -> Result<SaslInitial<'_>, Fault> {
    let mechanism = reader.text("mechanism")?;
    let data = match reader.i32("data length")? {
        -1 => None,
        length => {
            let length =
                usize::try_from(length).map_err(|_| Fault::Value { tag: b'p', field: "data length" })?;
            Some(reader.bytes(length, "data")?)
        }
    };
    reader.end().map(|()| SaslInitial { mechanism, data })
}

/// Reads the body of a PasswordMessage: a password or its md5 response.
///
/// # Errors
/// If it isn't one text.
pub fn parse_password(body: &[u8]) -> Result<&[u8], ProtocolError> {
    let mut reader = Reader::new(b'p', body);
    reader.text("password").and_then(|text| reader.end().map(|()| text)).map_err(ProtocolError::Client)
}

/// Appends AuthenticationSASL: the mechanisms that are offered, best first.
pub fn write_sasl(out: &mut BytesMut, mechanisms: &[&str]) {
    write::message(out, b'R', |out| {
        out.put_i32(10);
        for mechanism in mechanisms {
            write::text(out, mechanism.as_bytes());
        }
        out.put_u8(0);
    });
}

/// Appends AuthenticationSASLContinue.
pub fn write_sasl_continue(out: &mut BytesMut, data: &[u8]) {
    write::message(out, b'R', |out| {
        out.put_i32(11);
        out.put_slice(data);
    });
}

/// Appends AuthenticationSASLFinal.
pub fn write_sasl_final(out: &mut BytesMut, data: &[u8]) {
    write::message(out, b'R', |out| {
        out.put_i32(12);
        out.put_slice(data);
    });
}

/// Appends AuthenticationMD5Password.
pub fn write_md5_challenge(out: &mut BytesMut, salt: [u8; 4]) {
    write::message(out, b'R', |out| {
        out.put_i32(5);
        out.put_slice(&salt);
    });
}

/// Appends a SASLInitialResponse.
pub fn write_sasl_initial(out: &mut BytesMut, initial: &SaslInitial<'_>) {
    write::message(out, b'p', |out| {
        write::text(out, initial.mechanism);
        match initial.data {
            None => out.put_i32(-1),
            Some(data) => {
                // Longer data can't come about; a saturated length makes the receiver refuse the message.
                out.put_i32(i32::try_from(data.len()).unwrap_or(i32::MAX));
                out.put_slice(data);
            }
        }
    });
}

/// Appends a SASLResponse.
pub fn write_sasl_response(out: &mut BytesMut, data: &[u8]) {
    write::message(out, b'p', |out| out.put_slice(data));
}

/// Appends a PasswordMessage: a password or its md5 response.
pub fn write_password(out: &mut BytesMut, password: &[u8]) {
    write::message(out, b'p', |out| write::text(out, password));
}
