//! Whether a value would be written as a JSON value that is there, told without writing it: a serializer that compares.
//!
//! Most events that are read were written by this version, and building each a second time to compare the two would take
//! longer than reading it. What it does not compare (bytes, tuples, variants with fields) counts as unlike.

use std::fmt::Display;

use serde::ser::{Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};
use serde_json::{Number, Value};

use super::borrowed::Borrowed;

/// Whether `ours` is written as `theirs`.
pub(super) fn is_written_as(ours: &impl Serialize, theirs: &Borrowed<'_>) -> bool {
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

/// Fields that are still to come: how many, and the value of the one whose key was written.
struct Fields<'a> {
    of: &'a Borrowed<'a>,
    left: usize,
    value: Option<&'a Borrowed<'a>>,
}

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
        Ok(Fields { of: self.0, left: fields.len(), value: None })
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
    fn take(&mut self, key: &str) -> Result<&'a Borrowed<'a>, Unlike> {
        self.left = self.left.checked_sub(1).ok_or(Unlike)?;
        self.of.get(key).ok_or(Unlike)
    }
}

impl SerializeMap for Fields<'_> {
    type Ok = ();
    type Error = Unlike;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Outcome {
        let Ok(Value::String(key)) = serde_json::to_value(key) else { return Err(Unlike) };
        self.value = Some(self.take(&key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Outcome {
        value.serialize(Likeness(self.value.take().ok_or(Unlike)?))
    }

    fn end(self) -> Outcome {
        like(self.left == 0)
    }
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Unlike;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Outcome {
        value.serialize(Likeness(self.take(key)?))
    }

    fn end(self) -> Outcome {
        like(self.left == 0)
    }
}
