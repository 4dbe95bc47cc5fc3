//! Whether a value would be written as a JSON value that is there, told without writing it: a serializer that compares.
//!
//! Most events that are read were written by this version, and building each a second time to compare the two would take
//! longer than reading it. What it does not compare (bytes, tuples, variants with fields) counts as unlike.

use std::borrow::Cow;
use std::fmt::Display;

use serde::ser::{Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};
use serde_json::Number;

use super::borrowed::Borrowed;

/// Whether `ours` is written as `theirs`.
pub(super) fn is_written_as(ours: &(impl Serialize + ?Sized), theirs: &Borrowed<'_>) -> bool {
    ours.serialize(Likeness(theirs)).is_ok()
}

/// Compares what is written with this.
struct Likeness<'a>(&'a Borrowed<'a>);

/// They differ, or cannot be compared.
#[derive(Debug, thiserror::Error)]
#[error("unlike")]
struct Unlike;

impl serde::ser::Error for Unlike {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

type Outcome = Result<(), Unlike>;

fn like(is_like: bool) -> Outcome {
    if is_like { Ok(()) } else { Err(Unlike) }
}

/// Elements that are still to come.
struct Elements<'a>(std::slice::Iter<'a, Borrowed<'a>>);

/// The fields of an object.
struct Fields<'a> {
    of: &'a [(Cow<'a, str>, Borrowed<'a>)],
    /// How many have been written.
    written: usize,
    /// The value of the one whose key was written.
    value: Option<&'a Borrowed<'a>>,
}

/// So far a key of a map is looked for; in larger ones the keys have to come in the order that we write. Who makes the keys
/// would else decide how long it takes. A type has only so many.
const SEARCHED: usize = 64;

macro_rules! numbers {
    ($($method:ident: $type:ty,)*) => {
        $(fn $method(self, value: $type) -> Outcome {
            like(matches!(self.0, Borrowed::Number(number) if *number == Number::from(value)))
        })*
    };
}

impl<'a> Serializer for Likeness<'a> {
    type Ok = ();
    type Error = Unlike;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = Impossible<(), Unlike>;
    type SerializeTupleStruct = Impossible<(), Unlike>;
    type SerializeTupleVariant = Impossible<(), Unlike>;
    type SerializeMap = Fields<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Impossible<(), Unlike>;

    numbers! {
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
    }

    fn serialize_bool(self, value: bool) -> Outcome {
        like(matches!(self.0, Borrowed::Bool(theirs) if *theirs == value))
    }

    fn serialize_f32(self, _: f32) -> Outcome {
        Err(Unlike)
    }

    fn serialize_f64(self, value: f64) -> Outcome {
        match Number::from_f64(value) {
            Some(value) => like(matches!(self.0, Borrowed::Number(number) if *number == value)),
            None => self.serialize_unit(),
        }
    }

    fn serialize_char(self, value: char) -> Outcome {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Outcome {
        like(self.0.as_text() == Some(value))
    }

    fn serialize_bytes(self, _: &[u8]) -> Outcome {
        Err(Unlike)
    }

    fn serialize_none(self) -> Outcome {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Outcome {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Outcome {
        like(matches!(self.0, Borrowed::Null))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Outcome {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Outcome {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Outcome {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Outcome {
        Err(Unlike)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, Unlike> {
        let Borrowed::Array(elements) = self.0 else { return Err(Unlike) };
        Ok(Elements(elements.iter()))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Unlike> {
        Err(Unlike)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTuple, Unlike> {
        Err(Unlike)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTuple, Unlike> {
        Err(Unlike)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields<'a>, Unlike> {
        let Borrowed::Object(fields) = self.0 else { return Err(Unlike) };
        Ok(Fields { of: fields, written: 0, value: None })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields<'a>, Unlike> {
        self.serialize_map(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Unlike> {
        Err(Unlike)
    }
}

impl SerializeSeq for Elements<'_> {
    type Ok = ();
    type Error = Unlike;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
        value.serialize(Likeness(self.0.next().ok_or(Unlike)?))
    }

    fn end(mut self) -> Outcome {
        like(self.0.next().is_none())
    }
}

impl<'a> Fields<'a> {
    /// The value of a field that is written now. Nobody writes one twice.
    fn take(&mut self, is_it: impl Fn(&str) -> bool, searched: usize) -> Result<&'a Borrowed<'a>, Unlike> {
        let at_its_place = self.of.get(self.written).filter(|(key, _)| is_it(key));
        let found = at_its_place.or_else(|| {
            let fields = self.of.get(..searched.min(self.of.len()))?;
            fields.iter().find(|(key, _)| is_it(key))
        });
        self.written += 1;
        found.map(|(_, value)| value).ok_or(Unlike)
    }

    fn finish(self) -> Outcome {
        like(self.written == self.of.len())
    }
}

impl SerializeMap for Fields<'_> {
    type Ok = ();
    type Error = Unlike;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Outcome {
        let is_it = |theirs: &str| is_written_as(key, &Borrowed::Text(Cow::Borrowed(theirs)));
        self.value = Some(self.take(is_it, SEARCHED)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
        value.serialize(Likeness(self.value.take().ok_or(Unlike)?))
    }

    fn end(self) -> Outcome {
        self.finish()
    }
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Unlike;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Outcome {
        value.serialize(Likeness(self.take(|theirs| theirs == key, usize::MAX)?))
    }

    fn end(self) -> Outcome {
        self.finish()
    }
}
