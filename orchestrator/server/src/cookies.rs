//! Cookies of browsers.

use std::time::Duration;

use accounts::SESSION_LIFETIME;
use cookie::{Cookie, CookieBuilder, SameSite};
use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};

use crate::BasePath;

/// Maximum number of tokens that are tried. Pages of a sibling domain can set further ones.
pub(crate) const MAX_TOKENS: usize = 4;

/// Cookie of a browser that has signed in, so that no page holds the key.
pub(crate) const SESSION_COOKIE: &str = "glovebox-session";

/// The same cookie of an encrypted connection to a server without a base path. Browsers let no page
/// of another host set a cookie with this prefix.
pub(crate) const HOST_SESSION_COOKIE: &str = "__Host-glovebox-session";

/// Starts a cookie of this host, which scripts cannot read.
pub(crate) fn build(
    name: &'static str,
    value: String,
    lifetime: Duration,
) -> CookieBuilder<'static> {
    // Not `SameSite=Strict`, with which a link to the page would lead to the sign-in.
    let cookie = Cookie::build((name, value))
        .http_only(true)
        .same_site(SameSite::Lax)
        .path("/");
    cookie.max_age(lifetime.try_into().unwrap_or_default())
}

/// Returns the cookie of a session with this token. A client with an encrypted connection sends it
/// on such only.
pub(crate) fn start_session(
    token: &SecretString,
    is_tls: bool,
    base: &BasePath,
) -> Cookie<'static> {
    build_session(
        token.expose_secret().to_owned(),
        SESSION_LIFETIME,
        is_tls,
        base,
    )
}

/// Returns the cookie that removes that of a session.
pub(crate) fn end_session(is_tls: bool, base: &BasePath) -> Cookie<'static> {
    build_session(String::new(), Duration::ZERO, is_tls, base)
}

fn build_session(
    value: String,
    lifetime: Duration,
    is_tls: bool,
    base: &BasePath,
) -> Cookie<'static> {
    let cookie = build(session_name(is_tls, base), value, lifetime).path(base.path().to_owned());
    if is_tls {
        cookie.secure(true).build()
    } else {
        cookie.build()
    }
}

/// The prefix is valid for secure cookies of all paths only.
fn session_name(is_tls: bool, base: &BasePath) -> &'static str {
    if is_tls && base.path() == "/" {
        HOST_SESSION_COOKIE
    } else {
        SESSION_COOKIE
    }
}

/// Returns the tokens of sessions in the headers, of which a browser has one: [`MAX_TOKENS`] and
/// one more at most.
pub(crate) fn session_tokens(headers: &HeaderMap, is_tls: bool, base: &BasePath) -> Vec<String> {
    let cookies = named(headers, session_name(is_tls, base));
    cookies
        .map(|cookie| cookie.value().to_owned())
        .take(MAX_TOKENS + 1)
        .collect()
}

/// Returns the cookies with a name. There may be several, because pages of a sibling domain can set
/// some too.
pub(crate) fn named<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = Cookie<'a>> {
    all(headers).filter(move |cookie| cookie.name() == name)
}

/// Removes cookies by name.
pub(crate) fn remove(headers: &mut HeaderMap, names: &[&str]) {
    let kept = all(headers).filter(|cookie| !names.contains(&cookie.name()));
    let kept = kept
        .map(|cookie| cookie.to_string())
        .collect::<Vec<_>>()
        .join("; ");
    headers.remove(header::COOKIE);
    if let Ok(kept) = HeaderValue::from_str(&kept)
        && !kept.is_empty()
    {
        headers.insert(header::COOKIE, kept);
    }
}

fn all(headers: &HeaderMap) -> impl Iterator<Item = Cookie<'_>> {
    let texts = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|text| text.to_str().ok());
    texts.flat_map(Cookie::split_parse).filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookies: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(cookies).unwrap())])
    }

    #[test]
    fn token_of_a_session_is_found_among_other_cookies() {
        let base = BasePath::default();
        let cookie = start_session(&SecretString::from("token"), false, &base)
            .stripped()
            .to_string();
        let tokens = |text: &str| session_tokens(&headers(text), false, &base);
        assert_eq!(
            tokens(&format!("theme=dark; {SESSION_COOKIE}=other; {cookie}")),
            ["other", "token"]
        );
        assert_eq!(tokens(&format!("x{cookie}")), [""; 0]);
        assert_eq!(
            tokens(&format!("{cookie}; ").repeat(9)).len(),
            MAX_TOKENS + 1
        );
    }

    #[test]
    fn encrypted_session_is_of_this_host_alone() {
        let (root, below) = (BasePath::default(), "/glovebox".parse().unwrap());
        for (is_tls, base, name) in [
            (true, &root, HOST_SESSION_COOKIE),
            (true, &below, SESSION_COOKIE),
            (false, &root, SESSION_COOKIE),
            (false, &below, SESSION_COOKIE),
        ] {
            let started = start_session(&SecretString::from("token"), is_tls, base);
            // Browsers reject a cookie with the prefix that lacks an attribute, also to remove one.
            for cookie in [&started, &end_session(is_tls, base)] {
                let expected = (name, Some(base.path()), None, is_tls.then_some(true));
                assert_eq!(
                    (
                        cookie.name(),
                        cookie.path(),
                        cookie.domain(),
                        cookie.secure()
                    ),
                    expected
                );
            }
            let both = headers(&format!(
                "{SESSION_COOKIE}=set; {HOST_SESSION_COOKIE}=set; {started}"
            ));
            assert_eq!(session_tokens(&both, is_tls, base), ["set", "token"]);
        }
    }

    #[test]
    fn only_named_cookies_are_removed() {
        let mut cookies = headers("a=1; b=2=3;c=4");
        remove(&mut cookies, &["a", "c"]);
        assert_eq!(cookies, headers("b=2=3"));
        remove(&mut cookies, &["b"]);
        assert_eq!(cookies, HeaderMap::new());
    }
}
