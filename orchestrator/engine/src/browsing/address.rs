//! Normalizes the addresses that a browser may open.

/// Maximum length of an address, in bytes. Chromium's limit is 2 MiB; real addresses are far
/// shorter.
const MAX_ADDRESS_BYTES: usize = 8 << 10;

/// The schemes of pages. Excludes `javascript:`, which is no page, and the browser's own settings.
const SCHEMES: [&str; 6] = ["http", "https", "file", "data", "about", "blob"];

/// The error of an invalid address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// The address is empty.
    #[error("the address is empty")]
    Empty,
    /// The address exceeds its maximum length.
    #[error("the address is longer than {MAX_ADDRESS_BYTES} bytes")]
    TooLong,
    /// The scheme does not open a page.
    #[error("{0}: is not a page; use http, https, file, data or about")]
    Scheme(String),
}

/// Normalizes an address as a browser does: `localhost:8000` becomes `http://localhost:8000`, and
/// variants such as `http:\\host` and `file:/path` the standard form, so that an analyzer sees what
/// the browser opens.
///
/// # Errors
/// See [`InvalidAddress`].
pub fn normalize_address(text: &str) -> Result<String, InvalidAddress> {
    if text.len() > MAX_ADDRESS_BYTES {
        return Err(InvalidAddress::TooLong);
    }
    let text = text.trim().replace(['\t', '\r', '\n'], "");
    if text.is_empty() {
        return Err(InvalidAddress::Empty);
    }
    let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return Ok(normalize("http", &text));
    };
    let scheme = scheme.to_ascii_lowercase();
    // `localhost:8000` has a port, not a scheme.
    let is_port = rest.starts_with(|first: char| first.is_ascii_digit());
    if SCHEMES.contains(&scheme.as_str()) {
        Ok(normalize(&scheme, rest))
    } else if is_port {
        Ok(normalize("http", &text))
    } else {
        Err(InvalidAddress::Scheme(scheme))
    }
}

/// Normalizes an address that is split after its scheme.
fn normalize(scheme: &str, rest: &str) -> String {
    let (location, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let location = location.replace('\\', "/");
    match scheme {
        "http" | "https" => format!("{scheme}://{}{query}", location.trim_start_matches('/')),
        "file" => {
            let (host, path) = match location.strip_prefix("//") {
                Some(named) => named.split_at(named.find('/').unwrap_or(named.len())),
                None => ("", location.as_str()),
            };
            let host = if host.eq_ignore_ascii_case("localhost") {
                ""
            } else {
                host
            };
            format!("file://{host}/{}{query}", path.trim_start_matches('/'))
        }
        _ => format!("{scheme}:{rest}"),
    }
}

fn is_scheme(text: &str) -> bool {
    let mut characters = text.chars();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && characters.all(|character| {
            character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_address_is_normalized() {
        let spellings = [
            (" host:80/a ", "http://host:80/a"),
            ("//host/a", "http://host/a"),
            ("http:host\\a?b\\c", "http://host/a?b\\c"),
            ("hTTp:/host", "http://host"),
            ("https:\\\\ho\tst/", "https://host/"),
            ("file:/a", "file:///a"),
            ("file:a", "file:///a"),
            ("file:////a", "file:///a"),
            ("file:\\\\\\a\\b", "file:///a/b"),
            ("file://LocalHost/a\nb", "file:///ab"),
            ("file://host/a", "file://host/a"),
            ("data:text/html,a\\b//c", "data:text/html,a\\b//c"),
        ];
        for (spelling, normalized) in spellings {
            assert_eq!(
                normalize_address(spelling).as_deref(),
                Ok(normalized),
                "{spelling}"
            );
        }
        assert_eq!(
            normalize_address("java\tscript:a"),
            Err(InvalidAddress::Scheme("javascript".into()))
        );
        assert_eq!(normalize_address(" \n"), Err(InvalidAddress::Empty));
    }
}
