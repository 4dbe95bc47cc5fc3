//! Rules on paths hold for every expansion of a word.

use super::*;

#[test]
fn path_is_not_low_when_its_expansion_may_climb() {
    for (command, risk) in [
        ("cat /tmp/{..,.}/etc/shadow", Unknown),
        ("x=../etc/shadow; cat /tmp/$x", Unknown),
        ("x=../etc/shadow; cat \"/tmp/$x\"", Unknown),
        ("x='a /etc/shadow'; cat /tmp/$x", Unknown),
        ("cat /tmp/$(echo ../etc/shadow)", Unknown),
        ("echo x | tee /tmp/{..,.}/etc/zz", Unknown),
        ("echo x > /tmp/$x", Unknown),
        ("cat --file=/tmp/$x", Unknown),
        ("cat /tmp/*/../../etc/shadow", Unknown),
        ("cat /tmp/*/'.'\\./../etc/shadow", Unknown),
        ("cat /tmp/.*/etc/shadow", Unknown),
        ("cat /tmp/.?/etc/shadow", Unknown),
        ("cat /tmp/.[.]/etc/shadow", Unknown),
        ("cat /tmp/{.,x}{.,y}/etc/shadow", Unknown),
        ("cat /tmp/x{/..,}/../etc/shadow", Unknown),
        ("cat ~/../etc/shadow", Unknown),
        ("dd if=~root/.ssh/x of=/dev/null", Unknown),
        ("dd i''f=~root/.ssh/x x:=~root/.ssh/x", Low),
        ("cat < a=~root/.ssh/x", Unknown),
        ("dd if=~/.ssh/x of=/dev/null", High),
        ("find ../etc/shadow -exec cat /tmp/{}'' \\;", Unknown),
        ("ls | xargs -I{} cat /tmp/{,\"{}\"}", Unknown),
        ("cat /tmp/../etc/shadow", High),
        ("cat /tmp/x/.././../etc//shadow", High),
        ("cat /etc/sha*", Unknown),
        ("ls /tmp/* /tmp/*.txt /tmp/[a-c]?/*.tar.gz", Low),
        ("mkdir -p /tmp/{a,b}/{1..3}; cat /tmp/x/../y", Low),
        ("cat src/*.rs src/{lib,main}.rs ./*/x *.rs", Unknown),
        ("cat src/*.rs src/{lib,main}.rs", Low),
        ("cd src && make; cargo test; git diff", Low),
    ] {
        assert_eq!(risk_of(ABSOLUTE_PATHS, command), risk, "{command:?}");
    }
    let page = BrowseAction {
        url: "file:///tmp/%2e%2e/etc/shadow".into(),
        ..Default::default()
    };
    let rules = SecurityRules::from_toml(ABSOLUTE_PATHS).unwrap();
    assert_ne!(rules.assess_action(&page.into()).risk, Low);
}

/// Parts of a word that may become the path of a secret.
const PATH_FRAGMENTS: [&str; 36] = [
    "*",
    "*",
    "?",
    ".*",
    ".?",
    "[.]",
    "[a-z]",
    ".",
    ".",
    "..",
    "..",
    "'.'",
    "\\.",
    "{..,.}",
    "{.,x}",
    "{/..,}",
    "{,a}",
    "{..",
    ",",
    "}",
    "/",
    "/",
    "/../",
    "a",
    ".h",
    "secret",
    "secret/key",
    "$x",
    "\"$x\"",
    "~",
    "~+",
    "~+/../secret",
    "=~+/../secret",
    ":~+/../secret",
    "=",
    ":",
];

/// Generates a value of `x`, and a word that may start with `@/`, the folder of the test.
fn path_words() -> impl Strategy<Value = (&'static str, String)> {
    let values = vec!["..", "../secret", "a", "*", "a @/secret/key", "."];
    let starts = vec![
        "@/base/",
        "@/base/a/",
        "of=@/base/",
        "@/base/*/",
        "@/base/.",
        "of=",
        "\"of\"=",
    ];
    let rest = prop::collection::vec(prop::sample::select(&PATH_FRAGMENTS[..]), 1..=5);
    (
        prop::sample::select(values),
        prop::sample::select(starts),
        rest,
    )
        .prop_map(|(value, start, rest)| (value, format!("{start}{}", rest.concat())))
}

/// A folder with a secret, and the rules for it.
struct SecretFolder {
    folder: tempfile::TempDir,
    rules: SecurityRules,
}

impl SecretFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for path in ["secret", "base/a/.h", "base/.h"] {
            std::fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        std::fs::write(folder.path().join("secret/key"), "").unwrap();
        let rules = format!(
            "otherwise = 'low'\n[[rule]]\nrisk = 'high'\nreason = 'secret'\nreads = ['{}/secret/**']\n",
            folder.path().display()
        );
        let rules = SecurityRules::from_toml(&rules).unwrap();
        Self { folder, rules }
    }

    /// Writes the folder for `@`.
    fn fill(&self, text: &str) -> String {
        text.replace('@', self.folder.path().to_str().unwrap())
    }

    /// Whether the words that a shell expands to contain a path of the secret.
    fn expands_to_secret(&self, shell: &[&str], value: &str, word: &str) -> bool {
        let secret = self.folder.path().join("secret");
        let output = std::process::Command::new(shell[0])
            .args(&shell[1..])
            .arg("-c")
            .arg(format!("x='{value}'; printf '%s\\n' {word}"))
            .env_clear()
            .env("HOME", &secret)
            .current_dir(self.folder.path().join("base"))
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stdout);
        words.lines().any(|word| {
            let path = word.split_once('=').map_or(word, |(_, path)| path);
            lexical_path(path).starts_with(&secret)
        })
    }
}

/// Resolves `..` without links.
fn lexical_path(path: &str) -> std::path::PathBuf {
    let mut found = std::path::PathBuf::new();
    for part in std::path::Path::new(path).components() {
        match part {
            std::path::Component::ParentDir => drop(found.pop()),
            part => found.push(part),
        }
    }
    found
}

/// The shells that expand words. Some find `..` with `.*`.
const EXPANDING_SHELLS: [&[&str]; 3] = [
    &["/bin/bash", "--norc"],
    &["/bin/bash", "--norc", "+O", "globskipdots", "-O", "dotglob"],
    &["/bin/sh"],
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    /// If a shell expands a word to the path of a secret, the command must not be low.
    #[test]
    fn no_path_is_low_when_a_shell_expands_it_to_a_secret((value, word) in path_words()) {
        static SECRET: LazyLock<SecretFolder> = LazyLock::new(SecretFolder::new);
        let (value, word) = (SECRET.fill(value), SECRET.fill(&word));
        // The home of the test is the secret, but the policy knows `~/` only as a home.
        let may_expand = !word.contains("~/") && !word.ends_with('~');
        let run = RunAction { command: format!("x='{value}'; cat {word}"), ..Default::default() };
        if may_expand && SECRET.rules.assess_action(&run.into()).risk == Low {
            for shell in EXPANDING_SHELLS {
                prop_assert!(!SECRET.expands_to_secret(shell, &value, &word), "{value} {word}");
            }
        }
    }
}

#[test]
fn shells_expand_words_that_the_property_looks_for() {
    let secret = SecretFolder::new();
    for (value, word) in [
        ("", "@/base/{..,.}/secret/key"),
        ("../secret", "@/base/$x"),
        ("a @/secret/key", "@/base/$x"),
        ("", "@/base/*/../../secret"),
        ("", "@/base/.*/secret"),
        ("", "@/base/.?/secret"),
        ("", "of=@/base/*/.\"./\"../secret"),
        ("", "of=~+/../secret/key"),
        ("", "of+=~+/../secret/key"),
    ] {
        let (value, word) = (secret.fill(value), secret.fill(word));
        let mut shells = EXPANDING_SHELLS.iter();
        assert!(
            shells.any(|shell| secret.expands_to_secret(shell, &value, &word)),
            "{word}"
        );
        let run = RunAction {
            command: format!("x='{value}'; cat {word}"),
            ..Default::default()
        };
        assert_ne!(secret.rules.assess_action(&run.into()).risk, Low, "{word}");
    }
}
