//! What the probe found, read from an image that may say anything.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What a line of the probe's begins with.
const MARK: &str = "glovebox-probe ";

/// The longest value, in characters.
const LONGEST_VALUE: usize = 200;

/// The facts, by the probe's name, and for people.
const FACTS: [(&str, &str); 18] = [
    ("shell", "shell"),
    ("shell_version", "shell's version"),
    ("libc", "C library"),
    ("system", "system"),
    ("architecture", "architecture"),
    ("user", "user"),
    ("uid", "user's id"),
    ("home", "home"),
    ("workspace_writable", "workspace writable"),
    ("home_writable", "home writable"),
    ("tmp_writable", "/tmp writable"),
    ("git", "git"),
    ("python", "Python"),
    ("python_interpreter", "Python's interpreter"),
    ("ipykernel", "ipykernel"),
    ("node", "Node.js"),
    ("chromium", "Chromium"),
    ("package_manager", "package manager"),
];

/// Facts that only a part of ours looks at.
const VSCODE: &str = "vscode";
/// The last line.
const END: &str = "end";

/// Parts of ours, and what each needs of an image.
const PARTS: [(&str, &[&str]); 4] = [
    ("jupyter", &["python", "ipykernel"]),
    ("browser", &["chromium"]),
    ("vscode", &[VSCODE]),
    ("git", &["git"]),
];

/// The facts that were found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Probed(BTreeMap<&'static str, String>);

impl Probed {
    /// Reads the probe's lines and passes over all others. The first word on a fact counts.
    pub(super) fn read(text: &str) -> Self {
        let mut facts = BTreeMap::new();
        for line in text.lines() {
            let Some((name, value)) = line.strip_prefix(MARK).and_then(|rest| rest.split_once(' ')) else {
                continue;
            };
            let known = FACTS.iter().map(|(name, _)| *name).chain([VSCODE, END]).find(|known| *known == name);
            let value: String = value
                .trim()
                .chars()
                .filter(|character| !character.is_control())
                .take(LONGEST_VALUE)
                .collect();
            if let (Some(name), false) = (known, value.is_empty()) {
                facts.entry(name).or_insert(value);
            }
        }
        Self(facts)
    }

    /// Whether the probe came to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.0.contains_key(END)
    }

    /// What each part lacks; nothing: it has all that it needs.
    fn missing(&self) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
        PARTS.iter().map(|(part, needs)| {
            (*part, needs.iter().copied().filter(|need| !self.0.contains_key(need)).collect())
        })
    }

    /// `{"image": …, "facts": {name: text or null}, "parts": {name: {"usable": bool, "missing": [name]}}}`.
    pub(super) fn to_json(&self, image: &str) -> Value {
        let facts: serde_json::Map<_, _> =
            FACTS.iter().map(|(name, _)| ((*name).to_owned(), json!(self.0.get(name)))).collect();
        let parts: serde_json::Map<_, _> = self
            .missing()
            .map(|(part, missing)| {
                (part.to_owned(), json!({"usable": missing.is_empty(), "missing": missing}))
            })
            .collect();
        json!({"image": image, "facts": facts, "parts": parts})
    }

    /// The same for people. Bidirectional controls and the like are taken out.
    pub(super) fn to_table(&self, image: &str) -> String {
        let mut table = format!("{image} can be a sandbox.\n\n");
        for (name, title) in FACTS {
            table.push_str(&format!("{title:<22}{}\n", self.0.get(name).map_or("none", String::as_str)));
        }
        table.push('\n');
        for (part, missing) in self.missing() {
            let state = if missing.is_empty() {
                "has all that it needs".to_owned()
            } else {
                format!("lacks {}", missing.join(", "))
            };
            table.push_str(&format!("{part:<22}{state}\n"));
        }
        super::print::for_terminal(&table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_image_says_nothing_that_is_not_asked() {
        let long = "x".repeat(100_000);
        let said = format!(
            "noise\nglovebox-probe shell /bin/sh\nglovebox-probe shell /second\nglovebox-probe wings yes\nglovebox-probe git\n\
             glovebox-probe node \u{1b}[2Jv1\u{7}\nglovebox-probe python {long}\nglovebox-probe libc \n x glovebox-probe uid 0\n"
        );
        let probed = Probed::read(&said);
        assert!(!probed.is_whole());
        assert_eq!(probed.0.keys().copied().collect::<Vec<_>>(), ["node", "python", "shell"]);
        assert_eq!((probed.0["shell"].as_str(), probed.0["node"].as_str()), ("/bin/sh", "[2Jv1"));
        assert_eq!(probed.0["python"].len(), LONGEST_VALUE);
    }

    #[test]
    fn what_is_missing_is_told_by_the_part_that_needs_it() {
        let probed = Probed::read(
            "glovebox-probe python 3.11.2\nglovebox-probe git git version 2\nglovebox-probe end yes\n",
        );
        assert!(probed.is_whole());
        let parts = &probed.to_json("i")["parts"];
        assert_eq!(parts["jupyter"], json!({"usable": false, "missing": ["ipykernel"]}));
        assert_eq!(parts["git"], json!({"usable": true, "missing": []}));
        let table = probed.to_table("i");
        assert!(table.contains("jupyter               lacks ipykernel\n"), "{table}");
        assert!(table.contains("Chromium              none\n"), "{table}");
    }
}
