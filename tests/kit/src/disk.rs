//! A disk in memory that crashes, fails and fills up on demand.
//!
//! After a crash, each sector that was not synced has its new content, its old content, or a mixture. Each change of a
//! name since the directory was last synced may be lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use beanstalkd_binlog::{Disk, FileName, Storage, StoreTask};

pub use crate::random::Random;
use crate::tasks::ByHand;

/// "Too many open files", on every Unix.
pub const EMFILE: i32 = 24;

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(offset, written) => {
            let (start, end) = (*offset as usize, *offset as usize + written.len());
            if bytes.len() < end {
                resize(bytes, end);
            }
            bytes[start..end].copy_from_slice(written);
        }
        Change::Truncate(length) => resize(bytes, *length as usize),
    }
}

/// As [`Vec::resize`], which writes one byte at a time in the build of the tests.
fn resize(bytes: &mut Vec<u8>, length: usize) {
    match length.checked_sub(bytes.len()) {
        Some(more) => bytes.extend_from_slice(&vec![0; more]),
        None => bytes.truncate(length),
    }
}

#[derive(Clone, Copy, Debug)]
enum NameChange {
    Add(FileName, usize),
    Rename(FileName, FileName),
    Remove(FileName),
}

type Names = BTreeMap<FileName, usize>;

fn apply_name(names: &mut Names, change: NameChange) {
    match change {
        NameChange::Add(name, inode) => drop(names.insert(name, inode)),
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(&from) {
                names.insert(to, inode);
            }
        }
        NameChange::Remove(name) => drop(names.remove(&name)),
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: Names,
    durable_names: Names,
    pending_names: Vec<NameChange>,
    operations: u64,
    crash_at: Option<u64>,
    fail_at: Option<u64>,
    room: Option<u64>,
    lacks_descriptors: bool,
}

/// A handle on the disk and on the tasks of its store. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Rc<RefCell<State>>, ByHand);

impl SimDisk {
    /// The binlog's store on this disk. The test executes its tasks, which it gets from [`SimDisk::next_task`].
    pub fn storage(&self) -> Box<dyn Storage> {
        self.1.storage(self.clone())
    }

    /// Takes the oldest of the tasks that the binlog has submitted.
    pub fn next_task(&self) -> Option<StoreTask> {
        self.1.next()
    }

    /// Takes tasks back that nobody has executed: the store does them when the binlog waits for it.
    pub fn take_back(&self, tasks: impl Iterator<Item = StoreTask>) {
        self.1.take_back(tasks);
    }

    /// An independent copy.
    pub fn fork(&self) -> Self {
        Self(Rc::new(RefCell::new(self.0.borrow().clone())), ByHand::default())
    }

    /// The number of operations so far.
    pub fn operations(&self) -> u64 {
        self.0.borrow().operations
    }

    /// Lets the next `operations` operations succeed, and every later one fail.
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.0.borrow_mut();
        state.crash_at = Some(state.operations + operations);
    }

    /// Lets the next `operations` operations succeed, and then one fail.
    pub fn fail_after(&self, operations: u64) {
        let mut state = self.0.borrow_mut();
        state.fail_at = Some(state.operations + operations);
    }

    /// Whether the requested crash has happened.
    pub fn has_crashed(&self) -> bool {
        let state = self.0.borrow();
        state.crash_at.is_some_and(|at| state.operations >= at)
    }

    /// Limits the total length of all files, in bytes.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.0.borrow_mut().room = bytes;
    }

    /// Sets whether opening or making a file fails for lack of descriptors.
    pub fn lack_descriptors(&self, lacks: bool) {
        self.0.borrow_mut().lacks_descriptors = lacks;
    }

    /// The total length of all files, in bytes.
    pub fn used(&self) -> u64 {
        self.0.borrow().used()
    }

    /// The files of the binlog with their contents.
    pub fn files(&self) -> BTreeMap<u32, Vec<u8>> {
        let state = self.0.borrow();
        let file = |(name, &inode): (&FileName, &usize)| match name {
            FileName::Log(index) => Some((*index, state.inodes[inode].bytes.clone())),
            _ => None,
        };
        state.names.iter().filter_map(file).collect()
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<FileName> {
        self.0.borrow().names.keys().copied().collect()
    }

    /// A disk with these files of the binlog, all durable.
    pub fn with_files(files: &BTreeMap<u32, Vec<u8>>) -> Self {
        let mut state = State::default();
        for (&index, bytes) in files {
            state.names.insert(FileName::Log(index), state.inodes.len());
            let inode = Inode { bytes: bytes.clone(), durable: bytes.clone(), pending: Vec::new() };
            state.inodes.push(inode);
        }
        state.durable_names = state.names.clone();
        Self(Rc::new(RefCell::new(state)), ByHand::default())
    }

    /// The disk as it may be after a loss of power at this moment.
    pub fn crashed_image(&self, random: &mut Random) -> Self {
        let mut state = self.0.borrow().clone();
        let sector = if random.once_in(2) { 512 } else { 4096 };
        // From "no change is on the disk" to "nearly all changes are".
        let odds = random.below(5);
        for inode in &mut state.inodes {
            inode.bytes = crashed_bytes(inode, sector, odds, random);
            inode.durable = inode.bytes.clone();
            inode.pending.clear();
        }
        let mut names = state.durable_names.clone();
        for &change in &state.pending_names {
            if random.below(4) < odds {
                apply_name(&mut names, change);
            }
        }
        state.durable_names = names.clone();
        state.names = names;
        state.pending_names.clear();
        (state.crash_at, state.fail_at) = (None, None);
        Self(Rc::new(RefCell::new(state)), ByHand::default())
    }
}

/// The file's content after a crash. Each sector has its content after some number of the changes, or a mixture of
/// two such contents.
fn crashed_bytes(inode: &Inode, sector: usize, odds: u64, random: &mut Random) -> Vec<u8> {
    if inode.pending.is_empty() {
        return inode.durable.clone();
    }
    let pick = |random: &mut Random| {
        if random.below(4) >= odds {
            0
        } else if random.once_in(3) {
            random.below(inode.pending.len() as u64 + 1) as usize
        } else {
            inode.pending.len()
        }
    };
    let mut versions = vec![inode.durable.clone()];
    for change in &inode.pending {
        let mut next = versions[versions.len() - 1].clone();
        apply(&mut next, change);
        versions.push(next);
    }
    let length = versions[pick(random)].len();
    let mut bytes = vec![0; length];
    let copy = |bytes: &mut Vec<u8>, version: &[u8], from: usize, to: usize| {
        let to = to.min(version.len()).min(length);
        if from < to {
            bytes[from..to].copy_from_slice(&version[from..to]);
        }
    };
    for start in (0..length).step_by(sector) {
        copy(&mut bytes, &versions[pick(random)], start, start + sector);
        if random.once_in(8) {
            let torn = start + random.below(sector as u64) as usize;
            copy(&mut bytes, &versions[pick(random)], torn, start + sector);
        }
    }
    bytes
}

impl State {
    fn operation(&mut self) -> io::Result<()> {
        self.operations += 1;
        if self.crash_at.is_some_and(|at| self.operations >= at) {
            return Err(io::Error::other("crashed"));
        }
        if self.fail_at == Some(self.operations) {
            return Err(io::Error::other("injected"));
        }
        Ok(())
    }

    fn descriptor(&self) -> io::Result<()> {
        if self.lacks_descriptors { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
    }

    fn inode(&mut self, name: FileName) -> io::Result<&mut Inode> {
        let inode = *self.names.get(&name).ok_or(ErrorKind::NotFound)?;
        Ok(&mut self.inodes[inode])
    }

    fn change_name(&mut self, change: NameChange) {
        apply_name(&mut self.names, change);
        self.pending_names.push(change);
    }

    fn used(&self) -> u64 {
        self.names.values().map(|&inode| self.inodes[inode].bytes.len() as u64).sum()
    }
}

impl Disk for SimDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        let rest = |name: &FileName| name.text().strip_prefix("binlog.").map(str::to_owned);
        Ok(state.names.keys().filter_map(rest).collect())
    }

    fn size(&mut self, name: FileName) -> io::Result<u64> {
        let mut state = self.0.borrow_mut();
        Ok(state.inode(name)?.bytes.len() as u64)
    }

    fn read_at(&mut self, name: FileName, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        let source = &state.inode(name)?.bytes;
        let start = (offset as usize).min(source.len());
        let length = bytes.len().min(source.len() - start);
        bytes[..length].copy_from_slice(&source[start..start + length]);
        Ok(length)
    }

    fn open(&mut self, name: FileName) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.descriptor()?;
        state.inode(name).map(drop)
    }

    fn create(&mut self, name: FileName) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        state.descriptor()?;
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.change_name(NameChange::Add(name, inode));
        Ok(())
    }

    fn write_at(&mut self, name: FileName, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        let (used, room) = (state.used(), state.room);
        let inode = state.inode(name)?;
        let grows = (offset + bytes.len() as u64).saturating_sub(inode.bytes.len() as u64);
        if room.is_some_and(|room| used + grows > room) {
            return Err(ErrorKind::StorageFull.into());
        }
        let change = Change::Write(offset, bytes.to_vec());
        apply(&mut inode.bytes, &change);
        inode.pending.push(change);
        Ok(())
    }

    fn truncate(&mut self, name: FileName, bytes: u64) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        let inode = state.inode(name)?;
        apply(&mut inode.bytes, &Change::Truncate(bytes));
        inode.pending.push(Change::Truncate(bytes));
        Ok(())
    }

    fn sync(&mut self, name: FileName) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        let inode = state.inode(name)?;
        inode.durable = inode.bytes.clone();
        inode.pending.clear();
        Ok(())
    }

    fn rename(&mut self, from: FileName, to: FileName) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        state.inode(from)?;
        state.change_name(NameChange::Rename(from, to));
        Ok(())
    }

    fn unlink(&mut self, name: FileName) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        state.inode(name)?;
        state.change_name(NameChange::Remove(name));
        Ok(())
    }

    fn release(&mut self, _: FileName) {}

    fn sync_directory(&mut self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.operation()?;
        state.durable_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }
}
