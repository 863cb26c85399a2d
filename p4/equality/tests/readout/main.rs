//! An agent that reads the registers of a switch has the intervals that the library has of the same packets.

mod cardinality;
mod finecomb;
mod fridge;
mod heavy;
mod reordering;

use std::net::{TcpListener, TcpStream};

use equality::control::Switch;
use equality::interpreter::Machine;
use equality::programs::Subject;
use equality::traffic::{START_NS, Traffic};
use packets::switch::Constants;
use packets::switch::registers::main_control;
use packets::switch::thrift::{SwitchTime, ThriftError, answer, answer_time, ask, ask_time};

fn subject(program: &str) -> &'static Subject {
    Subject::of_name(program).expect("a program")
}

fn constants(program: &str) -> Constants {
    let subject = subject(program);
    (subject.constants)(subject.kind).expect("settings of the tested program")
}

fn machine(program: &str) -> Machine {
    Machine::new(subject(program).load().expect("a compiled program").into())
}

#[test]
fn every_program_that_is_read_has_its_registers_behind_its_main_control() {
    let programs = ["fridge", "fridges", "finecomb-sender", "finecomb-receiver", "lda", "lda-hardware", "st-hll"];
    for program in programs.into_iter().chain(["together", "reordering", "reordering-samples", "precision"]) {
        let control = main_control(program).expect("it is read");
        let machine = machine(program);

        let has = |name: &str| machine.registers(&format!("{control}.{name}")).is_some();
        assert!(has("Frames.frames") && !has("frames"), "{program}");
        assert_eq!(["epochs_high", "stage1_epochs"].map(has), [program == "precision"; 2], "{program}");
        let sampled = ["Visits.report_prefixes_high", "Samples.sample_prefixes_low", "Samples.sample_events"];
        assert_eq!(sampled.map(has), [program.starts_with("reordering"); 3], "{program}");
        let samples = ["Fridge.matched", "Fridge.report_ticks", "Fridge.report_insertions", "Fridge.insertions"];
        assert_eq!(samples.map(has), [program.starts_with("fridge") || program == "together"; 4], "{program}");
    }
}

#[test]
fn a_switch_answers_whoever_asks_as_the_reference_switch_does() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let began_ns = START_NS - 5_000_000_000;
    let switch = Switch::start_at(machine("fridge"), listener, began_ns).expect("a thread");
    for captured in Traffic::new(3, 0.0).take(500) {
        switch.process(&captured).expect("a frame");
    }
    let stream = TcpStream::connect(switch.address()).expect("it listens");
    let asked = |name: &str, number: u32| {
        ask(&stream, name, number)?;
        answer(&stream, name, number)
    };

    assert_eq!(asked("Handshakes.Frames.frames", 1).expect("registers"), [500]);
    let ticks = asked("Handshakes.Fridge.report_ticks", 2).expect("registers");
    assert_eq!(ticks, switch.registers("report_ticks"));
    assert!(ticks.iter().any(|ticks| *ticks > 0));
    let other = asked("Sender.Interval.sums_low", 3);
    assert!(matches!(other, Err(ThriftError::NoRegisters(name)) if name == "Sender.Interval.sums_low"));
    // The connection goes on.
    assert_eq!(asked("Handshakes.Frames.frames", 4).expect("registers"), [500]);
    let time = |time, number: u32| {
        ask_time(&stream, time, number)?;
        answer_time(&stream, time, number)
    };
    let elapsed_us = time(SwitchTime::Elapsed, 5).expect("a time");
    assert_eq!(time(SwitchTime::Epoch, 6).expect("a time"), elapsed_us + began_ns / 1_000);
    assert!(elapsed_us > 5_000_000, "five seconds and 500 frames: {elapsed_us}");
    switch.start_again();
    assert_eq!(asked("Handshakes.Frames.frames", 7).expect("registers"), [0]);
}
