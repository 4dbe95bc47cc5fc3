//! The contents of files before the editor changed them, for `undo_edit`. They are kept in memory.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// V0's limit.
const MAX_PER_FILE: usize = 10;

/// Maximum size for all files. Usually only the latest edits are undone.
const MAX_BYTES: usize = 32 << 20;

/// Bounds the time of a linear search.
const MAX_SNAPSHOTS: usize = 1024;

/// Snapshots of all files, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    snapshots: VecDeque<FileSnapshot>,
    bytes: usize,
}

#[derive(Debug)]
struct FileSnapshot {
    file: PathBuf,
    content: Vec<u8>,
}

impl History {
    /// Adds the content of `file`. Drops the oldest snapshots if a limit is exceeded.
    pub(super) fn push(&mut self, file: &Path, content: Vec<u8>) {
        self.bytes += content.len();
        self.snapshots.push_back(FileSnapshot {
            file: file.to_owned(),
            content,
        });
        let mut of_this = self.indices_of(file);
        if let (Some(oldest), MAX_PER_FILE..) = (of_this.next(), of_this.count()) {
            self.remove(oldest);
        }
        while self.snapshots.len() > MAX_SNAPSHOTS || self.bytes > MAX_BYTES {
            self.remove(0);
        }
    }

    /// Removes and returns the content of `file` before its last edit.
    pub(super) fn pop(&mut self, file: &Path) -> Option<Vec<u8>> {
        let latest = self.indices_of(file).last()?;
        self.remove(latest)
    }

    fn indices_of<'a>(&'a self, file: &'a Path) -> impl Iterator<Item = usize> + 'a {
        self.snapshots
            .iter()
            .enumerate()
            .filter(move |(_, snapshot)| snapshot.file == file)
            .map(|(at, _)| at)
    }

    fn remove(&mut self, at: usize) -> Option<Vec<u8>> {
        let snapshot = self.snapshots.remove(at)?;
        self.bytes -= snapshot.content.len();
        Some(snapshot.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_ten_snapshots_of_a_file_are_kept() {
        let (one, other) = (Path::new("/one"), Path::new("/other"));
        let mut history = History::default();
        history.push(other, b"other".to_vec());
        (0..15_u8).for_each(|n| history.push(one, vec![n]));
        let undone: Vec<u8> = std::iter::from_fn(|| history.pop(one))
            .map(|content| content[0])
            .collect();
        assert_eq!(undone, (5..15).rev().collect::<Vec<u8>>());
        assert_eq!(history.pop(other), Some(b"other".to_vec()));
        assert_eq!(history.bytes, 0);
    }

    #[test]
    fn total_size_is_bounded() {
        let mut history = History::default();
        for n in 0..20 {
            history.push(Path::new(&format!("/{n}")), vec![0; 4 << 20]);
        }
        assert!(history.bytes <= MAX_BYTES);
        assert_eq!(history.pop(Path::new("/0")), None);
        assert!(history.pop(Path::new("/19")).is_some());
    }
}
