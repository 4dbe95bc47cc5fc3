//! `llm`: replaces forgotten events with a summary by a model.

use super::summarizing::SummaryForm;

pub(super) const SUMMARY_FORM: SummaryForm = SummaryForm {
    instructions: include_str!("llm.md"),
    tools: Vec::new,
    read: |message| message.text.clone(),
};
