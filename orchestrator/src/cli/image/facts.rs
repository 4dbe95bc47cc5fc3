//! What the probe found, read from an image that may say anything.

use engine::sandbox_tools::{self, CHROMIUM, IPYTHON, SandboxFacts};
use serde_json::{Value, json};

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
    (IPYTHON, "IPython"),
    ("node", "Node.js"),
    (CHROMIUM, "Chromium"),
    ("package_manager", "package manager"),
];

/// Facts that only some of our features use.
const VSCODE: &str = "vscode";
/// The last line.
const END: &str = "end";

/// Parts of ours, and what each needs of an image.
const PARTS: [(&str, &[&str]); 4] =
    [("jupyter", &["python", IPYTHON]), ("browser", &[CHROMIUM]), ("vscode", &[VSCODE]), ("git", &["git"])];

/// The facts that were found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ImageFacts(SandboxFacts);

impl ImageFacts {
    /// Reads what the probe said.
    pub(super) fn read(text: &str) -> Self {
        Self(sandbox_tools::facts(text, FACTS.iter().map(|(name, _)| *name).chain([VSCODE, END])))
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
    fn what_is_missing_is_told_by_the_part_that_needs_it() {
        let probed = ImageFacts::read(
            "glovebox-probe python 3.11.2\nglovebox-probe git git version 2\nglovebox-probe end yes\n",
        );
        assert!(probed.is_whole());
        let parts = &probed.to_json("i")["parts"];
        assert_eq!(parts["jupyter"], json!({"usable": false, "missing": ["ipython"]}));
        assert_eq!(parts["git"], json!({"usable": true, "missing": []}));
        let table = probed.to_table("i");
        assert!(table.contains("jupyter               lacks ipython\n"), "{table}");
        assert!(table.contains("Chromium              none\n"), "{table}");
    }
}
