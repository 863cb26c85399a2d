use super::super::program::{Header, RegisterArray, State, Transition};
use super::*;

/// Fields: a bit and an index of a header, whether that is there, then three numbers of the program.
const BIT: FieldId = 0;
const INDEX: FieldId = 1;
const THERE: FieldId = 2;
const FIRST: FieldId = 3;
const SECOND: FieldId = 4;
const READ: FieldId = 5;

/// A program with one array, whose tables have these actions; a frame has the header, or ends before.
fn surplus(nodes: Vec<Node>, actions: Vec<Vec<Primitive>>) -> Vec<String> {
    let names = ["bit".to_owned(), "index".to_owned()].to_vec();
    let header =
        Header { name: "h".to_owned(), metadata: false, fields: names, first: BIT, variable: false, valid: THERE };
    let end = Transition { value: Number::default(), mask: Some(Number::default()), next: None };
    let steps = vec![Step::Extract(0)];
    let program = Program {
        headers: vec![header],
        widths: vec![1, 32, 1, 32, 32, 32],
        states: vec![State { steps, key: Vec::new(), key_widths: Vec::new(), transitions: vec![end] }],
        registers: vec![RegisterArray { name: "ticks".to_owned(), size: 4, width: 32 }],
        actions,
        nodes,
        pipelines: [Some(0), None],
        ..Program::default()
    };
    program.surplus_accesses().into_iter().map(|surplus| surplus.table).collect()
}

fn table(action: usize, next: Option<usize>) -> Node {
    Node::Table { name: format!("table {action}"), action, data: Vec::new(), next }
}

/// Goes on with `yes` if a field is `number`, and with `no` if it is not.
fn condition(field: FieldId, number: u64, [yes, no]: [Option<usize>; 2]) -> Node {
    Node::Condition { test: binary_of(Binary::Equal, field, number), yes, no }
}

fn binary_of(operation: Binary, field: FieldId, number: u64) -> Expression {
    let number = Expression::Constant(Number::from(number));
    Expression::Binary(operation, Box::new(Expression::Field(field)), Box::new(number))
}

fn read(index: FieldId) -> Primitive {
    Primitive::Read(READ, 0, Expression::Field(index))
}

fn write(index: FieldId) -> Primitive {
    Primitive::Write(0, Expression::Field(index), Expression::Field(READ))
}

/// Sets a field to the sum of the header's index and a number.
fn add(field: FieldId, number: u64) -> Primitive {
    Primitive::Assign(field, binary_of(Binary::Plus, INDEX, number))
}

#[test]
fn an_array_is_read_once_then_written_once_at_one_index() {
    let of = |action: Vec<Primitive>| surplus(vec![table(0, None)], vec![action]);

    let none: [String; 0] = [];
    assert_eq!(of(vec![read(INDEX), write(INDEX)]), none);
    assert_eq!(of(vec![add(FIRST, 1), add(SECOND, 1), read(FIRST), write(SECOND)]), none, "both are the same");
    for action in [
        vec![read(INDEX), read(INDEX)],
        vec![write(INDEX), write(INDEX)],
        vec![write(INDEX), read(INDEX)],
        vec![add(FIRST, 1), read(FIRST), write(INDEX)],
        vec![add(FIRST, 1), add(SECOND, 2), read(FIRST), write(SECOND)],
        vec![add(FIRST, 1), read(FIRST), add(FIRST, 2), write(FIRST)],
        vec![add(FIRST, 1), add(INDEX, 7), add(SECOND, 1), read(FIRST), write(SECOND)],
    ] {
        assert_eq!(of(action.clone()), ["table 0"], "{action:?}");
    }
}

#[test]
fn paths_that_exclude_each_other_have_an_access_each() {
    // A bit decides twice: whether it is 1, then whether it is `number`.
    let of = |number, between: Option<Primitive>| {
        let nodes = vec![
            condition(BIT, 1, [Some(1), Some(2)]),
            table(0, Some(2)),
            table(1, Some(3)),
            condition(BIT, number, [Some(4), None]),
            table(2, None),
        ];
        surplus(nodes, vec![vec![read(INDEX)], between.into_iter().collect(), vec![read(INDEX)]])
    };
    let unknown = Primitive::Assign(BIT, Expression::Field(READ));
    let constant = |bit| Primitive::Assign(BIT, Expression::Constant(Number::from(bit)));

    let none: [String; 0] = [];
    assert_eq!(of(0, None), none);
    assert_eq!(of(1, None), ["table 2"]);
    assert_eq!(of(0, Some(unknown)), ["table 2"], "the bit has become another one");
    assert_eq!((of(1, Some(constant(0))), of(0, Some(constant(0)))), (vec![], vec!["table 2".to_owned()]));
}

#[test]
fn what_the_parser_finds_out_is_known() {
    // The bit is 0 unless the header is there.
    let of = |there| {
        let nodes = vec![
            condition(BIT, 1, [Some(1), Some(2)]),
            table(0, Some(2)),
            condition(THERE, there, [Some(3), None]),
            table(1, None),
        ];
        surplus(nodes, vec![vec![read(INDEX)], vec![read(INDEX)]])
    };

    assert_eq!((of(0), of(1)), (vec![], vec!["table 1".to_owned()]));
}

#[test]
fn a_condition_of_several_tests_tells_what_follows_from_it() {
    let both = |operation| {
        let [left, right] = [BIT, THERE].map(|field| Box::new(binary_of(Binary::Equal, field, 1)));
        Expression::Binary(operation, left, right)
    };
    // The first access if the test is met, the second one if the bit is 0.
    let of = |test: Expression| {
        let nodes = vec![
            Node::Condition { test, yes: Some(1), no: Some(2) },
            table(0, Some(2)),
            condition(BIT, 0, [Some(3), None]),
            table(1, None),
        ];
        surplus(nodes, vec![vec![read(INDEX)], vec![read(INDEX)]])
    };
    let not = |test| Expression::Unary(Unary::Not, Box::new(test));
    let other = Expression::Binary(
        Binary::And,
        Box::new(not(binary_of(Binary::Equal, BIT, 0))),
        Box::new(Expression::Unary(Unary::Truth, Box::new(Expression::Field(THERE)))),
    );

    let none: [String; 0] = [];
    assert_eq!(of(both(Binary::And)), none);
    assert_eq!(of(both(Binary::Or)), ["table 1"], "the bit may be 0");
    assert_eq!(of(not(both(Binary::Or))), ["table 1"]);
    assert_eq!(of(other), none);
}

#[test]
fn accesses_in_egress_are_too_many() {
    let program = Program {
        registers: vec![RegisterArray { name: "ticks".to_owned(), size: 4, width: 32 }],
        widths: vec![1, 32, 1, 32, 32, 32],
        states: vec![State { steps: Vec::new(), key: Vec::new(), key_widths: Vec::new(), transitions: Vec::new() }],
        actions: vec![vec![read(INDEX)]],
        nodes: vec![table(0, None)],
        pipelines: [None, Some(0)],
        ..Program::default()
    };

    let expected = Surplus { array: "ticks".to_owned(), table: "table 0".to_owned() };
    assert_eq!(program.surplus_accesses(), [expected]);
}
