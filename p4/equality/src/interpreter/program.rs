//! A compiled program, with names resolved.

use super::number::Number;

/// Number of a field, of all fields of all headers.
pub(crate) type FieldId = usize;

/// The struct in which compilers put all variables of a program.
const VARIABLES: &str = "scalars";

/// A program for the reference switch, as far as this interpreter knows it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(crate) headers: Vec<Header>,
    /// Width of each field in bits; of a field of variable width the largest one.
    pub(crate) widths: Vec<u32>,
    pub(crate) states: Vec<State>,
    pub(crate) first_state: usize,
    pub(crate) deparser: Vec<usize>,
    pub(crate) registers: Vec<RegisterArray>,
    pub(crate) calculations: Vec<Calculation>,
    pub(crate) actions: Vec<Vec<Primitive>>,
    pub(crate) nodes: Vec<Node>,
    /// First nodes of ingress and egress.
    pub(crate) pipelines: [Option<usize>; 2],
    pub(crate) standard: Standard,
}

/// A header, or a struct of metadata.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) name: String,
    /// Whether it is a struct of metadata, which is always there.
    pub(crate) metadata: bool,
    /// Names, and the first one's number.
    pub(crate) fields: Vec<String>,
    pub(crate) first: FieldId,
    /// Whether it consists of one field of variable width.
    pub(crate) variable: bool,
    /// The field that says whether it is there: one bit.
    pub(crate) valid: FieldId,
}

/// What the switch itself writes and reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standard {
    pub(crate) ingress_port: FieldId,
    pub(crate) egress_spec: FieldId,
    pub(crate) egress_port: FieldId,
    pub(crate) packet_length: FieldId,
    pub(crate) ingress_global_timestamp: FieldId,
    pub(crate) parser_error: FieldId,
}

/// An array of registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterArray {
    /// Its name, with those of its controls.
    pub name: String,
    /// Number of entries.
    pub size: usize,
    /// Bits of an entry.
    pub width: u32,
}

/// A state of the parser.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) steps: Vec<Step>,
    /// Fields of the key with their widths in bits, the first one in front.
    pub(crate) key: Vec<Expression>,
    pub(crate) key_widths: Vec<u32>,
    pub(crate) transitions: Vec<Transition>,
}

/// What a state does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Extract(usize),
    ExtractVariable(usize, Expression),
    Set(FieldId, Expression),
}

/// To the next state, or to the end, if the key is `value` where `mask` is set.
#[derive(Clone, Debug)]
pub(crate) struct Transition {
    pub(crate) value: Number,
    pub(crate) mask: Option<Number>,
    pub(crate) next: Option<usize>,
}

/// A table or a condition.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A table without a key: its action, the data that the program gives it, and what follows.
    Table {
        name: String,
        action: usize,
        data: Vec<Number>,
        next: Option<usize>,
    },
    Condition {
        test: Expression,
        yes: Option<usize>,
        no: Option<usize>,
    },
}

/// A step of an action.
#[derive(Clone, Debug)]
pub(crate) enum Primitive {
    Assign(FieldId, Expression),
    /// A header's copy, with whether it is there.
    AssignHeader(usize, usize),
    SetValid(usize, bool),
    Read(FieldId, usize, Expression),
    Write(usize, Expression, Expression),
    /// A hash modulo a size, behind a base.
    Hash {
        to: FieldId,
        base: Expression,
        calculation: usize,
        size: Expression,
    },
    Drop(FieldId),
}

/// The CRC-32 (IEEE 802.3) of values one after the other, each in whole bytes, the highest one in front.
#[derive(Clone, Debug)]
pub(crate) struct Calculation {
    pub(crate) name: String,
    /// Values, and their bytes.
    pub(crate) input: Vec<(Expression, usize)>,
}

/// A value that is computed. Truths are 1 and 0.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Constant(Number),
    Field(FieldId),
    /// Data of the table's entry.
    Data(usize),
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<Expression>, Box<Expression>),
    Choice(Box<[Expression; 3]>),
}

/// An operation with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Invert,
    Negate,
    Not,
    /// Whether it is not 0.
    Truth,
    Same,
}

/// An operation with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Plus,
    Minus,
    Times,
    Left,
    Right,
    BitAnd,
    BitOr,
    BitXor,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
}

/// Whether a thing with a full name, such as `Handshakes.Frames.frames`, is called so: by that, or by its last parts.
pub(crate) fn is_called(full: &str, name: &str) -> bool {
    full == name || full.strip_suffix(name).is_some_and(|front| front.ends_with('.'))
}

impl RegisterArray {
    /// Whether it is called so: by its full name, or by the last parts of it.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        is_called(&self.name, name)
    }
}

impl Program {
    /// Its arrays of registers.
    #[must_use]
    pub fn registers(&self) -> &[RegisterArray] {
        &self.registers
    }

    /// The field of a variable. Compilers put a number behind most names.
    pub(crate) fn variable(&self, name: &str) -> Option<FieldId> {
        let header = self.headers.iter().find(|header| header.name == VARIABLES)?;
        let is_number = |end: char| end.is_ascii_digit();
        let is_called = |field: &String| field.trim_end_matches(is_number).trim_end_matches('_') == name;
        Some(header.first + header.fields.iter().position(is_called)?)
    }
}
