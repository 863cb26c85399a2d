//! `p4/lda`.

use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::DigestKind;
use synopses::finecomb::{Bank, Sampling, Settings};

use crate::finecomb;
use crate::frames::Captured;
use crate::model::{self, key};
use crate::registers::Registers;

/// The settings that the compiled program has.
#[must_use]
pub fn settings() -> Settings {
    let bank = |probability| Bank { probability, stash: 0, loss: 0.0 };
    Settings {
        banks: vec![bank(0.5), bank(0.25)],
        sampling: Sampling::Disjoint,
        ..Settings::one_bank(32, 1.0, 0, 0x1da0)
    }
}

/// The program's constants, with digests of this kind.
///
/// # Errors
///
/// [`ConstantsError`] if the settings are not possible.
pub fn constants(kind: DigestKind) -> Result<Constants, ConstantsError> {
    programs::lda(&finecomb::of_kind(settings(), kind), &key(kind))
}

/// The library's buckets of every other interval, without what LDA does not compare.
#[derive(Clone, Debug)]
pub struct Reference(finecomb::Reference);

impl Reference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`ConstantsError`] if the settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, ConstantsError> {
        finecomb::Reference::new(settings(), constants).map(Self)
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        self.0.process(captured);
    }

    fn registers(&self) -> Registers {
        let mut registers = self.0.registers();
        registers.retain(|name, _| !["number", "values_low", "values_high"].contains(&name.as_str()));
        registers
    }
}
