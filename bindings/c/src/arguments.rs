//! What C passes: text, labels, and what a metric is like.
#![expect(unsafe_code, reason = "text and arrays of C have no length that Rust could check")]

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::time::Duration;

use client::{Registration, Scale};

use crate::outcome::Misuse;

/// Words that a later release may give a meaning. They are 0 until then.
pub(crate) const RESERVED: usize = 4;

/// Text of C: NULL, or a pointer to bytes that end with 0 and stay as they are during the call.
#[repr(transparent)]
#[derive(Debug)]
pub struct Text(*const c_char);

impl Text {
    /// The text; `None` for NULL.
    pub(crate) fn optional(&self, what: &'static str) -> Result<Option<&str>, Misuse> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: not NULL, hence terminated and unchanged during the call, which only C can make: it is what the
        // header asks for.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(Some).map_err(|_| Misuse::NotText(what))
    }

    /// The text, which must not be NULL.
    pub(crate) fn required(&self, what: &'static str) -> Result<&str, Misuse> {
        self.optional(what)?.ok_or(Misuse::Null(what))
    }
}

/// A buffer of C: NULL, or a pointer to as many bytes as the argument beside it says, which nobody else uses meanwhile.
#[repr(transparent)]
#[derive(Debug)]
pub struct Buffer(*mut MaybeUninit<c_char>);

impl Buffer {
    /// Copies as much of `text` as fits into `size` bytes, with a 0 at its end.
    pub(crate) fn fill(self, text: &str, size: usize) {
        if self.0.is_null() || size == 0 {
            return;
        }
        // SAFETY: not NULL, hence `size` bytes that are C's alone during the call: it is what the header asks for.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.0, size) };
        let fitting = text[..text.floor_char_boundary(size - 1)].bytes().chain(std::iter::once(0));
        for (byte, character) in bytes.iter_mut().zip(fitting) {
            byte.write(character as c_char);
        }
    }
}

/// A label as C passes it.
#[repr(C)]
#[derive(Debug)]
pub struct Label {
    key: Text,
    value: Text,
}

/// An array of labels as two fields of a structure: a pointer and a number.
#[repr(C)]
#[derive(Debug)]
pub struct Labels {
    labels: *const Label,
    label_count: usize,
}

impl Labels {
    fn all(&self) -> Result<&[Label], Misuse> {
        if self.label_count == 0 {
            return Ok(&[]);
        }
        if self.labels.is_null() {
            return Err(Misuse::Null("labels"));
        }
        // SAFETY: not NULL, hence as many labels as the field beside it says, unchanged during the call: it is what the
        // header asks for.
        Ok(unsafe { std::slice::from_raw_parts(self.labels, self.label_count) })
    }

    /// Calls `add` with each key and value.
    pub(crate) fn each(&self, mut add: impl FnMut(&str, &str)) -> Result<(), Misuse> {
        self.all()?.iter().try_for_each(|label| {
            add(label.key.required("a label's key")?, label.value.required("a label's value")?);
            Ok(())
        })
    }
}

/// `uview_metric`: what a metric is like, all of it optional.
#[repr(C)]
#[derive(Debug)]
pub struct MetricOptions {
    unit: Text,
    labels: Labels,
    parts_per_unit: u64,
    sub_bits: u32,
    max_bits: u32,
    aggregation: Text,
    read_every_ms: u64,
    reserved: [u64; RESERVED - 2],
}

impl MetricOptions {
    /// Unit, declarations and labels, which all kinds have.
    pub(crate) fn apply<'client, H: client::Handle>(
        &self,
        mut registration: Registration<'client, H>,
    ) -> Result<Registration<'client, H>, Misuse> {
        check_reserved(self.reserved)?;
        if let Some(unit) = self.unit.optional("unit")? {
            registration = registration.unit(unit);
        }
        if let Some(aggregation) = self.aggregation.optional("aggregation")? {
            registration = registration.aggregation(aggregation);
        }
        registration = registration.read_every(Duration::from_millis(self.read_every_ms));
        let mut labels = Vec::new();
        self.labels.each(|key, value| labels.push((key.to_owned(), value.to_owned())))?;
        Ok(labels.iter().fold(registration, |registration, (key, value)| registration.label(key, value)))
    }

    /// Parts of the unit, at least 1.
    pub(crate) fn parts_per_unit(&self) -> u64 {
        self.parts_per_unit.max(1)
    }

    /// The histogram's buckets: the usual ones for a structure of zeros.
    pub(crate) fn scale(&self) -> Result<Scale, Misuse> {
        if (self.sub_bits, self.max_bits) == (0, 0) {
            return Ok(Scale::DEFAULT);
        }
        Scale::new(self.sub_bits, self.max_bits).map_err(|error| Misuse::OutOfRange(error.to_string()))
    }
}

/// Refuses what a program of a later release asks for.
pub(crate) fn check_reserved<const N: usize>(reserved: [u64; N]) -> Result<(), Misuse> {
    if reserved == [0; N] {
        return Ok(());
    }
    Err(Misuse::OutOfRange(
        "a reserved field is not 0: initialise the structure, or install a later libuview".to_owned(),
    ))
}
