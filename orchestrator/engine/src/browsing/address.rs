//! Where a browser may be sent.

/// The longest address, in bytes: Chromium's own bound is 2 MiB, people's is far below.
const LONGEST: usize = 8 << 10;

/// Schemes that a page can be opened by. Not `javascript:`, which is no page, and not the browser's own settings.
const SCHEMES: [&str; 6] = ["http", "https", "file", "data", "about", "blob"];

/// Why something is not the address of a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// There is none.
    #[error("the address is empty")]
    Empty,
    /// It is longer than an address can be.
    #[error("the address is longer than {LONGEST} bytes")]
    Long,
    /// Its scheme opens no page.
    #[error("{0}: opens no page; use http, https, file, data or about")]
    Scheme(String),
}

/// An address as a browser reads it: `localhost:8000` becomes `http://localhost:8000`, and what has several spellings
/// (`http:\\host`, `file:/path`) the plain one, so that who judges it sees what the browser opens.
///
/// # Errors
/// See [`InvalidAddress`].
pub fn address(text: &str) -> Result<String, InvalidAddress> {
    if text.len() > LONGEST {
        return Err(InvalidAddress::Long);
    }
    let text = text.trim().replace(['\t', '\r', '\n'], "");
    if text.is_empty() {
        return Err(InvalidAddress::Empty);
    }
    let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return Ok(plain("http", &text));
    };
    let scheme = scheme.to_ascii_lowercase();
    // `localhost:8000` has a port, not a scheme.
    let is_port =
        rest.starts_with(|first: char| first.is_ascii_digit()) && !SCHEMES.contains(&scheme.as_str());
    match SCHEMES.contains(&scheme.as_str()) {
        true => Ok(plain(&scheme, rest)),
        false if is_port => Ok(plain("http", &text)),
        false => Err(InvalidAddress::Scheme(scheme)),
    }
}

/// The plain spelling of what follows a scheme.
fn plain(scheme: &str, rest: &str) -> String {
    let (place, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let place = place.replace('\\', "/");
    match scheme {
        "http" | "https" => format!("{scheme}://{}{query}", place.trim_start_matches('/')),
        "file" => {
            let (host, path) = match place.strip_prefix("//") {
                Some(named) => named.split_at(named.find('/').unwrap_or(named.len())),
                None => ("", place.as_str()),
            };
            let host = if host.eq_ignore_ascii_case("localhost") { "" } else { host };
            format!("file://{host}/{}{query}", path.trim_start_matches('/'))
        }
        _ => format!("{scheme}:{rest}"),
    }
}

fn is_scheme(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'))
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
        for (spelling, address_of_it) in spellings {
            assert_eq!(address(spelling).as_deref(), Ok(address_of_it), "{spelling}");
        }
        assert_eq!(address("java\tscript:a"), Err(InvalidAddress::Scheme("javascript".into())));
        assert_eq!(address(" \n"), Err(InvalidAddress::Empty));
    }
}
