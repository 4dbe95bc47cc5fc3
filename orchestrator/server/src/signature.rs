//! Signatures that are valid for a time: of the cookies of browsers, and of links to ports.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::hmac::{self, HMAC_SHA256};
use secrecy::{ExposeSecret as _, SecretString};

/// Signs with the server's key. A new key ends all signatures.
pub(crate) struct TimedSignatures(hmac::Key);

impl TimedSignatures {
    pub(crate) fn new(key: &SecretString) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, key.expose_secret().as_bytes()))
    }

    /// Returns a signature that is valid for a purpose and for this time.
    pub(crate) fn sign(&self, purpose: &str, lifetime: Duration) -> String {
        self.sign_until(purpose, seconds_from_now(lifetime))
    }

    /// Returns a signature that is the same during a period, and valid until the end of the next
    /// one.
    pub(crate) fn sign_for_period(&self, purpose: &str, period: Duration) -> String {
        let seconds = period.as_secs().max(1);
        self.sign_until(
            purpose,
            (seconds_from_now(Duration::ZERO) / seconds + 2) * seconds,
        )
    }

    fn sign_until(&self, purpose: &str, end: u64) -> String {
        let signature = hmac::sign(&self.0, message(purpose, end).as_bytes());
        format!("{end}.{}", hex::encode(signature.as_ref()))
    }

    /// Whether a signature is valid for a purpose, and now.
    pub(crate) fn is_valid(&self, purpose: &str, signature: &str) -> bool {
        self.was_valid(purpose, signature, Duration::ZERO)
    }

    /// Whether a signature is valid for a purpose, or was within this time.
    pub(crate) fn was_valid(&self, purpose: &str, signature: &str, within: Duration) -> bool {
        let Some((end, signature)) = signature.split_once('.') else {
            return false;
        };
        let (Ok(end), Ok(signature)) = (end.parse(), hex::decode(signature)) else {
            return false;
        };
        let is_signed = hmac::verify(&self.0, message(purpose, end).as_bytes(), &signature).is_ok();
        is_signed && end.saturating_add(within.as_secs()) > seconds_from_now(Duration::ZERO)
    }
}

fn message(purpose: &str, end: u64) -> String {
    format!("glovebox {purpose} until {end}")
}

fn seconds_from_now(delay: Duration) -> u64 {
    (SystemTime::now() + delay)
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_valid_for_its_key_purpose_and_time() {
        let [own, other] =
            ["first key", "second key"].map(|key| TimedSignatures::new(&SecretString::from(key)));
        let valid = own.sign("session", Duration::from_mins(1));
        assert!(own.is_valid("session", &valid));
        assert!(!own.is_valid("port", &valid));
        assert!(!other.is_valid("session", &valid));
        let expired = own.sign("session", Duration::ZERO);
        assert!(own.was_valid("session", &expired, Duration::from_mins(1)));
        let (end, signature) = valid.split_once('.').unwrap();
        let later = end.parse::<u64>().unwrap() + 1;
        for wrong in [
            expired,
            format!("{later}.{signature}"),
            format!("{end}.{}", &signature[2..]),
            format!("{end}."),
            String::new(),
            "\u{e4}.\u{e4}".to_owned(),
        ] {
            assert!(!own.is_valid("session", &wrong), "{wrong}");
        }
    }
}
