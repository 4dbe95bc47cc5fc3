//! What `.gitignore` and its like leave out, where files are kept in a root. The library that does it elsewhere opens such
//! files by path: one that is a link to a file outside would have its lines tried on every name, and so told.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::Looked;
use crate::files::place::Place;
use crate::files::{Files, open};

/// In the order in which they are asked; the nearest of a kind decides.
const NAMES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];

/// Read of one of them.
const MAX_BYTES: u64 = 1 << 20;

/// The rules for a folder and all below it.
pub(super) struct Ignored {
    folder: Place,
    looked: Looked,
    /// Of the folders from the root down to this one, and the way from each to here.
    above: Vec<(PathBuf, Rules)>,
    /// Of the folders from this one down to where the walk is, and where they are.
    levels: Mutex<Vec<(PathBuf, Rules)>>,
}

/// What one folder says.
struct Rules([Gitignore; 3]);

impl Ignored {
    pub(super) fn in_folder(files: &Files, folder: &Place, looked: Looked) -> Self {
        let real = folder.key();
        let above = real.ancestors().skip(1).take_while(|_| !looked.at_ignored);
        // The first that is not found is above the root.
        let above = above.map_while(|upper| Some((upper, files.found(upper).ok()?)));
        let way = |upper| real.strip_prefix(upper).unwrap_or(Path::new("")).to_owned();
        let mut above: Vec<_> = above.map(|(upper, place)| (way(upper), Rules::of(&place))).collect();
        above.reverse();
        Self { folder: folder.clone(), looked, above, levels: Mutex::default() }
    }

    /// Whether nobody looks at what lies at `below`. To be asked as one walks: a folder before what lies in it.
    pub(super) fn leaves_out(&self, below: &Path, is_folder: bool) -> bool {
        let is_hidden = below.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        match if self.looked.at_ignored { None } else { self.verdict(below, is_folder) } {
            Some(is_left_out) => is_left_out,
            None => is_hidden && !self.looked.at_hidden,
        }
    }

    /// Nothing where no rule says anything.
    fn verdict(&self, below: &Path, is_folder: bool) -> Option<bool> {
        let parent = below.parent()?;
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        levels.retain(|(level, _)| parent.starts_with(level));
        let mut missing: Vec<_> = parent.ancestors().collect();
        missing.truncate(missing.len().saturating_sub(levels.len()));
        for level in missing.into_iter().rev() {
            let rules = self.folder.folder(level).map(|folder| Rules::of(&folder));
            levels.push((level.to_owned(), rules.unwrap_or_else(|_| Rules::none())));
        }
        let way = |level: &Path| below.strip_prefix(level).unwrap_or(below).to_owned();
        let near = levels.iter().rev().map(|(level, rules)| (way(level), rules));
        let far = self.above.iter().rev().map(|(upper, rules)| (upper.join(below), rules));
        let all: Vec<_> = near.chain(far).collect();
        (0..NAMES.len())
            .find_map(|kind| all.iter().find_map(|(path, rules)| rules.say(kind, path, is_folder)))
    }
}

impl Rules {
    fn none() -> Self {
        Self(NAMES.map(|_| Gitignore::empty()))
    }

    fn of(folder: &Place) -> Self {
        Self(NAMES.map(|name| list(folder, name).unwrap_or_else(Gitignore::empty)))
    }

    fn say(&self, kind: usize, path: &Path, is_folder: bool) -> Option<bool> {
        match self.0.get(kind)?.matched(path, is_folder) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

fn list(folder: &Place, name: &str) -> Option<Gitignore> {
    let (file, _) = open::regular(&folder.entry(Path::new(name)).ok()?).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let mut builder = GitignoreBuilder::new(".");
    for line in String::from_utf8_lossy(&bytes).lines() {
        // A line that is no pattern is none.
        _ = builder.add_line(None, line);
    }
    builder.build().ok()
}
