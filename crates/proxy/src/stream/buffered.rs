//! A socket with buffers: reading into one, and writing one out.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::Stream;

/// The most that one read takes, even if a buffer that has grown for a long message has more room.
const READ_MAX: usize = 64 * 1024;

/// Room in a buffer from which a read goes there directly. With less it goes through the thread's scratch
/// buffer, so that the buffer grows to what came and not to what could have come.
const DIRECT_READ_MIN: usize = 16 * 1024;

thread_local! {
    /// The first buffer of reads of unknown length: one for each thread, not for each session.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_MAX]);
}

/// Reads what is there, at most [`READ_MAX`] bytes at once. `Ok(0)` is the end of the stream.
pub(crate) fn poll_fill(
    stream: &mut Stream,
    input: &mut BytesMut,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    if input.capacity() - input.len() >= DIRECT_READ_MIN {
        return pin!(stream.read_buf(&mut input.limit(READ_MAX))).poll(context);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let mut read = ReadBuf::new(scratch);
        ready!(Pin::new(stream).poll_read(context, &mut read))?;
        input.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
}

/// Writes what can be written; if all is, has it leave.
pub(crate) fn poll_flush(
    stream: &mut Stream,
    output: &mut BytesMut,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if output.is_empty() {
        return Pin::new(stream).poll_flush(context);
    }
    let written = ready!(Pin::new(stream).poll_write(context, output))?;
    output.advance(written);
    Poll::Ready(if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) })
}
