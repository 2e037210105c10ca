//! From Rust values to [`Value`], through serde.
//!
//! Enums are tagged from outside, as serde_json does it: a variant without content is its
//! name, any other a map of one entry.

use super::{Value, ValueError};
use compact_str::CompactString;
use serde::ser::{Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant};
use serde::ser::{SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer};

/// Builds a value.
///
/// # Errors
/// The type's own error, or a map's key that is not a text or a number.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, ValueError> {
    value.serialize(ToValue)
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Int(value) => to.serialize_i64(*value),
            Self::Uint(value) => to.serialize_u64(*value),
            Self::Float(value) => to.serialize_f64(*value),
            Self::Str(value) => to.serialize_str(value),
            Self::Bytes(value) => to.serialize_bytes(value),
            Self::List(values) => to.collect_seq(values),
            Self::Map(entries) => to.collect_map(entries.iter().map(|(key, value)| (key.as_str(), value))),
        }
    }
}

struct ToValue;

impl Serializer for ToValue {
    type Ok = Value;
    type Error = ValueError;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Entries;
    type SerializeStruct = Entries;
    type SerializeStructVariant = Entries;

    fn serialize_bool(self, value: bool) -> Result<Value, ValueError> {
        Ok(Value::Bool(value))
    }
    fn serialize_i8(self, value: i8) -> Result<Value, ValueError> {
        Ok(Value::Int(value.into()))
    }
    fn serialize_i16(self, value: i16) -> Result<Value, ValueError> {
        Ok(Value::Int(value.into()))
    }
    fn serialize_i32(self, value: i32) -> Result<Value, ValueError> {
        Ok(Value::Int(value.into()))
    }
    fn serialize_i64(self, value: i64) -> Result<Value, ValueError> {
        Ok(Value::Int(value))
    }
    fn serialize_u8(self, value: u8) -> Result<Value, ValueError> {
        Ok(Value::Int(value.into()))
    }
    fn serialize_u16(self, value: u16) -> Result<Value, ValueError> {
        Ok(Value::Int(value.into()))
    }
    fn serialize_u32(self, value: u32) -> Result<Value, ValueError> {
        Ok(Value::Int(value.into()))
    }
    fn serialize_u64(self, value: u64) -> Result<Value, ValueError> {
        Ok(value.into())
    }
    fn serialize_f32(self, value: f32) -> Result<Value, ValueError> {
        Ok(Value::Float(value.into()))
    }
    fn serialize_f64(self, value: f64) -> Result<Value, ValueError> {
        Ok(Value::Float(value))
    }
    fn serialize_char(self, value: char) -> Result<Value, ValueError> {
        Ok(Value::Str(compact_str::format_compact!("{value}")))
    }
    fn serialize_str(self, value: &str) -> Result<Value, ValueError> {
        Ok(value.into())
    }
    fn serialize_bytes(self, value: &[u8]) -> Result<Value, ValueError> {
        Ok(Value::Bytes(value.to_vec()))
    }
    fn serialize_none(self) -> Result<Value, ValueError> {
        Ok(Value::Null)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, ValueError> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<Value, ValueError> {
        Ok(Value::Null)
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, ValueError> {
        Ok(Value::Null)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, ValueError> {
        Ok(variant.into())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, ValueError> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, ValueError> {
        Ok(tagged(Some(variant), to_value(value)?))
    }
    fn serialize_seq(self, len: Option<usize>) -> Result<Items, ValueError> {
        Ok(Items::new(None, len.unwrap_or(0)))
    }
    fn serialize_tuple(self, len: usize) -> Result<Items, ValueError> {
        Ok(Items::new(None, len))
    }
    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Items, ValueError> {
        Ok(Items::new(None, len))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Items, ValueError> {
        Ok(Items::new(Some(variant), len))
    }
    fn serialize_map(self, len: Option<usize>) -> Result<Entries, ValueError> {
        Ok(Entries::new(None, len.unwrap_or(0)))
    }
    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Entries, ValueError> {
        Ok(Entries::new(None, len))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Entries, ValueError> {
        Ok(Entries::new(Some(variant), len))
    }
}

fn tagged(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(variant) => Value::Map(vec![(variant.into(), value)]),
        None => value,
    }
}

struct Items {
    variant: Option<&'static str>,
    items: Vec<Value>,
}

impl Items {
    /// A length is a hint from outside: no more than a little is believed beforehand.
    fn new(variant: Option<&'static str>, len: usize) -> Self {
        Self { variant, items: Vec::with_capacity(len.min(1024)) }
    }

    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        self.items.push(to_value(value)?);
        Ok(())
    }

    fn finish(self) -> Result<Value, ValueError> {
        Ok(tagged(self.variant, Value::List(self.items)))
    }
}

macro_rules! items {
    ($($kind:ident::$method:ident),*) => {$(
        impl $kind for Items {
            type Ok = Value;
            type Error = ValueError;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
                self.push(value)
            }
            fn end(self) -> Result<Value, ValueError> {
                self.finish()
            }
        }
    )*};
}

items!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

struct Entries {
    variant: Option<&'static str>,
    entries: Vec<(CompactString, Value)>,
}

impl Entries {
    fn new(variant: Option<&'static str>, len: usize) -> Self {
        Self { variant, entries: Vec::with_capacity(len.min(1024)) }
    }
}

impl SerializeMap for Entries {
    type Ok = Value;
    type Error = ValueError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ValueError> {
        let key = match to_value(key)? {
            Value::Str(key) => key,
            Value::Int(key) => compact_str::format_compact!("{key}"),
            Value::Uint(key) => compact_str::format_compact!("{key}"),
            other => return Err(ValueError::custom(format_args!("a map's key is a text or a number, not {other:?}"))),
        };
        self.entries.push((key, Value::Null));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        match self.entries.last_mut() {
            Some((_, place)) => *place = to_value(value)?,
            None => return Err(ValueError::custom("a map's value came before its key")),
        }
        Ok(())
    }

    fn end(self) -> Result<Value, ValueError> {
        Ok(tagged(self.variant, Value::Map(self.entries)))
    }
}

macro_rules! entries {
    ($($kind:ident),*) => {$(
        impl $kind for Entries {
            type Ok = Value;
            type Error = ValueError;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), ValueError> {
                self.entries.push((CompactString::const_new(key), to_value(value)?));
                Ok(())
            }
            fn end(self) -> Result<Value, ValueError> {
                SerializeMap::end(self)
            }
        }
    )*};
}

entries!(SerializeStruct, SerializeStructVariant);
