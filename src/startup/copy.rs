//! `--copy FROM TO`: copies a binlog to another place, offline, completely or not at all.
//!
//! Owns: the order of the steps. The copy takes both places in the same way as a server, so that no server uses them in
//! the meantime. Driven by `main`.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use beanstalkd::options::BinlogPlace;
use beanstalkd_binlog::{self as binlog, FileName, Storage};
use beanstalkd_os as os;
use beanstalkd_os::directory_lock::DirectoryLock;
use beanstalkd_types::number::plain_u64;

use super::store::{Prepared, database, prepare};

/// Follows the name of a directory that is incomplete; the number of the process comes after it.
const UNFINISHED: &str = ".copy-";
/// The name of the lock file of a directory.
const LOCK: &str = "lock";
/// Descriptors that a copy needs besides the descriptors of its files.
const SPARE_DESCRIPTORS: usize = 32;
/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The result of a copy.
#[derive(Debug)]
pub struct Copied {
    /// Files.
    pub files: u64,
    /// Jobs in them.
    pub jobs: u64,
}

/// Copies the log at `from` to `to`, which must not have one. The error is for the operator.
pub fn copy(from: &BinlogPlace, to: &BinlogPlace) -> Result<Copied, Box<dyn Error>> {
    let source = prepare(from).map_err(|error| of(from, &error))?;
    let target = prepare(to).map_err(|error| of(to, &error))?;
    let mut source = open_source(&source).map_err(|error| of(from, &error))?;
    let report = binlog::check(&mut *source).map_err(|error| of(from, &error))?;
    if report.files.is_empty() {
        return Err(format!("{from}: no binlog here").into());
    }
    if !report.is_sound() {
        return Err(
            format!("{from}: the binlog is damaged: start a server with --recover on it first").into()
        );
    }
    let mut target = CopyTarget::open(target, report.files.len()).map_err(|error| of(to, &error))?;
    for file in &report.files {
        target.make(file.index, file.bytes).map_err(|error| of(to, &error))?;
        copy_file((from, &mut *source), (to, &mut target), file.index, file.bytes)?;
    }
    target.publish().map_err(|error| of(to, &error))?;
    Ok(Copied { files: report.files.len() as u64, jobs: report.jobs })
}

fn of(place: &BinlogPlace, error: &dyn Display) -> String {
    format!("{place}: {error}")
}

/// Takes the log to copy.
fn open_source(source: &Prepared) -> Result<Box<dyn Storage>, Box<dyn Error>> {
    match source {
        Prepared::Directory(path) => {
            Ok(Box::new(binlog::DirectoryStorage::locked(path, DirectoryLock::take(path)?)?))
        }
        Prepared::Database(settings) => Ok(Box::new(database::claim(settings, false)?)),
    }
}

/// Copies the bytes of a file, except pieces of zeros.
fn copy_file(
    (from, source): (&BinlogPlace, &mut dyn Storage),
    (to, target): (&BinlogPlace, &mut CopyTarget),
    file: u32,
    bytes: u64,
) -> Result<(), Box<dyn Error>> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let count = source.read(file, offset, &mut piece).map_err(|error| of(from, &error))?;
        if count == 0 {
            return Err(of(from, &io::Error::from(ErrorKind::UnexpectedEof)).into());
        }
        if let Some(last) = piece[..count].iter().rposition(|&byte| byte != 0) {
            target.write(file, offset, &piece[..=last]).map_err(|error| of(to, &error))?;
        }
        offset += count as u64;
    }
    Ok(())
}

/// The target of a copy.
enum CopyTarget {
    Directory(Box<NewDirectory>),
    Database(Box<database::Copy>),
}

impl CopyTarget {
    fn open(target: Prepared, files: usize) -> Result<Self, Box<dyn Error>> {
        match target {
            Prepared::Directory(path) => Ok(Self::Directory(Box::new(NewDirectory::beside(path, files)?))),
            Prepared::Database(settings) => Ok(Self::Database(Box::new(database::copy(&settings)?))),
        }
    }

    fn make(&mut self, file: u32, bytes: u64) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Directory(directory) => {
                directory.make(file, bytes).map_err(|error| format!("binlog.{file}: {error}"))?;
            }
            Self::Database(copy) => copy.make(file, bytes)?,
        }
        Ok(())
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Directory(directory) => {
                directory.write(offset, bytes).map_err(|error| format!("binlog.{file}: {error}"))?;
            }
            Self::Database(copy) => copy.write(file, offset, bytes)?,
        }
        Ok(())
    }

    fn publish(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Directory(directory) => directory.publish()?,
            Self::Database(copy) => copy.publish()?,
        }
        Ok(())
    }
}

/// A directory beside the requested one, until it gets that name. Removed when dropped.
struct NewDirectory {
    path: PathBuf,
    /// The empty directory that it replaces, if there is one; the new one gets its owner and its mode.
    replaced: Option<Metadata>,
    unfinished: PathBuf,
    files: Vec<(u32, File)>,
    /// The lock of the directory `unfinished`, once it exists. If the files have names from the beginning, the
    /// directory has its name, too.
    lock: Option<DirectoryLock>,
}

impl NewDirectory {
    /// A directory for a log with this number of `files`.
    fn beside(path: PathBuf, files: usize) -> Result<Self, Box<dyn Error>> {
        // A slash at the end would hide a link.
        let path: PathBuf = path.components().collect();
        let replaced = fs::symlink_metadata(&path).ok();
        if let Some(replaced) = &replaced {
            // The directory gets its name when all is copied; these would prevent it only then.
            if replaced.is_symlink() {
                return Err("it is a link: name the directory itself".into());
            } else if fs::read_dir(&path)?.next().is_some() {
                return Err("expected a directory that is empty, or none".into());
            } else if replaced.dev() != fs::metadata(parent(&path))?.dev() {
                return Err(
                    "it is a mount point, which cannot be replaced: name a new directory in it".into()
                );
            }
        }
        let mut name = path.file_name().ok_or("expected the name of a directory")?.to_owned();
        name.push(UNFINISHED);
        remove_remains(parent(&path), &name);
        name.push(std::process::id().to_string());
        let mut new =
            Self { unfinished: path.with_file_name(name), path, replaced, files: Vec::new(), lock: None };
        let descriptors = os::limits::raise_open_files().unwrap_or(0);
        let has_unnamed =
            (files + SPARE_DESCRIPTORS) as u64 <= descriptors && os::open_unnamed(parent(&new.path)).is_ok();
        if !has_unnamed {
            new.make_directory().map_err(|error| format!("{}: {error}", new.unfinished.display()))?;
        }
        Ok(new)
    }

    fn make_directory(&mut self) -> io::Result<()> {
        fs::create_dir(&self.unfinished)?;
        self.lock = Some(DirectoryLock::take(&self.unfinished).map_err(io::Error::other)?);
        Ok(())
    }

    fn name_of(&self, file: u32) -> PathBuf {
        self.unfinished.join(FileName::Log(file).text())
    }

    fn make(&mut self, index: u32, bytes: u64) -> io::Result<()> {
        if let Some((_, file)) = self.files.last() {
            file.sync_all()?;
        }
        let file = if self.lock.is_some() {
            // Only one file is open at a time.
            self.files.clear();
            File::options().write(true).create_new(true).mode(0o600).open(self.name_of(index))?
        } else {
            os::open_unnamed(parent(&self.path))?
        };
        if let Some(replaced) = &self.replaced {
            give_owner(&file, replaced)?;
        }
        file.set_len(bytes)?;
        self.files.push((index, file));
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.files.last().map_or(Ok(()), |(_, file)| file.write_all_at(bytes, offset))
    }

    /// Gives the directory its name, in one step.
    fn publish(mut self) -> io::Result<()> {
        if let Some((_, file)) = self.files.last() {
            file.sync_all()?;
        }
        if self.lock.is_none() {
            self.make_directory()?;
            for (index, file) in &self.files {
                os::name_file(file, &self.name_of(*index))?;
            }
        }
        fs::remove_file(self.unfinished.join(LOCK))?;
        let directory = File::open(&self.unfinished)?;
        if let Some(replaced) = &self.replaced {
            give_owner(&directory, replaced)?;
            directory.set_permissions(replaced.permissions())?;
        }
        directory.sync_all()?;
        fs::rename(&self.unfinished, &self.path)?;
        File::open(parent(&self.path))?.sync_all()
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // The directory no longer exists under this name once it is published.
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

/// Gives a file of the copy, or its directory, the owner of the directory that the copy replaces. Not every user may do
/// that, and on some file systems nobody may, so it is done only if the owners differ.
fn give_owner(file: &File, replaced: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) == (replaced.uid(), replaced.gid()) {
        return Ok(());
    }
    fchown(file, Some(replaced.uid()), Some(replaced.gid())).map_err(|error| {
        let advice = "copy as root, or remove the empty directory first";
        io::Error::new(
            error.kind(),
            format!("cannot have the owner of the empty directory: {error}; {advice}"),
        )
    })
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes the remains of earlier copies in `parent` that were killed: directories whose names begin with `prefix`, and
/// that are not locked.
fn remove_remains(parent: &Path, prefix: &OsStr) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        if number.and_then(plain_u64).is_some()
            && holds_a_log_alone(&entry.path())
            && DirectoryLock::take(&entry.path()).is_ok()
        {
            // A directory that cannot be removed does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a directory contains only files that a copy makes.
fn holds_a_log_alone(directory: &Path) -> bool {
    let is_file = |name: &str| name.strip_prefix("binlog.").is_some_and(|index| index.parse::<u32>().is_ok());
    let is_ours = |name: &OsStr| name == LOCK || name.to_str().is_some_and(is_file);
    fs::read_dir(directory)
        .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name()))))
}
