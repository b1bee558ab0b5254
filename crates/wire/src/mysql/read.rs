//! A cursor over a message's payload: every step is checked, a failure names the field.

use super::Fault;

/// What is still unread of one message.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    message: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'static str, payload: &'a [u8]) -> Self {
        Self { message, rest: payload }
    }

    fn truncated(&self, field: &'static str) -> Fault {
        Fault::Truncated { message: self.message, field }
    }

    /// A fault of a field's value.
    pub(super) fn invalid(&self, field: &'static str) -> Fault {
        Fault::Value { message: self.message, field }
    }

    pub(super) fn bytes(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.truncated(field))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.truncated(field))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, Fault> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, Fault> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, Fault> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// The bytes up to the next NUL, which is consumed and not returned; at most `max` of them.
    pub(super) fn text(&mut self, field: &'static str, max: usize) -> Result<&'a [u8], Fault> {
        let end = memchr::memchr(0, self.rest).ok_or_else(|| self.truncated(field))?;
        if end > max {
            return Err(self.invalid(field));
        }
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// The bytes up to the next NUL or, without any, to the end of the message.
    pub(super) fn text_or_rest(&mut self, field: &'static str, max: usize) -> Result<&'a [u8], Fault> {
        if memchr::memchr(0, self.rest).is_some() {
            return self.text(field, max);
        }
        let text = self.take_rest();
        if text.len() > max { Err(self.invalid(field)) } else { Ok(text) }
    }

    /// A length-encoded integer. The first byte of NULL (0xfb) and 0xff begin none.
    pub(super) fn integer(&mut self, field: &'static str) -> Result<u64, Fault> {
        Ok(match self.u8(field)? {
            0xfc => u64::from(self.u16(field)?),
            0xfd => {
                let [a, b, c] = self.array(field)?;
                u64::from(u32::from_le_bytes([a, b, c, 0]))
            }
            0xfe => self.array(field).map(u64::from_le_bytes)?,
            0xfb | 0xff => return Err(self.invalid(field)),
            small => u64::from(small),
        })
    }

    /// A length-encoded string.
    pub(super) fn string(&mut self, field: &'static str) -> Result<&'a [u8], Fault> {
        let length = self.integer(field)?;
        let length = usize::try_from(length).map_err(|_| self.truncated(field))?;
        self.bytes(length, field)
    }

    /// A length-encoded string of at most `max` bytes.
    pub(super) fn short_string(&mut self, field: &'static str, max: usize) -> Result<&'a [u8], Fault> {
        let text = self.string(field)?;
        if text.len() > max { Err(self.invalid(field)) } else { Ok(text) }
    }

    /// Everything that is left, without consuming it.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Everything that is left.
    pub(super) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The message must end here.
    pub(super) fn end(&self) -> Result<(), Fault> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(Fault::Trailing { message: self.message, extra }),
        }
    }
}
