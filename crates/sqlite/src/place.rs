//! The place of the file: `sqlite://relative/path.db`, `sqlite:///absolute/path.db` or a plain
//! path.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use emmer_store::{StoreError, StoreErrorKind, StoreUrl};

use crate::fault::Failed;

/// A file and how to open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file, absolute.
    pub(crate) path: PathBuf,
    /// True if a missing file is made (`mode=rwc`, the default) or refused (`mode=rw`).
    pub(crate) create: bool,
    /// True if every commit waits for the disk (`synchronous=full`); else only checkpoints do.
    pub(crate) full_sync: bool,
    /// Time to wait for a lock that another process holds (`busy_timeout_ms=5000`).
    pub(crate) busy_timeout: Duration,
}

/// The file that a name leads to. Where the system does not say, all files are the same; there an
/// open file cannot be deleted or replaced either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    number: u64,
}

impl FileId {
    #[cfg(unix)]
    fn of(found: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: found.dev(), number: found.ino() }
    }

    #[cfg(not(unix))]
    const fn of(_: &fs::Metadata) -> Self {
        Self {}
    }
}

/// Time to wait for a lock that another process holds, when the URL does not say.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest wait an operator may ask for.
const BUSY_TIMEOUT_MAX: Duration = Duration::from_secs(60);

impl Place {
    /// Reads a URL or a plain path.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let error = |kind, detail: String| StoreError::new(kind, "sqlite://", "open", detail);
        let invalid = |detail: String| error(StoreErrorKind::Invalid, detail);
        let (mut create, mut full_sync, mut busy_timeout) = (true, false, BUSY_TIMEOUT);
        let path = if text.contains("://") {
            let url: StoreUrl = text.parse().map_err(|e| invalid(format!("{e}")))?;
            if url.scheme() != "sqlite" {
                return Err(invalid(format!("{url} is not a SQLite file")));
            }
            for (name, value) in url.parameters() {
                match (name, value) {
                    ("mode", "rwc") => create = true,
                    ("mode", "rw") => create = false,
                    ("synchronous", "normal") => full_sync = false,
                    ("synchronous", "full") => full_sync = true,
                    ("busy_timeout_ms", ms) => {
                        let parsed = ms.parse().ok().map(Duration::from_millis);
                        busy_timeout =
                            parsed.filter(|t| *t <= BUSY_TIMEOUT_MAX).ok_or_else(|| {
                                invalid(format!(
                                    "{url}: busy_timeout_ms is not a number from 0 to 60000"
                                ))
                            })?;
                    }
                    _ => {
                        let known =
                            "mode=rwc|rw, synchronous=normal|full or busy_timeout_ms=0..60000";
                        return Err(invalid(format!(
                            "{url}: {name}={value} is not known; expected {known} behind the \
                             question mark"
                        )));
                    }
                }
            }
            url.place().to_owned()
        } else {
            text.to_owned()
        };
        if path.is_empty() || path == ":memory:" {
            let detail = "no file is named: expected sqlite://relative/path.db or \
                          sqlite:///absolute/path.db (a store inside the process is memory://)";
            return Err(invalid(detail.to_owned()));
        }
        let path = std::path::absolute(&path)
            .map_err(|e| error(StoreErrorKind::Refused, e.to_string()))?;
        Ok(Self { path, create, full_sync, busy_timeout })
    }

    /// `sqlite:///absolute/path.db`.
    pub(crate) fn describe(&self) -> String {
        format!("sqlite://{}", self.path.display())
    }

    /// Looks before SQLite does, so that a bad path leaves no files behind and errors are in plain
    /// words. Returns the file; none if it is to be made.
    ///
    /// It never opens the file. A process that closes any descriptor of a file gives up all its
    /// locks on it, those of SQLite's own connections too. The next process that closes the file
    /// would then take it for unused and delete its log.
    pub(crate) fn look(&self) -> Result<Option<FileId>, Failed> {
        let found = self.file()?;
        if found.is_none() {
            let parent = self.path.parent().unwrap_or_else(|| Path::new("/"));
            if !parent.is_dir() {
                let detail = format!("the directory {} does not exist", parent.display());
                return Err(Failed::new(StoreErrorKind::Refused, detail));
            }
            if !self.create {
                let detail = "the file does not exist, and mode=rw forbids to make it";
                return Err(Failed::new(StoreErrorKind::NotFound, detail));
            }
        }
        Ok(found)
    }

    /// The log that belongs to the file now, if there is one.
    pub(crate) fn log(&self) -> Option<FileId> {
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        fs::metadata(path).ok().map(|found| FileId::of(&found))
    }

    /// The file that has the name now, if there is one.
    pub(crate) fn file(&self) -> Result<Option<FileId>, Failed> {
        let refused = |detail: &str| Err(Failed::new(StoreErrorKind::Refused, detail));
        match fs::metadata(&self.path) {
            Ok(found) if found.is_dir() => refused("this is a directory, not a file"),
            Ok(found) => Ok(Some(FileId::of(&found))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => refused(&error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_urls_and_paths() {
        let here = std::env::current_dir().unwrap();
        for (text, path, create, full_sync, ms) in [
            ("sqlite://a/b.db", here.join("a/b.db"), true, false, 5_000),
            ("sqlite:///a/b.db", PathBuf::from("/a/b.db"), true, false, 5_000),
            (
                "sqlite:///a/b.db?mode=rw&synchronous=full",
                PathBuf::from("/a/b.db"),
                false,
                true,
                5_000,
            ),
            ("sqlite:///a/b.db?busy_timeout_ms=70", PathBuf::from("/a/b.db"), true, false, 70),
            ("/a/b?c.db", PathBuf::from("/a/b?c.db"), true, false, 5_000),
            ("b.db", here.join("b.db"), true, false, 5_000),
        ] {
            let busy_timeout = Duration::from_millis(ms);
            let place = Place { path, create, full_sync, busy_timeout };
            assert_eq!(Place::parse(text), Ok(place), "{text}");
        }
        assert_eq!(
            Place::parse("sqlite:///a/b.db?mode=rw").unwrap().describe(),
            "sqlite:///a/b.db"
        );
    }

    #[test]
    fn refuses_the_rest() {
        for (text, word) in [
            ("sqlite://", "no file is named"),
            ("", "no file is named"),
            (":memory:", "memory://"),
            ("redis://bob:s3cret@h/0", "redis://bob:***@h/0"),
            ("sqlite:///a.db?mode=ro", "mode=rwc|rw"),
            ("sqlite:///a.db?busy_timeout_ms=60001", "busy_timeout_ms"),
            ("sqlite:///a.db?busy_timeout_ms=-1", "busy_timeout_ms"),
            ("nosuch:///a.db", "nosuch"),
        ] {
            let error = Place::parse(text).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("s3cret"), "{error}");
        }
    }
}
