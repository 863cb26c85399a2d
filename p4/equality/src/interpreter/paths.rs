//! Whether a frame may access an array of registers more often than a pipeline of hardware can: whichever path it
//! takes, it reads an array once and then writes it once, at one index.
//!
//! Paths are followed from the parser on, for one array after the other. What is known of small fields goes along with
//! a path: that one was set to a constant, or which conditions were passed. So paths are told from those that no frame
//! takes. Paths of which the same is known go on as one. An index is the same one if it is computed by the same
//! expression of values that did not change.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::arithmetic::{binary, truth, unary};
use super::number::Number;
use super::program::{Binary, Expression, FieldId, Node, Primitive, Program, Step, Unary};

/// Bits of the widest fields that are known.
const MAX_KNOWN: u32 = 8;

/// An access to registers that is one too many on some path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Surplus {
    /// Name of the array.
    pub array: String,
    /// The table whose action accesses it, by the compiler's name.
    pub table: String,
}

impl Program {
    /// Accesses to registers that a pipeline cannot do: a second read or write of an array on some path, a read behind
    /// a write, an access at another index, and any outside of ingress.
    #[must_use]
    pub fn surplus_accesses(&self) -> Vec<Surplus> {
        let paths = Paths::new(self);
        let parsed = paths.parsed();
        let surplus = self.registers.iter().enumerate().flat_map(|(array, of)| {
            let nodes = Walk::new(&paths, array).follow(&parsed);
            nodes.into_iter().map(move |node| Surplus { array: of.name.clone(), table: self.nodes[node].name() })
        });
        surplus.collect()
    }
}

impl Node {
    fn name(&self) -> String {
        match self {
            Self::Table { name, .. } => name.clone(),
            Self::Condition { .. } => "a condition".to_owned(),
        }
    }

    /// What may follow.
    fn next(&self) -> impl Iterator<Item = usize> + use<> {
        let next = match self {
            Self::Table { next, .. } => [*next, None],
            Self::Condition { yes, no, .. } => [*yes, *no],
        };
        next.into_iter().flatten()
    }
}

impl Primitive {
    fn accesses(&self, array: usize) -> bool {
        matches!(self, Self::Read(_, of, _) | Self::Write(of, ..) if *of == array)
    }
}

impl Expression {
    /// Adds the fields that it is computed from.
    fn add_fields(&self, fields: &mut BTreeSet<FieldId>) {
        match self {
            Self::Field(field) => {
                fields.insert(*field);
            }
            Self::Constant(_) | Self::Data(_) => {}
            Self::Unary(_, operand) => operand.add_fields(fields),
            Self::Binary(_, left, right) => [left, right].iter().for_each(|side| side.add_fields(fields)),
            Self::Choice(parts) => parts.iter().for_each(|part| part.add_fields(fields)),
        }
    }
}

/// What fields are, as far as it is known.
type Facts = BTreeMap<FieldId, u64>;

/// The value of an expression, if it follows from what is known.
fn value(expression: &Expression, facts: &Facts) -> Option<Number> {
    match expression {
        Expression::Constant(number) => Some(number.clone()),
        Expression::Field(field) => facts.get(field).copied().map(Number::from),
        Expression::Data(_) | Expression::Choice(_) => None,
        Expression::Unary(operation, operand) => Some(unary(*operation, &value(operand, facts)?)),
        Expression::Binary(operation, left, right) => {
            let sides = [value(left, facts), value(right, facts)];
            let is = |truth: bool| sides.iter().flatten().any(|side| side.is_zero() != truth);
            match (operation, &sides) {
                (Binary::And, _) if is(false) => Some(truth(false)),
                (Binary::Or, _) if is(true) => Some(truth(true)),
                (_, [Some(left), Some(right)]) => binary(*operation, left, right),
                _ => None,
            }
        }
    }
}

/// A program, with what is the same for all arrays.
struct Paths<'a> {
    program: &'a Program,
    /// The nodes of ingress, each behind those that may follow it.
    order: Vec<usize>,
    /// The fields of which facts are kept: those that conditions test.
    tested: BTreeSet<FieldId>,
}

impl<'a> Paths<'a> {
    fn new(program: &'a Program) -> Self {
        let mut tested = BTreeSet::new();
        for node in &program.nodes {
            if let Node::Condition { test, .. } = node {
                test.add_fields(&mut tested);
            }
        }
        tested.retain(|field| program.widths[*field] <= MAX_KNOWN);
        Self { program, order: following_first(program, program.pipelines[0]), tested }
    }

    /// A field is this number from now on, or an unknown one.
    fn set(&self, field: FieldId, number: Option<Number>, facts: &mut Facts) {
        let known = number.and_then(|number| number.truncated(self.program.widths[field]).to_u64());
        match known.filter(|_| self.tested.contains(&field)) {
            Some(known) => facts.insert(field, known),
            None => facts.remove(&field),
        };
    }

    /// Adds what follows from a test that is met, or is not.
    fn assume(&self, test: &Expression, met: bool, facts: &mut Facts) {
        match test {
            Expression::Unary(Unary::Same | Unary::Truth, operand) => self.assume(operand, met, facts),
            Expression::Unary(Unary::Not, operand) => self.assume(operand, !met, facts),
            Expression::Binary(operation @ (Binary::And | Binary::Or), left, right) => {
                // What the whole is if one side is that.
                let decisive = *operation == Binary::Or;
                let is_other = |side: &Expression| value(side, facts).is_some_and(|side| side.is_zero() == decisive);
                let follows = [right, left].map(|other| met != decisive || is_other(other));
                for (side, _) in [left, right].into_iter().zip(follows).filter(|(_, follows)| *follows) {
                    self.assume(side, met, facts);
                }
            }
            Expression::Binary(operation @ (Binary::Equal | Binary::Unequal), left, right) => {
                let equal = (*operation == Binary::Equal) == met;
                for (side, other) in [(left, right), (right, left)] {
                    if let (Expression::Field(field), Some(other)) = (&**side, value(other, facts)) {
                        self.compared(*field, &other, equal, facts);
                    }
                }
            }
            Expression::Field(field) => self.compared(*field, &truth(false), !met, facts),
            _ => {}
        }
    }

    /// Adds that a field is a number, or is not: then a single bit is the other one.
    fn compared(&self, field: FieldId, number: &Number, equal: bool, facts: &mut Facts) {
        let is_bit = self.program.widths[field] == 1 && [truth(false), truth(true)].contains(number);
        if equal {
            self.set(field, Some(number.clone()), facts);
        } else if is_bit {
            self.set(field, Some(truth(number.is_zero())), facts);
        }
    }

    /// What may be known when the parser ends, wherever a frame ends.
    fn parsed(&self) -> BTreeSet<Facts> {
        let standard = self.program.headers.iter().find(|header| header.name == "standard_metadata");
        let is_standard = |field: FieldId| standard.is_some_and(|header| (header.first..header.valid).contains(&field));
        let start: Facts = self.tested.iter().filter(|field| !is_standard(**field)).map(|field| (*field, 0)).collect();
        let (mut ends, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut todo = vec![(self.program.first_state, start)];
        while let Some((place, mut facts)) = todo.pop() {
            if !seen.insert((place, facts.clone())) {
                continue;
            }
            let state = &self.program.states[place];
            for step in &state.steps {
                match step {
                    Step::Set(field, expression) => self.set(*field, value(expression, &facts), &mut facts),
                    Step::Extract(header) | Step::ExtractVariable(header, _) => {
                        ends.insert(facts.clone());
                        let header = &self.program.headers[*header];
                        (header.first..header.valid).for_each(|field| self.set(field, None, &mut facts));
                        self.set(header.valid, Some(truth(true)), &mut facts);
                    }
                }
            }
            todo.extend(state.transitions.iter().filter_map(|way| Some((way.next?, facts.clone()))));
            ends.insert(facts);
        }
        ends
    }
}

/// Where a frame is on its way, and what is known of it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Visit {
    node: usize,
    facts: Facts,
    /// Which values the fields have that an index is computed from.
    values: BTreeMap<FieldId, usize>,
    /// The latest access to the array: whether it wrote, and the value of the index.
    access: Option<(bool, usize)>,
}

/// The paths by which frames come to one array.
struct Walk<'a> {
    paths: &'a Paths<'a>,
    array: usize,
    /// Nodes behind which an access may come, or in which it is.
    leading: BTreeSet<usize>,
    /// Fields whose facts may matter from a node on.
    live: Vec<BTreeSet<FieldId>>,
    /// Fields in indices of the array, and those that they are computed from.
    indices: BTreeSet<FieldId>,
    sources: BTreeSet<FieldId>,
    /// A number for each value, by how it is computed.
    values: HashMap<String, usize>,
    surplus: BTreeSet<usize>,
}

impl<'a> Walk<'a> {
    fn new(paths: &'a Paths<'a>, array: usize) -> Self {
        let leading = leading(paths, array);
        let live = live(paths, &leading);
        let (indices, sources) = index_fields(paths.program, array);
        Self { paths, array, leading, live, indices, sources, values: HashMap::new(), surplus: BTreeSet::new() }
    }

    /// The nodes whose access is one too many for a frame that comes from the parser.
    fn follow(mut self, parsed: &BTreeSet<Facts>) -> BTreeSet<usize> {
        let first = self.paths.program.pipelines[0];
        let visit = |facts: &Facts| Visit { node: 0, facts: facts.clone(), values: BTreeMap::new(), access: None };
        let mut todo: Vec<Visit> = parsed.iter().filter_map(|facts| self.arrive(first, visit(facts))).collect();
        let mut seen = HashSet::new();
        while let Some(visit) = todo.pop() {
            if seen.insert(visit.clone()) {
                self.pass(visit, &mut todo);
            }
        }
        let program = self.paths.program;
        let egress = following_first(program, program.pipelines[1]).into_iter();
        self.surplus.extend(egress.filter(|node| accesses(program, *node, self.array)));
        self.surplus
    }

    /// The visit of the next node, if an access may come.
    fn arrive(&self, next: Option<usize>, mut visit: Visit) -> Option<Visit> {
        visit.node = next.filter(|node| self.leading.contains(node))?;
        visit.facts.retain(|field, _| self.live[visit.node].contains(field));
        Some(visit)
    }

    fn pass(&mut self, mut visit: Visit, todo: &mut Vec<Visit>) {
        let paths = self.paths;
        match &paths.program.nodes[visit.node] {
            Node::Condition { test, yes, no } => {
                let known = value(test, &visit.facts).map(|known| !known.is_zero());
                for (met, next) in [(true, *yes), (false, *no)] {
                    if known.is_none_or(|known| known == met) {
                        let mut visit = visit.clone();
                        paths.assume(test, met, &mut visit.facts);
                        todo.extend(self.arrive(next, visit));
                    }
                }
            }
            Node::Table { action, next, .. } => {
                for (step, primitive) in paths.program.actions[*action].iter().enumerate() {
                    self.take(&mut visit, step, primitive);
                }
                todo.extend(self.arrive(*next, visit));
            }
        }
    }

    fn take(&mut self, visit: &mut Visit, step: usize, primitive: &Primitive) {
        let paths = self.paths;
        let here = |at: &Visit| format!("step {step} of {}", at.node);
        match primitive {
            Primitive::Assign(field, expression) => {
                let is_index = self.indices.contains(field);
                self.change(visit, *field, |at| if is_index { text(expression, at) } else { here(at) });
                paths.set(*field, value(expression, &visit.facts), &mut visit.facts);
            }
            Primitive::AssignHeader(header, _) => {
                let header = &paths.program.headers[*header];
                for field in header.first..=header.valid {
                    self.change(visit, field, |at| format!("field {field} in {}", here(at)));
                    paths.set(field, None, &mut visit.facts);
                }
            }
            Primitive::SetValid(header, valid) => {
                let field = paths.program.headers[*header].valid;
                self.change(visit, field, here);
                paths.set(field, Some(truth(*valid)), &mut visit.facts);
            }
            Primitive::Read(field, array, index) => {
                if *array == self.array {
                    self.access(visit, false, index);
                }
                self.change(visit, *field, here);
                paths.set(*field, None, &mut visit.facts);
            }
            Primitive::Write(array, index, _) => {
                if *array == self.array {
                    self.access(visit, true, index);
                }
            }
            Primitive::Drop(field) | Primitive::Hash { to: field, .. } => {
                self.change(visit, *field, here);
                paths.set(*field, None, &mut visit.facts);
            }
        }
    }

    /// A field has another value from now on, which is computed so.
    fn change(&mut self, visit: &mut Visit, field: FieldId, computed: impl Fn(&Visit) -> String) {
        if self.indices.contains(&field) || self.sources.contains(&field) {
            let number = self.number(computed(visit));
            visit.values.insert(field, number);
        }
    }

    fn number(&mut self, computed: String) -> usize {
        let next = self.values.len();
        *self.values.entry(computed).or_insert(next)
    }

    fn access(&mut self, visit: &mut Visit, writes: bool, index: &Expression) {
        let index = self.number(text(index, visit));
        if visit.access.is_some_and(|before| !writes || before != (false, index)) {
            self.surplus.insert(visit.node);
        }
        visit.access = Some((writes, index));
    }
}

/// The fields that are asked for before a step, from those that are behind it.
fn ask_before(step: &Primitive, fields: &mut BTreeSet<FieldId>) {
    match step {
        Primitive::Assign(field, expression) => {
            if fields.remove(field) {
                expression.add_fields(fields);
            }
        }
        Primitive::Read(field, ..) | Primitive::Drop(field) | Primitive::Hash { to: field, .. } => {
            fields.remove(field);
        }
        Primitive::AssignHeader(..) | Primitive::SetValid(..) | Primitive::Write(..) => {}
    }
}

/// How an expression is computed, from values of the fields.
fn text(expression: &Expression, visit: &Visit) -> String {
    match expression {
        Expression::Constant(number) => format!("{number:?}"),
        Expression::Field(field) => match visit.values.get(field) {
            Some(value) => format!("value {value}"),
            None => format!("field {field} of the parser"),
        },
        Expression::Data(place) => format!("data {place} of {}", visit.node),
        Expression::Unary(operation, operand) => format!("{operation:?}({})", text(operand, visit)),
        Expression::Binary(operation, left, right) => {
            format!("{operation:?}({}, {})", text(left, visit), text(right, visit))
        }
        Expression::Choice(parts) => {
            let parts = parts.each_ref().map(|part| text(part, visit));
            format!("Choice({})", parts.join(", "))
        }
    }
}

fn accesses(program: &Program, node: usize, array: usize) -> bool {
    match &program.nodes[node] {
        Node::Table { action, .. } => program.actions[*action].iter().any(|step| step.accesses(array)),
        Node::Condition { .. } => false,
    }
}

/// The nodes of a pipeline that begins with `first`, each behind those that may follow it.
fn following_first(program: &Program, first: Option<usize>) -> Vec<usize> {
    let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
    let mut todo: Vec<_> = first.map(|node| (node, false)).into_iter().collect();
    while let Some((node, is_done)) = todo.pop() {
        if is_done {
            order.push(node);
        } else if seen.insert(node) {
            todo.push((node, true));
            todo.extend(program.nodes[node].next().map(|next| (next, false)));
        }
    }
    order
}

/// The nodes with an access to the array, and those behind which one may come.
fn leading(paths: &Paths<'_>, array: usize) -> BTreeSet<usize> {
    let mut leading = BTreeSet::new();
    for node in &paths.order {
        let may_follow = paths.program.nodes[*node].next().any(|next| leading.contains(&next));
        if may_follow || accesses(paths.program, *node, array) {
            leading.insert(*node);
        }
    }
    leading
}

/// For each node the fields whose facts may matter from there on, among those that lead to an access.
fn live(paths: &Paths<'_>, leading: &BTreeSet<usize>) -> Vec<BTreeSet<FieldId>> {
    let mut live = vec![BTreeSet::new(); paths.program.nodes.len()];
    for place in paths.order.iter().filter(|node| leading.contains(*node)) {
        let node = &paths.program.nodes[*place];
        let mut fields: BTreeSet<FieldId> = node.next().flat_map(|next| live[next].clone()).collect();
        match node {
            Node::Condition { test, .. } => test.add_fields(&mut fields),
            Node::Table { action, .. } => {
                paths.program.actions[*action].iter().rev().for_each(|step| ask_before(step, &mut fields));
            }
        }
        fields.retain(|field| paths.tested.contains(field));
        live[*place] = fields;
    }
    live
}

/// The fields of all indices of an array, and those that they are computed from.
fn index_fields(program: &Program, array: usize) -> (BTreeSet<FieldId>, BTreeSet<FieldId>) {
    let (mut indices, mut sources) = (BTreeSet::new(), BTreeSet::new());
    for step in program.actions.iter().flatten() {
        if let Primitive::Read(_, of, index) | Primitive::Write(of, index, _) = step
            && *of == array
        {
            index.add_fields(&mut indices);
        }
    }
    for step in program.actions.iter().flatten() {
        if let Primitive::Assign(field, expression) = step
            && indices.contains(field)
        {
            expression.add_fields(&mut sources);
        }
    }
    (indices, sources)
}

#[cfg(test)]
mod tests;
