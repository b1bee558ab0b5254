//! A client's connection: one request at a time, and its response to the last byte.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};

/// Room for a head, and for so much of a body at a time.
const BUFFER: usize = 64 * 1024;
const BLANK_LINE: &[u8] = b"\r\n\r\n";

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    exchanged: u32,
    first_byte: Option<Instant>,
}

/// What the head of a response said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The status.
    pub(crate) status: u16,
    /// Whether the connection can be used again.
    pub(crate) is_kept: bool,
    /// Why the gate answered by itself, if the answer is its own.
    pub(crate) refusal: Option<String>,
    length: u64,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(BUFFER), exchanged: 0, first_byte: None })
    }

    /// How many responses came whole.
    pub(crate) const fn exchanged(&self) -> u32 {
        self.exchanged
    }

    /// When the first byte of the last response came.
    pub(crate) const fn first_byte(&self) -> Option<Instant> {
        self.first_byte
    }

    /// Sends a request without a body, and reads its response to the end.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<Head> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        self.first_byte = None;
        let (head, read) = loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.first_byte.get_or_insert_with(Instant::now);
            if let Some(end) = self.buffer.windows(BLANK_LINE.len()).position(|four| four == BLANK_LINE) {
                let end = end + BLANK_LINE.len();
                break (Head::parse(&self.buffer[..end])?, (self.buffer.len() - end) as u64);
            }
            if self.buffer.len() == self.buffer.capacity() {
                return Err(io::Error::other("a head that is too long"));
            }
        };
        let mut left = head.length.checked_sub(read).ok_or_else(|| io::Error::other("too much"))?;
        while left > 0 {
            self.buffer.clear();
            let read = self.stream.read_buf(&mut self.buffer).await? as u64;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left = left.checked_sub(read).ok_or_else(|| io::Error::other("too much"))?;
        }
        self.exchanged += 1;
        Ok(head)
    }

    /// Closes the connection with a reset, as a client does whose user is gone.
    pub(crate) fn reset(self) {
        // If it is refused, the connection is closed in the usual way.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }
}

impl Head {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("a response without a status"))?;
        let mut head = Self { status, is_kept: true, refusal: None, length: u64::MAX };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                head.length = value.parse().map_err(io::Error::other)?;
            } else if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close") {
                head.is_kept = false;
            } else if name.eq_ignore_ascii_case("x-gatekeeper") {
                head.refusal = (value != "upstream").then(|| value.to_owned());
            }
        }
        if head.length == u64::MAX {
            return Err(io::Error::other("a response without a length"));
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_how_long_the_body_is_and_whose_answer_it_is() {
        let head =
            Head::parse(b"HTTP/1.1 503 Busy\r\nX-Gatekeeper: target\r\ncontent-length: 12\r\n\r\n").unwrap();
        assert_eq!(head, Head { status: 503, is_kept: true, refusal: Some("target".to_owned()), length: 12 });
        let closing =
            Head::parse(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
        assert!(!closing.is_kept && closing.refusal.is_none());
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
