//! A switch that runs a program, one frame at a time. It holds the program to what a pipeline of hardware can do with
//! registers: an array is read once and then written once for a frame, at one index.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use super::arithmetic::{binary, truth, unary};
use super::number::{MAX_SHIFT, Number};
use super::program::{Binary, Calculation, Expression, FieldId, Node, Primitive, Program, State, Step, is_called};

/// The port to which dropped frames go.
const DROP_PORT: u64 = 511;
/// The most states or nodes that a frame may pass, so that a loop ends.
const MAX_STEPS: usize = 4_096;
/// Errors of a parser, by their numbers in `core.p4`.
const PACKET_TOO_SHORT: u64 = 1;
const NO_MATCH: u64 = 2;
const HEADER_TOO_SHORT: u64 = 4;

/// Why a frame was not processed. The program is wrong, or this interpreter.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It does not come to an end.
    #[error("a frame passed {MAX_STEPS} states or nodes, the program may loop")]
    Loop,
    /// A register that is not there.
    #[error("entry {index} of the registers {name}, which have {size}")]
    Register {
        /// The array's name.
        name: String,
        /// The index that was computed; the largest number if it is not below 2⁶⁴.
        index: u64,
        /// Entries of the array.
        size: usize,
    },
    /// An array that is read or written once more, read behind a write, or at a second index.
    #[error("entry {index} of the registers {name}: a frame reads an array once, then writes it once, at one index")]
    Again {
        /// The array's name.
        name: String,
        /// The index of the access that is one too many.
        index: usize,
    },
    /// A shift that no field is wide enough for.
    #[error("a shift by {0:?} bits, from 0 to {MAX_SHIFT} are possible")]
    Shift(Number),
    /// Data that the table's entry does not have.
    #[error("an action wants the data number {0}, which its entry does not have")]
    Data(usize),
    /// A header that does not end at a byte.
    #[error("the header {0} does not end at a byte")]
    Alignment(String),
}

/// Why a table or an array was not set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetError {
    /// The program has no such thing.
    #[error("the program has no {what} {name}")]
    Missing {
        /// Kind of thing.
        what: &'static str,
        /// The name asked for.
        name: String,
    },
    /// Another number of values than it has.
    #[error("{found} values for the {what} {name}, which has {expected}")]
    Count {
        /// Kind of thing.
        what: &'static str,
        /// Its name, as asked for.
        name: String,
        /// Values that were given.
        found: usize,
        /// Values that it has.
        expected: usize,
    },
}

/// A frame that leaves the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The port by which it leaves.
    pub port: u16,
    /// Its bytes as sent.
    pub bytes: Vec<u8>,
}

/// What becomes of a frame in a step of the parser.
enum Parsing {
    /// It goes on.
    GoesOn,
    /// The parser ends, with the error of this number: the program goes on with it.
    Refused(u64),
}

/// What the frame that is processed did with an array of registers last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    index: usize,
    writes: bool,
}

/// A switch with a program and its registers.
#[derive(Clone, Debug)]
pub struct Machine {
    program: Arc<Program>,
    registers: Vec<Vec<Number>>,
    /// Of each array.
    accesses: Vec<Option<Access>>,
    /// Data that was given to the actions of tables, by their places among the nodes.
    entries: BTreeMap<usize, Vec<Number>>,
    /// All fields of the frame that is processed.
    fields: Vec<Number>,
    /// Bits of each header of variable width.
    variable_bits: Vec<u32>,
    /// Data of the action that runs.
    data: Vec<Number>,
}

impl Machine {
    /// A switch whose registers are 0, and whose tables are those of the program.
    #[must_use]
    pub fn new(program: Arc<Program>) -> Self {
        Self {
            registers: program.registers.iter().map(|array| vec![Number::default(); array.size]).collect(),
            accesses: vec![None; program.registers.len()],
            entries: BTreeMap::new(),
            fields: vec![Number::default(); program.widths.len()],
            variable_bits: vec![0; program.headers.len()],
            data: Vec::new(),
            program,
        }
    }

    /// The same switch after it has started again.
    #[must_use]
    pub fn empty(&self) -> Self {
        Self::new(Arc::clone(&self.program))
    }

    /// The program that it runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The entries of an array of registers; `None` if there is no such array, or if an entry has more than 64 bits.
    #[must_use]
    pub fn registers(&self, name: &str) -> Option<Vec<u64>> {
        let place = self.program.registers.iter().position(|array| array.name == name)?;
        self.registers[place].iter().map(Number::to_u64).collect()
    }

    /// What a variable of the program had at the end of the latest frame, 0 if the frame did not come to it; `None` if
    /// there is no such variable, or it has more than 64 bits. `name` is the compiler's, without a number behind it.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<u64> {
        self.fields[self.program.variable(name)?].to_u64()
    }

    /// Gives the action of a table other data from now on, as a control plane does. `table` is its full name or the
    /// last parts of it.
    ///
    /// # Errors
    ///
    /// [`SetError`] if there is no such table, or its action has another number of parameters.
    pub fn set_default(&mut self, table: &str, data: &[u64]) -> Result<(), SetError> {
        let found = self.program.nodes.iter().enumerate().find_map(|(place, node)| match node {
            Node::Table { name, data, .. } if is_called(name, table) => Some((place, data.len())),
            _ => None,
        });
        let place = counted("table", table, found, data)?;
        self.entries.insert(place, data.iter().copied().map(Number::from).collect());
        Ok(())
    }

    /// Gives an array of registers these entries. `array` is its full name or the last parts of it.
    ///
    /// # Errors
    ///
    /// [`SetError`] if there is no such array, or it has another size.
    pub fn set_registers(&mut self, array: &str, entries: &[u64]) -> Result<(), SetError> {
        let place = self.program.registers.iter().position(|of| of.is_called(array));
        let place = counted("array", array, place.map(|place| (place, self.registers[place].len())), entries)?;
        let width = self.program.registers[place].width;
        self.registers[place] = entries.iter().map(|entry| Number::from(*entry).truncated(width)).collect();
        Ok(())
    }

    /// Processes a frame that arrives at `port`, `time_us` microseconds after the switch started. Returns the frame
    /// that leaves, if one does.
    ///
    /// # Errors
    ///
    /// [`Fault`] if the program does what a switch cannot do.
    pub fn process(&mut self, port: u16, time_us: u64, frame: &[u8]) -> Result<Option<Sent>, Fault> {
        let program = Arc::clone(&self.program);
        self.fields.fill(Number::default());
        self.accesses.fill(None);
        let standard = program.standard;
        self.set(standard.ingress_port, &Number::from(u64::from(port)));
        self.set(standard.packet_length, &Number::from(frame.len() as u64));
        self.set(standard.ingress_global_timestamp, &Number::from(time_us));
        let payload = self.parse(&program, frame)?;
        self.run(&program, program.pipelines[0])?;
        let egress = self.fields[standard.egress_spec].clone();
        if egress.to_u64() == Some(DROP_PORT) {
            return Ok(None);
        }
        self.set(standard.egress_port, &egress);
        self.run(&program, program.pipelines[1])?;
        if self.fields[standard.egress_spec].to_u64() == Some(DROP_PORT) {
            return Ok(None);
        }
        let mut bytes = self.deparse(&program)?;
        bytes.extend(payload);
        Ok(Some(Sent { port: egress.to_u64().unwrap_or(DROP_PORT) as u16, bytes }))
    }

    fn set(&mut self, field: FieldId, value: &Number) {
        self.fields[field] = value.truncated(self.program.widths[field]);
    }

    /// Parses a frame, and returns what is behind the headers.
    fn parse<'a>(&mut self, program: &Program, frame: &'a [u8]) -> Result<&'a [u8], Fault> {
        let (mut next, mut rest) = (Some(program.first_state), frame);
        for _ in 0..MAX_STEPS {
            let Some(place) = next else { return Ok(rest) };
            let state = &program.states[place];
            for step in &state.steps {
                if let Parsing::Refused(error) = self.step(program, step, &mut rest)? {
                    self.set(program.standard.parser_error, &Number::from(error));
                    return Ok(rest);
                }
            }
            let key = self.key(state);
            let matches = |value: &Number, mask: Option<&Number>| match mask {
                Some(mask) => key.and(mask) == value.and(mask),
                None => key == *value,
            };
            let found = state.transitions.iter().find(|way| matches(&way.value, way.mask.as_ref()));
            let Some(found) = found else {
                self.set(program.standard.parser_error, &Number::from(NO_MATCH));
                return Ok(rest);
            };
            next = found.next;
        }
        Err(Fault::Loop)
    }

    fn step(&mut self, program: &Program, step: &Step, rest: &mut &[u8]) -> Result<Parsing, Fault> {
        let (header, bits) = match step {
            Step::Set(field, value) => {
                let value = self.value(value)?;
                self.set(*field, &value);
                return Ok(Parsing::GoesOn);
            }
            Step::Extract(header) => {
                let header = &program.headers[*header];
                let fields = header.first..header.first + header.fields.len();
                (header, program.widths[fields].iter().sum())
            }
            Step::ExtractVariable(place, bits) => {
                let header = &program.headers[*place];
                let bits = self.value(bits)?.to_u64().and_then(|bits| u32::try_from(bits).ok());
                let Some(bits) = bits.filter(|bits| *bits <= program.widths[header.first]) else {
                    return Ok(Parsing::Refused(HEADER_TOO_SHORT));
                };
                self.variable_bits[*place] = bits;
                (header, bits)
            }
        };
        if !bits.is_multiple_of(8) {
            return Err(Fault::Alignment(header.name.clone()));
        }
        let Some((bytes, behind)) = rest.split_at_checked(bits as usize / 8) else {
            return Ok(Parsing::Refused(PACKET_TOO_SHORT));
        };
        *rest = behind;
        if header.variable {
            self.fields[header.first] = Number::from_bytes(bytes);
        } else {
            let mut at = 0;
            for field in header.first..header.first + header.fields.len() {
                let end = at + program.widths[field] as usize;
                let covering = Number::from_bytes(&bytes[at / 8..end.div_ceil(8)]);
                let value = covering.shifted_right((end.next_multiple_of(8) - end) as u32);
                self.set(field, &value);
                at = end;
            }
        }
        self.set(header.valid, &Number::from(1));
        Ok(Parsing::GoesOn)
    }

    /// The key of a transition: its fields one after the other, each in whole bytes.
    fn key(&self, state: &State) -> Number {
        let mut key = Number::default();
        for (expression, width) in state.key.iter().zip(&state.key_widths) {
            if let Expression::Field(field) = expression {
                key = key.shifted_left(width.next_multiple_of(8)).or(&self.fields[*field]);
            }
        }
        key
    }

    fn run(&mut self, program: &Program, first: Option<usize>) -> Result<(), Fault> {
        let mut next = first;
        for _ in 0..MAX_STEPS {
            let Some(place) = next else { return Ok(()) };
            next = match &program.nodes[place] {
                Node::Condition { test, yes, no } => {
                    if self.value(test)?.is_zero() {
                        *no
                    } else {
                        *yes
                    }
                }
                Node::Table { action, data, next, .. } => {
                    self.data.clone_from(self.entries.get(&place).unwrap_or(data));
                    for primitive in &program.actions[*action] {
                        self.primitive(program, primitive)?;
                    }
                    *next
                }
            };
        }
        Err(Fault::Loop)
    }

    fn primitive(&mut self, program: &Program, primitive: &Primitive) -> Result<(), Fault> {
        match primitive {
            Primitive::Assign(field, value) => {
                let value = self.value(value)?;
                self.set(*field, &value);
            }
            Primitive::AssignHeader(to, from) => {
                let (to, from) = (&program.headers[*to], &program.headers[*from]);
                for place in 0..=to.fields.len() {
                    self.fields[to.first + place] = self.fields[from.first + place].clone();
                }
            }
            Primitive::SetValid(header, valid) => {
                self.set(program.headers[*header].valid, &Number::from(u64::from(*valid)));
            }
            Primitive::Read(field, array, index) => {
                let index = self.access(program, *array, index, false)?;
                let value = self.registers[*array][index].clone();
                self.set(*field, &value);
            }
            Primitive::Write(array, index, value) => {
                let index = self.access(program, *array, index, true)?;
                self.registers[*array][index] = self.value(value)?.truncated(program.registers[*array].width);
            }
            Primitive::Hash { to, base, calculation, size } => {
                // Numbers of 64 bits; a size of 0 counts as 1.
                let word = |value: Number| value.truncated(64).to_u64().unwrap_or_default();
                let hash = self.crc32(&program.calculations[*calculation])?;
                let (base, size) = (word(self.value(base)?), word(self.value(size)?).max(1));
                self.set(*to, &Number::from((u64::from(hash) % size).wrapping_add(base)));
            }
            Primitive::Drop(egress_spec) => self.set(*egress_spec, &Number::from(DROP_PORT)),
        }
        Ok(())
    }

    fn crc32(&self, calculation: &Calculation) -> Result<u32, Fault> {
        let mut hasher = crc32fast::Hasher::new();
        for (value, bytes) in &calculation.input {
            hasher.update(&self.value(value)?.to_bytes(*bytes));
        }
        Ok(hasher.finalize())
    }

    /// The entry that is read or written, if the frame may access the array once more.
    fn access(&mut self, program: &Program, array: usize, index: &Expression, writes: bool) -> Result<usize, Fault> {
        let index = self.index(program, array, index)?;
        let may = self.accesses[array].is_none_or(|before| writes && before == Access { index, writes: false });
        if !may {
            return Err(Fault::Again { name: program.registers[array].name.clone(), index });
        }
        self.accesses[array] = Some(Access { index, writes });
        Ok(index)
    }

    fn index(&self, program: &Program, array: usize, index: &Expression) -> Result<usize, Fault> {
        let (index, array) = (self.value(index)?.to_u64().unwrap_or(u64::MAX), &program.registers[array]);
        let outside = || Fault::Register { name: array.name.clone(), index, size: array.size };
        usize::try_from(index).ok().filter(|index| *index < array.size).ok_or_else(outside)
    }

    fn value(&self, expression: &Expression) -> Result<Number, Fault> {
        Ok(match expression {
            Expression::Constant(number) => number.clone(),
            Expression::Field(field) => self.fields[*field].clone(),
            Expression::Data(place) => self.data.get(*place).ok_or(Fault::Data(*place))?.clone(),
            Expression::Unary(operation, operand) => unary(*operation, &self.value(operand)?),
            Expression::Binary(operation, left, right) => self.binary(*operation, left, right)?,
            Expression::Choice(parts) => {
                let [test, yes, no] = &**parts;
                if self.value(test)?.is_zero() { self.value(no)? } else { self.value(yes)? }
            }
        })
    }

    fn binary(&self, operation: Binary, left: &Expression, right: &Expression) -> Result<Number, Fault> {
        let left = self.value(left)?;
        match operation {
            Binary::And if left.is_zero() => return Ok(left),
            Binary::Or if !left.is_zero() => return Ok(truth(true)),
            _ => {}
        }
        let right = self.value(right)?;
        binary(operation, &left, &right).ok_or(Fault::Shift(right))
    }

    /// The headers that are there, in the deparser's order.
    fn deparse(&self, program: &Program) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        for place in &program.deparser {
            let header = &program.headers[*place];
            if self.fields[header.valid].is_zero() {
                continue;
            }
            let (mut value, mut bits) = (Number::default(), 0);
            for field in header.first..header.first + header.fields.len() {
                let width = if header.variable { self.variable_bits[*place] } else { program.widths[field] };
                value = value.shifted_left(width).or(&self.fields[field]);
                bits += width;
            }
            if !bits.is_multiple_of(8) {
                return Err(Fault::Alignment(header.name.clone()));
            }
            bytes.extend(value.to_bytes(bits as usize / 8));
        }
        Ok(bytes)
    }
}

/// The place of a thing that was found, if it has as many values as were given.
fn counted(what: &'static str, name: &str, found: Option<(usize, usize)>, values: &[u64]) -> Result<usize, SetError> {
    let (place, expected) = found.ok_or_else(|| SetError::Missing { what, name: name.to_owned() })?;
    if values.len() != expected {
        return Err(SetError::Count { what, name: name.to_owned(), found: values.len(), expected });
    }
    Ok(place)
}

#[cfg(test)]
mod tests;
