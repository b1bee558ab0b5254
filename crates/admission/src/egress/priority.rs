//! What a client asks for its responses (RFC 9218), which decides between responses of about one size.
//!
//! Sizes tie when they have the same highest bit. So an urgent response overtakes one that has at least half
//! as many bytes remaining, and a client that calls everything urgent gains no more than that. Where all have
//! one priority, the order is that of the exact sizes.

/// How much a response matters beside others of about its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to [`Priority::LEAST`].
    pub urgency: u8,
    /// How responses of one urgency share the uplink.
    pub delivery: Delivery,
}

/// What parts of a response are worth to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Little: one response after the other.
    Whole,
    /// Each part is of use (`incremental`): all in turn, behind those that are needed whole.
    Incremental,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, delivery: Delivery::Whole }
    }
}

impl Priority {
    /// The urgency of what nobody waits for.
    pub const LEAST: u8 = 7;

    /// The place of a response with so many bytes remaining that had its last turn at `turn`.
    pub(super) fn rank(self, remaining: u64, turn: u64) -> (u64, u64, u64) {
        let bits = u64::from(u64::BITS - remaining.leading_zeros());
        let tie = bits << 3 | u64::from(self.urgency.min(Self::LEAST));
        match self.delivery {
            Delivery::Whole => (tie, remaining, 0),
            Delivery::Incremental => (tie, u64::MAX, turn),
        }
    }
}
