//! One table a family of events: the wire's name of each kind, and the type that holds it.

/// Declares an enum of event kinds. Each variant holds a struct that (de)serialises as the kind's `args` or `extras`.
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
            /// Every kind's name on the wire.
            pub const KINDS: &'static [&'static str] = &[$($kind),*];

            /// This kind's name on the wire.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                }
            }

            /// Reads the fields of `kind`.
            ///
            /// # Errors
            /// An unknown kind, or a field that is missing or has the wrong type, by its path.
            pub(crate) fn from_fields(
                kind: &str,
                fields: &serde_json::Value,
            ) -> Result<Self, $crate::event::EventError> {
                match kind {
                    $($kind => $crate::lenient::read($under, fields).map(Self::$variant),)*
                    other => Err($crate::event::EventError::UnknownKind { key: $key, kind: other.to_owned() }),
                }
            }

            /// The fields as V0 writes them.
            pub(crate) fn to_fields(&self) -> Result<serde_json::Value, serde_json::Error> {
                match self {
                    $(Self::$variant(payload) => serde_json::to_value(payload),)*
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
