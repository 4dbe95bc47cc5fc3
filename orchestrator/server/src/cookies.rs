//! Cookies of browsers.

use std::time::Duration;

use accounts::SESSION_LIFETIME;
use cookie::{Cookie, CookieBuilder, SameSite};
use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};

use crate::BasePath;
use crate::client_address::Client;

/// Maximum number of tokens that are tried. Pages of a parent domain can set further ones.
const MAX_TOKENS: usize = 4;

/// Cookie of a browser that has signed in, so that no page holds the key.
pub(crate) const SESSION_COOKIE: &str = "glovebox-session";

/// Starts a cookie of this host, which scripts cannot read.
pub(crate) fn build(name: &'static str, value: String, lifetime: Duration) -> CookieBuilder<'static> {
    // Not `SameSite=Strict`, with which a link to the page would lead to the sign-in.
    let cookie = Cookie::build((name, value)).http_only(true).same_site(SameSite::Lax).path("/");
    cookie.max_age(lifetime.try_into().unwrap_or_default())
}

/// Returns the cookie of a session with this token. A client with an encrypted connection sends it on such only.
pub(crate) fn start_session(token: &SecretString, client: Client, base: &BasePath) -> Cookie<'static> {
    let cookie = build_session(token.expose_secret().to_owned(), SESSION_LIFETIME, base);
    if client.is_tls { cookie.secure(true).build() } else { cookie.build() }
}

/// Returns the cookie that removes that of a session.
pub(crate) fn end_session(base: &BasePath) -> Cookie<'static> {
    build_session(String::new(), Duration::ZERO, base).build()
}

fn build_session(value: String, lifetime: Duration, base: &BasePath) -> CookieBuilder<'static> {
    build(SESSION_COOKIE, value, lifetime).path(base.path().to_owned())
}

/// Returns the tokens of sessions in the headers, of which a browser has one.
pub(crate) fn session_tokens(headers: &HeaderMap) -> impl Iterator<Item = String> {
    named(headers, SESSION_COOKIE).map(|cookie| cookie.value().to_owned()).take(MAX_TOKENS)
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
    use super::*;

    fn headers(cookies: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(cookies).unwrap())])
    }

    #[test]
    fn token_of_a_session_is_found_among_other_cookies() {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let [plain, encrypted] = [false, true].map(|is_tls| {
            start_session(&SecretString::from("token"), Client { address, is_tls }, &BasePath::default())
        });
        assert_eq!((plain.secure(), encrypted.secure()), (None, Some(true)));
        let cookie = plain.stripped().to_string();
        let tokens = |text: &str| session_tokens(&headers(text)).collect::<Vec<_>>();
        assert_eq!(tokens(&format!("theme=dark; {SESSION_COOKIE}=other; {cookie}")), ["other", "token"]);
        assert_eq!(tokens(&format!("x{cookie}")), [""; 0]);
        assert_eq!(tokens(&format!("{cookie}; ").repeat(9)).len(), MAX_TOKENS);
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
