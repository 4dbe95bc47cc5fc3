//! The facts that the probe prints. They are untrusted.

use engine::sandbox_tools::{self, CHROMIUM, IPYTHON, SandboxFacts};
use serde_json::{Value, json};

/// Facts: the name in the output of the probe, and the title in the table.
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

/// A fact that is not in the table.
const VSCODE: &str = "vscode";
/// Printed last, so that incomplete output is detected.
const END: &str = "end";

/// Features of Glovebox, and the facts that each requires.
const FEATURES: [(&str, &[&str]); 4] = [
    ("jupyter", &["python", IPYTHON]),
    ("browser", &[CHROMIUM]),
    ("vscode", &[VSCODE]),
    ("git", &["git"]),
];

/// Facts about an image.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ImageFacts(SandboxFacts);

impl ImageFacts {
    /// Parses the output of the probe.
    pub(super) fn parse(text: &str) -> Self {
        Self(sandbox_tools::facts(
            text,
            FACTS.iter().map(|(name, _)| *name).chain([VSCODE, END]),
        ))
    }

    /// Whether the probe ran to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.0.contains_key(END)
    }

    /// Missing facts of each feature.
    fn missing(&self) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
        FEATURES.iter().map(|(part, needs)| {
            (
                *part,
                needs
                    .iter()
                    .copied()
                    .filter(|need| !self.0.contains_key(need))
                    .collect(),
            )
        })
    }

    /// `{"image": …, "facts": {name: text or null}, "parts": {name: {"usable": bool, "missing":
    /// [name]}}}`.
    pub(super) fn to_json(&self, image: &str) -> Value {
        let facts: serde_json::Map<_, _> = FACTS
            .iter()
            .map(|(name, _)| ((*name).to_owned(), json!(self.0.get(name))))
            .collect();
        let parts: serde_json::Map<_, _> = self
            .missing()
            .map(|(part, missing)| {
                (
                    part.to_owned(),
                    json!({"usable": missing.is_empty(), "missing": missing}),
                )
            })
            .collect();
        json!({"image": image, "facts": facts, "parts": parts})
    }

    /// Formats a table, without control characters.
    pub(super) fn to_table(&self, image: &str) -> String {
        let mut table = format!("{image} can be a sandbox.\n\n");
        for (name, title) in FACTS {
            table.push_str(&format!(
                "{title:<22}{}\n",
                self.0.get(name).map_or("none", String::as_str)
            ));
        }
        table.push('\n');
        for (part, missing) in self.missing() {
            let state = if missing.is_empty() {
                "supported".to_owned()
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
    fn missing_facts_are_listed_by_feature() {
        let facts = ImageFacts::parse(
            "glovebox-probe python 3.11.2\nglovebox-probe git git version 2\nglovebox-probe end yes\n",
        );
        assert!(facts.is_complete());
        let parts = &facts.to_json("i")["parts"];
        assert_eq!(
            parts["jupyter"],
            json!({"usable": false, "missing": ["ipython"]})
        );
        assert_eq!(parts["git"], json!({"usable": true, "missing": []}));
        let table = facts.to_table("i");
        assert!(
            table.contains("jupyter               lacks ipython\n"),
            "{table}"
        );
        assert!(table.contains("Chromium              none\n"), "{table}");
    }
}
