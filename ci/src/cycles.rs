//! Step `cycles`: how many modules of each crate use each other, directly or through others. The
//! numbers may only fall.
//!
//! A module is a file, without its tests. It uses what its `use` declarations name; paths in
//! expressions are not counted. A parent that exports an item of a child uses the child.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::{Attribute, Item, UseTree};

use crate::metadata::{CargoMetadata, Target};
use crate::report;
use crate::step::Notes;
use crate::workspace::Workspace;

/// Cycles of a crate's modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cycles {
    /// Number of files in a cycle.
    files: usize,
    /// Number of files in the largest cycle.
    largest: usize,
}

/// Cycles of each crate that has any. A change that removes some lowers its numbers here.
const CEILINGS: &[(&str, Cycles)] = &[
    (
        "protocol",
        Cycles {
            files: 12,
            largest: 6,
        },
    ),
    (
        "action-server",
        Cycles {
            files: 47,
            largest: 20,
        },
    ),
    (
        "orchestrator",
        Cycles {
            files: 62,
            largest: 19,
        },
    ),
    (
        "accounts",
        Cycles {
            files: 5,
            largest: 5,
        },
    ),
    (
        "browser",
        Cycles {
            files: 2,
            largest: 2,
        },
    ),
    (
        "engine",
        Cycles {
            files: 65,
            largest: 18,
        },
    ),
    (
        "conversations",
        Cycles {
            files: 9,
            largest: 5,
        },
    ),
    (
        "git_providers",
        Cycles {
            files: 3,
            largest: 3,
        },
    ),
    (
        "llm",
        Cycles {
            files: 27,
            largest: 19,
        },
    ),
    (
        "mcp",
        Cycles {
            files: 2,
            largest: 2,
        },
    ),
    (
        "sandbox-client",
        Cycles {
            files: 5,
            largest: 3,
        },
    ),
    (
        "sandbox-docker",
        Cycles {
            files: 13,
            largest: 13,
        },
    ),
    (
        "sandbox-local",
        Cycles {
            files: 12,
            largest: 9,
        },
    ),
    (
        "sandbox-remote",
        Cycles {
            files: 8,
            largest: 8,
        },
    ),
    (
        "sandbox-ssh",
        Cycles {
            files: 13,
            largest: 13,
        },
    ),
    (
        "server",
        Cycles {
            files: 60,
            largest: 60,
        },
    ),
    (
        "storage",
        Cycles {
            files: 15,
            largest: 5,
        },
    ),
    (
        "tests",
        Cycles {
            files: 2,
            largest: 2,
        },
    ),
    (
        "ci",
        Cycles {
            files: 25,
            largest: 25,
        },
    ),
];

pub(crate) fn run(workspace: &Workspace) -> Result<Notes> {
    let mut cargo = workspace.cargo();
    let metadata = CargoMetadata::read(
        cargo.args(["metadata", "--no-deps"]),
        "reading the targets of our crates",
    )?;
    let (mut faults, mut files, mut largest) = (Vec::new(), 0, 0);
    for package in metadata.members() {
        let mut cycles = Vec::new();
        for target in package
            .targets
            .iter()
            .filter(|target| target.is_program_or_library())
        {
            cycles.extend(cycles_of(target)?);
        }
        let found = Cycles {
            files: cycles.iter().map(Vec::len).sum(),
            largest: cycles.iter().map(Vec::len).max().unwrap_or(0),
        };
        let ceiling = CEILINGS.iter().find(|(name, _)| *name == package.name);
        let ceiling = ceiling.map_or(
            Cycles {
                files: 0,
                largest: 0,
            },
            |(_, ceiling)| *ceiling,
        );
        if found != ceiling {
            cycles
                .iter()
                .for_each(|cycle| report::note(&format!("{}: {}", package.name, cycle.join(", "))));
            faults.push(fault(&package.name, found, ceiling));
        }
        files += found.files;
        largest = largest.max(found.largest);
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("; "));
    }
    Ok(vec![format!(
        "{files} files are in cycles, {largest} in the largest"
    )])
}

fn fault(package: &str, found: Cycles, ceiling: Cycles) -> String {
    let next = match found.files > ceiling.files || found.largest > ceiling.largest {
        true => "remove the new cycle",
        false => "lower the ceiling in ci/src/cycles.rs",
    };
    let Cycles { files, largest } = found;
    format!(
        "{package} has {files} files in cycles, {largest} in the largest, where {} and {} are the ceiling: {next}",
        ceiling.files, ceiling.largest
    )
}

/// Returns the cycles of a target's modules, each with the names of its modules.
fn cycles_of(target: &Target) -> Result<Vec<Vec<String>>> {
    let mut modules = Modules::default();
    modules.read(&target.src_path, &target.src_path.with_file_name(""), &[])?;
    let cycles = tarjan_scc(&modules.graph())
        .into_iter()
        .filter(|cycle| cycle.len() > 1);
    let mut cycles: Vec<Vec<String>> = cycles
        .map(|cycle| {
            cycle
                .into_iter()
                .map(|index| modules.names[index].clone())
                .collect()
        })
        .collect();
    cycles.iter_mut().for_each(|cycle| cycle.sort());
    cycles.sort();
    Ok(cycles)
}

/// The modules of one crate.
#[derive(Default)]
struct Modules {
    /// Paths of the files, by index.
    names: Vec<String>,
    /// Index of the file of each module. A module within a file has that file's.
    files: BTreeMap<Vec<String>, usize>,
    /// What each module names: the module, and the path.
    uses: Vec<(Vec<String>, Vec<String>)>,
}

impl Modules {
    /// Reads a file and the files of its child modules, which are in `folder`.
    fn read(&mut self, file: &Path, folder: &Path, module: &[String]) -> Result<()> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        let index = self.names.len();
        self.names.push(if module.is_empty() {
            "the root".to_owned()
        } else {
            module.join("::")
        });
        self.read_items(&parsed.items, index, folder, module)
    }

    fn read_items(
        &mut self,
        items: &[Item],
        file: usize,
        folder: &Path,
        module: &[String],
    ) -> Result<()> {
        self.files.insert(module.to_vec(), file);
        for item in items {
            match item {
                Item::Use(import) if !is_for_tests(&import.attrs) => {
                    self.add_uses(module, &mut Vec::new(), &import.tree);
                }
                Item::Mod(child) if !is_for_tests(&child.attrs) => {
                    let name = child.ident.to_string();
                    let path = [module, std::slice::from_ref(&name)].concat();
                    let below = folder.join(&name);
                    match &child.content {
                        Some((_, items)) => self.read_items(items, file, &below, &path)?,
                        // A file that several crates share.
                        None if child
                            .attrs
                            .iter()
                            .any(|attribute| attribute.path().is_ident("path")) => {}
                        None if below.with_extension("rs").exists() => {
                            self.read(&below.with_extension("rs"), &below, &path)?;
                        }
                        None => self.read(&below.join("mod.rs"), &below, &path)?,
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_uses(&mut self, module: &[String], prefix: &mut Vec<String>, tree: &UseTree) {
        let name = match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_uses(module, prefix, &path.tree);
                prefix.pop();
                return;
            }
            UseTree::Group(group) => {
                group
                    .items
                    .iter()
                    .for_each(|tree| self.add_uses(module, prefix, tree));
                return;
            }
            UseTree::Name(name) => Some(name.ident.to_string()),
            UseTree::Rename(rename) => Some(rename.ident.to_string()),
            _ => None,
        };
        let path = prefix.iter().cloned().chain(name).collect();
        self.uses.push((module.to_vec(), path));
    }

    fn graph(&self) -> DiGraphMap<usize, ()> {
        let edges = self.uses.iter().filter_map(|(module, path)| {
            let (from, to) = (*self.files.get(module)?, self.resolve(module, path)?);
            (from != to).then_some((from, to))
        });
        DiGraphMap::from_edges(edges)
    }

    /// Returns the file of the innermost module in a path. `None` if it leads out of the crate.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<usize> {
        let mut at = module.to_vec();
        let mut rest = path.iter().peekable();
        match rest.peek()?.as_str() {
            "crate" => {
                at.clear();
                rest.next();
            }
            "self" => _ = rest.next(),
            "super" => {
                while rest.next_if(|name| *name == "super").is_some() {
                    at.pop()?;
                }
            }
            // A child module; else a crate, or an item of this one.
            child => {
                let child = [at.as_slice(), &[child.to_owned()]].concat();
                self.files.get(&child)?;
            }
        }
        for name in rest {
            at.push(name.clone());
            if !self.files.contains_key(&at) {
                at.pop();
                break;
            }
        }
        self.files.get(&at).copied()
    }
}

/// Whether an item exists in tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|name| name == "test")
    };
    attributes.iter().any(is_test)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Returns the cycles of a crate with these files.
    fn cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let src_path: PathBuf = folder.path().join(files[0].0);
        cycles_of(&Target {
            kind: vec!["lib".to_owned()],
            src_path,
        })
        .unwrap()
    }

    #[test]
    fn modules_that_use_each_other_are_found() {
        let root = ("lib.rs", "mod a; mod b; mod c; pub use c::C;");
        let found = cycles(&[
            root,
            ("a.rs", "mod inner; use crate::b::{self, B};"),
            ("a/inner.rs", "use std::fmt;"),
            ("b/mod.rs", "mod deep; pub use deep::Deep;"),
            (
                "b/deep.rs",
                "use crate::{c::C, a::inner::Inner}; mod within { use super::super::super::a::A; }",
            ),
            (
                "c.rs",
                "#[cfg(test)] mod tests; #[cfg(test)] use crate::a::A; use serde::Serialize;",
            ),
        ]);
        assert_eq!(found, [["a", "b", "b::deep"]]);
        let found = cycles(&[("main.rs", "mod a; fn f() {}"), ("a.rs", "use super::f;")]);
        assert_eq!(found, Vec::<Vec<String>>::new());
        let found = cycles(&[
            ("main.rs", "mod a; use a::*; fn f() {}"),
            ("a.rs", "use super::f;"),
        ]);
        assert_eq!(found, [["a", "the root"]]);
    }

    #[test]
    fn numbers_may_only_fall() {
        let cycles = |files, largest| Cycles { files, largest };
        assert!(fault("x", cycles(5, 3), cycles(4, 4)).ends_with("remove the new cycle"));
        assert!(fault("x", cycles(4, 2), cycles(4, 4)).contains("lower the ceiling"));
    }
}
