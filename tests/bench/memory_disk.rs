//! A disk in memory, for measuring the cost of the binlog itself.
//!
//! Owns: the files' bytes. Never fails, and does not simulate crashes, as the tests' disk does. Driven by `micro`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use beanstalkd_binlog::{Disk, FileName};

/// A directory of files. Clones share the files.
#[derive(Clone, Default)]
pub struct MemoryDisk(Rc<RefCell<BTreeMap<FileName, Vec<u8>>>>);

impl MemoryDisk {
    /// An independent directory with copies of all files.
    pub fn copy(&self) -> Self {
        Self(Rc::new(RefCell::new(self.0.borrow().clone())))
    }

    fn with<T>(&self, name: FileName, act: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        let mut files = self.0.borrow_mut();
        files.get_mut(&name).map(act).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for MemoryDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let names = self.0.borrow().keys().map(|name| name.text()).collect::<Vec<_>>();
        Ok(names.iter().filter_map(|name| name.strip_prefix("binlog.")).map(str::to_owned).collect())
    }

    fn size(&mut self, name: FileName) -> io::Result<u64> {
        self.with(name, |file| file.len() as u64)
    }

    fn read_at(&mut self, name: FileName, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.with(name, |file| {
            let rest = file.get(offset as usize..).unwrap_or_default();
            let read = rest.len().min(bytes.len());
            bytes[..read].copy_from_slice(&rest[..read]);
            read
        })
    }

    fn open(&mut self, _: FileName) -> io::Result<()> {
        Ok(())
    }

    fn create(&mut self, name: FileName) -> io::Result<()> {
        self.0.borrow_mut().insert(name, Vec::new());
        Ok(())
    }

    fn write_at(&mut self, name: FileName, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(name, |file| {
            let end = offset as usize + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[offset as usize..end].copy_from_slice(bytes);
        })
    }

    fn truncate(&mut self, name: FileName, bytes: u64) -> io::Result<()> {
        self.with(name, |file| file.resize(bytes as usize, 0))
    }

    fn sync(&mut self, _: FileName) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, from: FileName, to: FileName) -> io::Result<()> {
        let mut files = self.0.borrow_mut();
        let file = files.remove(&from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to, file);
        Ok(())
    }

    fn unlink(&mut self, name: FileName) -> io::Result<()> {
        self.0.borrow_mut().remove(&name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn release(&mut self, _: FileName) {}

    fn sync_directory(&mut self) -> io::Result<()> {
        Ok(())
    }
}
