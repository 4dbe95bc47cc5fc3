//! Creates a unified diff without context between two versions of a file. It has one hunk, from the
//! first to the last changed line, because an edit changes one range. This takes linear time.

use super::lines::Lines;

/// Returns an empty string if nothing has changed.
pub(super) fn unified(path: &str, old: &[u8], new: &[u8]) -> String {
    if old == new {
        return String::new();
    }
    let (old, new) = (DiffSide::new(old), DiffSide::new(new));
    let same_before = old
        .lines()
        .zip(new.lines())
        .take_while(|(old, new)| old == new)
        .count();
    let shorter = old.count().min(new.count()) - same_before;
    let same_after = old
        .lines()
        .rev()
        .zip(new.lines().rev())
        .take(shorter)
        .take_while(|(old, new)| old == new)
        .count();
    let mut diff = format!(
        "--- {path}\n+++ {path}\n@@ -{} +{} @@\n",
        old.range(same_before, same_after),
        new.range(same_before, same_after)
    );
    old.write('-', same_before, same_after, &mut diff);
    new.write('+', same_before, same_after, &mut diff);
    diff
}

struct DiffSide<'a> {
    bytes: &'a [u8],
    lines: Lines<'a>,
}

impl<'a> DiffSide<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            lines: Lines::new(bytes),
        }
    }

    fn count(&self) -> usize {
        self.lines.count()
    }

    fn lines(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + '_ {
        (0..self.count())
            .map(|index| &self.bytes[self.lines.start(index)..self.lines.start(index + 1)])
    }

    /// Formats the range for the hunk header: a count of 1 is omitted, and an empty range names the
    /// line before it.
    fn range(&self, same_before: usize, same_after: usize) -> String {
        match self.count() - same_before - same_after {
            0 => format!("{same_before},0"),
            1 => format!("{}", same_before + 1),
            count => format!("{},{count}", same_before + 1),
        }
    }

    fn write(&self, sign: char, same_before: usize, same_after: usize, diff: &mut String) {
        for line in self
            .lines()
            .take(self.count() - same_after)
            .skip(same_before)
        {
            diff.push(sign);
            diff.push_str(&String::from_utf8_lossy(line));
            if !line.ends_with(b"\n") {
                diff.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunk(old: &str, new: &str) -> String {
        let diff = unified("/f", old.as_bytes(), new.as_bytes());
        diff.strip_prefix("--- /f\n+++ /f\n")
            .unwrap_or(&diff)
            .to_owned()
    }

    #[test]
    fn diff_is_one_hunk_from_the_first_to_the_last_change() {
        assert_eq!(
            hunk("a\nb\nc\nd\n", "a\nX\nY\nd\n"),
            "@@ -2,2 +2,2 @@\n-b\n-c\n+X\n+Y\n"
        );
        assert_eq!(hunk("a\nb\n", "a\nnew\nb\n"), "@@ -1,0 +2 @@\n+new\n");
        assert_eq!(hunk("a\nb\n", "b\n"), "@@ -1 +0,0 @@\n-a\n");
        assert_eq!(hunk("", "a\n"), "@@ -0,0 +1 @@\n+a\n");
        assert_eq!(hunk("same\n", "same\n"), "");
    }

    #[test]
    fn repeated_lines_are_not_counted_twice() {
        assert_eq!(hunk("a\na\n", "a\na\na\n"), "@@ -2,0 +3 @@\n+a\n");
        assert_eq!(hunk("a\na\na\n", "a\n"), "@@ -2,2 +1,0 @@\n-a\n-a\n");
    }

    #[test]
    fn missing_last_newline_is_marked() {
        assert_eq!(
            hunk("a", "a\n"),
            "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"
        );
    }
}
