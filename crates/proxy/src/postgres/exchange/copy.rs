//! The client's copy data: within a COPY, and sent early, before the server has asked for data.
//!
//! # A Sync within a COPY
//!
//! The server ignores a Sync that it reads while it awaits copy data. If the COPY has failed before the
//! server reads the Sync, the server answers it. The gate can't see which happened, so it passes the Sync on.
//! If the COPY fails, the gate sends a Sync, a message that fails, and another Sync. Of the ReadyForQuery
//! messages before that error one answers the gate's Sync; each other one answers a Sync of the client's.

use bytes::BytesMut;
use wire::postgres::backend::{self, Status};
use wire::postgres::frontend::{self, Message, Target};
use wire::postgres::{Fault, ProtocolError};

use super::request::NO_STATEMENT;
use super::{EarlyData, Exchange, Step};

impl Exchange {
    pub(super) fn copy_frame(&mut self, frame: &[u8], out: &mut BytesMut) -> Result<(), ProtocolError> {
        match frame[0] {
            // The server ignores it while it reads copy data.
            b'H' => return Ok(()),
            b'S' => self.copy_syncs += 1,
            b'c' | b'f' => {
                self.copy_in = false;
                out.extend_from_slice(frame);
                if self.has_open_syncs() {
                    frontend::write_flush(out);
                }
                return Ok(());
            }
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
        if let Some(Step::Execute { early, .. }) = self.steps.back_mut() {
            *early = if *message == Message::CopyData { EarlyData::Begun } else { EarlyData::Ended };
        }
        out.extend_from_slice(frame);
    }

    /// Whether the server will ask for copy data next, unless it errs.
    pub(super) fn is_about_to_copy(&self) -> bool {
        let Some(Step::Execute { statement: Some(statement), early, .. }) = self.steps.back() else {
            return false;
        };
        statement.analysis.is_copy_in && !self.has_copied && *early != EarlyData::Ended
    }

    /// The server awaits copy data.
    pub(super) fn begin_copy_in(&mut self, server: &mut BytesMut) {
        let early = match self.steps.front() {
            Some(Step::Execute { early, .. }) => Some(*early),
            _ => None,
        };
        if early == Some(EarlyData::Ended) {
            // The data are with the server already, and so is what follows them.
            return;
        }
        (self.copy_in, self.has_copied, self.copy_syncs) = (true, true, 0);
        if std::mem::take(&mut self.sync_held) && early == Some(EarlyData::Begun) {
            frontend::write_sync(server);
            self.copy_syncs = 1;
        }
        if early.is_some() {
            // What followed the Execute in the batch is part of the copy; the client sends another Sync after
            // its data.
            self.steps.truncate(1);
            self.batch_open = true;
        }
    }

    /// Whether it isn't known yet what has become of the Syncs within a COPY that has ended.
    pub(super) fn has_open_syncs(&self) -> bool {
        self.copy_syncs > 0 && !self.copy_in
    }

    /// A COPY has failed in which the client has sent Syncs: asks which of them the server answers.
    pub(super) fn ask_for_syncs(&mut self, server: &mut BytesMut) {
        if self.copy_syncs > 0 {
            frontend::write_sync(server);
            frontend::write_describe(server, Target::Statement, NO_STATEMENT);
            frontend::write_sync(server);
            let is_batch = std::mem::take(&mut self.skipping);
            self.batch_open = false;
            self.steps.extend([Step::CopySyncs { answers: Vec::new(), is_batch }, Step::OwnSync]);
        }
    }

    /// Takes a message of the server as an answer to [`Self::ask_for_syncs`], and says whether it was one.
    /// The last answer tells how many Syncs of the client's were answered.
    pub(super) fn answered_syncs(&mut self, ready: Option<Status>, client: &mut BytesMut) -> bool {
        let Some(Step::CopySyncs { answers, is_batch }) = self.steps.front_mut() else { return false };
        match ready {
            Some(status) => answers.push(status),
            None => {
                let own = answers.len().saturating_sub(1);
                answers[..own].iter().for_each(|status| backend::write_ready(client, *status));
                self.client_owes_sync |= *is_batch && own == 0;
                self.copy_syncs = 0;
                self.steps.pop_front();
            }
        }
        true
    }
}
