//! Other hosts from which the page may load scripts, styles, fonts and pictures.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

/// The URL of a host, or of a folder at one, as a source of a Content Security Policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSource(Url);

/// A text that is no [`PageSource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a URL such as https://cdn.example.com/, without credentials, query, fragment, spaces, quotes, `;` and `,`"
)]
pub struct InvalidPageSource;

impl FromStr for PageSource {
    type Err = InvalidPageSource;

    fn from_str(text: &str) -> Result<Self, InvalidPageSource> {
        // Some of them would end the source or the directive, and a URL keeps them.
        let is_allowed =
            |character: char| character.is_ascii_graphic() && !";,'\"\\".contains(character);
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        // A URL has more slashes removed.
        let has_host = rest.is_some_and(|rest| !rest.starts_with('/'));
        let url = Url::parse(text).map_err(|_| InvalidPageSource)?;
        let has_more = !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some();
        if has_host && !has_more && text.chars().all(is_allowed) {
            Ok(Self(url))
        } else {
            Err(InvalidPageSource)
        }
    }
}

impl fmt::Display for PageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_a_url_that_cannot_end_its_directive() {
        for (text, source) in [
            ("https://cdn.example.com", "https://cdn.example.com/"),
            ("http://localhost:8080/a/", "http://localhost:8080/a/"),
            ("https://*.example.com", "https://*.example.com/"),
            (
                "https://cdn.example.com/npm/a@1.2/vs/",
                "https://cdn.example.com/npm/a@1.2/vs/",
            ),
        ] {
            assert_eq!(text.parse::<PageSource>().unwrap().to_string(), source);
        }
        for text in [
            "",
            "*",
            "https:",
            "https://",
            "https:///a",
            "https:a",
            "cdn.example.com",
            "'unsafe-eval'",
            "data:",
            "ftp://a",
            "https://a b",
            " https://a",
            "https://a\n",
            "https://a;script-src",
            "https://a/;script-src *",
            "https://a,b",
            "https://a/'b'",
            "https://a/\"",
            "https://me@a/",
            "https://a/?b",
            "https://a/#b",
            "https://\u{e4}",
        ] {
            assert_eq!(text.parse::<PageSource>(), Err(InvalidPageSource), "{text}");
        }
    }
}
