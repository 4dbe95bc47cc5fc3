//! Host name patterns of OpenSSH: `*`, `?`, and `!` for negation.

use wildmatch::WildMatch;

/// Whether a pattern matches and no negated pattern does.
pub(super) fn list_matches<'a>(patterns: impl IntoIterator<Item = &'a str>, name: &str) -> bool {
    let mut is_matched = false;
    for pattern in patterns {
        let (is_negated, pattern) = match pattern.strip_prefix('!') {
            Some(negated) => (true, negated),
            None => (false, pattern),
        };
        if WildMatch::new_case_insensitive(pattern).matches(name) {
            if is_negated {
                return false;
            }
            is_matched = true;
        }
    }
    is_matched
}

#[cfg(test)]
mod tests {
    use super::list_matches;

    #[test]
    fn patterns_match_as_in_openssh() {
        for (patterns, name, expected) in [
            ("*", "anything", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("Host", "hOST", true),
            ("*.example.org,!bad.example.org", "good.example.org", true),
            ("*.example.org,!bad.example.org", "bad.example.org", false),
            ("!bad", "good", false),
            ("[127.0.0.1]:2222", "[127.0.0.1]:2222", true),
            ("", "", true),
        ] {
            assert_eq!(
                list_matches(patterns.split(','), name),
                expected,
                "{patterns} {name}"
            );
        }
        assert!(!list_matches([&*"*a".repeat(500)], &"a".repeat(499)));
    }
}
