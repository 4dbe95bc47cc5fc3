//! One table per family of events: the wire name of each kind, and the type that holds its fields.

/// Serializes the fields of a kind, without its name.
pub(crate) struct Fields<'a, K>(pub(crate) &'a K);

/// Declares an enum of event kinds. Each variant holds a struct that (de)serializes as the kind's
/// `args` or `extras`.
macro_rules! kinds {
    (
        $(#[$meta:meta])*
        pub enum $name:ident, wire key $key:literal, fields under $under:literal {
            $($(#[$variant_meta:meta])* $kind:literal => $variant:ident($payload:ty),)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $($(#[$variant_meta])* $variant($payload),)*
        }

        impl $name {
            /// The wire names of all kinds.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// Returns the wire name of this kind.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                }
            }

            /// Returns the fields of this kind in their wire format.
            pub fn fields(&self) -> impl serde::Serialize + '_ {
                $crate::kinds::Fields(self)
            }

            /// Reads the fields of `kind`.
            ///
            /// # Errors
            /// The kind is unknown, or a field is missing or has the wrong type; the error names
            /// its path.
            pub(crate) fn from_fields(
                kind: &str,
                fields: &serde_json::Value,
            ) -> Result<Self, $crate::event::EventError> {
                match kind {
                    $($kind => $crate::lenient::read($under, fields).map(Self::$variant),)*
                    other => Err($crate::event::EventError::UnknownKind { key: $key, kind: other.to_owned() }),
                }
            }
        }

        impl $name {
            /// Reads the fields of `kind` in the current format. Fast, with errors that carry no
            /// detail.
            pub(crate) fn from_current<'de, D: serde::Deserializer<'de>>(
                kind: &str,
                fields: D,
            ) -> Result<Self, D::Error> {
                match kind {
                    $($kind => serde::Deserialize::deserialize(fields).map(Self::$variant),)*
                    _ => Err(serde::de::Error::custom("unknown")),
                }
            }
        }

        impl serde::Serialize for $crate::kinds::Fields<'_, $name> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self.0 {
                    $($name::$variant(payload) => payload.serialize(serializer),)*
                }
            }
        }

        $(
            impl From<$payload> for $name {
                fn from(payload: $payload) -> Self {
                    Self::$variant(payload)
                }
            }
        )*
    };
}

pub(crate) use kinds;
