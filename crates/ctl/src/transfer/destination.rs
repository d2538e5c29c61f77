//! The destination of an export: standard output, a file that is not regular, or a regular file.
//!
//! Owns: following links, and which files may be replaced. A device, a FIFO, a link or an open descriptor is never
//! replaced by a file, and neither is a file that may have the only copy of a job.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::record::is_drained;
use crate::failure::{Failure, OfFile, Result};

/// The maximum number of successive links that the kernel follows.
const MAX_LINKS: usize = 40;

/// The destination of the lines of an export.
#[derive(Debug)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A file without contents that could be replaced: a device, a FIFO, an open descriptor.
    Stream(PathBuf),
    /// A regular file, or an unused name.
    File(PathBuf),
}

impl Destination {
    /// Examines the file at `path`, and follows links.
    pub fn of(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let mut real = path.to_owned();
        for links in 0..MAX_LINKS {
            let directory = parent(&real);
            let name =
                real.file_name().ok_or_else(|| Failure::file(path, "this is not the name of a file"))?;
            let directory = fs::canonicalize(directory).of_file(&real)?;
            // A link there stands for an open descriptor; the path that the link shows need not exist.
            if directory.starts_with("/proc") || directory == Path::new("/dev/fd") {
                let is_own = fs::canonicalize("/proc/self/fd").is_ok_and(|own| own == directory);
                return Ok(if is_own && name == "1" { Self::Stdout } else { Self::Stream(real) });
            }
            let entry = directory.join(name);
            let kind = match fs::symlink_metadata(&entry) {
                Ok(metadata) => metadata.file_type(),
                Err(error) if error.kind() == io::ErrorKind::NotFound && links == 0 => {
                    return Ok(Self::File(entry));
                }
                Err(error) => return Err(Failure::file(path, format!("{}: {error}", entry.display()))),
            };
            match () {
                () if kind.is_symlink() => {
                    real = directory.join(fs::read_link(&entry).of_file(path)?);
                }
                () if kind.is_file() => return Ok(Self::File(entry)),
                () if kind.is_dir() || kind.is_socket() => {
                    return Err(Failure::file(path, "this is neither a file nor a device nor a FIFO"));
                }
                () => return Ok(Self::Stream(entry)),
            }
        }
        Err(Failure::file(path, "too many links"))
    }
}

/// The directory of a path.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the directory of a file, which makes a new name durable.
pub fn sync_directory(path: &Path) -> Result {
    File::open(parent(path)).and_then(|directory| directory.sync_all()).of_file(path)
}

/// The path with `suffix` after the name.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Opens a device, a FIFO or a descriptor for writing. It appends, because a descriptor may be a file.
pub fn open_stream(path: &Path) -> Result<BufWriter<File>> {
    File::options().append(true).open(path).map(BufWriter::new).of_file(path)
}

/// Checks that an export may replace the file: it has no line that `--drain` wrote, and no drain is in progress. The
/// jobs of such a file may exist nowhere else.
pub fn check_replaceable(path: &Path) -> Result {
    let only_copy = |what: &str| {
        let text = format!(
            "{what}: it may have the only copy of these jobs. Name another file, continue it with --drain, or replace \
             it with --force"
        );
        Err(Failure::file(path, text))
    };
    if beside(path, ".taking").exists() {
        return only_copy("an export with --drain to this file is not complete");
    }
    let mut lines = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::file(path, error)),
    };
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).of_file(path)? > 0 {
        if is_drained(&line) {
            return only_copy("this file was written by export --drain");
        }
        line.clear();
    }
    Ok(())
}

/// Locks a file that an export or an import (`user`) writes to, and checks that `path` still names it.
pub fn lock(path: &Path, file: &File, user: &str) -> Result {
    // Some file systems have no locks.
    if flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(Failure::file(path, format!("another {user} uses this file")));
    }
    let same =
        |here: fs::Metadata, named: fs::Metadata| (here.dev(), here.ino()) == (named.dev(), named.ino());
    let is_named = file.metadata().and_then(|here| Ok(same(here, fs::metadata(path)?)));
    if is_named.of_file(path)? {
        return Ok(());
    }
    Err(Failure::file(path, format!("another {user} has replaced this file in the meantime")))
}

/// A file that gets its name when it is complete. Until then it is `PATH.partial`, which is removed when this is
/// dropped.
pub struct Replacement {
    path: PathBuf,
    partial: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Replacement {
    /// Creates and locks `PATH.partial`, and replaces one that an earlier run has left, with the permissions of the
    /// file at `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let partial = beside(path, ".partial");
        if fs::symlink_metadata(&partial).is_ok_and(|metadata| metadata.is_file()) {
            // Locked until it is removed.
            let left = File::open(&partial).of_file(&partial)?;
            lock(&partial, &left, "export")?;
            fs::remove_file(&partial).of_file(&partial)?;
        }
        // Whoever may not read the file that it replaces must not open it before it has the permissions of that one.
        let replaced = fs::metadata(path).ok().map(|metadata| metadata.permissions());
        let mode = replaced.as_ref().map_or(0o666, PermissionsExt::mode);
        let file =
            File::options().write(true).create_new(true).mode(mode).open(&partial).of_file(&partial)?;
        lock(&partial, &file, "export")?;
        if let Some(permissions) = replaced {
            file.set_permissions(permissions).of_file(&partial)?;
        }
        Ok(Self { path: path.to_owned(), partial, file: Some(BufWriter::new(file)) })
    }

    /// Writes a line.
    pub fn write(&mut self, line: &[u8]) -> Result {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(line)).of_file(&self.partial)
    }

    /// Syncs the file and gives it its name. Without `force`, it does not replace a file with drained jobs.
    pub fn finish(self, force: bool) -> Result {
        match File::open(&self.path) {
            Ok(present) => {
                // A drain has locked the file that it writes to.
                lock(&self.path, &present, "export")?;
                if !force {
                    check_replaceable(&self.path)?;
                }
                self.name(|partial, path| fs::rename(partial, path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.name(|partial, path| {
                // This fails if a drain has created the file in the meantime. Some file systems have no hard links.
                match fs::hard_link(partial, path) {
                    Ok(()) => fs::remove_file(partial),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                    Err(_) => fs::rename(partial, path),
                }
            }),
            Err(error) => Err(Failure::file(&self.path, error)),
        }
    }

    /// Syncs the file and gives it its name.
    fn name(mut self, give_name: impl FnOnce(&Path, &Path) -> io::Result<()>) -> Result {
        let synced =
            self.file.as_mut().map_or(Ok(()), |file| file.flush().and_then(|()| file.get_ref().sync_all()));
        synced.and_then(|()| give_name(&self.partial, &self.path)).of_file(&self.path)?;
        self.file = None;
        sync_directory(&self.path)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // Locked until it is removed.
        if let Some(_locked) = self.file.take() {
            // The jobs of an incomplete export are still on the server.
            let _ = fs::remove_file(&self.partial);
        }
    }
}
