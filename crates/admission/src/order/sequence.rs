//! A line of waiting requests: one structure for FIFO, shortest first, and shortest first with aging.
//!
//! **Rule** (Gatekeeper, section 3.2, made exact). A newcomer enters at the tail and is promoted forward
//! past each request that is strictly longer and whose remaining allowance is at least the newcomer's work;
//! it stops behind the first that it may not pass. Each one passed is charged the newcomer's work, and
//! isn't refunded when the newcomer leaves. With allowance 0 nobody is ever passed (FIFO: work is at least
//! 1 ns); without bound the line is sorted by work, ties in order of arrival.
//!
//! **Structure.** A B+-like tree over positions: wide leaves hold the requests in order; each inner node
//! keeps, per child, the least work, the least remaining allowance, the set of classes, and a charge that
//! applies to all below (lazily: it is never pushed down, an entry's true allowance is its stored one less
//! the charges on its path). Finding the place = the last request that blocks = a walk down choosing the
//! rightmost child whose least work or least allowance blocks; what is right of the path is charged in
//! passing. Insertion, removal by id and the search for the first request of a set of classes are O(log n)
//! with nodes of 32 and leaves of 64, so that a million waiting are four levels and few cache lines; a
//! binary tree would miss the cache some forty times instead.
//!
//! Leaves that run low join a neighbor, so that memory follows the number of requests. Inner nodes go when
//! empty. The tree loses height only when it is empty: at most four levels, not worth the code.

use alloc::vec::Vec;

use super::class::{Class, ClassSet};

/// Requests per leaf, and children per inner node: measured with a million waiting
/// (`docs/reference/queue-operations.md`).
const LEAF: usize = 64;
const FAN: usize = 32;

/// No node.
const NONE: u32 = u32::MAX;

/// An allowance without bound.
pub(crate) const UNBOUNDED: u64 = u64::MAX;

/// The largest bounded allowance: leaves room for the lazy charges on top of it.
pub(crate) const ALLOWANCE_MAX: u64 = 1 << 62;

#[derive(Debug)]
struct Leaf {
    parent: u32,
    len: usize,
    id: [u32; LEAF],
    work: [u64; LEAF],
    /// The remaining allowance, plus all charges on the path to the root.
    left: [u64; LEAF],
    class: [Class; LEAF],
}

#[derive(Debug)]
struct Inner {
    parent: u32,
    len: usize,
    child: [u32; FAN],
    /// The least work below each child.
    work: [u64; FAN],
    /// The least allowance below each child, with this node's own charge taken off, but not its ancestors'.
    left: [u64; FAN],
    /// What all below each child has been charged.
    charged: [u64; FAN],
    classes: [ClassSet; FAN],
}

/// What an inner node keeps of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Summary {
    work: u64,
    left: u64,
    classes: ClassSet,
}

/// A line of waiting requests, each named by a small number of the caller's (its ticket's slot).
#[derive(Debug)]
pub(crate) struct Sequence {
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    free_leaves: Vec<u32>,
    free_inners: Vec<u32>,
    root: u32,
    /// 0: the root is a leaf.
    height: u32,
    /// The leaf of each id.
    home: Vec<u32>,
    len: usize,
}

impl Sequence {
    /// An empty line.
    pub(crate) fn new() -> Self {
        let mut line = Self {
            leaves: Vec::new(),
            inners: Vec::new(),
            free_leaves: Vec::new(),
            free_inners: Vec::new(),
            root: 0,
            height: 0,
            home: Vec::new(),
            len: 0,
        };
        line.root = line.new_leaf(NONE);
        line
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first request, in order, whose class is in the set.
    pub(crate) fn first(&self, eligible: ClassSet) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node as usize];
            let at = inner.classes[..inner.len].iter().position(|classes| classes.meets(eligible))?;
            node = inner.child[at];
        }
        let leaf = &self.leaves[node as usize];
        let at = leaf.class[..leaf.len].iter().position(|&class| eligible.contains(class))?;
        Some(leaf.id[at])
    }

    /// Adds a request; see the rule above. All allowances of a line are bounded, or none is.
    pub(crate) fn insert(&mut self, id: u32, class: Class, work: u64, allowance: u64) {
        debug_assert!(work > 0 && (allowance <= ALLOWANCE_MAX || allowance == UNBOUNDED));
        let charge = if allowance == UNBOUNDED { 0 } else { work };
        let (mut node, path, front) = self.descend(work, charge);
        let leaf = &mut self.leaves[node as usize];
        let mut at = if front { 0 } else { leaf.len };
        while at > 0 && leaf.work[at - 1] > work && leaf.left[at - 1] - path >= work {
            leaf.left[at - 1] -= charge;
            at -= 1;
        }
        if leaf.len == LEAF {
            // A line that only grows at its tail fills its leaves whole.
            let keep = if at == LEAF { LEAF } else { LEAF / 2 };
            let right = self.split_leaf(node, keep);
            if at > keep || keep == LEAF {
                node = right;
                at -= keep;
            }
        }
        let leaf = &mut self.leaves[node as usize];
        leaf.make_room(at);
        leaf.id[at] = id;
        leaf.work[at] = work;
        leaf.left[at] = if allowance == UNBOUNDED { UNBOUNDED } else { allowance + path };
        leaf.class[at] = class;
        self.set_home(id, node);
        self.len += 1;
        self.refresh(node, Refresh::ToTheRoot);
    }

    /// Takes a request out, wherever it stands.
    pub(crate) fn remove(&mut self, id: u32) {
        let Some((node, at)) = self.place_of(id) else { return };
        let leaf = &mut self.leaves[node as usize];
        leaf.close_gap(at);
        let (left, parent) = (leaf.len, leaf.parent);
        self.home[id as usize] = NONE;
        self.len -= 1;
        if parent == NONE {
            return;
        }
        if left == 0 {
            self.free_leaves.push(node);
            self.detach(parent, node);
        } else if left >= LEAF / 4 || !self.join(node) {
            self.refresh(node, Refresh::WhileItChanges);
        }
    }

    /// Whether a request is in the line.
    pub(crate) fn contains(&self, id: u32) -> bool {
        self.home.get(id as usize).is_some_and(|&node| node != NONE)
    }

    /// The leaf of a request, and its place there.
    fn place_of(&self, id: u32) -> Option<(u32, usize)> {
        let node = self.home.get(id as usize).copied().filter(|&node| node != NONE)?;
        let leaf = &self.leaves[node as usize];
        Some((node, leaf.id[..leaf.len].iter().position(|&other| other == id)?))
    }

    /// Lets two requests take each other's places.
    pub(crate) fn swap(&mut self, one: u32, other: u32) {
        if let (Some((left, left_at)), Some((right, right_at))) = (self.place_of(one), self.place_of(other)) {
            self.leaves[left as usize].id[left_at] = other;
            self.leaves[right as usize].id[right_at] = one;
            self.home.swap(one as usize, other as usize);
        }
    }

    /// Walks down to the leaf where a newcomer of this work stops, and charges all that is right of the
    /// path. Returns the leaf, the charges on its path, and whether the newcomer goes before all of it.
    fn descend(&mut self, work: u64, charge: u64) -> (u32, u64, bool) {
        let (mut node, mut path, mut front) = (self.root, 0, false);
        for _ in 0..self.height {
            let inner = &mut self.inners[node as usize];
            let mut at = 0;
            if !front {
                at = inner.len;
                while at > 0 && inner.work[at - 1] > work && inner.left[at - 1] - path >= work {
                    inner.left[at - 1] -= charge;
                    inner.charged[at - 1] += charge;
                    at -= 1;
                }
                front = at == 0;
                at = at.saturating_sub(1);
            }
            path += inner.charged[at];
            node = inner.child[at];
        }
        (node, path, front)
    }

    fn new_leaf(&mut self, parent: u32) -> u32 {
        let leaf = Leaf {
            parent,
            len: 0,
            id: [0; LEAF],
            work: [0; LEAF],
            left: [0; LEAF],
            class: [Class::NONE; LEAF],
        };
        store(&mut self.leaves, &mut self.free_leaves, leaf)
    }

    fn new_inner(&mut self, parent: u32) -> u32 {
        let inner = Inner {
            parent,
            len: 0,
            child: [NONE; FAN],
            work: [0; FAN],
            left: [0; FAN],
            charged: [0; FAN],
            classes: [ClassSet::default(); FAN],
        };
        store(&mut self.inners, &mut self.free_inners, inner)
    }

    fn set_home(&mut self, id: u32, leaf: u32) {
        let index = id as usize;
        if index >= self.home.len() {
            self.home.resize(index + 1, NONE);
        }
        self.home[index] = leaf;
    }

    /// Moves what is at `keep` and after it to a new leaf on the right. Both hang under the same path
    /// charges.
    fn split_leaf(&mut self, node: u32, keep: usize) -> u32 {
        let right = self.new_leaf(NONE);
        let count = LEAF - keep;
        for offset in 0..count {
            let from = &self.leaves[node as usize];
            let at = keep + offset;
            let (id, work, left, class) = (from.id[at], from.work[at], from.left[at], from.class[at]);
            let to = &mut self.leaves[right as usize];
            (to.id[offset], to.work[offset], to.left[offset], to.class[offset]) = (id, work, left, class);
            self.home[id as usize] = right;
        }
        self.leaves[node as usize].len = keep;
        self.leaves[right as usize].len = count;
        self.attach(node, right, 1);
        right
    }

    /// Hangs `right`, new, beside `node`; `level` is their parent's height. Splits the parent if it is full.
    fn attach(&mut self, node: u32, right: u32, level: u32) {
        let mut parent = self.parent_of(node, level - 1);
        if parent == NONE {
            parent = self.new_inner(NONE);
            self.root = parent;
            self.height = level;
            self.set_parent(node, level - 1, parent);
            let inner = &mut self.inners[parent as usize];
            inner.child[0] = node;
            inner.len = 1;
        } else if self.inners[parent as usize].len == FAN {
            self.split_inner(parent, level);
            parent = self.parent_of(node, level - 1);
        }
        self.set_parent(right, level - 1, parent);
        let inner = &mut self.inners[parent as usize];
        let at = inner.index_of(node);
        inner.make_room(at + 1);
        inner.child[at + 1] = right;
        inner.charged[at + 1] = inner.charged[at];
        for (index, child) in [(at, node), (at + 1, right)] {
            let summary = self.summary(child, level - 1);
            self.inners[parent as usize].keep(index, summary);
        }
    }

    fn split_inner(&mut self, node: u32, level: u32) {
        let right = self.new_inner(NONE);
        let half = FAN / 2;
        for offset in 0..FAN - half {
            let at = half + offset;
            let from = &self.inners[node as usize];
            let (child, work, left, charged, classes) =
                (from.child[at], from.work[at], from.left[at], from.charged[at], from.classes[at]);
            let to = &mut self.inners[right as usize];
            (to.child[offset], to.work[offset], to.left[offset]) = (child, work, left);
            (to.charged[offset], to.classes[offset]) = (charged, classes);
            self.set_parent(child, level - 1, right);
        }
        self.inners[node as usize].len = half;
        self.inners[right as usize].len = FAN - half;
        self.attach(node, right, level + 1);
    }

    /// Takes a child that was freed off its parent, and the parent too when it was its last.
    fn detach(&mut self, parent: u32, child: u32) {
        let inner = &mut self.inners[parent as usize];
        let at = inner.index_of(child);
        inner.close_gap(at);
        let (len, above) = (inner.len, inner.parent);
        if len > 0 {
            self.refresh_inner(parent, Refresh::WhileItChanges);
        } else if above == NONE {
            self.clear();
        } else {
            self.free_inners.push(parent);
            self.detach(above, parent);
        }
    }

    /// Moves a leaf that runs low into a neighbor under the same parent with room to spare. Whether it did.
    fn join(&mut self, node: u32) -> bool {
        let parent = self.leaves[node as usize].parent;
        let inner = &self.inners[parent as usize];
        let at = inner.index_of(node);
        let roomy = |index: usize| self.leaves[inner.child[index] as usize].len <= LEAF / 2;
        let (to, from) = if at + 1 < inner.len && roomy(at + 1) {
            (at, at + 1)
        } else if at > 0 && roomy(at - 1) {
            (at - 1, at)
        } else {
            return false;
        };
        let (left, right) = (inner.child[to], inner.child[from]);
        let (charged_to, charged_from) = (inner.charged[to], inner.charged[from]);
        for offset in 0..self.leaves[right as usize].len {
            let source = &self.leaves[right as usize];
            let (id, work, class) = (source.id[offset], source.work[offset], source.class[offset]);
            let allowance = source.left[offset] - charged_from + charged_to;
            let target = &mut self.leaves[left as usize];
            let at = target.len;
            (target.id[at], target.work[at], target.left[at], target.class[at]) =
                (id, work, allowance, class);
            target.len += 1;
            self.home[id as usize] = left;
        }
        self.free_leaves.push(right);
        let summary = self.summary(left, 0);
        self.inners[parent as usize].keep(to, summary);
        self.detach(parent, right);
        true
    }

    /// Empties the line.
    pub(crate) fn clear(&mut self) {
        self.leaves.clear();
        self.inners.clear();
        self.free_leaves.clear();
        self.free_inners.clear();
        self.home.clear();
        self.len = 0;
        self.height = 0;
        self.root = self.new_leaf(NONE);
    }

    fn refresh(&mut self, leaf: u32, how: Refresh) {
        let parent = self.leaves[leaf as usize].parent;
        if parent == NONE {
            return;
        }
        let summary = self.leaves[leaf as usize].summary();
        let changed = self.inners[parent as usize].keep_child(leaf, summary);
        if changed || how == Refresh::ToTheRoot {
            self.refresh_inner(parent, how);
        }
    }

    fn refresh_inner(&mut self, mut node: u32, how: Refresh) {
        loop {
            let parent = self.inners[node as usize].parent;
            if parent == NONE {
                return;
            }
            let summary = self.inners[node as usize].summary();
            let changed = self.inners[parent as usize].keep_child(node, summary);
            if !changed && how == Refresh::WhileItChanges {
                return;
            }
            node = parent;
        }
    }

    fn summary(&self, node: u32, level: u32) -> Summary {
        if level == 0 { self.leaves[node as usize].summary() } else { self.inners[node as usize].summary() }
    }

    fn parent_of(&self, node: u32, level: u32) -> u32 {
        if level == 0 { self.leaves[node as usize].parent } else { self.inners[node as usize].parent }
    }

    fn set_parent(&mut self, node: u32, level: u32, parent: u32) {
        if level == 0 {
            self.leaves[node as usize].parent = parent;
        } else {
            self.inners[node as usize].parent = parent;
        }
    }
}

/// How far up a change is carried. An insertion charges nodes beside its path, so that all of the path
/// changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refresh {
    ToTheRoot,
    WhileItChanges,
}

fn store<T>(nodes: &mut Vec<T>, free: &mut Vec<u32>, node: T) -> u32 {
    if let Some(index) = free.pop() {
        nodes[index as usize] = node;
        return index;
    }
    nodes.push(node);
    (nodes.len() - 1) as u32
}

impl Leaf {
    fn make_room(&mut self, at: usize) {
        let end = self.len;
        self.id.copy_within(at..end, at + 1);
        self.work.copy_within(at..end, at + 1);
        self.left.copy_within(at..end, at + 1);
        self.class.copy_within(at..end, at + 1);
        self.len += 1;
    }

    fn close_gap(&mut self, at: usize) {
        let end = self.len;
        self.id.copy_within(at + 1..end, at);
        self.work.copy_within(at + 1..end, at);
        self.left.copy_within(at + 1..end, at);
        self.class.copy_within(at + 1..end, at);
        self.len -= 1;
    }

    fn summary(&self) -> Summary {
        let mut classes = ClassSet::default();
        for &class in &self.class[..self.len] {
            classes.insert(class);
        }
        Summary { work: least(&self.work[..self.len]), left: least(&self.left[..self.len]), classes }
    }
}

impl Inner {
    fn index_of(&self, child: u32) -> usize {
        let found = self.child[..self.len].iter().position(|&other| other == child);
        found.expect("a node is among its parent's children: both links change together")
    }

    /// Stores what is known of a child; whether that changed.
    fn keep_child(&mut self, child: u32, summary: Summary) -> bool {
        let at = self.index_of(child);
        self.keep(at, summary)
    }

    fn keep(&mut self, at: usize, summary: Summary) -> bool {
        let new = Summary { left: summary.left - self.charged[at], ..summary };
        let old = Summary { work: self.work[at], left: self.left[at], classes: self.classes[at] };
        self.work[at] = new.work;
        self.left[at] = new.left;
        self.classes[at] = new.classes;
        new != old
    }

    fn make_room(&mut self, at: usize) {
        let end = self.len;
        self.child.copy_within(at..end, at + 1);
        self.work.copy_within(at..end, at + 1);
        self.left.copy_within(at..end, at + 1);
        self.charged.copy_within(at..end, at + 1);
        self.classes.copy_within(at..end, at + 1);
        self.len += 1;
    }

    fn close_gap(&mut self, at: usize) {
        let end = self.len;
        self.child.copy_within(at + 1..end, at);
        self.work.copy_within(at + 1..end, at);
        self.left.copy_within(at + 1..end, at);
        self.charged.copy_within(at + 1..end, at);
        self.classes.copy_within(at + 1..end, at);
        self.len -= 1;
    }

    fn summary(&self) -> Summary {
        let mut classes = ClassSet::default();
        for &set in &self.classes[..self.len] {
            classes.unite(set);
        }
        Summary { work: least(&self.work[..self.len]), left: least(&self.left[..self.len]), classes }
    }
}

fn least(values: &[u64]) -> u64 {
    values.iter().copied().fold(u64::MAX, u64::min)
}

#[cfg(test)]
mod tests;
