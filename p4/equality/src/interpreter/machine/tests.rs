use super::super::program::{RegisterArray, Transition};
use super::*;

/// A switch with four registers `A.ticks` and one table `A.Keys.keys`, whose action has the data 1.
fn machine(action: Vec<Primitive>) -> Machine {
    let ticks = RegisterArray { name: "A.ticks".to_owned(), size: 4, width: 32 };
    let end = Transition { value: Number::default(), mask: Some(Number::default()), next: None };
    let state = State { steps: Vec::new(), key: Vec::new(), key_widths: Vec::new(), transitions: vec![end] };
    let data = vec![Number::from(1)];
    let table = Node::Table { name: "A.Keys.keys".to_owned(), action: 0, data, next: None };
    let program = Program {
        widths: vec![48, 32],
        states: vec![state],
        registers: vec![ticks],
        actions: vec![action],
        nodes: vec![table],
        pipelines: [Some(0), None],
        ..Program::default()
    };
    Machine::new(program.into())
}

fn read(index: u64) -> Primitive {
    Primitive::Read(1, 0, Expression::Constant(Number::from(index)))
}

/// Writes the table's data.
fn write(index: u64) -> Primitive {
    Primitive::Write(0, Expression::Constant(Number::from(index)), Expression::Data(0))
}

#[test]
fn a_frame_reads_an_array_once_then_writes_it_once_at_one_index() {
    for action in [vec![read(2)], vec![write(2)], vec![read(2), write(2)]] {
        let mut machine = machine(action);
        for _ in 0..2 {
            assert!(machine.process(0, 0, b"").is_ok(), "each frame anew");
        }
    }
    for (action, index) in [
        (vec![read(2), read(2)], 2),
        (vec![write(2), write(2)], 2),
        (vec![write(2), read(2)], 2),
        (vec![read(2), write(2), write(2)], 2),
        (vec![read(2), write(3)], 3),
    ] {
        let refused = machine(action).process(0, 0, b"");
        assert_eq!(refused, Err(Fault::Again { name: "A.ticks".to_owned(), index }));
    }
}

#[test]
fn a_table_has_the_data_that_it_was_given_until_the_switch_starts_again() {
    let mut machine = machine(vec![write(2)]);
    let ticks = |machine: &mut Machine| {
        machine.process(0, 0, b"").expect("a frame");
        machine.registers("A.ticks").expect("an array")
    };

    assert_eq!(ticks(&mut machine), [0, 0, 1, 0]);
    machine.set_default("Keys.keys", &[7]).expect("a table");
    assert_eq!(ticks(&mut machine), [0, 0, 7, 0]);
    assert_eq!(ticks(&mut machine.empty()), [0, 0, 1, 0]);
    let refused = |outcome: Result<(), SetError>| outcome.expect_err("refused").to_string();
    assert_eq!(refused(machine.set_default("ys.keys", &[7])), "the program has no table ys.keys");
    let many = machine.set_default("A.Keys.keys", &[7, 8]);
    assert_eq!(refused(many), "2 values for the table A.Keys.keys, which has 1");
}

#[test]
fn registers_have_what_they_were_given_as_far_as_they_have_bits() {
    let mut machine = machine(vec![read(2)]);

    machine.set_registers("ticks", &[1, 2, (7 << 32) + 3, 4]).expect("an array");
    assert_eq!(machine.registers("A.ticks"), Some(vec![1, 2, 3, 4]));
    let few = machine.set_registers("ticks", &[1]).expect_err("too few").to_string();
    assert_eq!(few, "1 values for the array ticks, which has 4");
}
