//! The PROXY protocol, versions 1 and 2: a load balancer's first bytes name the client for which it connects
//! (haproxy.org, proxy-protocol.txt).
//!
//! Where the protocol is configured, a connection without it is closed. Otherwise a client could name any
//! address as its own.

use std::io;
use std::net::IpAddr;

use ppp::HeaderResult;
use ppp::v1::Addresses as Text;
use ppp::v2::{Addresses as Binary, Command};
use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The fixed part of a binary preamble (version 2), in bytes.
const BINARY_MIN: usize = 16;
/// The most bytes behind the fixed part: addresses, and a balancer's additions.
const BINARY_MAX: usize = 2_048;
/// The shortest text: `PROXY UNKNOWN` and the end of its line.
const TEXT_MIN: usize = 15;
/// The longest text, with the end of its line.
const TEXT_MAX: usize = 107;

/// Reads a preamble and returns the client's address. `None` if the balancer connects on its own account, or
/// doesn't know the client.
///
/// # Errors
/// If the first bytes are no preamble.
pub(crate) async fn read(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<IpAddr>> {
    let mut bytes = vec![0; TEXT_MIN];
    socket.read_exact(&mut bytes).await?;
    if bytes.starts_with(SIGNATURE) {
        bytes.push(socket.read_u8().await?);
        let length = usize::from(u16::from_be_bytes([bytes[BINARY_MIN - 2], bytes[BINARY_MIN - 1]]));
        if length > BINARY_MAX {
            return Err(none("it is longer than allowed"));
        }
        bytes.resize(BINARY_MIN + length, 0);
        socket.read_exact(&mut bytes[BINARY_MIN..]).await?;
    } else {
        while !bytes.ends_with(b"\r\n") {
            if bytes.len() >= TEXT_MAX || !bytes.starts_with(b"PROXY ") {
                return Err(none("the first bytes are none"));
            }
            bytes.push(socket.read_u8().await?);
        }
    }
    address(&bytes)
}

fn address(bytes: &[u8]) -> io::Result<Option<IpAddr>> {
    match HeaderResult::parse(bytes) {
        HeaderResult::V1(Ok(header)) => Ok(match header.addresses {
            Text::Tcp4(known) => Some(known.source_address.into()),
            Text::Tcp6(known) => Some(known.source_address.into()),
            Text::Unknown => None,
        }),
        HeaderResult::V2(Ok(header)) => Ok(match (header.command, header.addresses) {
            (Command::Proxy, Binary::IPv4(known)) => Some(known.source_address.into()),
            (Command::Proxy, Binary::IPv6(known)) => Some(known.source_address.into()),
            _ => None,
        }),
        HeaderResult::V1(Err(error)) => Err(none(&error.to_string())),
        HeaderResult::V2(Err(error)) => Err(none(&error.to_string())),
    }
}

fn none(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a connection without a valid PROXY preamble: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn heard(bytes: &[u8]) -> io::Result<Option<IpAddr>> {
        let mut rest = bytes;
        let heard = read(&mut rest).await?;
        assert_eq!(rest, b"GET", "what stands behind it is left");
        Ok(heard)
    }

    fn binary(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[0x20 | command, family], &length, addresses, b"GET"].concat()
    }

    #[tokio::test]
    async fn both_versions_are_understood() {
        let four: IpAddr = [192, 0, 2, 7].into();
        let six: IpAddr = "2001:db8::7".parse().unwrap();
        assert_eq!(heard(b"PROXY TCP4 192.0.2.7 10.0.0.1 5000 80\r\nGET").await.unwrap(), Some(four));
        assert_eq!(heard(b"PROXY TCP6 2001:db8::7 ::1 5000 80\r\nGET").await.unwrap(), Some(six));
        assert_eq!(heard(b"PROXY UNKNOWN\r\nGET").await.unwrap(), None);
        let IpAddr::V6(octets) = six else { unreachable!() };
        let ends = [&octets.octets()[..], &octets.octets()[..], &[1, 2, 3, 4]].concat();
        assert_eq!(heard(&binary(1, 0x21, &ends)).await.unwrap(), Some(six));
        let ends = [192, 0, 2, 7, 10, 0, 0, 1, 1, 2, 3, 4];
        assert_eq!(heard(&binary(1, 0x11, &ends)).await.unwrap(), Some(four));
        // The command LOCAL: the balancer's own health check.
        assert_eq!(heard(&binary(0, 0x00, &[])).await.unwrap(), None);
    }

    #[tokio::test]
    async fn anything_else_is_an_error() {
        let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200], b"\r\nGET"].concat();
        let huge = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff], &[0; 70_000]].concat();
        let cases: [&[u8]; 7] = [
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"PROXY TCP4 192.0.2.7\r\nGETGET",
            b"PROXY TCP4 300.0.2.7 10.0.0.1 5000 80\r\nGET",
            b"PROXY",
            &long,
            &huge,
            &binary(7, 0x11, &[0; 12]),
        ];
        for bytes in cases {
            assert!(
                heard(bytes).await.is_err(),
                "{:?}",
                String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
            );
        }
    }
}
