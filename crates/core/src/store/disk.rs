//! The files of a real directory: the only module of the crate that accesses a file system.
//!
//! Other users may be able to create files in the directory, as in `/tmp`. So files are created under new names
//! and renamed, no link is followed, and a file of another user is not read. The directory's owner and its group
//! are trusted; if all users can write to it without the sticky bit, they can replace any file, and nothing is
//! created there.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::directory::Files;

/// The way in which files are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Whether the group of a file can read it, besides its owner.
    pub group_access: bool,
    /// Whether files survive the loss of a host: [`Files::sync`] waits for the storage, and does nothing otherwise.
    pub sync: bool,
}

/// A directory of the file system. A clone is the same directory, also on another thread.
#[derive(Clone, Debug)]
pub struct Disk {
    folder: PathBuf,
    options: FileOptions,
    /// The owner of this process's files, as the file system reports it, which may map users. Known as soon as a
    /// file was created or read.
    owner: Arc<OnceLock<u32>>,
}

/// The permission of all other users to write.
const OTHERS_WRITE: u32 = 0o002;

/// Only the owner of a file can rename or remove it, and the owner of the directory.
const STICKY: u32 = 0o1000;

/// The beginning of the name of a file that is created to learn its owner.
const PROBE: &str = "ftsort-probe";

/// The number of private names that are tried.
const PRIVATE_NAMES: u32 = 1000;

impl Disk {
    /// The directory at this path, which need not exist yet.
    pub fn new(folder: &Path, options: FileOptions) -> Disk {
        Disk {
            folder: folder.to_path_buf(),
            options,
            owner: Arc::default(),
        }
    }

    /// Creates a file under a name that no file has, and returns that name: the caller writes the file and renames
    /// it to `name`.
    pub fn create_private(&self, name: &str) -> io::Result<(String, Box<dyn Write + Send>)> {
        let (private, file) = self.create_new(name)?;
        Ok((private, Box::new(file)))
    }

    /// As [`Disk::create_private`], without the type of the file hidden.
    fn create_new(&self, name: &str) -> io::Result<(String, File)> {
        let process = std::process::id();
        for number in 0..PRIVATE_NAMES {
            let private = format!("{name}.{process}-{number}.new");
            match self.create(&private) {
                // Left by a process with the same number, on another host or killed in this moment.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => return Ok((private, created?)),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Opens a file of this user for appending. Each write stays contiguous even if other processes append to the
    /// same file.
    pub fn append(&self, name: &str) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(
            self.open_own(name, OpenOptions::new().append(true))?,
        ))
    }

    /// Creates a file that does not exist.
    fn create(&self, name: &str) -> io::Result<File> {
        let mode = fs::metadata(&self.folder)?.mode();
        if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "all users can write to this directory, and it has no sticky bit: remove that permission with chmod \
                 o-w, or choose another directory",
            ));
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(self.folder.join(name))?;
        if self.options.group_access {
            // Explicitly, because a mode at creation is restricted by the umask.
            file.set_permissions(Permissions::from_mode(0o640))?;
        }
        if self.owner.get().is_none() {
            let _ = self.owner.set(file.metadata()?.uid());
        }
        Ok(file)
    }

    /// Returns the owner of this process's files. Creates a file unless the owner is known: one without a name, which is
    /// not left if the process is killed, where the system can.
    fn own(&self) -> io::Result<u32> {
        if let Some(own) = self.owner.get() {
            return Ok(*own);
        }
        #[cfg(target_os = "linux")]
        {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .mode(0o600)
                .custom_flags(libc::O_TMPFILE);
            if let Ok(file) = options.open(&self.folder) {
                let own = file.metadata()?.uid();
                return Ok(*self.owner.get_or_init(|| own));
            }
        }
        let (probe, file) = self.create_new(PROBE)?;
        let own = file.metadata().map(|metadata| metadata.uid());
        drop(file);
        fs::remove_file(self.folder.join(probe))?;
        own
    }

    /// Opens an existing file, unless it is a link, a pipe or a device, or belongs to another user.
    fn open_own(&self, name: &str, options: &mut OpenOptions) -> io::Result<File> {
        // Without blocking, because opening a pipe waits for its other end.
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(self.folder.join(name))?;
        let metadata = file.metadata()?;
        let refused = if !metadata.is_file() {
            "it is not a regular file"
        } else if metadata.uid() != self.own()? {
            "it belongs to another user"
        } else {
            return Ok(file);
        };
        Err(io::Error::new(ErrorKind::PermissionDenied, refused))
    }
}

/// Closes a file that was written. A file system such as NFS may report only here that a quota is
/// exceeded or that the storage is full.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and nothing else closes it.
    if unsafe { libc::close(file.into_raw_fd()) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Linux has closed the file.
        error if error.kind() == ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}

/// Waits for the storage.
fn durable(sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCS.set(tests::SYNCS.get() + 1);
    sync()
}

impl Files for Disk {
    fn another(&self) -> Box<dyn Files> {
        Box::new(self.clone())
    }

    fn place(&self) -> String {
        self.folder.display().to_string()
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let mut file = self.create(name)?;
        let written = parts.iter().try_for_each(|part| file.write_all(part));
        written.and(close(file))
    }

    fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.open_own(name, OpenOptions::new().read(true))?
            .read_exact_at(into, at)
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.open_own(name, OpenOptions::new().write(true))?;
        let written = file.write_all_at(bytes, at);
        written.and(close(file))
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        if !self.options.sync {
            return Ok(());
        }
        let file = self.open_own(name, OpenOptions::new().read(true))?;
        durable(|| file.sync_all())
    }

    fn flush(&mut self, name: &str) -> io::Result<()> {
        let file = self.open_own(name, OpenOptions::new().read(true))?;
        durable(|| file.sync_data())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        if !self.options.sync {
            return Ok(());
        }
        let folder = File::open(&self.folder)?;
        durable(|| folder.sync_all())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        let file = self.open_own(name, OpenOptions::new().read(true))?;
        Ok((file.metadata()?.len(), Box::new(file)))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.folder)?.flatten();
        Ok(entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect())
    }

    fn see_changes(&mut self) -> io::Result<()> {
        // After a change of its own a client of NFS asks the server for the names again.
        let (probe, file) = self.create_new(PROBE)?;
        drop(file);
        fs::remove_file(self.folder.join(probe))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    thread_local! {
        /// How often this thread has waited for the storage.
        pub(super) static SYNCS: Cell<u32> = const { Cell::new(0) };
    }

    /// A directory that is removed with its files at the end of a test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let name = format!("ftsort-disk-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Scratch(folder)
        }

        fn disk(&self) -> Disk {
            Disk::new(&self.0, FileOptions::default())
        }

        fn chmod(&self, mode: u32) {
            fs::set_permissions(&self.0, Permissions::from_mode(mode)).unwrap();
        }

        fn mode_of(&self, name: &str) -> u32 {
            fs::metadata(self.0.join(name)).unwrap().mode() & 0o7777
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn kind<T>(result: io::Result<T>) -> ErrorKind {
        result.map(|_| ()).unwrap_err().kind()
    }

    #[test]
    fn creates_files_for_the_user_alone_or_with_the_group() {
        let folder = Scratch::new("modes");
        folder.disk().write("a", &[b"1"]).unwrap();
        assert_eq!(folder.mode_of("a"), 0o600);
        let options = FileOptions {
            group_access: true,
            sync: false,
        };
        let mut disk = Disk::new(&folder.0, options);
        disk.write("b", &[b"1"]).unwrap();
        assert_eq!(folder.mode_of("b"), 0o640);
        let (name, _) = disk.create_private("c").unwrap();
        assert_eq!(folder.mode_of(&name), 0o640);
    }

    #[test]
    fn never_writes_or_reads_through_a_link() {
        let folder = Scratch::new("links");
        let mut disk = folder.disk();
        let target = folder.0.join("target");
        fs::write(&target, "kept").unwrap();
        symlink(&target, folder.0.join("link")).unwrap();
        let dangling = folder.0.join("dangling");
        symlink(folder.0.join("made"), &dangling).unwrap();
        for name in ["link", "dangling", "target"] {
            assert_eq!(kind(disk.write(name, &[b"1"])), ErrorKind::AlreadyExists);
        }
        assert!(disk.append("link").is_err());
        assert!(disk.read("link").is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        assert!(!folder.0.join("made").exists());
        // A link of the private name is passed over, and a link of the final name is replaced.
        let private = format!("x.{}-0.new", std::process::id());
        symlink(&target, folder.0.join(private)).unwrap();
        let (name, mut file) = disk.create_private("x").unwrap();
        file.write_all(b"new").unwrap();
        disk.rename(&name, "link").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
        assert_eq!(fs::read_to_string(folder.0.join("link")).unwrap(), "new");
    }

    #[test]
    fn refuses_a_directory_that_all_users_can_change() {
        let folder = Scratch::new("open");
        let mut disk = folder.disk();
        folder.chmod(0o777);
        let error = disk.write("a", &[b"1"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("chmod o-w"), "{error}");
        assert!(disk.create_private("a").is_err());
        for fine in [0o1777, 0o775, 0o700] {
            folder.chmod(fine);
            disk.write(&format!("{fine}"), &[b"1"]).unwrap();
        }
    }

    #[test]
    fn reads_regular_files_of_the_same_user_alone() {
        let folder = Scratch::new("owner");
        let mut disk = folder.disk();
        disk.write("a", &[b"12"]).unwrap();
        assert_eq!(disk.read("a").unwrap().0, 2);
        fs::create_dir(folder.0.join("folder")).unwrap();
        assert_eq!(kind(disk.read("folder")), ErrorKind::PermissionDenied);
        // Opening a pipe without a writer would wait for ever.
        let pipe = folder.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(kind(disk.read("pipe")), ErrorKind::PermissionDenied);
        let own = *disk.owner.get().unwrap();
        disk.owner = Arc::new(OnceLock::from(own + 1));
        assert_eq!(kind(disk.read("a")), ErrorKind::PermissionDenied);
        assert_eq!(kind(disk.append("a")), ErrorKind::PermissionDenied);
    }

    /// Also before this process has created a file in the directory. Only root can give a file to
    /// another user.
    #[test]
    fn does_not_read_a_file_of_another_user_first() {
        let folder = Scratch::new("foreign");
        let foreign = folder.0.join("a");
        fs::write(&foreign, "12").unwrap();
        let mut disk = folder.disk();
        assert_eq!(disk.another().read("a").unwrap().0, 2);
        assert!(disk.owner.get().is_some());
        let own = fs::metadata(&foreign).unwrap().uid();
        if chown(&foreign, Some(own + 1), None).is_err() {
            return;
        }
        for mut fresh in [folder.disk(), disk.clone()] {
            assert_eq!(kind(fresh.read("a")), ErrorKind::PermissionDenied);
            assert_eq!(
                kind(fresh.read_at("a", 0, &mut [0])),
                ErrorKind::PermissionDenied
            );
            assert_eq!(
                kind(fresh.write_at("a", 0, b"3")),
                ErrorKind::PermissionDenied
            );
        }
        assert_eq!(disk.list().unwrap(), ["a"]);
        disk.remove("a").unwrap();
    }

    #[test]
    fn seeing_changes_leaves_no_file() {
        let folder = Scratch::new("changes");
        let mut disk = folder.disk();
        disk.see_changes().unwrap();
        assert_eq!(disk.list().unwrap(), [""; 0]);
        folder.chmod(0o777);
        assert!(disk.see_changes().is_err());
    }

    #[test]
    fn syncs_files_and_names_where_it_must() {
        let folder = Scratch::new("sync");
        let syncs = SYNCS.get();
        folder.disk().sync("absent").unwrap();
        folder.disk().sync_names().unwrap();
        assert_eq!(SYNCS.get(), syncs);
        assert_eq!(kind(folder.disk().flush("absent")), ErrorKind::NotFound);
        let options = FileOptions {
            group_access: false,
            sync: true,
        };
        let mut disk = Disk::new(&folder.0, options);
        assert_eq!(kind(disk.sync("absent")), ErrorKind::NotFound);
        disk.write("a", &[b"1"]).unwrap();
        for (number, sync) in (syncs + 1..).zip([
            |disk: &mut Disk| disk.sync("a"),
            |disk: &mut Disk| disk.flush("a"),
            |disk: &mut Disk| disk.sync_names(),
        ]) {
            sync(&mut disk).unwrap();
            assert_eq!(SYNCS.get(), number);
        }
    }
}
