//! Names, expressions and calculations of a compiled program.

use serde::Deserialize;
use serde_json::Value;

use super::load::{LoadError, form, missing, number};
use super::number::Number;
use super::program::{Binary, Calculation, Expression, FieldId, Header, Program, Unary};

/// The deepest expression that is read.
const MAX_DEPTH: usize = 200;

/// Looks names up.
pub(super) struct Names {
    headers: Vec<Header>,
    widths: Vec<u32>,
    registers: Vec<String>,
    calculations: Vec<String>,
}

impl Names {
    pub(super) fn new(program: &Program) -> Self {
        Self {
            headers: program.headers.clone(),
            widths: program.widths.clone(),
            registers: program.registers.iter().map(|array| array.name.clone()).collect(),
            calculations: Vec::new(),
        }
    }

    pub(super) fn add_calculations(&mut self, calculations: &[Calculation]) {
        self.calculations = calculations.iter().map(|calculation| calculation.name.clone()).collect();
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

    /// The calculation that a parameter names.
    pub(super) fn calculation_of(&self, parameter: &Value) -> Result<usize, LoadError> {
        match (kind(parameter), parameter.get("value").and_then(Value::as_str)) {
            ("calculation", Some(name)) => {
                self.calculations.iter().position(|there| there == name).ok_or_else(|| missing("calculation", name))
            }
            (other, _) => Err(LoadError::Unknown { what: "way to name a calculation", name: other.to_owned() }),
        }
    }

    /// Whether a field is one of metadata.
    pub(super) fn is_metadata(&self, field: FieldId) -> bool {
        self.headers.iter().any(|header| header.metadata && (header.first..header.valid).contains(&field))
    }

    /// Bits of a key, or of another value, which is a field.
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

/// A calculation of a compiled program.
#[derive(Deserialize)]
pub(super) struct JsonCalculation {
    name: String,
    algo: String,
    input: Vec<Value>,
}

impl JsonCalculation {
    pub(super) fn load(&self, names: &Names) -> Result<Calculation, LoadError> {
        if self.algo != "crc32" {
            return Err(LoadError::Unknown { what: "algorithm of a calculation", name: self.algo.clone() });
        }
        let input = self.input.iter().map(|value| self.value(value, names)).collect::<Result<_, _>>()?;
        Ok(Calculation { name: self.name.clone(), input })
    }

    /// A value of the input, and its bytes.
    fn value(&self, value: &Value, names: &Names) -> Result<(Expression, usize), LoadError> {
        let unknown = |what| LoadError::Unknown { what, name: self.name.clone() };
        let found = expression(value, names)?;
        let bits = match (kind(value), &found) {
            // The switch leaves out fields of headers that are not there. Metadata always is.
            ("field", Expression::Field(field)) if names.is_metadata(*field) => names.width(&found)?,
            ("field", _) => return Err(unknown("field of a header in the calculation")),
            ("hexstr", _) => {
                let bits = value.get("bitwidth").and_then(Value::as_u64).and_then(|bits| u32::try_from(bits).ok());
                bits.ok_or_else(|| form("a constant in a calculation", value))?
            }
            _ => return Err(unknown("such input of the calculation")),
        };
        if bits.is_multiple_of(8) {
            Ok((found, bits as usize / 8))
        } else {
            Err(unknown("parts of bytes in the calculation"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, Program};

    /// A program that writes a hash of the fields `a` and `b`, and of a constant of a byte, into the register `r`.
    fn program(algorithm: &str, input: &str) -> String {
        let standard = ["ingress_port", "egress_spec", "egress_port", "packet_length", "parser_error"];
        let fields = standard.map(|name| format!(r#"["{name}", 32, false]"#)).join(",");
        let assign = |field: &str, value: &str| {
            format!(
                r#"{{"op": "assign", "parameters": [{{"type": "field", "value": ["scalars", "{field}"]}},
                {{"type": "hexstr", "value": "{value}"}}]}}"#
            )
        };
        let (a, b) = (assign("a", "0x01020304"), assign("b", "0xf0e0d0c0"));
        format!(
            r#"{{"header_types": [{{"name": "s", "fields": [{fields}, ["ingress_global_timestamp", 48, false]]}},
            {{"name": "m", "fields": [["a", 32, false], ["b", 32, false], ["c", 4, false], ["out", 32, false]]}}],
            "headers": [{{"name": "standard_metadata", "header_type": "s", "metadata": true}},
            {{"name": "scalars", "header_type": "m", "metadata": true}}, {{"name": "h", "header_type": "m"}}],
            "parsers": [{{"init_state": "start", "parse_states": [{{"name": "start", "parser_ops": [],
            "transitions": [{{"type": "default", "value": null, "mask": null, "next_state": null}}],
            "transition_key": []}}]}}], "deparsers": [{{"order": []}}],
            "register_arrays": [{{"name": "r", "size": 1, "bitwidth": 32}}],
            "calculations": [{{"name": "calc", "id": 0, "algo": "{algorithm}", "input": [{input}]}}],
            "actions": [{{"name": "a", "id": 0, "primitives": [{a}, {b},
            {{"op": "modify_field_with_hash_based_offset", "parameters": [
            {{"type": "field", "value": ["scalars", "out"]}}, {{"type": "hexstr", "value": "0x07"}},
            {{"type": "calculation", "value": "calc"}}, {{"type": "hexstr", "value": "0x0100000000"}}]}},
            {{"op": "register_write", "parameters": [{{"type": "register_array", "value": "r"}},
            {{"type": "hexstr", "value": "0x0"}}, {{"type": "field", "value": ["scalars", "out"]}}]}}]}}],
            "pipelines": [{{"name": "ingress", "init_table": "t", "conditionals": [], "tables": [{{"name": "t",
            "key": [], "next_tables": {{"a": null}}, "default_entry": {{"action_id": 0, "action_data": []}}}}]}}]}}"#
        )
    }

    const A: &str = r#"{"type": "field", "value": ["scalars", "a"]}"#;
    const B: &str = r#"{"type": "field", "value": ["scalars", "b"]}"#;

    #[test]
    fn a_crc_is_that_of_the_reference_switch_with_its_offset() {
        let constant = r#"{"type": "hexstr", "value": "0xf0", "bitwidth": 8}"#;
        // Those of zlib, and the offset.
        for (input, expected) in
            [(format!("{A}, {B}"), 0x78db_db18 + 7), (format!("{B}, {constant}, {A}"), 0x9648_9b28 + 7)]
        {
            let mut machine = Machine::new(Program::load(&program("crc32", &input)).expect("a program").into());
            machine.process(0, 0, &[]).expect("a frame");

            assert_eq!(machine.registers("r"), Some(vec![expected]), "{input}");
        }
    }

    #[test]
    fn other_calculations_are_refused_by_name() {
        let refused = |algorithm: &str, input: &str| {
            Program::load(&program(algorithm, input)).map(|_| ()).expect_err("refused").to_string()
        };

        assert_eq!(refused("xxh64", A), "the interpreter knows no algorithm of a calculation xxh64");
        let field = r#"{"type": "field", "value": ["h", "a"]}"#;
        assert_eq!(refused("crc32", field), "the interpreter knows no field of a header in the calculation calc");
        let short = r#"{"type": "field", "value": ["scalars", "c"]}"#;
        assert_eq!(refused("crc32", short), "the interpreter knows no parts of bytes in the calculation calc");
        assert_eq!(refused("crc32", r#"{"type": "payload"}"#), "the interpreter knows no value payload");
    }
}
