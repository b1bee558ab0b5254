//! The client's copy data: within a COPY, and before the server has asked for them.

use bytes::BytesMut;
use wire::postgres::frontend::Message;
use wire::postgres::{Fault, ProtocolError};

use super::{Exchange, Step};

impl Exchange {
    pub(super) fn copy_frame(&mut self, frame: &[u8], out: &mut BytesMut) -> Result<(), ProtocolError> {
        match frame[0] {
            // The server ignores both while it reads copy data.
            b'H' | b'S' => return Ok(()),
            b'c' | b'f' => self.copy_in = false,
            b'd' => {}
            // For this the server ends the connection. The client has lost its way, the server connection
            // needn't.
            _ => return Err(ProtocolError::Client(Fault::WithinCopy { tag: frame[0] })),
        }
        out.extend_from_slice(frame);
        Ok(())
    }

    /// Copy data that the server hasn't asked for yet. Behind a COPY that has ended they are ignored, as
    /// the server ignores them.
    pub(super) fn early_copy_frame(&mut self, message: &Message<'_>, frame: &[u8], out: &mut BytesMut) {
        if !self.is_about_to_copy() {
            return;
        }
        if let (Message::CopyDone | Message::CopyFail, Some(Step::Execute { copied, .. })) =
            (message, self.steps.back_mut())
        {
            *copied = true;
        }
        out.extend_from_slice(frame);
    }

    /// Whether the server will ask for copy data next, unless it errs.
    pub(super) fn is_about_to_copy(&self) -> bool {
        let Some(Step::Execute { statement: Some(statement), copied: false, .. }) = self.steps.back() else {
            return false;
        };
        statement.analysis.is_copy_in && !self.has_copied
    }
}
