//! Links of a Markdown page to files of this repository: `[text](target#anchor)` and `[name]:
//! target`, outside of code. Each must lead to a file below the root, and an anchor to a heading of
//! a Markdown page.

use std::fs;
use std::path::{Path, PathBuf};

use super::markdown;

/// A relative link. An empty `file` is the page itself.
#[derive(Debug, PartialEq, Eq)]
struct PageLink {
    file: String,
    anchor: Option<String>,
}

/// Returns the broken links of `page`, a path relative to `root`, whose content is `text`.
pub(super) fn faults(root: &Path, page: &Path, text: &str) -> Vec<String> {
    let links = relative_links(text).into_iter();
    links
        .filter_map(|link| Some(format!("{}: {}", page.display(), fault(root, page, &link)?)))
        .collect()
}

fn fault(root: &Path, page: &Path, link: &PageLink) -> Option<String> {
    let file = &link.file;
    let path = target(root, page, file);
    let Ok(path) = path.canonicalize() else {
        return Some(format!("nothing is at {file}"));
    };
    if !root.canonicalize().is_ok_and(|root| path.starts_with(root)) {
        return Some(format!("{file} is outside of the repository"));
    }
    let anchor = link.anchor.as_deref()?;
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let has_heading = is_page
        && fs::read_to_string(&path).is_ok_and(|text| markdown::anchors(&text).contains(anchor));
    (!has_heading).then(|| format!("no heading is at {file}#{anchor}"))
}

/// Returns the linked file: relative to the page, or to the root if the link starts with a slash.
fn target(root: &Path, page: &Path, file: &str) -> PathBuf {
    match file.strip_prefix('/') {
        Some(from_root) => root.join(from_root),
        None if file.is_empty() => root.join(page),
        None => root.join(page.parent().unwrap_or(Path::new(""))).join(file),
    }
}

fn relative_links(page: &str) -> Vec<PageLink> {
    markdown::prose(page)
        .flat_map(|line| targets(&without_code(line)))
        .filter_map(|text| parse(&text))
        .collect()
}

/// Removes code spans: every second part between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

fn targets(line: &str) -> Vec<String> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let definition = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target);
    inline.chain(definition).map(str::to_owned).collect()
}

/// `None` if the target is not in this repository.
fn parse(target: &str) -> Option<PageLink> {
    let target = target.split_whitespace().next()?.trim_matches(['<', '>']);
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor.to_owned())),
        None => (target, None),
    };
    Some(PageLink {
        file: file.to_owned(),
        anchor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(file: &str, anchor: Option<&str>) -> PageLink {
        PageLink {
            file: file.to_owned(),
            anchor: anchor.map(str::to_owned),
        }
    }

    #[test]
    fn only_relative_links_outside_code_are_read() {
        let page = "\
See [a](a.md), [b](<../b.md#part> \"title\") and `[c](c.md)`.
[web](https://example.org/x.md) [here](#below) [mail](mailto:x@example.org)
[d]: d/
```
[e](e.md)
```
";
        let expected = [
            link("a.md", None),
            link("../b.md", Some("part")),
            link("", Some("below")),
            link("d/", None),
        ];
        assert_eq!(relative_links(page), expected);
    }

    #[test]
    fn target_is_relative_to_the_page_or_the_root() {
        let target = |file| target(Path::new("/r"), Path::new("docs/x.md"), file);
        assert_eq!(target("y.md"), Path::new("/r/docs/y.md"));
        assert_eq!(target("/LICENSE"), Path::new("/r/LICENSE"));
        assert_eq!(target(""), Path::new("/r/docs/x.md"));
    }

    #[test]
    fn broken_links_are_named_with_their_page() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(folder.path().join("outside.md"), "").unwrap();
        fs::write(root.join("docs/a.md"), "# Part one\n").unwrap();
        fs::write(root.join("b.rs"), "").unwrap();
        let page = Path::new("docs/a.md");
        let faults = |text| faults(&root, page, text);

        assert_eq!(
            faults("[a](#part-one) [a](a.md#part-one) [b](../b.rs) [c](.)"),
            [""; 0]
        );
        assert_eq!(faults("[a](b.md)"), ["docs/a.md: nothing is at b.md"]);
        assert_eq!(
            faults("[a](#part-two)"),
            ["docs/a.md: no heading is at #part-two"]
        );
        assert_eq!(
            faults("[a](../b.rs#L1)"),
            ["docs/a.md: no heading is at ../b.rs#L1"]
        );
        assert_eq!(
            faults("[a](../../outside.md)"),
            ["docs/a.md: ../../outside.md is outside of the repository"]
        );
    }
}
