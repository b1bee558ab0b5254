//! The rest of a login: the server names another plug-in, or goes on with the present one.

use bytes::{BufMut, BytesMut};

use super::codec::Sequence;
use super::handshake::MAX_NAME;
use super::read::Reader;
use super::{Fault, ProtocolError, answer, write};

/// The largest message of a login after the first two, in bytes: a public key, a password, or a token.
pub const MAX_STEP: usize = 64 * 1_024;
/// The first byte of a request for another plug-in.
pub const SWITCH: u8 = 0xfe;
/// The first byte of a plug-in's further message.
pub const MORE: u8 = 0x01;

/// What a server says during a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// Another plug-in is to prove the user.
    Switch {
        /// The plug-in's name.
        plugin: &'a [u8],
        /// What the plug-in begins with, without a final NUL: most often a scramble.
        data: &'a [u8],
    },
    /// The plug-in's further message.
    More(&'a [u8]),
    /// The user is logged in; see [`answer::parse_ok`].
    Ok,
    /// The login has failed.
    Error(answer::ErrPacket<'a>),
}

/// Reads what a server says during a login.
///
/// # Errors
/// A message that can't come, or the plug-in of versions before 4.1.
pub fn parse_step(payload: &[u8]) -> Result<Step<'_>, ProtocolError> {
    match payload.split_first() {
        Some((&answer::OK, _)) => Ok(Step::Ok),
        Some((&answer::ERROR, _)) => answer::parse_error(payload).map(Step::Error),
        Some((&MORE, data)) => Ok(Step::More(data)),
        Some((&SWITCH, rest)) => {
            let mut reader = Reader::new("a request for another plug-in", rest);
            let plugin = reader.text("plug-in", MAX_NAME).map_err(ProtocolError::Server)?;
            let data = reader.take_rest();
            Ok(Step::Switch { plugin, data: data.strip_suffix(&[0]).unwrap_or(data) })
        }
        Some((&first, _)) => Err(ProtocolError::Server(Fault::Unexpected { first, state: "login" })),
        None => Err(ProtocolError::Server(Fault::Empty { state: "login" })),
    }
}

/// Appends a request for another plug-in; returns the number that is due next.
pub fn write_switch(out: &mut BytesMut, sequence: Sequence, plugin: &[u8], data: &[u8]) -> Sequence {
    write::message(out, sequence, |out| {
        out.put_u8(SWITCH);
        write::text(out, plugin);
        out.put_slice(data);
        out.put_u8(0);
    })
}

/// Appends a plug-in's further message; returns the number that is due next.
pub fn write_more(out: &mut BytesMut, sequence: Sequence, data: &[u8]) -> Sequence {
    write::message(out, sequence, |out| {
        out.put_u8(MORE);
        out.put_slice(data);
    })
}
