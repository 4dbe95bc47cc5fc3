//! Cookies of browsers.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

use crate::signature::TimedSignatures;

/// Lifetime of a session.
const SESSION_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// Cookie of a browser that has signed in, so that no page holds the key.
pub(crate) const SESSION_COOKIE: &str = "glovebox-session";

/// What the cookie is signed for.
const SESSION: &str = "session";

/// Returns the value of `Set-Cookie` for a new session.
pub(crate) fn start_session(signatures: &TimedSignatures) -> Option<HeaderValue> {
    let (value, lifetime) = (signatures.sign(SESSION, SESSION_LIFETIME), SESSION_LIFETIME.as_secs());
    // Not `SameSite=Strict`, with which a link to the page would lead to the sign-in.
    let cookie = format!("{SESSION_COOKIE}={value}; HttpOnly; SameSite=Lax; Path=/; Max-Age={lifetime}");
    HeaderValue::from_str(&cookie).ok()
}

/// Returns the value of `Set-Cookie` that removes the session.
pub(crate) fn end_session() -> HeaderValue {
    HeaderValue::from_static("glovebox-session=; HttpOnly; SameSite=Lax; Path=/; Max-Age=0")
}

/// Whether the headers have a session that has not ended.
pub(crate) fn has_session(signatures: &TimedSignatures, headers: &HeaderMap) -> bool {
    values(headers, SESSION_COOKIE).any(|value| signatures.is_valid(SESSION, value))
}

/// Returns the values of the cookies with a name. There may be several, because pages of a parent domain can set some too.
pub(crate) fn values<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    pairs(headers).filter(move |(other, _)| *other == name).map(|(_, value)| value)
}

/// Removes cookies by name.
pub(crate) fn remove(headers: &mut HeaderMap, names: &[&str]) {
    let kept: Vec<_> = pairs(headers)
        .filter(|(name, _)| !names.contains(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    headers.remove(header::COOKIE);
    if let Ok(kept) = HeaderValue::from_str(&kept.join("; "))
        && !kept.is_empty()
    {
        headers.insert(header::COOKIE, kept);
    }
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim(), value.trim()))
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
        let cookie = start_session(&signatures).unwrap();
        let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
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
