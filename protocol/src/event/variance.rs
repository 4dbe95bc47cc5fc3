//! How an event's JSON differs from the one we would write.
//!
//! V0 has many versions: older ones lack fields that newer ones always write, and wrote some that are gone. The types
//! hold today's fields only; what the sender's version wrote otherwise is remembered here, so that the event is
//! written again as it came. Events that we make have no variance.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// The difference of one JSON object from the one we would write, by field.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Variance {
    /// Fields that we write and the sender did not.
    omitted: BTreeSet<String>,
    /// Fields of the sender's that we do not have, or whose value we read as another (a null as its default).
    given: BTreeMap<String, Value>,
    /// Objects that differ inside.
    inside: BTreeMap<String, Variance>,
    /// Lists whose elements differ inside: by index.
    elements: BTreeMap<String, BTreeMap<usize, Variance>>,
}

/// Derived text, never read.
const DERIVED: &str = "message";

impl Variance {
    /// Whether there is no difference.
    pub(super) fn is_none(&self) -> bool {
        let Self { omitted, given, inside, elements } = self;
        omitted.is_empty() && given.is_empty() && inside.is_empty() && elements.is_empty()
    }

    /// What of an event `theirs` is unlike `ours`.
    pub(super) fn between(ours: &Map<String, Value>, theirs: &Map<String, Value>) -> Self {
        let mut variance = Self::between_objects(ours, theirs);
        variance.omitted.remove(DERIVED);
        variance.given.remove(DERIVED);
        variance
    }

    /// Turns an object as we write it into the one that was read.
    pub(super) fn restore(&self, object: &mut Map<String, Value>) {
        object.retain(|field, _| !self.omitted.contains(field));
        for (field, value) in &self.given {
            object.insert(field.clone(), value.clone());
        }
        for (field, variance) in &self.inside {
            if let Some(Value::Object(inner)) = object.get_mut(field) {
                variance.restore(inner);
            }
        }
        for (field, variances) in &self.elements {
            if let Some(Value::Array(elements)) = object.get_mut(field) {
                for (index, variance) in variances {
                    if let Some(Value::Object(element)) = elements.get_mut(*index) {
                        variance.restore(element);
                    }
                }
            }
        }
    }

    fn between_objects(ours: &Map<String, Value>, theirs: &Map<String, Value>) -> Self {
        let mut variance = Self {
            omitted: ours.keys().filter(|field| !theirs.contains_key(*field)).cloned().collect(),
            ..Self::default()
        };
        for (field, their_value) in theirs {
            variance.compare_field(field, ours.get(field), their_value);
        }
        variance
    }

    fn compare_field(&mut self, field: &str, ours: Option<&Value>, theirs: &Value) {
        match (ours, theirs) {
            (Some(ours), theirs) if ours == theirs => {}
            (Some(Value::Object(ours)), Value::Object(theirs)) => {
                self.inside.insert(field.to_owned(), Self::between_objects(ours, theirs));
            }
            (Some(Value::Array(ours)), Value::Array(theirs)) if all_objects(ours, theirs) => {
                let differing = ours.iter().zip(theirs).enumerate().filter_map(|(index, pair)| match pair {
                    (Value::Object(ours), Value::Object(theirs)) if ours != theirs => {
                        Some((index, Self::between_objects(ours, theirs)))
                    }
                    _ => None,
                });
                self.elements.insert(field.to_owned(), differing.collect());
            }
            (_, theirs) => {
                self.given.insert(field.to_owned(), theirs.clone());
            }
        }
    }
}

fn all_objects(ours: &[Value], theirs: &[Value]) -> bool {
    ours.len() == theirs.len() && ours.iter().chain(theirs).all(Value::is_object)
}
