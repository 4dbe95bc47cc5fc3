//! `llm`: a model writes a summary of what is forgotten.

use super::summarizing::Form;

pub(super) const FORM: Form = Form {
    instructions: include_str!("llm.md"),
    tools: Vec::new,
    read: |response| response.text().to_owned(),
};
