//! `p4/together`.

use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::DigestKind;

use crate::frames::Captured;
use crate::model::{self, key};
use crate::registers::Registers;
use crate::{finecomb, fridge, sthll};

/// The program's constants, with digests of this kind: those of the three programs that it joins.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(kind: DigestKind) -> Result<Constants, ConstantsError> {
    let buckets = finecomb::of_kind(finecomb::settings(), kind);
    programs::together(fridge::settings_of(kind), &buckets, sthll::settings_of(kind), &key(kind))
}

/// The library's three synopses.
#[derive(Clone, Debug)]
pub struct Reference {
    handshakes: fridge::Reference,
    buckets: finecomb::Reference,
    flows: sthll::Reference,
}

impl Reference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, ConstantsError> {
        Ok(Self {
            handshakes: fridge::Reference::new(constants)?,
            buckets: finecomb::Reference::new(finecomb::settings(), constants)?,
            flows: sthll::Reference::new(constants)?,
        })
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        self.handshakes.process(captured);
        self.buckets.process(captured);
        self.flows.process(captured);
    }

    fn registers(&self) -> Registers {
        let mut registers = self.handshakes.registers();
        registers.extend(self.buckets.registers());
        registers.extend(self.flows.registers());
        registers
    }

    fn is_loaded_from(&self, registers: &Registers) -> bool {
        self.flows.is_loaded_from(registers)
    }
}
