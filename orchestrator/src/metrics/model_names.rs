//! Names of models as labels. Users choose models, so the number of names is not bounded by the configuration.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of names. Each has a histogram.
const MAX_NAMES: usize = 64;

/// Maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 80;

/// The label of further names.
pub(super) const OTHER: &str = "other";

/// The names that have labels of their own.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelNames(Arc<Mutex<BTreeSet<String>>>);

impl ModelNames {
    /// Returns the label of a name: the name itself, or [`OTHER`] after [`MAX_NAMES`] of them.
    pub(super) fn label(&self, name: &str) -> String {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.:/@+".contains(char);
        let to_plain = |char| if is_plain(char) { char } else { '_' };
        let name: String = name.chars().take(MAX_NAME_CHARS).map(to_plain).collect();
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.contains(&name) {
            if names.len() == MAX_NAMES {
                return OTHER.to_owned();
            }
            names.insert(name.clone());
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_names_is_bounded() {
        let names = ModelNames::default();
        assert_eq!(names.label("openai/gpt-5"), "openai/gpt-5");
        assert_eq!(names.label("a\"b\n{c}ä"), "a_b__c__");
        assert_eq!(names.label(&"x".repeat(1000)).len(), MAX_NAME_CHARS);
        let labels: BTreeSet<_> = (0..1000).map(|number| names.label(&number.to_string())).collect();
        assert_eq!(labels.len(), MAX_NAMES - 3 + 1);
        assert!(labels.contains(OTHER));
        assert_eq!(names.label("openai/gpt-5"), "openai/gpt-5");
    }
}
