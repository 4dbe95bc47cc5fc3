//! The links of a Markdown page that lead to files of this repository: `[text](target)` and `[name]: target`, outside
//! code. Not a Markdown parser: what it takes for a link too much is named and easily reworded.

use std::path::{Path, PathBuf};

/// The targets that are relative, without their `#fragment`.
pub(super) fn relative(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut links = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            links.extend(targets(&without_code(line)).filter_map(file_part));
        }
    }
    links
}

/// The file that `link` means on `page`: beside it, or from the root if it begins with a slash.
pub(super) fn place(root: &Path, page: &Path, link: &str) -> PathBuf {
    match link.strip_prefix('/') {
        Some(from_root) => root.join(from_root),
        None => root.join(page.parent().unwrap_or(Path::new(""))).join(link),
    }
}

/// Every second part between backticks is code.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

fn targets(line: &str) -> impl Iterator<Item = String> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
    inline.chain(definition).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that filter_map gives")]
fn file_part(target: String) -> Option<String> {
    let target = target.split_whitespace().next()?.trim_matches(['<', '>']);
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    let file = target.split('#').next()?;
    (!elsewhere && !file.is_empty()).then(|| file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_files_outside_code() {
        let page = "\
See [a](a.md), [b](<../b.md#part> \"title\") and `[c](c.md)`.
[web](https://example.org/x.md) [here](#below) [mail](mailto:x@example.org)
[d]: d/
```
[e](e.md)
```
";
        assert_eq!(relative(page), ["a.md", "../b.md", "d/"]);
    }

    #[test]
    fn a_link_is_meant_from_its_page() {
        let place = |link| place(Path::new("/r"), Path::new("docs/x.md"), link);
        assert_eq!(place("y.md"), Path::new("/r/docs/y.md"));
        assert_eq!(place("/LICENSE"), Path::new("/r/LICENSE"));
    }
}
