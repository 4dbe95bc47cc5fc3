//! The parts of a Markdown page that the checks need: prose, code blocks and the anchors of
//! headings. Not a Markdown parser: fences are three backticks, headings start with `#`.

use std::collections::BTreeSet;

/// Lines outside of fenced code blocks.
pub(super) fn prose(page: &str) -> impl Iterator<Item = &str> {
    lines(page).filter_map(|(language, line)| language.is_none().then_some(line))
}

/// Lines of the fenced code blocks in a language.
pub(super) fn code<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    lines(page).filter_map(move |(of_block, line)| (of_block == Some(language)).then_some(line))
}

/// The anchors of all headings, as GitHub derives them.
pub(super) fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(page).filter(|line| line.starts_with('#')) {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor = kept.collect::<String>().replace(' ', "-");
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let unique = std::iter::once(anchor.clone())
            .chain(repeated)
            .find(|anchor| !anchors.contains(anchor));
        anchors.extend(unique);
    }
    anchors
}

/// Each line, with the language of the code block that it is in. Leaves out the fences.
fn lines(page: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    let mut block = None;
    page.lines()
        .filter_map(move |line| match line.trim_start().strip_prefix("```") {
            Some(language) => {
                block = block.is_none().then(|| language.trim());
                None
            }
            None => Some((block, line)),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "# One `two`: three\n```sh\n# no heading\n```\n## Again\ntext\n## Again\n```\nplain\n```\n";

    #[test]
    fn anchors_are_those_of_github() {
        assert_eq!(
            Vec::from_iter(anchors(PAGE)),
            ["again", "again-1", "one-two-three"]
        );
    }

    #[test]
    fn code_is_selected_by_language() {
        assert_eq!(Vec::from_iter(code(PAGE, "sh")), ["# no heading"]);
        assert_eq!(Vec::from_iter(code(PAGE, "")), ["plain"]);
    }
}
