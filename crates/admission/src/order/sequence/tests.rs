//! The line against a plain vector, and its memory.

use super::*;
use crate::request::PoolId;

impl Sequence {
    /// All requests in order, with their remaining allowances.
    fn entries(&self) -> Vec<(u32, u64)> {
        let mut out = Vec::new();
        self.walk(self.root, self.height, 0, &mut out);
        out
    }

    fn walk(&self, node: u32, level: u32, path: u64, out: &mut Vec<(u32, u64)>) {
        if level == 0 {
            let leaf = &self.leaves[node as usize];
            for at in 0..leaf.len {
                let left = leaf.left[at];
                out.push((leaf.id[at], if left == UNBOUNDED { left } else { left - path }));
            }
            return;
        }
        let inner = &self.inners[node as usize];
        for at in 0..inner.len {
            assert_eq!(self.parent_of(inner.child[at], level - 1), node);
            let mut below = Vec::new();
            self.walk(inner.child[at], level - 1, path + inner.charged[at], &mut below);
            let least = below.iter().map(|entry| entry.1).min().unwrap();
            assert_eq!(inner.left[at] - if least == UNBOUNDED { 0 } else { path }, least);
            out.extend(below);
        }
    }
}

struct Model(Vec<(u32, u8, u64, u64)>);

impl Model {
    fn insert(&mut self, id: u32, pool: u8, work: u64, allowance: u64) {
        let mut at = self.0.len();
        while at > 0 && self.0[at - 1].2 > work && self.0[at - 1].3 >= work {
            if allowance != UNBOUNDED {
                self.0[at - 1].3 -= work;
            }
            at -= 1;
        }
        self.0.insert(at, (id, pool, work, allowance));
    }
}

/// SplitMix64: chance enough for a test.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn pool(index: u8) -> PoolId {
    PoolId::new(index).unwrap()
}

fn compare_with_the_model(seed: u64, allowance: impl Fn(u64) -> u64) {
    let (mut line, mut model, mut chance) = (Sequence::new(), Model(Vec::new()), seed);
    let mut ids: Vec<u32> = Vec::new();
    for step in 0..6_000_u32 {
        // Long phases of growth and of shrinking, so that the tree gains and loses whole levels.
        let growing = step % 3_000 < 1_800;
        let grow = next(&mut chance) % 10 < if growing { 8 } else { 1 };
        if grow || ids.is_empty() {
            let (work, at) = (next(&mut chance) % 1_000 + 1, (next(&mut chance) % 3) as u8);
            line.insert(step, Class::pooled(pool(at)), work, allowance(work));
            model.insert(step, at, work, allowance(work));
            ids.push(step);
        } else if next(&mut chance).is_multiple_of(8) {
            let [one, other] = [0; 2].map(|_| ids[next(&mut chance) as usize % ids.len()]);
            line.swap(one, other);
            let at = |id| model.0.iter().position(|entry| entry.0 == id).unwrap();
            let (one_at, other_at) = (at(one), at(other));
            (model.0[one_at].0, model.0[other_at].0) = (other, one);
        } else {
            let id = ids.swap_remove(next(&mut chance) as usize % ids.len());
            line.remove(id);
            model.0.retain(|entry| entry.0 != id);
        }
        let eligible = ClassSet { pooled: next(&mut chance) % 8, ..ClassSet::default() };
        let expected = model.0.iter().find(|entry| eligible.pooled >> entry.1 & 1 == 1);
        assert_eq!(line.first(eligible), expected.map(|entry| entry.0), "seed {seed}, step {step}");
        assert_eq!(line.len(), model.0.len());
        if step % 97 == 0 {
            let expected: Vec<_> = model.0.iter().map(|entry| (entry.0, entry.3)).collect();
            assert_eq!(line.entries(), expected, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_line_with_aging_does_what_a_plain_vector_does() {
    for seed in 0..6 {
        compare_with_the_model(seed, |work| 5 * work);
        compare_with_the_model(seed + 100, |work| (2 * work).max(3_000));
    }
}

#[test]
fn without_bound_it_is_sorted_and_without_allowance_it_is_in_order_of_arrival() {
    for seed in 0..4 {
        compare_with_the_model(seed, |_| UNBOUNDED);
        compare_with_the_model(seed + 100, |_| 0);
    }
}

#[test]
fn memory_follows_the_number_that_wait() {
    let mut line = Sequence::new();
    for id in 0..64_000 {
        line.insert(id, Class::held(PoolId::default()), 1 + u64::from(id) * 7_919 % 1_000, UNBOUNDED);
    }
    for id in (0..64_000).filter(|id| id % 64 != 0) {
        line.remove(id);
    }
    let used = line.leaves.len() - line.free_leaves.len();
    assert_eq!(line.len(), 1_000);
    assert!(used <= 1_000 / 8, "{used} leaves for 1000 requests");
}

#[test]
fn removing_what_is_not_there_changes_nothing() {
    let mut line = Sequence::new();
    line.remove(7);
    line.insert(1, Class::held(PoolId::default()), 1, 0);
    line.remove(7);
    assert_eq!(line.len(), 1);
    line.remove(1);
    line.remove(1);
    assert!(line.is_empty());
}
