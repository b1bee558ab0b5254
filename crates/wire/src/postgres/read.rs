//! A cursor over a message's body: every step is checked, a failure names the field.

use super::Fault;

/// What is still unread of one message's body.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    tag: u8,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(tag: u8, body: &'a [u8]) -> Self {
        Self { tag, rest: body }
    }

    /// The bytes up to the next NUL, which is consumed and not returned.
    pub(super) fn text(&mut self, field: &'static str) -> Result<&'a [u8], Fault> {
        let end = memchr::memchr(0, self.rest).ok_or(Fault::Unterminated { tag: self.tag, field })?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    pub(super) fn bytes(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Fault> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(Fault::Truncated { tag: self.tag, field })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, Fault> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, Fault> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, Fault> {
        self.array(field).map(i32::from_be_bytes)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Fault> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(Fault::Truncated { tag: self.tag, field })?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Everything that is left, without consuming it.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The body must end here.
    pub(super) fn end(&self) -> Result<(), Fault> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(Fault::Trailing { tag: self.tag, extra }),
        }
    }
}
