//! The header `range`, as far as files need it: one range of bytes.

use std::ops::Range;

/// What a client asked for of a file of a known length.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// No range, several, or nothing that is understood: HTTP says to send all.
    Whole,
    /// Not empty, and within the file.
    Part(Range<u64>),
    /// None of it is within the file.
    Outside,
}

/// Reads `bytes=FIRST-LAST`, `bytes=FIRST-` and `bytes=-COUNT`.
pub(crate) fn asked(header: Option<&str>, length: u64) -> Asked {
    let Some((first, last)) = header.and_then(|header| header.trim().strip_prefix("bytes=")?.split_once('-'))
    else {
        return Asked::Whole;
    };
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(length),
        (Some(first), None) if last.trim().is_empty() => first..length,
        (None, Some(count)) if first.trim().is_empty() => length.saturating_sub(count)..length,
        _ => return Asked::Whole,
    };
    if range.is_empty() { Asked::Outside } else { Asked::Part(range) }
}

/// Larger numbers than there are, are as good as the largest.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_understood_and_all_else_means_the_whole() {
        let asked = |header| asked(Some(header), 10);
        assert_eq!(asked("bytes=0-0"), Asked::Part(0..1));
        assert_eq!(asked("bytes=2-"), Asked::Part(2..10));
        assert_eq!(asked("bytes=-3"), Asked::Part(7..10));
        assert_eq!(asked("bytes=-30"), Asked::Part(0..10));
        assert_eq!(asked("bytes=5-99999999999999999999999"), Asked::Part(5..10));
        assert_eq!(asked("bytes=10-"), Asked::Outside);
        assert_eq!(asked("bytes=99999999999999999999999-"), Asked::Outside);
        assert_eq!(asked("bytes=-0"), Asked::Outside);
        for whole in
            ["bytes=0-1,3-4", "bytes=", "bytes=-", "bytes=3-2", "bytes=+1-2", "bytes=a-b", "lines=1-2", ""]
        {
            assert_eq!(asked(whole), Asked::Whole, "{whole}");
        }
        assert_eq!(super::asked(Some("bytes=0-"), 0), Asked::Outside);
        assert_eq!(super::asked(None, 10), Asked::Whole);
    }
}
