//! Names of enum variants in columns.

use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StringDeserializer};

/// Returns the variant with this name. `None` if this version does not know it: a newer one has
/// written the row.
pub(crate) fn from_name<T: for<'de> Deserialize<'de>>(name: String) -> Option<T> {
    let name: StringDeserializer<Error> = name.into_deserializer();
    T::deserialize(name).ok()
}
