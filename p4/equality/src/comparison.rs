//! A program in the interpreter and the library, side by side, frame by frame.

use crate::frames::{AGENT_PORT, Captured};
use crate::interpreter::{Fault, Machine, Sent};
use crate::model::Reference;
use crate::programs::Unequal;
use crate::registers::{Registers, differences, of};

/// By which ports frames come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// From the agent, each behind its time.
    Agent,
    /// By the two ends of a wire in turn. A frame's time is that of the switch's clock: whole microseconds.
    Wire,
}

/// A program and the library, with the same frames until now.
#[derive(Debug)]
pub struct Comparison {
    machine: Machine,
    reference: Box<dyn Reference>,
    arrival: Arrival,
    /// What the registers would be if the switch had started with zeros.
    since_start: fn(&Registers) -> Registers,
    frames: usize,
}

impl Comparison {
    /// Before the first frame of both, which comes from the agent.
    #[must_use]
    pub fn new(machine: Machine, reference: Box<dyn Reference>) -> Self {
        Self { machine, reference, arrival: Arrival::Agent, since_start: Registers::clone, frames: 0 }
    }

    /// The same with frames that come otherwise.
    #[must_use]
    pub fn arriving(self, arrival: Arrival) -> Self {
        Self { arrival, ..self }
    }

    /// The same with a switch that started with other registers than zeros. `since_start` takes these off again.
    #[must_use]
    pub fn started_with(self, since_start: fn(&Registers) -> Registers) -> Self {
        Self { since_start, ..self }
    }

    /// Sends `frames` to both, and compares all registers after every `every` frames and at the end, and each frame
    /// that leaves. Returns the registers at the end.
    ///
    /// # Errors
    ///
    /// [`Unequal`], with what differs.
    pub fn run(&mut self, frames: impl Iterator<Item = Captured>, every: usize) -> Result<Registers, Unequal> {
        for captured in frames {
            let (port, sent) = self.send(&captured).map_err(|fault| Unequal::Fault(self.frames, fault))?;
            if sent.is_none_or(|sent| sent.port != port || sent.bytes != captured.bytes) {
                return Err(Unequal::Frame(self.frames));
            }
            self.frames += 1;
            if self.frames.is_multiple_of(every) {
                self.compare()?;
            }
        }
        self.compare()
    }

    /// Sends a frame to both. Returns what leaves the switch, and by which port it should.
    fn send(&mut self, captured: &Captured) -> Result<(u16, Option<Sent>), Fault> {
        match self.arrival {
            Arrival::Agent => {
                self.reference.process(captured);
                Ok((0, self.machine.process(AGENT_PORT, 0, &captured.replayed())?))
            }
            Arrival::Wire => {
                let (time_us, port) = (captured.time_ns / 1_000, (self.frames % 2) as u16);
                let captured = Captured { time_ns: time_us * 1_000, bytes: captured.bytes.clone() };
                self.reference.process(&captured);
                Ok((port ^ 1, self.machine.process(port, time_us, &captured.bytes)?))
            }
        }
    }

    fn compare(&self) -> Result<Registers, Unequal> {
        let (expected, found) = (self.reference.registers(), (self.since_start)(&of(&self.machine)));
        let differences = differences(&expected, &found);
        if !differences.is_empty() {
            return Err(Unequal::Registers { frames: self.frames, differences });
        }
        if self.reference.is_loaded_from(&found) { Ok(expected) } else { Err(Unequal::Loaded(self.frames)) }
    }
}
