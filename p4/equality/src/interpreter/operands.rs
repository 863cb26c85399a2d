//! Names and expressions of a compiled program.

use serde_json::Value;

use super::load::{LoadError, form, missing, number};
use super::number::Number;
use super::program::{Binary, Expression, FieldId, Header, Program, Unary};

/// The deepest expression that is read.
const MAX_DEPTH: usize = 200;

/// Looks names up.
pub(super) struct Names {
    headers: Vec<Header>,
    widths: Vec<u32>,
    registers: Vec<String>,
}

impl Names {
    pub(super) fn new(program: &Program) -> Self {
        Self {
            headers: program.headers.clone(),
            widths: program.widths.clone(),
            registers: program.registers.iter().map(|array| array.name.clone()).collect(),
        }
    }

    pub(super) fn header(&self, name: &str) -> Result<usize, LoadError> {
        self.headers.iter().position(|header| header.name == name).ok_or_else(|| missing("header", name))
    }

    pub(super) fn field(&self, header: &str, field: &str) -> Result<FieldId, LoadError> {
        let header = &self.headers[self.header(header).map_err(|_| missing("field", &format!("{header}.{field}")))?];
        if field == "$valid$" {
            return Ok(header.valid);
        }
        let place = header.fields.iter().position(|name| name == field);
        let place = place.ok_or_else(|| missing("field", &format!("{}.{field}", header.name)))?;
        Ok(header.first + place)
    }

    /// The header that a parameter names.
    pub(super) fn header_of(&self, parameter: &Value) -> Result<usize, LoadError> {
        match (kind(parameter), parameter.get("value").and_then(Value::as_str)) {
            ("header" | "regular", Some(name)) => self.header(name),
            (other, _) => Err(LoadError::Unknown { what: "way to name a header", name: other.to_owned() }),
        }
    }

    /// The field that a parameter names.
    pub(super) fn field_of(&self, parameter: &Value) -> Result<FieldId, LoadError> {
        let names = parameter.get("value").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        match (kind(parameter), names) {
            ("field", [Value::String(header), Value::String(field)]) => self.field(header, field),
            (other, _) => Err(LoadError::Unknown { what: "way to name a field", name: other.to_owned() }),
        }
    }

    /// The register array that a parameter names.
    pub(super) fn register_of(&self, parameter: &Value) -> Result<usize, LoadError> {
        match (kind(parameter), parameter.get("value").and_then(Value::as_str)) {
            ("register_array", Some(name)) => {
                self.registers.iter().position(|array| array == name).ok_or_else(|| missing("register array", name))
            }
            (other, _) => Err(LoadError::Unknown { what: "way to name registers", name: other.to_owned() }),
        }
    }

    /// Bits of a key, which is a field.
    pub(super) fn width(&self, key: &Expression) -> Result<u32, LoadError> {
        match key {
            Expression::Field(field) => Ok(self.widths[*field]),
            other => Err(form("a key", other)),
        }
    }
}

fn kind(parameter: &Value) -> &str {
    parameter.get("type").and_then(Value::as_str).unwrap_or("without a type")
}

/// A parameter that is a value.
pub(super) fn expression(parameter: &Value, names: &Names) -> Result<Expression, LoadError> {
    nested(parameter, names, MAX_DEPTH)
}

/// The test of a condition.
pub(super) fn condition(test: &Value, names: &Names) -> Result<Expression, LoadError> {
    nested(test, names, MAX_DEPTH)
}

fn nested(parameter: &Value, names: &Names, depth: usize) -> Result<Expression, LoadError> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(LoadError::TooLarge { what: "depth", found: MAX_DEPTH as u64 + 1, most: MAX_DEPTH as u64 });
    };
    let value = parameter.get("value").unwrap_or(&Value::Null);
    match (kind(parameter), value) {
        ("field", _) => Ok(Expression::Field(names.field_of(parameter)?)),
        // A header where its being there is asked for.
        ("header", Value::String(name)) => Ok(Expression::Field(names.headers[names.header(name)?].valid)),
        ("hexstr", Value::String(text)) => Ok(Expression::Constant(number(text)?)),
        ("bool", Value::Bool(truth)) => Ok(Expression::Constant(Number::from(u64::from(*truth)))),
        ("local" | "runtime_data", Value::Number(place)) => {
            place.as_u64().map(|place| Expression::Data(place as usize)).ok_or_else(|| form("runtime data", place))
        }
        ("expression", Value::Object(operation)) if operation.contains_key("op") => operate(value, names, depth),
        ("expression", Value::Object(_)) => nested(value, names, depth),
        (other, _) => Err(LoadError::Unknown { what: "value", name: other.to_owned() }),
    }
}

fn operate(operation: &Value, names: &Names, depth: usize) -> Result<Expression, LoadError> {
    let name = operation.get("op").and_then(Value::as_str).unwrap_or_default();
    let operand = |side: &str| nested(operation.get(side).unwrap_or(&Value::Null), names, depth);
    if name == "?" {
        return Ok(Expression::Choice(Box::new([operand("cond")?, operand("left")?, operand("right")?])));
    }
    if let Some(unary) = unary(name) {
        return Ok(Expression::Unary(unary, Box::new(operand("right")?)));
    }
    let binary = binary(name).ok_or_else(|| LoadError::Unknown { what: "operation", name: name.to_owned() })?;
    if binary == Binary::Minus && operation.get("left").is_none_or(Value::is_null) {
        return Ok(Expression::Unary(Unary::Negate, Box::new(operand("right")?)));
    }
    Ok(Expression::Binary(binary, Box::new(operand("left")?), Box::new(operand("right")?)))
}

fn unary(name: &str) -> Option<Unary> {
    match name {
        "~" => Some(Unary::Invert),
        "not" => Some(Unary::Not),
        "d2b" => Some(Unary::Truth),
        // Truths are numbers here; a header's being there is a field.
        "b2d" | "valid" => Some(Unary::Same),
        _ => None,
    }
}

fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        "+" => Binary::Plus,
        "-" => Binary::Minus,
        "*" => Binary::Times,
        "<<" => Binary::Left,
        ">>" => Binary::Right,
        "&" => Binary::BitAnd,
        "|" => Binary::BitOr,
        "^" => Binary::BitXor,
        "==" => Binary::Equal,
        "!=" => Binary::Unequal,
        "<" => Binary::Less,
        "<=" => Binary::LessOrEqual,
        ">" => Binary::Greater,
        ">=" => Binary::GreaterOrEqual,
        "and" => Binary::And,
        "or" => Binary::Or,
        _ => return None,
    })
}
