//! A JSON value that borrows from its text: what an event that we have written is read through.
//!
//! Most of it becomes fields of types at once; a [`Value`] in between would copy every text and every key once more, and
//! take longer than all the rest.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Number, Value};

/// A JSON value.
#[derive(Debug)]
pub(super) enum Borrowed<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Array(Vec<Self>),
    /// In the text's order; a key that comes twice is there twice.
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl Borrowed<'_> {
    /// The first field of that name, if this is an object.
    pub(super) fn get(&self, field: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(name, _)| name == field).map(|(_, value)| value)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, field: &str) -> Option<&mut Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter_mut().find(|(name, _)| name == field).map(|(_, value)| value)
    }

    /// The text, if it is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<Borrowed<'_>> for Value {
    fn from(value: Borrowed<'_>) -> Self {
        match value {
            Borrowed::Null => Self::Null,
            Borrowed::Bool(value) => Self::Bool(value),
            Borrowed::Number(number) => Self::Number(number),
            Borrowed::Text(text) => Self::String(text.into_owned()),
            Borrowed::Array(elements) => Self::Array(elements.into_iter().map(Self::from).collect()),
            Borrowed::Object(fields) => {
                let owned = |(name, value): (Cow<'_, str>, _)| (name.into_owned(), Self::from(value));
                Self::Object(fields.into_iter().map(owned).collect::<Map<_, _>>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Borrowed<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Borrowed<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Borrowed::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Borrowed::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Borrowed::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Borrowed::Number(value.into()))
    }

    /// As [`Value`] does: what JSON cannot hold is null.
    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Number::from_f64(value).map_or(Borrowed::Null, Borrowed::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Borrowed::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Borrowed::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Borrowed::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = elements.next_element()? {
            read.push(element);
        }
        Ok(Borrowed::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        while let Some(name) = fields.next_key()? {
            let Borrowed::Text(name) = name else {
                return Err(serde::de::Error::custom("a field's name is text"));
            };
            read.push((name, fields.next_value()?));
        }
        Ok(Borrowed::Object(read))
    }
}

/// What a type does not read of it in the simplest way is an error, no more.
impl<'de> Deserializer<'de> for &'de Borrowed<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Borrowed::Null => visitor.visit_unit(),
            Borrowed::Bool(value) => visitor.visit_bool(*value),
            Borrowed::Number(number) => {
                number.deserialize_any(visitor).map_err(<Error as serde::de::Error>::custom)
            }
            Borrowed::Text(text) => visitor.visit_borrowed_str(text),
            Borrowed::Array(elements) => visitor.visit_seq(SeqDeserializer::new(elements.iter())),
            Borrowed::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.as_ref(), value));
                visitor.visit_map(MapDeserializer::new(fields))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Borrowed::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(self.as_text().unwrap_or_default().into_deserializer())
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

impl<'de> IntoDeserializer<'de> for &'de Borrowed<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
