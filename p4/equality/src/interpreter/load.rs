//! Reads the compiler's JSON. Whatever this interpreter does not know is refused by its name.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::number::Number;
use super::operands::{JsonCalculation, Names, condition, expression};
use super::program::{Header, Node, Primitive, Program, RegisterArray, Standard, State, Step, Transition};

/// The most entries of one array of registers, and bits of one field.
const MAX_ENTRIES: usize = 1 << 20;
const MAX_WIDTH: u32 = 1 << 13;

/// Why a program was not loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Not the JSON of a compiled program.
    #[error("not a compiled program")]
    Json(#[from] serde_json::Error),
    /// A construct that the interpreter does not know. Teach it, or do without.
    #[error("the interpreter knows no {what} {name}")]
    Unknown {
        /// Kind of construct.
        what: &'static str,
        /// Its name in the program.
        name: String,
    },
    /// A name of something that is not there.
    #[error("{what} {name} is used, but is not there")]
    Missing {
        /// Kind of thing.
        what: &'static str,
        /// Its name in the program.
        name: String,
    },
    /// Something that has another form than compilers write.
    #[error("{what} has an unexpected form: {found}")]
    Form {
        /// Kind of thing.
        what: &'static str,
        /// What was found.
        found: String,
    },
    /// More than the interpreter has memory for.
    #[error("{what} of {found}, at most {most} is possible")]
    TooLarge {
        /// Kind of thing.
        what: &'static str,
        /// What was found.
        found: u64,
        /// The largest possible value.
        most: u64,
    },
}

#[derive(Deserialize)]
struct Json {
    header_types: Vec<JsonHeaderType>,
    headers: Vec<JsonHeader>,
    parsers: Vec<JsonParser>,
    deparsers: Vec<JsonDeparser>,
    register_arrays: Vec<JsonRegisters>,
    #[serde(default)]
    calculations: Vec<JsonCalculation>,
    actions: Vec<JsonAction>,
    pipelines: Vec<JsonPipeline>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct JsonHeaderType {
    name: String,
    fields: Vec<JsonField>,
    max_length: Option<u32>,
}

/// A field: its name, its width in bits or `*`, and whether it has a sign; one of variable width may lack that.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonField {
    Whole(String, Value, bool),
    Short(String, Value),
}

impl JsonField {
    fn parts(&self) -> (&String, &Value, bool) {
        match self {
            Self::Whole(name, width, signed) => (name, width, *signed),
            Self::Short(name, width) => (name, width, false),
        }
    }
}

#[derive(Deserialize)]
struct JsonHeader {
    name: String,
    header_type: String,
    #[serde(default)]
    metadata: bool,
}

#[derive(Deserialize)]
struct JsonParser {
    init_state: String,
    parse_states: Vec<JsonState>,
}

#[derive(Deserialize)]
struct JsonState {
    name: String,
    parser_ops: Vec<JsonOperation>,
    transitions: Vec<JsonTransition>,
    transition_key: Vec<Value>,
}

#[derive(Deserialize)]
struct JsonOperation {
    op: String,
    parameters: Vec<Value>,
}

#[derive(Deserialize)]
struct JsonTransition {
    r#type: String,
    value: Option<String>,
    mask: Option<String>,
    next_state: Option<String>,
}

#[derive(Deserialize)]
struct JsonDeparser {
    order: Vec<String>,
}

#[derive(Deserialize)]
struct JsonRegisters {
    name: String,
    size: usize,
    bitwidth: u32,
}

#[derive(Deserialize)]
struct JsonAction {
    name: String,
    id: usize,
    primitives: Vec<JsonOperation>,
}

#[derive(Deserialize)]
struct JsonPipeline {
    name: String,
    init_table: Option<String>,
    tables: Vec<JsonTable>,
    conditionals: Vec<JsonCondition>,
}

#[derive(Deserialize)]
struct JsonTable {
    name: String,
    key: Vec<Value>,
    next_tables: BTreeMap<String, Option<String>>,
    default_entry: JsonEntry,
}

#[derive(Deserialize)]
struct JsonEntry {
    action_id: usize,
    action_data: Vec<String>,
}

#[derive(Deserialize)]
struct JsonCondition {
    name: String,
    expression: Value,
    true_next: Option<String>,
    false_next: Option<String>,
}

/// Parts of a program that have an effect, if there are any.
const UNKNOWN_PARTS: [&str; 9] = [
    "header_stacks",
    "header_union_types",
    "header_unions",
    "parse_vsets",
    "meter_arrays",
    "counter_arrays",
    "checksums",
    "action_profiles",
    "extern_instances",
];

impl Program {
    /// Loads the JSON that a compiler made for the reference switch.
    ///
    /// # Errors
    ///
    /// [`LoadError`], with the name of what is not known.
    pub fn load(json: &str) -> Result<Self, LoadError> {
        let json: Json = serde_json::from_str(json)?;
        for part in UNKNOWN_PARTS {
            if json.others.get(part).and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
                return Err(LoadError::Unknown { what: "part", name: part.to_owned() });
            }
        }
        let mut program = Self::default();
        program.add_headers(&json)?;
        for array in json.register_arrays {
            within("a register array", array.size as u64, MAX_ENTRIES as u64)?;
            within("a register", u64::from(array.bitwidth), u64::from(MAX_WIDTH))?;
            program.registers.push(RegisterArray { name: array.name, size: array.size, width: array.bitwidth });
        }
        let mut names = Names::new(&program);
        let calculations = json.calculations.iter().map(|calculation| calculation.load(&names));
        program.calculations = calculations.collect::<Result<_, _>>()?;
        names.add_calculations(&program.calculations);
        program.standard = standard(&names)?;
        (program.states, program.first_state) = states(&json.parsers, &names)?;
        let order = json.deparsers.first().map_or(&[][..], |deparser| &deparser.order);
        program.deparser = order.iter().map(|name| names.header(name)).collect::<Result<_, _>>()?;
        let (mut actions, mut places) = (Vec::new(), BTreeMap::new());
        for action in json.actions {
            places.insert(action.id, (actions.len(), action.name));
            actions.push(action.primitives.iter().map(|step| primitive(step, &names)).collect::<Result<_, _>>()?);
        }
        program.actions = actions;
        (program.nodes, program.pipelines) = nodes(&json.pipelines, &names, &places)?;
        Ok(program)
    }

    fn add_headers(&mut self, json: &Json) -> Result<(), LoadError> {
        for header in &json.headers {
            let kind = json.header_types.iter().find(|kind| kind.name == header.header_type);
            let kind = kind.ok_or_else(|| missing("header type", &header.header_type))?;
            let first = self.widths.len();
            let mut variable = false;
            for (name, width, signed) in kind.fields.iter().map(JsonField::parts) {
                if signed {
                    return Err(LoadError::Unknown { what: "signed field", name: name.clone() });
                }
                let width = match (width.as_u64(), kind.max_length) {
                    (Some(width), _) => width,
                    (None, Some(bytes)) if kind.fields.len() == 1 => {
                        variable = true;
                        u64::from(bytes) * 8
                    }
                    _ => return Err(LoadError::Unknown { what: "width of field", name: name.clone() }),
                };
                within("a field", width, u64::from(MAX_WIDTH))?;
                self.widths.push(width as u32);
            }
            // The field that says whether it is there is the last one.
            let valid = self.widths.len();
            self.widths.push(1);
            let fields = kind.fields.iter().map(|field| field.parts().0.clone()).collect();
            let name = header.name.clone();
            self.headers.push(Header { name, metadata: header.metadata, fields, first, variable, valid });
        }
        Ok(())
    }
}

fn within(what: &'static str, found: u64, most: u64) -> Result<(), LoadError> {
    if found <= most { Ok(()) } else { Err(LoadError::TooLarge { what, found, most }) }
}

pub(super) fn missing(what: &'static str, name: &str) -> LoadError {
    LoadError::Missing { what, name: name.to_owned() }
}

fn standard(names: &Names) -> Result<Standard, LoadError> {
    let field = |name: &str| names.field("standard_metadata", name);
    Ok(Standard {
        ingress_port: field("ingress_port")?,
        egress_spec: field("egress_spec")?,
        egress_port: field("egress_port")?,
        packet_length: field("packet_length")?,
        ingress_global_timestamp: field("ingress_global_timestamp")?,
        parser_error: field("parser_error")?,
    })
}

fn states(parsers: &[JsonParser], names: &Names) -> Result<(Vec<State>, usize), LoadError> {
    let [parser] = parsers else { return Err(form("parsers", &parsers.len())) };
    let place = |name: &str| {
        parser.parse_states.iter().position(|state| state.name == name).ok_or_else(|| missing("parser state", name))
    };
    let mut states = Vec::new();
    for state in &parser.parse_states {
        let steps = state.parser_ops.iter().map(|step| parser_step(step, names)).collect::<Result<_, _>>()?;
        let key = state.transition_key.iter().map(|key| expression(key, names)).collect::<Result<Vec<_>, _>>()?;
        let key_widths = key.iter().map(|key| names.width(key)).collect::<Result<_, _>>()?;
        let mut transitions = Vec::new();
        for transition in &state.transitions {
            let number = |text: &Option<String>| text.as_deref().map(number).transpose();
            let next = transition.next_state.as_deref().map(place).transpose()?;
            let (value, mask) = match transition.r#type.as_str() {
                "default" => (Number::default(), Some(Number::default())),
                "hexstr" => (number(&transition.value)?.unwrap_or_default(), number(&transition.mask)?),
                other => return Err(LoadError::Unknown { what: "transition", name: other.to_owned() }),
            };
            transitions.push(Transition { value, mask, next });
        }
        states.push(State { steps, key, key_widths, transitions });
    }
    Ok((states, place(&parser.init_state)?))
}

fn parser_step(step: &JsonOperation, names: &Names) -> Result<Step, LoadError> {
    match (step.op.as_str(), step.parameters.as_slice()) {
        ("extract", [header]) => Ok(Step::Extract(names.header_of(header)?)),
        ("extract_VL", [header, bits]) => Ok(Step::ExtractVariable(names.header_of(header)?, expression(bits, names)?)),
        ("set", [field, value]) => Ok(Step::Set(names.field_of(field)?, expression(value, names)?)),
        // A primitive of actions in a parser.
        ("primitive", [inner]) => {
            let inner: JsonOperation = serde_json::from_value(inner.clone())?;
            match primitive(&inner, names)? {
                Primitive::Assign(field, value) => Ok(Step::Set(field, value)),
                _ => Err(LoadError::Unknown { what: "primitive in a parser", name: inner.op }),
            }
        }
        (other, _) => Err(LoadError::Unknown { what: "parser operation", name: other.to_owned() }),
    }
}

fn primitive(step: &JsonOperation, names: &Names) -> Result<Primitive, LoadError> {
    match (step.op.as_str(), step.parameters.as_slice()) {
        ("assign", [field, value]) => Ok(Primitive::Assign(names.field_of(field)?, expression(value, names)?)),
        ("assign_header", [to, from]) => Ok(Primitive::AssignHeader(names.header_of(to)?, names.header_of(from)?)),
        ("add_header", [header]) => Ok(Primitive::SetValid(names.header_of(header)?, true)),
        ("remove_header", [header]) => Ok(Primitive::SetValid(names.header_of(header)?, false)),
        ("register_read", [field, array, index]) => {
            Ok(Primitive::Read(names.field_of(field)?, names.register_of(array)?, expression(index, names)?))
        }
        ("register_write", [array, index, value]) => {
            Ok(Primitive::Write(names.register_of(array)?, expression(index, names)?, expression(value, names)?))
        }
        ("modify_field_with_hash_based_offset", [field, base, calculation, size]) => Ok(Primitive::Hash {
            to: names.field_of(field)?,
            base: expression(base, names)?,
            calculation: names.calculation_of(calculation)?,
            size: expression(size, names)?,
        }),
        ("mark_to_drop", _) => Ok(Primitive::Drop(names.field("standard_metadata", "egress_spec")?)),
        (other, _) => Err(LoadError::Unknown { what: "primitive", name: other.to_owned() }),
    }
}

pub(super) fn number(text: &str) -> Result<Number, LoadError> {
    Number::parse(text).ok_or_else(|| form("a number", &text))
}

pub(super) fn form(what: &'static str, found: &dyn core::fmt::Debug) -> LoadError {
    LoadError::Form { what, found: format!("{found:?}") }
}

/// Nodes of all pipelines, and the first ones of ingress and egress.
type Nodes = (Vec<Node>, [Option<usize>; 2]);

fn nodes(
    pipelines: &[JsonPipeline],
    names: &Names,
    actions: &BTreeMap<usize, (usize, String)>,
) -> Result<Nodes, LoadError> {
    let all = pipelines.iter().flat_map(|pipeline| {
        let tables = pipeline.tables.iter().map(|table| table.name.as_str());
        tables.chain(pipeline.conditionals.iter().map(|condition| condition.name.as_str()))
    });
    let places: BTreeMap<&str, usize> = all.enumerate().map(|(place, name)| (name, place)).collect();
    let next = |name: &Option<String>| {
        let place = |name: &String| places.get(name.as_str()).copied().ok_or_else(|| missing("node", name));
        name.as_ref().map(place).transpose()
    };
    let (mut nodes, mut firsts) = (Vec::new(), [None, None]);
    for pipeline in pipelines {
        let Some(which) = ["ingress", "egress"].iter().position(|name| *name == pipeline.name) else {
            return Err(LoadError::Unknown { what: "pipeline", name: pipeline.name.clone() });
        };
        firsts[which] = next(&pipeline.init_table)?;
        for table in &pipeline.tables {
            if !table.key.is_empty() {
                return Err(LoadError::Unknown { what: "table with a key", name: table.name.clone() });
            }
            let entry = &table.default_entry;
            let (action, name) = actions.get(&entry.action_id).ok_or_else(|| missing("action", &table.name))?;
            let data = entry.action_data.iter().map(|text| number(text)).collect::<Result<_, _>>()?;
            let follows = table.next_tables.get(name).or_else(|| table.next_tables.get("__MISS__"));
            let follows = follows.ok_or_else(|| missing("what follows", &table.name))?;
            nodes.push(Node::Table { name: table.name.clone(), action: *action, data, next: next(follows)? });
        }
        for node in &pipeline.conditionals {
            let test = condition(&node.expression, names)?;
            nodes.push(Node::Condition { test, yes: next(&node.true_next)?, no: next(&node.false_next)? });
        }
    }
    Ok((nodes, firsts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_said_by_name() {
        let json = |operation: &str, others: &str| {
            let standard = ["ingress_port", "egress_spec", "egress_port", "packet_length", "parser_error"];
            let fields = standard.map(|name| format!(r#"["{name}", 32, false]"#)).join(",");
            format!(
                r#"{{"header_types": [{{"name": "s", "fields": [{fields}, ["ingress_global_timestamp", 48, false]]}}],
                "headers": [{{"name": "standard_metadata", "header_type": "s", "metadata": true}}],
                "parsers": [{{"init_state": "start", "parse_states": [{{"name": "start", "parser_ops": [],
                "transitions": [{{"type": "default", "value": null, "mask": null, "next_state": null}}],
                "transition_key": []}}]}}], "deparsers": [{{"order": []}}], "register_arrays": [],
                "actions": [{{"name": "a", "id": 0, "primitives": [{operation}]}}], "pipelines": [] {others}}}"#
            )
        };
        let refused = |text: String| Program::load(&text).map(|_| ()).unwrap_err().to_string();

        assert!(Program::load(&json("", "")).is_ok());
        assert_eq!(
            refused(json(r#"{"op": "resubmit", "parameters": []}"#, "")),
            "the interpreter knows no primitive resubmit"
        );
        assert_eq!(refused(json("", r#", "checksums": [1]"#)), "the interpreter knows no part checksums");
        let read = r#"{"op": "assign", "parameters": [{"type": "field", "value": ["tcp", "flags"]}, {}]}"#;
        assert_eq!(refused(json(read, "")), "field tcp.flags is used, but is not there");
        assert_eq!(refused("{}".to_owned()), "not a compiled program");
    }
}
