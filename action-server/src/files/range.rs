//! Parses the `range` header. A single range of bytes is supported.

use std::ops::Range;

/// The part of a file that a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// No range, several ranges, or an invalid header, which HTTP requires to ignore.
    Whole,
    /// A non-empty range within the file.
    Part(Range<u64>),
    /// A range outside of the file.
    Outside,
}

/// Parses `bytes=FIRST-LAST`, `bytes=FIRST-` and `bytes=-COUNT`.
pub(crate) fn requested_range(header: Option<&str>, length: u64) -> RequestedRange {
    let Some((first, last)) =
        header.and_then(|header| header.trim().strip_prefix("bytes=")?.split_once('-'))
    else {
        return RequestedRange::Whole;
    };
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(length),
        (Some(first), None) if last.trim().is_empty() => first..length,
        (None, Some(count)) if first.trim().is_empty() => length.saturating_sub(count)..length,
        _ => return RequestedRange::Whole,
    };
    if range.is_empty() {
        RequestedRange::Outside
    } else {
        RequestedRange::Part(range)
    }
}

/// Numbers that are too large are replaced by the maximum.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_ignored_unless_it_is_a_single_range() {
        let requested_range = |header| requested_range(Some(header), 10);
        assert_eq!(requested_range("bytes=0-0"), RequestedRange::Part(0..1));
        assert_eq!(requested_range("bytes=2-"), RequestedRange::Part(2..10));
        assert_eq!(requested_range("bytes=-3"), RequestedRange::Part(7..10));
        assert_eq!(requested_range("bytes=-30"), RequestedRange::Part(0..10));
        assert_eq!(
            requested_range("bytes=5-99999999999999999999999"),
            RequestedRange::Part(5..10)
        );
        assert_eq!(requested_range("bytes=10-"), RequestedRange::Outside);
        assert_eq!(
            requested_range("bytes=99999999999999999999999-"),
            RequestedRange::Outside
        );
        assert_eq!(requested_range("bytes=-0"), RequestedRange::Outside);
        for whole in [
            "bytes=0-1,3-4",
            "bytes=",
            "bytes=-",
            "bytes=3-2",
            "bytes=+1-2",
            "bytes=a-b",
            "lines=1-2",
            "",
        ] {
            assert_eq!(requested_range(whole), RequestedRange::Whole, "{whole}");
        }
        assert_eq!(
            super::requested_range(Some("bytes=0-"), 0),
            RequestedRange::Outside
        );
        assert_eq!(super::requested_range(None, 10), RequestedRange::Whole);
    }
}
