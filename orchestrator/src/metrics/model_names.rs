//! Names of models as labels. Users choose models, so most names are not the operator's, and any
//! text could be one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of names besides those of the configuration. Each has a histogram.
const MAX_NAMES: usize = 64;

/// Maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 80;

/// The label of further names.
pub(super) const OTHER: &str = "other";

/// The names that have labels of their own: those of the configuration, and the first of the price
/// table.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelNames {
    configured: Arc<BTreeSet<String>>,
    /// Of the price table. A blocking mutex, because it is never held across an await.
    listed: Arc<Mutex<BTreeSet<String>>>,
}

impl ModelNames {
    /// Creates the names of a configuration.
    pub(super) fn new(configured: impl IntoIterator<Item = String>) -> Self {
        Self {
            configured: Arc::new(configured.into_iter().collect()),
            listed: Arc::default(),
        }
    }

    /// Returns the label of a name: the name itself, or [`OTHER`] if it is neither of the
    /// configuration nor one of the first [`MAX_NAMES`] of the price table.
    pub(super) fn label(&self, name: &str) -> String {
        if self.configured.contains(name) {
            return to_label(name);
        }
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if !listed.contains(name) {
            if listed.len() == MAX_NAMES || !llm::is_listed_model(name) {
                return OTHER.to_owned();
            }
            listed.insert(name.to_owned());
        }
        to_label(name)
    }
}

fn to_label(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.:/@+".contains(char);
    let to_plain = |char| if is_plain(char) { char } else { '_' };
    name.chars().take(MAX_NAME_CHARS).map(to_plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_models_have_labels() {
        let long = "x".repeat(1000);
        let names = ModelNames::new([
            "own/model".to_owned(),
            "a\"b\n{c}ä".to_owned(),
            long.clone(),
        ]);
        // What users make up takes no label from others.
        for number in 0..1000 {
            assert_eq!(names.label(&format!("openai/gpt-4o-{number}")), OTHER);
        }
        assert_eq!(names.label("own/model"), "own/model");
        assert_eq!(names.label("a\"b\n{c}ä"), "a_b__c__");
        assert_eq!(names.label(&long).len(), MAX_NAME_CHARS);
        for listed in ["openai/gpt-4o", "gpt-4o"] {
            assert_eq!(names.label(listed), listed);
        }
        assert_eq!(names.label("anthropic/gpt-4o"), OTHER);
    }
}
