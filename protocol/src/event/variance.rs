//! The difference between an event's original JSON and the JSON that this version would write.
//!
//! V0 has many versions: older ones lack fields that newer ones always write, and wrote some that
//! no longer exist. The types hold the current fields only. The differences are kept here, so that
//! an event serializes to the JSON that was read. New events have no variance.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// The difference between an original JSON object and the one that this version would write, by
/// field.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Variance {
    /// Fields that this version writes and the sender did not.
    omitted: BTreeSet<String>,
    /// Fields of the sender that this version does not have, or reads as another value (null as the
    /// default).
    given: BTreeMap<String, Value>,
    /// Objects that differ in some of their fields.
    inside: BTreeMap<String, Variance>,
    /// Lists of objects that differ, by the index of the element.
    elements: BTreeMap<String, BTreeMap<usize, Variance>>,
}

/// A field of derived text, which is never read.
const DERIVED: &str = "message";

impl Variance {
    /// Whether there is no difference.
    pub(super) fn is_none(&self) -> bool {
        let Self {
            omitted,
            given,
            inside,
            elements,
        } = self;
        omitted.is_empty() && given.is_empty() && inside.is_empty() && elements.is_empty()
    }

    /// Compares the JSON of an event that was read, `theirs`, with the JSON that this version would
    /// write, `ours`.
    pub(super) fn between(ours: &Map<String, Value>, theirs: &Map<String, Value>) -> Self {
        let mut variance = Self::between_objects(ours, theirs);
        variance.omitted.remove(DERIVED);
        variance.given.remove(DERIVED);
        variance
    }

    /// Changes an object that this version wrote into the one that was read.
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
            omitted: ours
                .keys()
                .filter(|field| !theirs.contains_key(*field))
                .cloned()
                .collect(),
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
                self.inside
                    .insert(field.to_owned(), Self::between_objects(ours, theirs));
            }
            (Some(Value::Array(ours)), Value::Array(theirs)) if all_objects(ours, theirs) => {
                let differing = ours
                    .iter()
                    .zip(theirs)
                    .enumerate()
                    .filter_map(|(index, pair)| match pair {
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
