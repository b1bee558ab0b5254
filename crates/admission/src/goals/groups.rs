//! Weights of control groups: the processor behind the gate is shared by classes as the gate's queue is.
//!
//! **Idea.** A class's delay is made at two resources: in the queue, and at the processor where its workers
//! have a control group. Both get the same shares, by the whole delay. Where nobody waits, shares have no
//! effect, so wherever the bottleneck moves, the right ones are in force there.
//!
//! **Formula.** weight = former weight · share / share of the configured weight, within the kernel's bounds.
//!
//! **Source.** Chandra and others (2006), section 4.2, split each goal by utilization instead, and adapt each
//! resource to its part. That gains nothing in the paper's experiments, and needs each class's time at the
//! processor, which no kernel counts for a group (`sim/tests/goals.rs` compares both).
//!
//! **When it fails.** Where both resources are short at once, and the classes need opposite ones.

/// The weights that a kernel takes for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupWeights {
    /// The least.
    pub least: u64,
    /// The greatest.
    pub most: u64,
}

impl GroupWeights {
    /// Those of `cpu.shares`, in control groups of version 1.
    pub const V1: Self = Self { least: 2, most: 262_144 };
    /// Those of `cpu.weight`, in control groups of version 2.
    pub const V2: Self = Self { least: 1, most: 10_000 };

    /// The weight of a group that had `former`, now that its class's share is so many times as large.
    pub fn adapted(self, former: u64, times: f64) -> u64 {
        let weight = libm::round(former as f64 * times);
        (weight.max(0.0) as u64).clamp(self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::GroupWeights;

    #[test]
    fn a_weight_follows_the_share_within_the_kernels_bounds() {
        assert_eq!(GroupWeights::V2.adapted(100, 1.36), 136);
        assert_eq!(GroupWeights::V2.adapted(100, 0.001), 1);
        assert_eq!(GroupWeights::V2.adapted(9_000, 1.9), 10_000);
        assert_eq!(GroupWeights::V1.adapted(1_024, 0.02), 20);
        assert_eq!(GroupWeights::V1.adapted(2, 0.01), 2);
        assert_eq!(GroupWeights::V1.adapted(1_024, f64::NAN), 2, "never none at all");
    }
}
