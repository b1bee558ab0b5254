//! Asks the system's allocator to give memory that is free back to the system.
//!
//! The allocator of glibc keeps what lies free between pieces that are in use. After a flood of short
//! messages that is most of what they took. Other allocators are left to themselves.

/// Gives back what the allocator keeps. Takes some milliseconds, during which other threads may wait for the
/// allocator.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library offers it in no other way")]
pub fn give_back() {
    // SAFETY: the function takes no pointer, and may be called by any thread at any time (malloc_trim(3):
    // MT-Safe).
    unsafe { libc::malloc_trim(0) };
}

/// Nothing is known of this allocator.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}
