//! The state directory of a worker: the lock that proves the former process dead, and the instance id that outlives it.
//!
//! An instance id alone does not fence (S13: last comer wins, at once, and the loser's clock does not cover it). The lock
//! does: whoever holds it knows that no other process on this host uses the same state directory. The kernel releases it
//! when the process dies, also by kill -9. A directory copied to, or shared with, another host is not covered.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::os_error::Reason;
use crate::wall_clock::Utc;

/// Longest file read here, in bytes; what is longer is not ours.
const FILE_BYTES_MAX: u64 = 4096;

const INSTANCE_ID_FILE: &str = "instance-id";

/// Length of an instance id in hex digits.
const INSTANCE_ID_DIGITS: usize = 16;

/// An exclusive lock on `<dir>/<name>.lock`, held until dropped or until the process dies.
#[derive(Debug)]
pub struct StateLock {
    path: PathBuf,
    _file: File,
}

/// Why the state directory cannot be used. The text says the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error(
        "{} is locked by another towpath process ({holder}): stop it, or give this one its own state directory", path.display()
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// What the holder wrote into it, usually `pid 123, started 2023-11-14 22:13:20 UTC`.
        holder: String,
    },
    /// The directory or a file in it cannot be made, read or written.
    #[error(
        "cannot {what} {}: {}; create it, or make it writable for the user towpath runs as (towpath.state.dir)",
        path.display(), Reason(source)
    )]
    Unusable {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The instance id cannot be read.
    #[error(
        "{} does not hold an instance id of {INSTANCE_ID_DIGITS} hex digits: restore it, or delete it to get a new one (the \
         worker's partitions then rest for the session timeout if it stopped just now)", path.display()
    )]
    InstanceId {
        /// The file.
        path: PathBuf,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes for an instance id")]
    Random(#[source] getrandom::Error),
}

impl StateLock {
    /// Takes the lock, without waiting. Makes the directory if it is missing.
    ///
    /// `started_unix_s` is the process's start in seconds since 1970, for people who read the file.
    ///
    /// # Errors
    /// [`LockError::Held`] if another process (or another `StateLock` in this one) has it, [`LockError::Unusable`] if
    /// the directory or the file is not ours to write.
    pub fn acquire(dir: &Path, name: &str, started_unix_s: u64) -> Result<Self, LockError> {
        make_dir(dir)?;
        let path = dir.join(format!("{name}.lock"));
        let unusable = |what| {
            let path = path.clone();
            move |source: io::Error| LockError::Unusable { what, path, source }
        };
        // Never truncated on opening, and never deleted: the first would wipe the holder's pid, the second would leave
        // two processes with locks on two files of the same name.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(unusable("open"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // The holder may be between locking and writing: its name is a courtesy, not a need.
                let _ = file.take(FILE_BYTES_MAX).read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "its pid is not written yet".to_owned(),
                    named => named.to_owned(),
                };
                return Err(LockError::Held { path, holder });
            }
            Err(error) => return Err(unusable("lock")(error.into())),
        }
        let text = format!("pid {}, started {}\n", std::process::id(), Utc { unix_s: started_unix_s });
        file.set_len(0).map_err(unusable("write"))?;
        file.rewind().map_err(unusable("write"))?;
        file.write_all(text.as_bytes()).map_err(unusable("write"))?;
        Ok(Self { path, _file: file })
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The worker's instance id, from `<dir>/instance-id`; made at the first call, 16 random hex digits.
///
/// Take a [`StateLock`] in the same directory first.
///
/// # Errors
/// [`LockError::InstanceId`] if the file is there but does not hold one: a new id is not made up silently, since it would
/// cost the session timeout and hide a damaged disk. [`LockError::Unusable`], [`LockError::Random`].
pub fn instance_id(dir: &Path) -> Result<String, LockError> {
    make_dir(dir)?;
    let path = dir.join(INSTANCE_ID_FILE);
    let unusable = |what, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| LockError::Unusable { what, path, source }
    };
    match File::open(&path) {
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unusable("read", &path))?;
            let id = bytes.trim_ascii();
            if id.len() != INSTANCE_ID_DIGITS || !id.iter().all(u8::is_ascii_hexdigit) {
                return Err(LockError::InstanceId { path });
            }
            Ok(String::from_utf8_lossy(id).into_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = format!("{:0width$x}", getrandom::u64().map_err(LockError::Random)?, width = INSTANCE_ID_DIGITS);
            // Written aside, synced, then linked into place: a crash leaves no empty file, and a second process that came
            // first is not overwritten (its id is read instead).
            let aside = dir.join(format!("{INSTANCE_ID_FILE}.{}", std::process::id()));
            let mut file = File::create(&aside).map_err(unusable("create", &aside))?;
            file.write_all(format!("{id}\n").as_bytes()).map_err(unusable("write", &aside))?;
            file.sync_all().map_err(unusable("write", &aside))?;
            let linked = std::fs::hard_link(&aside, &path);
            std::fs::remove_file(&aside).map_err(unusable("remove", &aside))?;
            match linked {
                Ok(()) => {
                    File::open(dir).and_then(|dir| dir.sync_all()).map_err(unusable("sync", dir))?;
                    Ok(id)
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => instance_id(dir),
                Err(error) => Err(unusable("create", &path)(error)),
            }
        }
        Err(error) => Err(unusable("read", &path)(error)),
    }
}

fn make_dir(dir: &Path) -> Result<(), LockError> {
    std::fs::create_dir_all(dir).map_err(|source| LockError::Unusable {
        what: "create the state directory",
        path: dir.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_names_its_holder_and_is_free_after_the_drop() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("deep/state");
        let lock = StateLock::acquire(&state, "a.b", 1_700_000_000).unwrap();
        assert_eq!(lock.path(), state.join("a.b.lock"));
        let text = StateLock::acquire(&state, "a.b", 1).unwrap_err().to_string();
        let holder = format!("(pid {}, started 2023-11-14 22:13:20 UTC)", std::process::id());
        assert!(
            text.contains(&holder) && text.contains("a.b.lock") && text.contains("its own state directory"),
            "{text}"
        );
        assert!(StateLock::acquire(&state, "other", 1).is_ok(), "another flow has its own lock");
        drop(lock);
        let again = StateLock::acquire(&state, "a.b", 2).unwrap();
        let written = std::fs::read_to_string(again.path()).unwrap();
        assert_eq!(written, format!("pid {}, started 1970-01-01 00:00:02 UTC\n", std::process::id()));
    }

    #[test]
    fn the_kernel_releases_the_lock_of_a_killed_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.b.lock");
        // flock(1) of util-linux holds the lock on our behalf in another process.
        let mut child = std::process::Command::new("flock")
            .arg("--no-fork")
            .arg(&path)
            .args(["sh", "-c", "echo held; exec cat"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let error = StateLock::acquire(dir.path(), "a.b", 1).unwrap_err();
        assert!(error.to_string().contains("not written yet"), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
        StateLock::acquire(dir.path(), "a.b", 1).unwrap();
    }

    #[test]
    fn the_instance_id_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let id = instance_id(&state).unwrap();
        assert_eq!(id.len(), 16);
        assert_eq!(instance_id(&state).unwrap(), id);
        assert_ne!(instance_id(&dir.path().join("other")).unwrap(), id);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "nothing is left aside");
    }

    #[test]
    fn a_damaged_instance_id_is_named_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("instance-id");
        for damaged in ["", "\n", "0123456789abcde", "0123456789abcdefa", "0123456789abcdeg", "\u{0}\u{0}\u{0}"] {
            std::fs::write(&path, damaged).unwrap();
            let text = instance_id(dir.path()).unwrap_err().to_string();
            assert!(text.contains("instance-id") && text.contains("delete it"), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
        }
        std::fs::write(&path, "0123456789abcdef").unwrap();
        assert_eq!(instance_id(dir.path()).unwrap(), "0123456789abcdef", "the line end is not needed");
    }

    #[test]
    fn an_unusable_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for error in [
            StateLock::acquire(&file, "a", 1).unwrap_err(),
            instance_id(&file).unwrap_err(),
            StateLock::acquire(dir.path(), "no/such", 1).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(matches!(error, LockError::Unusable { .. }));
            assert!(text.contains(dir.path().to_str().unwrap()) && text.contains("writable"), "{text}");
        }
    }
}
