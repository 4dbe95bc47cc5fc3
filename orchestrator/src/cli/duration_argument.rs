//! Durations on the command line.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Parses a duration such as `30d` or `1w 12h`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let span: Span = text
        .parse()
        .map_err(|_| "expected a time such as 30s, 12h, 30d or 8w".to_owned())?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours());
    let duration =
        duration.map_err(|_| "expected weeks, days, hours, minutes or seconds".to_owned())?;
    duration
        .try_into()
        .map_err(|_| "expected a time that is not negative".to_owned())
}

/// Parses a duration of at least a second.
pub(super) fn parse_positive(text: &str) -> Result<Duration, String> {
    let duration = parse(text)?;
    if duration < Duration::from_secs(1) {
        Err("expected a time from 1s".to_owned())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_parsed_with_its_unit() {
        for (text, expected) in [
            ("30d", 2_592_000),
            ("12h", 43_200),
            ("8w", 4_838_400),
            ("1d 1s", 86_401),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        for text in ["", "30", "d", "1y", "2mo", "-1d", "soon"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("0s").is_ok() && parse_positive("1s").is_ok());
        assert!(parse_positive("0s").is_err() && parse_positive("999ms").is_err());
    }
}
