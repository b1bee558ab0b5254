//! Tests of bodies.

use super::*;

/// Whether a frame that is kept keeps the buffer, too, of which it is so many bytes.
fn keeps_its_buffer(bytes: usize) -> bool {
    let buffer = Bytes::from(vec![b'x'; 8 * 1024]);
    let mut body = ToService::default();
    body.keep(Frame::data(buffer.slice(..bytes))).unwrap();
    assert_eq!(body.ahead[0].data_ref().map(Bytes::len), Some(bytes));
    !buffer.is_unique()
}

#[test]
fn a_small_frame_that_is_kept_keeps_no_large_buffer() {
    assert!(!keeps_its_buffer(0) && !keeps_its_buffer(1) && !keeps_its_buffer(COPIED - 1));
    assert!(keeps_its_buffer(COPIED), "a copy would cost more than it frees");
}
