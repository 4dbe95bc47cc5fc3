//! Host name patterns of OpenSSH: `*`, `?`, and `!` for negation.

/// Whether a pattern matches and no negated pattern does.
pub(super) fn list_matches<'a>(patterns: impl IntoIterator<Item = &'a str>, name: &str) -> bool {
    let name = name.to_lowercase();
    let mut is_matched = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(negated) if matches(negated, &name) => return false,
            Some(_) => {}
            None => is_matched |= matches(pattern, &name),
        }
    }
    is_matched
}

/// Whether the pattern matches the whole name. Runs in `O(pattern × name)`, without backtracking.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.to_lowercase().chars().collect();
    // `reached[n]`: the first `n` characters of the pattern match the part of the name that was
    // read.
    let mut reached = vec![false; pattern.len() + 1];
    let skip_stars = |reached: &mut Vec<bool>| {
        for (index, letter) in pattern.iter().enumerate() {
            if *letter == '*'
                && reached.get(index) == Some(&true)
                && let Some(next) = reached.get_mut(index + 1)
            {
                *next = true;
            }
        }
    };
    if let Some(start) = reached.first_mut() {
        *start = true;
    }
    skip_stars(&mut reached);
    for letter in name.chars() {
        let mut next = vec![false; pattern.len() + 1];
        for (index, expected) in pattern
            .iter()
            .enumerate()
            .filter(|(index, _)| reached.get(*index) == Some(&true))
        {
            let target = match expected {
                '*' => index,
                '?' => index + 1,
                expected if *expected == letter => index + 1,
                _ => continue,
            };
            if let Some(reached) = next.get_mut(target) {
                *reached = true;
            }
        }
        reached = next;
        skip_stars(&mut reached);
    }
    reached.last() == Some(&true)
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
