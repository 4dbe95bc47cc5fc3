//! Sessions of browsers: a cookie that is given for the key, so that no page holds the key.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, header};
use ring::hmac::{self, HMAC_SHA256};
use secrecy::{ExposeSecret as _, SecretString};

/// Lifetime of a session.
const SESSION_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// Name of the cookie.
const COOKIE: &str = "glovebox-session";

/// Signs the cookies of sessions with the server's key. A new key ends all sessions.
pub(crate) struct Sessions(hmac::Key);

impl Sessions {
    pub(crate) fn new(key: &SecretString) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, key.expose_secret().as_bytes()))
    }

    /// Returns the value of `Set-Cookie` for a new session.
    pub(crate) fn start(&self) -> Option<HeaderValue> {
        let (end, lifetime) = (seconds_from_now(SESSION_LIFETIME), SESSION_LIFETIME.as_secs());
        let signature = hmac::sign(&self.0, message(end).as_bytes());
        let signature: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        // Not `SameSite=Strict`, with which a link to the page would lead to the sign-in.
        let attributes = format!("HttpOnly; SameSite=Lax; Path=/; Max-Age={lifetime}");
        HeaderValue::from_str(&format!("{COOKIE}={end}.{signature}; {attributes}")).ok()
    }

    /// Returns the value of `Set-Cookie` that removes the cookie.
    pub(crate) fn end() -> HeaderValue {
        HeaderValue::from_static("glovebox-session=; HttpOnly; SameSite=Lax; Path=/; Max-Age=0")
    }

    /// Whether the headers have the cookie of a session that has not ended.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.split_once('='));
        pairs.any(|(name, value)| name.trim() == COOKIE && self.is_valid(value.trim()))
    }

    fn is_valid(&self, value: &str) -> bool {
        let Some((end, signature)) = value.split_once('.') else { return false };
        let (Ok(end), Some(signature)) = (end.parse(), from_hex(signature)) else { return false };
        let is_signed = hmac::verify(&self.0, message(end).as_bytes(), &signature).is_ok();
        is_signed && end > seconds_from_now(Duration::ZERO)
    }
}

/// What is signed. The prefix keeps the signature from being valid elsewhere.
fn message(end: u64) -> String {
    format!("{COOKIE} until {end}")
}

fn seconds_from_now(delay: Duration) -> u64 {
    (SystemTime::now() + delay).duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_str(cookie).unwrap())])
    }

    #[test]
    fn session_is_valid_until_its_end_and_for_its_key() {
        let [sessions, others] =
            ["first key", "second key"].map(|key| Sessions::new(&SecretString::from(key)));
        let cookie = sessions.start().unwrap();
        let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
        assert!(sessions.is_in(&headers(cookie)));
        assert!(sessions.is_in(&headers(&format!("theme=dark; {cookie}"))));
        assert!(!others.is_in(&headers(cookie)));

        let (end, signature) = cookie.split_once('=').unwrap().1.split_once('.').unwrap();
        let later = end.parse::<u64>().unwrap() + 1;
        let past = seconds_from_now(Duration::ZERO) - 1;
        let expired = hmac::sign(&sessions.0, message(past).as_bytes());
        let expired: String = expired.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        for value in [
            format!("{later}.{signature}"),
            format!("{end}.{}", &signature[2..]),
            format!("{end}."),
            format!("{past}.{expired}"),
            String::new(),
            "\u{e4}".to_owned(),
        ] {
            assert!(!sessions.is_in(&headers(&format!("{COOKIE}={value}"))), "{value}");
        }
        assert!(!sessions.is_in(&HeaderMap::new()));
    }
}
