//! A map from job ids to small values that never moves more than one page at a time.
//!
//! Owns: a radix tree over the 64 bits of an id, with 64 branches at each level. Ids are assigned in ascending
//! order, so jobs of similar age are close together in memory, and a new id is in the page of the last one.
//! Never rehashes: growing adds one page, or at most one level. Used by every part that looks up something by job id.

use crate::job::JobId;

/// Bits of the id that one level of the tree decides.
const BITS: u32 = 6;
/// Branches of a node.
const WAYS: usize = 1 << BITS;

/// A map from [`JobId`] to `T`. An `Option<T>` should be no wider than a `T`.
#[derive(Debug)]
pub struct IdMap<T> {
    root: Option<Node<T>>,
    /// Levels above the leaves.
    height: u32,
    /// The largest id that the tree has room for: one of `BITS * (height + 1)` bits.
    last: JobId,
    len: usize,
    /// An id in the page of the last insert. This page alone stays when it is empty, because a queue that is
    /// worked off as fast as it is filled would make and free a page for each job.
    last_insert: JobId,
}

#[derive(Debug)]
enum Node<T> {
    Inner(Box<Page<Node<T>>>),
    Leaf(Box<Page<T>>),
}

/// The branches of a node. A scan finds out whether a page is empty and can be freed: a separate counter
/// would make the page larger than a power of two, and the allocator would round it up.
type Page<T> = [Option<T>; WAYS];

fn empty_page<T>() -> Box<Page<T>> {
    Box::new([const { None }; WAYS])
}

fn is_empty<T>(page: &Page<T>) -> bool {
    page.iter().all(Option::is_none)
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self { root: None, height: 0, last: JobId(WAYS as u64 - 1), len: 0, last_insert: JobId(0) }
    }
}

impl<T> IdMap<T> {
    /// How many ids have a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no id has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of `id`.
    #[must_use]
    pub fn get(&self, id: JobId) -> Option<&T> {
        if !self.reaches(id) {
            return None;
        }
        let mut node = self.root.as_ref()?;
        let mut level = self.height;
        loop {
            match node {
                Node::Inner(page) => node = page[way(id, level)].as_ref()?,
                Node::Leaf(page) => return page[way(id, 0)].as_ref(),
            }
            level -= 1;
        }
    }

    /// The value of `id`, which can be changed in place.
    #[must_use]
    pub fn get_mut(&mut self, id: JobId) -> Option<&mut T> {
        if !self.reaches(id) {
            return None;
        }
        let mut node = self.root.as_mut()?;
        let mut level = self.height;
        loop {
            match node {
                Node::Inner(page) => node = page[way(id, level)].as_mut()?,
                Node::Leaf(page) => return page[way(id, 0)].as_mut(),
            }
            level -= 1;
        }
    }

    /// Sets the value of `id` to `value`; returns the old value.
    #[inline]
    pub fn insert(&mut self, id: JobId, value: T) -> Option<T> {
        while !self.reaches(id) {
            self.add_level();
        }
        let mut place = &mut self.root;
        for level in (1..=self.height).rev() {
            let Node::Inner(page) = place.get_or_insert_with(|| Node::Inner(empty_page())) else {
                unreachable!("leaves stand at level 0 alone");
            };
            place = &mut page[way(id, level)];
        }
        let Node::Leaf(page) = place.get_or_insert_with(|| Node::Leaf(empty_page())) else {
            unreachable!("inner pages stand above level 0");
        };
        let old = page[way(id, 0)].replace(value);
        self.len += usize::from(old.is_none());
        if !are_in_one_page(id, self.last_insert) {
            let before = std::mem::replace(&mut self.last_insert, id);
            if self.reaches(before) {
                prune(&mut self.root, before, self.height);
            }
        }
        old
    }

    /// Removes the value of `id` and returns it.
    #[inline]
    pub fn remove(&mut self, id: JobId) -> Option<T> {
        if !self.reaches(id) {
            return None;
        }
        let mut node = self.root.as_mut()?;
        let mut level = self.height;
        let page = loop {
            match node {
                Node::Inner(page) => node = page[way(id, level)].as_mut()?,
                Node::Leaf(page) => break page,
            }
            level -= 1;
        };
        let old = page[way(id, 0)].take()?;
        self.len -= 1;
        // Ids that are removed one after another need no look at the whole page.
        let has_next = page[(way(id, 0) + 1) % WAYS].is_some();
        if !has_next && !are_in_one_page(id, self.last_insert) && is_empty(page) {
            prune(&mut self.root, id, self.height);
        }
        Some(old)
    }

    /// All ids and their values, by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &T)> {
        let mut stack: Vec<(&Node<T>, u64)> = self.root.iter().map(|node| (node, 0)).collect();
        let mut leaf: Option<(&Page<T>, u64, usize)> = None;
        std::iter::from_fn(move || {
            loop {
                if let Some((page, prefix, next)) = &mut leaf {
                    while *next < WAYS {
                        let way = *next;
                        *next += 1;
                        if let Some(value) = &page[way] {
                            return Some((JobId(*prefix << BITS | way as u64), value));
                        }
                    }
                }
                match stack.pop()? {
                    (Node::Leaf(page), prefix) => leaf = Some((page, prefix, 0)),
                    (Node::Inner(page), prefix) => {
                        let children = page.iter().enumerate().rev();
                        stack.extend(children.filter_map(|(way, child)| {
                            child.as_ref().map(|node| (node, prefix << BITS | way as u64))
                        }));
                    }
                }
            }
        })
    }

    fn reaches(&self, id: JobId) -> bool {
        id <= self.last
    }

    /// Adds a level above the root, so that the tree has room for longer ids.
    fn add_level(&mut self) {
        self.height += 1;
        self.last = JobId(self.last.0 << BITS | (WAYS as u64 - 1));
        if let Some(root) = self.root.take() {
            let mut page = empty_page();
            page[0] = Some(root);
            self.root = Some(Node::Inner(page));
        }
    }
}

impl<T> IntoIterator for IdMap<T> {
    type Item = (JobId, T);
    type IntoIter = IntoIter<T>;

    /// All ids and their values, by ascending id; each page is freed as soon as the iteration has passed it.
    fn into_iter(self) -> IntoIter<T> {
        IntoIter { inner: self.root.map(|root| (root, 0)).into_iter().collect(), leaf: None }
    }
}

/// What [`IdMap::into_iter`] returns.
#[derive(Debug)]
pub struct IntoIter<T> {
    /// Nodes that the iteration has not reached, with the upper bits of their ids; the next one is the last element.
    inner: Vec<(Node<T>, u64)>,
    /// The leaf at which the iteration is, the upper bits of its ids, and the index of the next value.
    leaf: Option<(Box<Page<T>>, u64, usize)>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = (JobId, T);

    fn next(&mut self) -> Option<(JobId, T)> {
        loop {
            if let Some((page, prefix, next)) = &mut self.leaf {
                while *next < WAYS {
                    let way = *next;
                    *next += 1;
                    if let Some(value) = page[way].take() {
                        return Some((JobId(*prefix << BITS | way as u64), value));
                    }
                }
                self.leaf = None;
            }
            match self.inner.pop()? {
                (Node::Leaf(page), prefix) => self.leaf = Some((page, prefix, 0)),
                (Node::Inner(page), prefix) => {
                    let ways = page.into_iter().enumerate().rev();
                    self.inner.extend(
                        ways.filter_map(|(way, child)| child.map(|node| (node, prefix << BITS | way as u64))),
                    );
                }
            }
        }
    }
}

/// The branch of a node at `level` that leads to `id`.
fn way(id: JobId, level: u32) -> usize {
    (id.0 >> (BITS * level)) as usize % WAYS
}

fn are_in_one_page(one: JobId, other: JobId) -> bool {
    one.0 >> BITS == other.0 >> BITS
}

/// Frees the page of `id` in the tree below `place` if it is empty, and each page above it that becomes empty.
fn prune<T>(place: &mut Option<Node<T>>, id: JobId, level: u32) {
    let now_empty = match place {
        None => return,
        Some(Node::Inner(page)) => {
            let child = &mut page[way(id, level)];
            prune(child, id, level - 1);
            child.is_none() && is_empty(page)
        }
        Some(Node::Leaf(page)) => is_empty(page),
    };
    if now_empty {
        *place = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    impl<T> IdMap<T> {
        fn leaves(&self) -> usize {
            fn below<T>(node: &Node<T>) -> usize {
                match node {
                    Node::Leaf(_) => 1,
                    Node::Inner(page) => page.iter().flatten().map(below).sum(),
                }
            }
            self.root.as_ref().map_or(0, below)
        }
    }

    #[test]
    fn behaves_as_an_ordered_map_for_ids_of_every_width() {
        let mut map = IdMap::default();
        let mut model = BTreeMap::new();
        let mut seed = 1u64;
        for step in 0..20_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = (seed >> ((seed >> 58) % 64)) & !(u64::from(step % 3 == 0) * 0xffff);
            if seed >> 33 & 1 == 0 {
                assert_eq!(map.insert(JobId(id), step), model.insert(id, step));
            } else {
                let known = model.range(id..).next().map_or(id, |(&known, _)| known);
                assert_eq!(map.get(JobId(known)), model.get(&known));
                assert_eq!(map.remove(JobId(known)), model.remove(&known));
                assert_eq!(map.get(JobId(known)), None);
            }
            assert_eq!(map.len(), model.len());
        }
        assert!(
            map.iter().map(|(id, &value)| (id.0, value)).eq(model.iter().map(|(&id, &value)| (id, value)))
        );
        let copy: IdMap<u32> = model.iter().fold(IdMap::default(), |mut copy, (&id, &value)| {
            copy.insert(JobId(id), value);
            copy
        });
        assert!(copy.into_iter().eq(model.iter().map(|(&id, &value)| (JobId(id), value))));
        for id in model.into_keys() {
            assert!(map.remove(JobId(id)).is_some());
        }
        assert!(map.is_empty());
        let last = map.last_insert;
        assert_eq!(map.leaves(), 1, "of the pages without ids, that of the last insert alone is kept");
        map.insert(JobId(!last.0), 0);
        assert_eq!(map.leaves(), 1, "it goes when the next insert is in another page");
    }

    #[test]
    fn the_largest_id_finds_a_place_beside_the_smallest() {
        let mut map = IdMap::default();
        map.insert(JobId(0), 'a');
        map.insert(JobId(u64::MAX), 'z');
        assert_eq!((map.get(JobId(0)), map.get(JobId(u64::MAX))), (Some(&'a'), Some(&'z')));
        assert_eq!(map.get(JobId(1)), None);
    }
}
