//! The queueing disciplines of this machine's network devices, as the kernel tells anybody (rtnetlink).

use std::io;

use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Requests and answers of rtnetlink(7), the flags of a request for all, and the attribute with a name.
const GET_DISCIPLINE: u16 = 38;
const NEW_DISCIPLINE: u16 = 36;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST_ALL: u16 = 0x301;
const KIND: u16 = 1;
/// Bytes of a message's head, of what describes a discipline, and of an attribute's head.
const HEAD: usize = 16;
const DESCRIPTION: usize = 20;
const ATTRIBUTE: usize = 4;
/// The kernel fills at most so much at once.
const ROOM: usize = 32 * 1024;
/// More answers than any machine needs.
const ANSWERS_MAX: usize = 1_000;

/// One of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Discipline {
    /// The device, by number.
    device: u32,
    /// The first part of its handle.
    pub(super) major: u16,
    /// Its name, such as `htb`.
    pub(super) kind: String,
}

impl Discipline {
    #[cfg(test)]
    pub(super) fn of(device: u32, major: u16, kind: &str) -> Self {
        Self { device, major, kind: kind.to_owned() }
    }

    /// The device's name.
    pub(super) fn device(&self) -> String {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let name = socket.and_then(|socket| index_to_name(socket, self.device));
        name.unwrap_or_else(|_| format!("device {}", self.device))
    }
}

/// All disciplines of all devices. A device whose packets wait nowhere has none.
pub(super) fn disciplines() -> io::Result<Vec<Discipline>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &question(), SendFlags::empty())?;
    let (mut found, mut buffer) = (Vec::new(), vec![0; ROOM]);
    for _ in 0..ANSWERS_MAX {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if !read(&buffer[..length], &mut found)? {
            return Ok(found);
        }
    }
    Err(io::Error::other("the kernel's answer has no end"))
}

fn question() -> [u8; HEAD + DESCRIPTION] {
    let mut bytes = [0; HEAD + DESCRIPTION];
    bytes[..4].copy_from_slice(&((HEAD + DESCRIPTION) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&GET_DISCIPLINE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_ALL.to_ne_bytes());
    bytes
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Cuts off a part that begins with its length, padded to whole words.
fn cut(bytes: &[u8], length: usize, least: usize) -> Option<(&[u8], &[u8])> {
    let part = bytes.get(..length).filter(|_| length >= least)?;
    Some((part, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Reads an answer; whether there will be another.
fn read(mut answer: &[u8], found: &mut Vec<Discipline>) -> io::Result<bool> {
    while let Some(length) = word(answer, 0) {
        let Some((message, rest)) = cut(answer, length as usize, HEAD) else { break };
        match short(message, 4) {
            Some(NEW_DISCIPLINE) => found.extend(discipline(&message[HEAD..])),
            Some(DONE) => return Ok(false),
            Some(ERROR) => {
                let number = word(message, HEAD).unwrap_or_default() as i32;
                return Err(io::Error::from_raw_os_error(number.saturating_neg()));
            }
            _ => {}
        }
        answer = rest;
    }
    Ok(true)
}

fn discipline(message: &[u8]) -> Option<Discipline> {
    let (device, handle) = (word(message, 4)?, word(message, 8)?);
    let mut attributes = message.get(DESCRIPTION..)?;
    loop {
        let length = short(attributes, 0)?.into();
        let (attribute, rest) = cut(attributes, length, ATTRIBUTE)?;
        if short(attribute, 2) == Some(KIND) {
            let name = attribute[ATTRIBUTE..].split(|&byte| byte == 0).next()?;
            let kind = String::from_utf8_lossy(name).into_owned();
            return Some(Discipline { device, major: (handle >> 16) as u16, kind });
        }
        attributes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = (HEAD + body.len()) as u32;
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], body].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn disciplines_are_read_up_to_the_end() {
        let mut body = vec![0; DESCRIPTION];
        body[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        body[8..12].copy_from_slice(&0x1_0000_u32.to_ne_bytes());
        // Another attribute first, then the name with its zero.
        body.extend([&6_u16.to_ne_bytes()[..], &9_u16.to_ne_bytes(), &[1, 2, 0, 0]].concat());
        body.extend([&8_u16.to_ne_bytes()[..], &KIND.to_ne_bytes(), b"htb\0"].concat());
        let answer = [message(NEW_DISCIPLINE, &body), message(9, &[])].concat();
        let mut found = Vec::new();
        assert!(read(&answer, &mut found).unwrap());
        assert_eq!(found, [Discipline { device: 7, major: 1, kind: "htb".to_owned() }]);
        assert!(!read(&message(DONE, &[0; 4]), &mut found).unwrap());
        let refused = read(&message(ERROR, &(-1_i32).to_ne_bytes()), &mut found).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        // What is cut off is no answer, and no loop without end.
        assert!(read(&answer[..30], &mut found).unwrap());
        assert_eq!(discipline(&body[..DESCRIPTION + 2]), None);
        assert_eq!(discipline(&[&[0; DESCRIPTION][..], &[0; 8]].concat()), None);
    }

    #[test]
    fn the_kernel_tells_anybody() {
        for one in disciplines().unwrap() {
            assert!(!one.kind.is_empty() && !one.device().is_empty());
        }
    }
}
