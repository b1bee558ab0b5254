//! Has the kernel take another first time-out for TCP connections of one network: a program of nine
//! instructions (BPF, `SOCK_OPS`) that answers when TCP asks for it.
//!
//! Linux has no other setting for how long an opening, or its answer, waits before it is sent again. No
//! library loads so short a program without an object file and a compiler of its own.

#![cfg(target_os = "linux")]

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Commands of bpf(2), the kind of the program, and where it is attached.
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const SOCK_OPS: u32 = 13;
const CGROUP_SOCK_OPS: u32 = 3;

/// What TCP asks for (`BPF_SOCK_OPS_TIMEOUT_INIT`), and where the question, the answer and the other side's
/// address stand in what the program is given.
const FIRST_TIMEOUT: i32 = 1;
const QUESTION: i16 = 0;
const ANSWER: i16 = 4;
const OTHER_SIDE: i16 = 24;

/// Codes of instructions: read and write a word, skip some if it isn't equal, keep some of its bits, set a
/// register, end.
const READ: u8 = 0x61;
const WRITE: u8 = 0x63;
const SKIP_UNLESS: u8 = 0x55;
const KEEP: u8 = 0x57;
const SET: u8 = 0xb7;
const END: u8 = 0x95;

/// An instruction, as the kernel reads it.
#[repr(C)]
struct Instruction {
    code: u8,
    /// The register that it changes or looks at, and the one that it reads (upper half).
    registers: u8,
    offset: i16,
    value: i32,
}

/// What loads a program, as far as it has to be said.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    rest: [u32; 12],
}

/// What attaches it.
#[repr(C)]
struct Attach {
    program: u32,
    group: u32,
    at: u32,
    flags: u32,
}

/// The program: registers 0 and 1 are the result and what it is given; 2 is its own.
fn program(network: Ipv4Addr, mask: Ipv4Addr, jiffies: u32) -> [Instruction; 9] {
    let word = |address: Ipv4Addr| i32::from_ne_bytes(address.octets());
    let is =
        |code, registers, offset, value| Instruction { code, registers: order(registers), offset, value };
    [
        is(READ, 0x12, QUESTION, 0),
        is(SKIP_UNLESS, 0x02, 5, FIRST_TIMEOUT),
        is(READ, 0x12, OTHER_SIDE, 0),
        is(KEEP, 0x02, 0, word(mask)),
        is(SKIP_UNLESS, 0x02, 2, word(network)),
        is(SET, 0x02, 0, i32::try_from(jiffies).unwrap_or(i32::MAX)),
        is(WRITE, 0x21, ANSWER, 0),
        is(SET, 0x00, 0, 1),
        is(END, 0, 0, 0),
    ]
}

/// Registers as this machine has them: bit fields begin at the other end on a big one.
const fn order(registers: u8) -> u8 {
    if cfg!(target_endian = "big") { registers.rotate_left(4) } else { registers }
}

/// Gives connections with a side in this network this first time-out, in jiffies of the kernel. It counts for
/// all processes of a control group (of version 2, by its directory), until what is returned is dropped.
///
/// # Errors
/// If the kernel can't, or this process may not.
pub fn set_first_timeout(
    group: BorrowedFd<'_>,
    (network, mask): (Ipv4Addr, Ipv4Addr),
    jiffies: u32,
) -> io::Result<OwnedFd> {
    let program = program(network, mask, jiffies);
    let load = Load {
        kind: SOCK_OPS,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"".as_ptr() as u64,
        rest: [0; 12],
    };
    let program = bpf(PROG_LOAD, &load)?;
    let attach = Attach {
        program: program.as_raw_fd() as u32,
        group: group.as_raw_fd() as u32,
        at: CGROUP_SOCK_OPS,
        flags: 0,
    };
    bpf(LINK_CREATE, &attach)
}

/// Both commands give a descriptor.
#[expect(unsafe_code, reason = "the C library has no function for it")]
fn bpf<T>(command: libc::c_int, what: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes at `what`, and what the addresses in them say: `Load`
    // points to `count` instructions and to a string that ends with a zero, both of which live during the
    // call. It writes nothing, since no log is asked for.
    let told = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(what), size_of::<T>()) };
    if told < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(told as libc::c_int) })
}
