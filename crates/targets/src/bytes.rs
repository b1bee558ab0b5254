//! Bytes that somebody wrote.

use std::ops::Deref;

use ::bytes::BytesMut;

/// What a writer appended to nothing.
pub(crate) struct Written(BytesMut);

impl Written {
    /// Has `write` write.
    pub(crate) fn new(write: impl FnOnce(&mut BytesMut)) -> Self {
        let mut out = BytesMut::new();
        write(&mut out);
        Self(out)
    }
}

impl Deref for Written {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
