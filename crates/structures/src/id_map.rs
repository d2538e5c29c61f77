//! A map from job ids to small values that never moves more than one page at a time.
//!
//! Owns: a radix tree over the 64 bits of an id, with 64 branches at each level. Ids are assigned in ascending order,
//! so jobs of similar age are close together in memory, and a new id is in the page of the previous one. When only a
//! few ids of a page are left, they move to an ordered map, in which the cost of an id does not depend on its
//! neighbours. Never rehashes: growing adds one page, or at most one level. Used by every part that looks up something
//! by job id.

use std::collections::BTreeMap;

use crate::job::JobId;
use crate::merged;

/// Bits of the id that one level of the tree decides.
const BITS: u32 = 6;
/// Branches of a node.
const WAYS: usize = 1 << BITS;
/// A page with at most this many values is thin: its values take less memory in the ordered map.
const MAX_THIN_VALUES: u8 = 8;

/// A map from [`JobId`] to `T`. An `Option<T>` should be no wider than a `T`.
#[derive(Debug)]
pub struct IdMap<T> {
    root: Option<Node<T>>,
    /// Levels above the leaves.
    height: u32,
    /// The largest id for which the tree has room: an id of `BITS * (height + 1)` bits.
    last: JobId,
    len: usize,
    /// An id in the page of the last insert. Only this page stays when it is empty: in a queue that is emptied as fast
    /// as it is filled, the map would otherwise make and free a page for each job.
    last_insert: JobId,
    /// An id in the page that became thin last. It stays until another page becomes thin, because most pages are soon
    /// empty.
    last_thin: Option<JobId>,
    /// The values of ids whose pages were thin. The tree has no page for these ids.
    sparse: BTreeMap<JobId, T>,
    leaves: usize,
    inner_pages: usize,
}

/// The number beside a page says how many of its branches are in use.
#[derive(Debug)]
enum Node<T> {
    Inner(u8, Box<Branches<Node<T>>>),
    Leaf(u8, Box<Branches<T>>),
}

/// The branches of a node. The parent has the number of branches in use: a counter in the page would make it
/// larger than a power of two, and the allocator would round it up.
type Branches<T> = [Option<T>; WAYS];

fn empty_page<T>() -> Box<Branches<T>> {
    Box::new([const { None }; WAYS])
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self {
            root: None,
            height: 0,
            last: JobId(WAYS as u64 - 1),
            len: 0,
            last_insert: JobId(0),
            last_thin: None,
            sparse: BTreeMap::new(),
            leaves: 0,
            inner_pages: 0,
        }
    }
}

impl<T> IdMap<T> {
    /// The number of ids that have a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no id has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory of the map, in bytes, without the memory to which the values refer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // At worst the nodes of an ordered map are half empty, and there are nodes above them.
        let sparse_value = 3 * size_of::<(JobId, T)>();
        self.leaves * size_of::<Branches<T>>()
            + self.inner_pages * size_of::<Branches<Node<T>>>()
            + self.sparse.len() * sparse_value
    }

    /// The value of `id`.
    #[must_use]
    pub fn get(&self, id: JobId) -> Option<&T> {
        match self.page_of(id) {
            Some(page) => page[way(id, 0)].as_ref(),
            None if self.sparse.is_empty() => None,
            None => self.sparse.get(&id),
        }
    }

    /// The value of `id`, for changes in place.
    #[must_use]
    pub fn get_mut(&mut self, id: JobId) -> Option<&mut T> {
        let (root, height) = (self.root.as_mut().filter(|_| id <= self.last), self.height);
        match root.and_then(|root| leaf_mut(root, height, id)) {
            Some((_, page)) => page[way(id, 0)].as_mut(),
            None if self.sparse.is_empty() => None,
            None => self.sparse.get_mut(&id),
        }
    }

    /// The leaf of `id`.
    #[inline]
    fn page_of(&self, id: JobId) -> Option<&Branches<T>> {
        if !self.reaches(id) {
            return None;
        }
        let mut node = self.root.as_ref()?;
        let mut level = self.height;
        loop {
            match node {
                Node::Inner(_, page) => node = page[way(id, level)].as_ref()?,
                Node::Leaf(_, page) => return Some(page),
            }
            level -= 1;
        }
    }

    /// Sets the value of `id` to `value`; returns the old value.
    #[inline]
    pub fn insert(&mut self, id: JobId, value: T) -> Option<T> {
        let old = match self.last_leaf(id) {
            Some((used, page)) => {
                let old = page[way(id, 0)].replace(value);
                *used += u8::from(old.is_none());
                old
            }
            None => {
                self.turn_to(id);
                self.set(id, value)
            }
        };
        self.len += usize::from(old.is_none());
        old
    }

    /// The leaf of `id`, if it is the leaf of the last insert and still exists.
    #[inline]
    fn last_leaf(&mut self, id: JobId) -> Option<(&mut u8, &mut Branches<T>)> {
        let root = self.root.as_mut().filter(|_| are_in_one_page(id, self.last_insert))?;
        leaf_mut(root, self.height, id)
    }

    /// Sets the value of an id for which the tree is high enough; makes its page if there is none.
    fn set(&mut self, id: JobId, value: T) -> Option<T> {
        let Self { root, inner_pages, leaves, .. } = self;
        let mut slot = root;
        let mut above: Option<&mut u8> = None;
        for level in (1..=self.height).rev() {
            let node = slot.get_or_insert_with(|| {
                *inner_pages += 1;
                above.into_iter().for_each(|used| *used += 1);
                Node::Inner(0, empty_page())
            });
            let Node::Inner(used, page) = node else { unreachable!("leaves are only at level 0") };
            above = Some(used);
            slot = &mut page[way(id, level)];
        }
        let node = slot.get_or_insert_with(|| {
            *leaves += 1;
            above.into_iter().for_each(|used| *used += 1);
            Node::Leaf(0, empty_page())
        });
        let Node::Leaf(used, page) = node else { unreachable!("inner pages are above level 0") };
        let old = page[way(id, 0)].replace(value);
        *used += u8::from(old.is_none());
        old
    }

    /// Makes the page of `id` the page of the last insert.
    fn turn_to(&mut self, id: JobId) {
        while !self.reaches(id) {
            self.add_level();
        }
        let before = std::mem::replace(&mut self.last_insert, id);
        self.note_thin(before);
        let first = JobId(id.0 & !(WAYS as u64 - 1));
        let page = first..=JobId(id.0 | (WAYS as u64 - 1));
        while let Some((&other, _)) = self.sparse.range(page.clone()).next() {
            let value = self.sparse.remove(&other).expect("the id is in the page");
            self.set(other, value);
        }
    }

    /// Removes the value of `id` and returns it.
    #[inline]
    pub fn remove(&mut self, id: JobId) -> Option<T> {
        let (root, height) = (self.root.as_mut().filter(|_| id <= self.last), self.height);
        let Some((used, page)) = root.and_then(|root| leaf_mut(root, height, id)) else {
            let value = if self.sparse.is_empty() { None } else { self.sparse.remove(&id) };
            self.len -= usize::from(value.is_some());
            return value;
        };
        let old = page[way(id, 0)].take()?;
        *used -= 1;
        self.len -= 1;
        if *used <= MAX_THIN_VALUES && !are_in_one_page(id, self.last_insert) {
            self.note_thin(id);
        }
        Some(old)
    }

    /// Checks whether the page of `id`, which is not the page of the last insert, has become thin. An empty page is
    /// freed at once.
    fn note_thin(&mut self, id: JobId) {
        let (root, height) = (self.root.as_mut(), self.height);
        let Some((&mut used, _)) = root.and_then(|root| leaf_mut(root, height, id)) else { return };
        if used == 0 {
            self.empty_page_of(id);
        } else if used <= MAX_THIN_VALUES
            && let Some(before) = self.last_thin.replace(id).filter(|&before| !are_in_one_page(before, id))
            && !are_in_one_page(before, self.last_insert)
        {
            let root = self.root.as_mut().filter(|_| before <= self.last);
            if root
                .and_then(|root| leaf_mut(root, height, before))
                .is_some_and(|(used, _)| *used <= MAX_THIN_VALUES)
            {
                self.empty_page_of(before);
            }
        }
    }

    /// Frees the page of `id` and moves its values to the ordered map.
    fn empty_page_of(&mut self, id: JobId) {
        let first = id.0 & !(WAYS as u64 - 1);
        let Self { root, height, sparse, .. } = self;
        if let Some((used, page)) = root.as_mut().and_then(|root| leaf_mut(root, *height, id)) {
            let values = page.iter_mut().enumerate().filter_map(|(way, value)| Some((way, value.take()?)));
            sparse.extend(values.map(|(way, value)| (JobId(first | way as u64), value)));
            *used = 0;
        }
        self.leaves -= 1;
        self.inner_pages -= prune(&mut self.root, id, self.height);
    }

    /// All ids and their values, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &T)> {
        let pages = walk(self.root.as_ref(), |node| match node {
            Node::Inner(_, page) => Branch::Inner(in_use(page.iter().map(Option::as_ref))),
            Node::Leaf(_, page) => Branch::Leaf(in_use(page.iter().map(Option::as_ref))),
        });
        merged(pages, self.sparse.iter().map(|(&id, value)| (id, value)), |&(id, _)| id)
    }

    /// The smallest id with a value that is not below `from`.
    #[must_use]
    pub fn first_from(&self, from: JobId) -> Option<JobId> {
        let root = self.root.as_ref().filter(|_| from <= self.last);
        let in_page = root.and_then(|root| first_below(root, self.height, 0, from));
        let in_sparse = self.sparse.range(from..).next().map(|(&id, _)| id);
        in_page.into_iter().chain(in_sparse).min()
    }

    /// All ids and their values, in ascending order; each page is freed as soon as the iteration has passed it.
    pub fn into_entries(self) -> impl Iterator<Item = (JobId, T)> {
        // A boxed slice gives its items without a copy of the page.
        let pages = walk(self.root, |node| match node {
            Node::Inner(_, page) => Branch::Inner(in_use((page as Box<[_]>).into_iter())),
            Node::Leaf(_, page) => Branch::Leaf(in_use((page as Box<[_]>).into_iter())),
        });
        merged(pages, self.sparse.into_iter(), |&(id, _)| id)
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
            self.inner_pages += 1;
            self.root = Some(Node::Inner(1, page));
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

/// The smallest id that is not below `from`, in a node at `level` whose ids begin with `prefix`.
fn first_below<T>(node: &Node<T>, level: u32, prefix: u64, from: JobId) -> Option<JobId> {
    // The branches before this one have smaller ids.
    let first = (from.0 >> (BITS * level)).saturating_sub(prefix << BITS).min(WAYS as u64) as usize;
    match node {
        Node::Leaf(_, page) => {
            let way = (first..WAYS).find(|&way| page[way].is_some())?;
            Some(JobId(prefix << BITS | way as u64))
        }
        Node::Inner(_, page) => (first..WAYS)
            .find_map(|way| first_below(page[way].as_ref()?, level - 1, prefix << BITS | way as u64, from)),
    }
}

/// The contents of a node: its children or its values, each with its number.
enum Branch<C, V> {
    Inner(C),
    Leaf(V),
}

/// The branches of a page that are in use, with their numbers.
fn in_use<T>(
    page: impl DoubleEndedIterator<Item = Option<T>> + ExactSizeIterator,
) -> impl DoubleEndedIterator<Item = (u64, T)> {
    page.enumerate().filter_map(|(way, branch)| Some((way as u64, branch?)))
}

/// The values below `root` with their ids, in ascending order. `open` takes a node apart; nothing of the node is kept
/// once the walk has passed it.
fn walk<N, T, C, V>(root: Option<N>, open: impl Fn(N) -> Branch<C, V>) -> impl Iterator<Item = (JobId, T)>
where
    C: DoubleEndedIterator<Item = (u64, N)>,
    V: Iterator<Item = (u64, T)>,
{
    let mut stack: Vec<(N, u64)> = root.into_iter().map(|node| (node, 0)).collect();
    let mut leaf: Option<(V, u64)> = None;
    std::iter::from_fn(move || {
        loop {
            if let Some((values, prefix)) = &mut leaf {
                if let Some((way, value)) = values.next() {
                    return Some((JobId(*prefix << BITS | way), value));
                }
                leaf = None;
            }
            let (node, prefix) = stack.pop()?;
            match open(node) {
                Branch::Leaf(values) => leaf = Some((values, prefix)),
                Branch::Inner(children) => {
                    stack.extend(children.rev().map(|(way, child)| (child, prefix << BITS | way)));
                }
            }
        }
    })
}

/// The leaf of `id` below a node at `level`, and the number of its values.
#[inline]
fn leaf_mut<T>(mut node: &mut Node<T>, mut level: u32, id: JobId) -> Option<(&mut u8, &mut Branches<T>)> {
    loop {
        match node {
            Node::Inner(_, page) => node = page[way(id, level)].as_mut()?,
            Node::Leaf(used, page) => return Some((used, page)),
        }
        level -= 1;
    }
}

/// Frees the leaf of `id`, which is empty, in the tree below `slot`, and each page above it that becomes empty;
/// returns the number of freed pages.
fn prune<T>(slot: &mut Option<Node<T>>, id: JobId, level: u32) -> usize {
    let mut freed = 0;
    if let Some(Node::Inner(used, page)) = slot {
        let child = &mut page[way(id, level)];
        freed = prune(child, id, level - 1);
        *used -= u8::from(child.is_none());
        if *used > 0 {
            return freed;
        }
        freed += 1;
    }
    *slot = None;
    freed
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use beanstalkd_types::random::Generator;

    use super::*;

    impl<T> IdMap<T> {
        /// Checks the counters; returns the number of leaves.
        fn leaves(&self) -> usize {
            fn below<T>(node: &Node<T>) -> (usize, usize, usize) {
                match node {
                    Node::Leaf(used, page) => {
                        let values = page.iter().flatten().count();
                        assert_eq!(usize::from(*used), values);
                        (1, 0, values)
                    }
                    Node::Inner(used, page) => {
                        assert_eq!(usize::from(*used), page.iter().flatten().count());
                        page.iter()
                            .flatten()
                            .map(below)
                            .fold((0, 1, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1, sum.2 + next.2))
                    }
                }
            }
            let (leaves, inner_pages, values) = self.root.as_ref().map_or((0, 0, 0), below);
            assert_eq!((leaves, inner_pages), (self.leaves, self.inner_pages));
            assert_eq!(values + self.sparse.len(), self.len);
            leaves
        }
    }

    #[test]
    fn behaves_as_an_ordered_map_for_ids_of_every_width() {
        let mut map = IdMap::default();
        let mut model = BTreeMap::new();
        let mut random = Generator::new(1);
        for step in 0..20_000u32 {
            let seed = random.draw();
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
            assert_eq!(map.first_from(JobId(id)), model.range(id..).next().map(|(&id, _)| JobId(id)));
            map.leaves();
        }
        assert!(
            map.iter().map(|(id, &value)| (id.0, value)).eq(model.iter().map(|(&id, &value)| (id, value)))
        );
        let copy: IdMap<u32> = model.iter().fold(IdMap::default(), |mut copy, (&id, &value)| {
            copy.insert(JobId(id), value);
            copy
        });
        assert!(copy.into_entries().eq(model.iter().map(|(&id, &value)| (JobId(id), value))));
        for id in model.into_keys() {
            assert!(map.remove(JobId(id)).is_some());
        }
        assert!(map.is_empty());
        let last = map.last_insert;
        assert_eq!(map.leaves(), 1, "of the pages without ids, that of the last insert alone is kept");
        map.insert(JobId(!last.0), 0);
        assert_eq!(map.leaves(), 1, "it goes when the next insert is in another page");
    }

    /// The memory of the map for each id that is left, in bytes. Of the first `count` ids, an id stays if `stays` is
    /// true for it.
    fn bytes_of_each(count: u64, goes_at_once: bool, stays: impl Fn(u64) -> bool) -> usize {
        let mut map = IdMap::default();
        for id in 0..count {
            map.insert(JobId(id), 0u32);
            if goes_at_once && !stays(id) {
                map.remove(JobId(id));
            }
        }
        (0..count).filter(|&id| !stays(id)).for_each(|id| _ = map.remove(JobId(id)));
        map.leaves();
        assert!(map.iter().map(|(id, _)| id.0).eq((0..count).filter(|&id| stays(id))));
        // A few pages exist whichever ids stay.
        map.bytes().saturating_sub(4096) / map.len()
    }

    #[test]
    fn an_id_costs_little_whatever_its_neighbours_do() {
        for goes_at_once in [true, false] {
            assert!(bytes_of_each(100_000, goes_at_once, |_| true) <= 9, "Option<u32> has eight bytes");
            for k in (2..70).chain([100, 128, 200, 256, 500, 512, 999, 1000, 4096, 10_000]) {
                for first in [0, k / 2, k - 1] {
                    let each = bytes_of_each(20_000 + k * 100, goes_at_once, |id| id % k == first);
                    assert!(each <= 60, "{each} bytes for one id in {k}");
                }
            }
        }
    }

    #[test]
    fn the_largest_id_finds_a_slot_beside_the_smallest() {
        let mut map = IdMap::default();
        map.insert(JobId(0), 'a');
        map.insert(JobId(u64::MAX), 'z');
        assert_eq!((map.get(JobId(0)), map.get(JobId(u64::MAX))), (Some(&'a'), Some(&'z')));
        assert_eq!(map.get(JobId(1)), None);
    }
}
