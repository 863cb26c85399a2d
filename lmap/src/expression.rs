//! Arithmetic that an operator writes, such as `max - min` or `errors / requests`: checked once, evaluated per row.
//!
//! *Source*: precedence climbing into postfix form, as in any textbook on compilers.
//! *Guarantee*: any text gives an expression or an error with its position. Evaluation ends after at most
//! [`MAX_OPERATIONS`] operations and allocates nothing.
//! *Grammar*: numbers, names, `+ - * /`, parentheses, and the functions `abs`, `sqrt`, `ln`, `exp`, `min(a, b)` and
//! `max(a, b)`. A name is of letters, digits, `_`, `.` and `:`; any other stands in backquotes.
//! *Memory*: 16 bytes per operation, and the text of the names.

mod replicas;
#[cfg(test)]
mod tests;

pub use replicas::{Aggregate, MAX_QUANTITIES, ReplicaExpression, quantile};

/// Bytes of an expression at the most.
pub const MAX_TEXT: usize = 256;
/// Operations of an expression at the most, each number and each name counted as one.
pub const MAX_OPERATIONS: usize = 64;
/// Parentheses, functions and signs inside one another at the most.
const MAX_DEPTH: usize = 16;
/// Values that wait during an evaluation: each level of nesting holds back at most three.
const STACK: usize = 3 * MAX_DEPTH + 4;

/// Why a text is no expression, and where: positions count bytes from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// The text is too long.
    #[error("the expression has {0} bytes: at most {MAX_TEXT} are allowed")]
    Length(usize),
    /// A character that no expression has.
    #[error("at {at}: {character:?} has no meaning here: numbers, names, + - * / ( ) and , are possible")]
    Character {
        /// Where it is.
        at: usize,
        /// The character there.
        character: char,
    },
    /// Something else was expected.
    #[error("at {at}: {found} instead of {expected}")]
    Unexpected {
        /// Position of what was found.
        at: usize,
        /// What was found.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A function that does not exist.
    #[error("at {at}: there is no function {name}: abs, sqrt, ln, exp, min and max exist")]
    Function {
        /// Where it is.
        at: usize,
        /// Name of the function.
        name: String,
    },
    /// A function with too many or too few values.
    #[error("at {at}: {function} takes {wanted}, not {found}")]
    Arity {
        /// Position of the function.
        at: usize,
        /// Name of the function.
        function: &'static str,
        /// How many values it takes.
        wanted: usize,
        /// How many it was given.
        found: usize,
    },
    /// Too many operations for every row.
    #[error("at {at}: more than {MAX_OPERATIONS} operations")]
    Operations {
        /// Position of the first one too many.
        at: usize,
    },
    /// Nested too deeply.
    #[error("at {at}: more than {MAX_DEPTH} parentheses, functions or signs inside one another")]
    Depth {
        /// Position of the first one too many.
        at: usize,
    },
    /// A name that is not known.
    #[error("at {at}: {name} is not known: {known}")]
    Name {
        /// Where it is.
        at: usize,
        /// The unknown name.
        name: String,
        /// Which names are possible.
        known: String,
    },
    /// It would say the same whatever happens.
    #[error("the expression names no value: it would be the same in every row")]
    Constant,
    /// It has no finite value for any input that was tried.
    #[error("the expression has no finite value for any input that was tried: look for a division by 0")]
    NoNumber,
}

/// One step of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Number(f64),
    Name(u16),
    One(Function),
    Two(Operator),
}

/// What is done to one value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Negate,
    Abs,
    Sqrt,
    Ln,
    Exp,
}

impl Function {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Negate => -value,
            Self::Abs => value.abs(),
            Self::Sqrt => value.sqrt(),
            Self::Ln => value.ln(),
            Self::Exp => value.exp(),
        }
    }
}

/// What makes one of two values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Min,
    Max,
}

impl Operator {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Add => one + other,
            Self::Subtract => one - other,
            Self::Multiply => one * other,
            Self::Divide => one / other,
            // Unlike f64::min, a missing value makes the result missing.
            Self::Min | Self::Max if one.is_nan() || other.is_nan() => f64::NAN,
            Self::Min => one.min(other),
            Self::Max => one.max(other),
        }
    }
}

/// A name in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name, without backquotes.
    pub text: String,
    /// Where it is first, in bytes from 0.
    pub at: usize,
}

/// A checked expression. Its names are numbered in the order in which they first appear.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    operations: Box<[Operation]>,
    names: Vec<Name>,
}

impl Expression {
    /// Reads `text`. Whether its names mean anything is up to the caller.
    ///
    /// # Errors
    ///
    /// [`ExpressionError`] with the position of what is wrong.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > MAX_TEXT {
            return Err(ExpressionError::Length(text.len()));
        }
        let mut reader = Reader { text, at: 0, operations: Vec::new(), names: Vec::new() };
        reader.sum(0)?;
        reader.expect_end()?;
        if reader.names.is_empty() {
            return Err(ExpressionError::Constant);
        }
        Ok(Self { operations: reader.operations.into(), names: reader.names })
    }

    /// Its names, each once.
    #[must_use]
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Tries it with some values for its names.
    ///
    /// # Errors
    ///
    /// [`ExpressionError::NoNumber`] if it has no finite value for any of them.
    pub fn check_finite(&self) -> Result<(), ExpressionError> {
        // Equal values, different ones in either order, and nothing at all.
        let tried: [fn(f64) -> f64; 5] =
            [|_| 1.0, |name| name + 2.0, |name| 1e3 / (name + 1.0), |name| -name - 1.0, |_| 0.0];
        let is_finite = |value: &fn(f64) -> f64| self.evaluate(|name| value(name as f64)).is_finite();
        if tried.iter().any(is_finite) { Ok(()) } else { Err(ExpressionError::NoNumber) }
    }

    /// Its value, if name number n has the value `value(n)`. May be infinite or NaN. O(operations); allocates nothing.
    pub fn evaluate(&self, value: impl Fn(usize) -> f64) -> f64 {
        let (mut stack, mut top) = ([0.0; STACK], 0);
        for operation in &self.operations {
            // The reader has bounded the depth, so that no index is outside.
            match *operation {
                Operation::Number(number) => push(&mut stack, &mut top, number),
                Operation::Name(name) => push(&mut stack, &mut top, value(usize::from(name))),
                Operation::One(function) => stack[top - 1] = function.of(stack[top - 1]),
                Operation::Two(operator) => {
                    top -= 1;
                    stack[top - 1] = operator.of(stack[top - 1], stack[top]);
                }
            }
        }
        stack[0]
    }
}

fn push(stack: &mut [f64; STACK], top: &mut usize, value: f64) {
    stack[*top] = value;
    *top += 1;
}

/// Reads an expression from left to right, and writes its operations in postfix order.
struct Reader<'text> {
    text: &'text str,
    at: usize,
    operations: Vec<Operation>,
    names: Vec<Name>,
}

const VALUE: &str = "a number, a name, a function or (";

impl Reader<'_> {
    /// The next character that is no space, and its position.
    fn peek(&mut self) -> Option<char> {
        let rest = self.text.get(self.at..)?;
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        self.at += spaces;
        self.text.get(self.at..)?.chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.at += wanted.len_utf8();
        }
        is_next
    }

    fn unexpected(&mut self, expected: &'static str) -> ExpressionError {
        let next = self.peek();
        let at = self.at;
        match next {
            None => ExpressionError::Unexpected { at, found: "the end".to_owned(), expected },
            Some(character) if "+-*/(),`.".contains(character) || character.is_ascii_alphanumeric() => {
                ExpressionError::Unexpected { at, found: format!("{character:?}"), expected }
            }
            Some(character) => ExpressionError::Character { at, character },
        }
    }

    fn expect(&mut self, wanted: char, expected: &'static str) -> Result<(), ExpressionError> {
        if self.take(wanted) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn expect_end(&mut self) -> Result<(), ExpressionError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.unexpected("an operator or the end")) }
    }

    fn write(&mut self, at: usize, operation: Operation) -> Result<(), ExpressionError> {
        if self.operations.len() == MAX_OPERATIONS {
            return Err(ExpressionError::Operations { at });
        }
        self.operations.push(operation);
        Ok(())
    }

    fn sum(&mut self, depth: usize) -> Result<(), ExpressionError> {
        self.product(depth)?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(()),
            };
            let at = self.at;
            self.at += 1;
            self.product(depth)?;
            self.write(at, Operation::Two(operator))?;
        }
    }

    fn product(&mut self, depth: usize) -> Result<(), ExpressionError> {
        self.value(depth)?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Multiply,
                Some('/') => Operator::Divide,
                _ => return Ok(()),
            };
            let at = self.at;
            self.at += 1;
            self.value(depth)?;
            self.write(at, Operation::Two(operator))?;
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), ExpressionError> {
        let next = self.peek();
        let at = self.at;
        if depth == MAX_DEPTH {
            return Err(ExpressionError::Depth { at });
        }
        match next {
            Some('-') => {
                self.at += 1;
                self.value(depth + 1)?;
                self.write(at, Operation::One(Function::Negate))
            }
            Some('(') => {
                self.at += 1;
                self.sum(depth + 1)?;
                self.expect(')', "an operator or )")
            }
            Some('0'..='9' | '.') => self.number(at),
            Some('`') => self.quoted(at),
            Some(character) if character.is_ascii_alphabetic() || character == '_' => self.name_or_function(at, depth),
            _ => Err(self.unexpected(VALUE)),
        }
    }

    fn number(&mut self, at: usize) -> Result<(), ExpressionError> {
        let rest = &self.text[at..];
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        // An exponent, with or without a sign.
        let exponent = rest[digits..].strip_prefix(['e', 'E']).map_or(0, |rest| {
            let unsigned = rest.strip_prefix(['+', '-']).unwrap_or(rest);
            let length = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
            if length == 0 { 0 } else { 1 + rest.len() - unsigned.len() + length }
        });
        let text = &rest[..digits + exponent];
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        let wrong = || ExpressionError::Unexpected { at, found: text.to_owned(), expected: "a finite number" };
        let number = number.ok_or_else(wrong)?;
        self.at += text.len();
        self.write(at, Operation::Number(number))
    }

    fn quoted(&mut self, at: usize) -> Result<(), ExpressionError> {
        let rest = &self.text[at + 1..];
        let Some((name, _)) = rest.split_once('`').filter(|(name, _)| !name.is_empty()) else {
            return Err(ExpressionError::Unexpected {
                at,
                found: "a backquote".to_owned(),
                expected: "a name between backquotes",
            });
        };
        self.at += name.len() + 2;
        self.name(at, name.to_owned())
    }

    fn name(&mut self, at: usize, text: String) -> Result<(), ExpressionError> {
        let known = self.names.iter().position(|name| name.text == text);
        let number = known.unwrap_or_else(|| {
            self.names.push(Name { text, at });
            self.names.len() - 1
        });
        self.write(at, Operation::Name(number as u16))
    }

    fn name_or_function(&mut self, at: usize, depth: usize) -> Result<(), ExpressionError> {
        let rest = &self.text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_.:".contains(c))).unwrap_or(rest.len());
        let name = rest[..end].to_owned();
        self.at += end;
        if !self.take('(') {
            return self.name(at, name);
        }
        let (function, wanted, operation) = match name.as_str() {
            "abs" => ("abs", 1, Operation::One(Function::Abs)),
            "sqrt" => ("sqrt", 1, Operation::One(Function::Sqrt)),
            "ln" => ("ln", 1, Operation::One(Function::Ln)),
            "exp" => ("exp", 1, Operation::One(Function::Exp)),
            "min" => ("min", 2, Operation::Two(Operator::Min)),
            "max" => ("max", 2, Operation::Two(Operator::Max)),
            _ => return Err(ExpressionError::Function { at, name }),
        };
        let mut found = 0;
        if !self.take(')') {
            loop {
                self.sum(depth + 1)?;
                found += 1;
                // More values than any function takes would leave the stack.
                if found > wanted || !self.take(',') {
                    break;
                }
            }
            if found <= wanted {
                self.expect(')', "an operator, a comma or )")?;
            }
        }
        if found != wanted {
            return Err(ExpressionError::Arity { at, function, wanted, found });
        }
        self.write(at, operation)
    }
}
