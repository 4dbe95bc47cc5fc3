//! Cookies of browsers.

use std::time::Duration;

use cookie::{Cookie, CookieBuilder, SameSite};
use http::{HeaderMap, HeaderValue, header};

use crate::signature::TimedSignatures;

/// Lifetime of a session.
const SESSION_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// Cookie of a browser that has signed in, so that no page holds the key.
pub(crate) const SESSION_COOKIE: &str = "glovebox-session";

/// What the cookie is signed for.
const SESSION: &str = "session";

/// Starts a cookie of this host, which scripts cannot read.
pub(crate) fn build(name: &'static str, value: String, lifetime: Duration) -> CookieBuilder<'static> {
    // Not `SameSite=Strict`, with which a link to the page would lead to the sign-in.
    let cookie = Cookie::build((name, value)).http_only(true).same_site(SameSite::Lax).path("/");
    cookie.max_age(lifetime.try_into().unwrap_or_default())
}

/// Returns the cookie of a new session.
pub(crate) fn start_session(signatures: &TimedSignatures) -> Cookie<'static> {
    build(SESSION_COOKIE, signatures.sign(SESSION, SESSION_LIFETIME), SESSION_LIFETIME).build()
}

/// Returns the cookie that removes that of a session.
pub(crate) fn end_session() -> Cookie<'static> {
    build(SESSION_COOKIE, String::new(), Duration::ZERO).build()
}

/// Whether the headers have a session that has not ended.
pub(crate) fn has_session(signatures: &TimedSignatures, headers: &HeaderMap) -> bool {
    named(headers, SESSION_COOKIE).any(|cookie| signatures.is_valid(SESSION, cookie.value()))
}

/// Returns the cookies with a name. There may be several, because pages of a parent domain can set some too.
pub(crate) fn named<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = Cookie<'a>> {
    all(headers).filter(move |cookie| cookie.name() == name)
}

/// Removes cookies by name.
pub(crate) fn remove(headers: &mut HeaderMap, names: &[&str]) {
    let kept = all(headers).filter(|cookie| !names.contains(&cookie.name()));
    let kept = kept.map(|cookie| cookie.to_string()).collect::<Vec<_>>().join("; ");
    headers.remove(header::COOKIE);
    if let Ok(kept) = HeaderValue::from_str(&kept)
        && !kept.is_empty()
    {
        headers.insert(header::COOKIE, kept);
    }
}

fn all(headers: &HeaderMap) -> impl Iterator<Item = Cookie<'_>> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|text| text.to_str().ok());
    texts.flat_map(Cookie::split_parse).filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    fn headers(cookies: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(cookies).unwrap())])
    }

    #[test]
    fn session_is_found_among_other_cookies() {
        let signatures = TimedSignatures::new(&SecretString::from("key"));
        let cookie = start_session(&signatures).stripped().to_string();
        assert!(has_session(
            &signatures,
            &headers(&format!("theme=dark; {SESSION_COOKIE}=forged; {cookie}"))
        ));
        assert!(!has_session(&signatures, &headers(&format!("x{cookie}"))));
        assert!(!has_session(&signatures, &HeaderMap::new()));
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
