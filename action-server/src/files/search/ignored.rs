//! Rules of `.gitignore` and similar files. They apply outside of repositories as well; the
//! configuration of the server's user does not.
//!
//! The `ignore` crate opens these files by path, and parses any pattern. One that is a link to a
//! file outside of the root would be applied as rules, which would disclose its lines. Braces that
//! are nested deeply in a pattern overflow the stack.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::WalkFilter;
use super::pattern::nests_deeply;
use crate::files::resolved_path::ResolvedPath;
use crate::files::{Files, open};

/// In order of precedence. Among files of one name, the nearest takes precedence.
const NAMES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];

/// Index of the rules that are not git's.
const OWN_RULES: usize = 0;

/// Maximum size of a file with rules.
const MAX_BYTES: u64 = 1 << 20;

/// The rules for a folder and everything below it.
pub(super) struct IgnoreRules {
    folder: ResolvedPath,
    filter: WalkFilter,
    /// Rules of the parent folders up to the root, with the path from each to `folder`.
    above: Vec<(PathBuf, FolderRules)>,
    /// Rules of the folders from `folder` to the current position of the walk, with their paths.
    levels: Mutex<Vec<(PathBuf, FolderRules)>>,
}

/// The rules of one folder.
struct FolderRules {
    rules: [Gitignore; 3],
    /// Whether it is a repository: git's rules of the folders above do not apply in it.
    is_repository: bool,
}

impl IgnoreRules {
    pub(super) fn in_folder(files: &Files, folder: &ResolvedPath, filter: WalkFilter) -> Self {
        let real = folder.key();
        let above = real.ancestors().skip(1).take_while(|_| !filter.ignored);
        // Ends at the first parent that cannot be resolved, which is above the root.
        let above = above.map_while(|upper| Some((upper, files.resolve(upper).ok()?)));
        let way = |upper| real.strip_prefix(upper).unwrap_or(Path::new("")).to_owned();
        let mut above: Vec<_> = above
            .map(|(upper, resolved)| (way(upper), FolderRules::read(&resolved)))
            .collect();
        above.reverse();
        Self {
            folder: folder.clone(),
            filter,
            above,
            levels: Mutex::default(),
        }
    }

    /// Returns whether the entry at `below` is excluded. Must be called in the order of the walk: a
    /// folder before its entries.
    pub(super) fn excludes(&self, below: &Path, is_folder: bool) -> bool {
        let is_hidden = below
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        match if self.filter.ignored {
            None
        } else {
            self.matched(below, is_folder)
        } {
            Some(is_excluded) => is_excluded,
            None => is_hidden && !self.filter.hidden,
        }
    }

    /// Applies the rules. `None` if no rule matches.
    fn matched(&self, below: &Path, is_folder: bool) -> Option<bool> {
        let parent = below.parent()?;
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        levels.retain(|(level, _)| parent.starts_with(level));
        let mut missing: Vec<_> = parent.ancestors().collect();
        missing.truncate(missing.len().saturating_sub(levels.len()));
        for level in missing.into_iter().rev() {
            let rules = self
                .folder
                .folder(level)
                .map(|folder| FolderRules::read(&folder));
            levels.push((
                level.to_owned(),
                rules.unwrap_or_else(|_| FolderRules::none()),
            ));
        }
        let way = |level: &Path| below.strip_prefix(level).unwrap_or(below).to_owned();
        let near = levels
            .iter()
            .rev()
            .map(|(level, rules)| (way(level), rules));
        let far = self
            .above
            .iter()
            .rev()
            .map(|(upper, rules)| (upper.join(below), rules));
        let all: Vec<_> = near.chain(far).collect();
        let repository = all.iter().position(|(_, rules)| rules.is_repository);
        let in_repository = repository.map_or(all.len(), |index| index + 1);
        (0..NAMES.len()).find_map(|kind| {
            let count = if kind == OWN_RULES {
                all.len()
            } else {
                in_repository
            };
            all.iter()
                .take(count)
                .find_map(|(path, rules)| rules.matched(kind, path, is_folder))
        })
    }
}

impl FolderRules {
    fn none() -> Self {
        Self {
            rules: NAMES.map(|_| Gitignore::empty()),
            is_repository: false,
        }
    }

    fn read(folder: &ResolvedPath) -> Self {
        let git = folder.entry(Path::new(".git"));
        Self {
            rules: NAMES.map(|name| list(folder, name).unwrap_or_else(Gitignore::empty)),
            is_repository: git.is_ok_and(|git| git.metadata().is_ok()),
        }
    }

    fn matched(&self, kind: usize, path: &Path, is_folder: bool) -> Option<bool> {
        match self.rules.get(kind)?.matched(path, is_folder) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

fn list(folder: &ResolvedPath, name: &str) -> Option<Gitignore> {
    let (file, _) = open::regular(&folder.entry(Path::new(name)).ok()?).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let mut builder = GitignoreBuilder::new(".");
    let content = String::from_utf8_lossy(&bytes);
    for line in content.lines().filter(|line| !nests_deeply(line)) {
        // Ignores a line that is not a pattern.
        _ = builder.add_line(None, line);
    }
    builder.build().ok()
}
