//! `p4/fragment`.

use packets::identity;
use packets::switch::{Constants, ConstantsError, programs};
use synopses::digest::{DigestKey, DigestKind};
use synopses::disaggregated::{Fragment, Path, PathError, Settings};

use crate::begun::Begun;
use crate::encoding::Reader;
use crate::frames::{Captured, Frames};
use crate::model::{self, key};
use crate::registers::Registers;

/// The switch's place on its path.
pub const POSITION: usize = 1;

/// The settings that the compiled program has. The number of counters is no power of two.
#[must_use]
pub const fn settings() -> Settings {
    Settings { id: 20, counters: 50, rows: 2, seed: 0x00f4_a93e }
}

/// The same with values that are derived from digests of this kind. For hardware counters are a power of two.
#[must_use]
pub const fn settings_of(kind: DigestKind) -> Settings {
    let settings = settings();
    let counters = match kind {
        DigestKind::Products => settings.counters,
        DigestKind::Hardware => settings.counters.next_power_of_two(),
    };
    Settings { counters, seed: kind.seed(settings.seed), ..settings }
}

/// The path of the compiled program: each flow updates two of three fragments.
///
/// # Errors
///
/// [`PathError`] if there is no such path.
pub fn path(kind: DigestKind) -> Result<Path, PathError> {
    Path::random(&[10, settings().id, 30], 2, kind.seed(0x0090_a7c4))
}

/// The program's constants, with digests of this kind.
///
/// # Errors
///
/// [`FragmentError`] if path or settings are not possible.
pub fn constants(kind: DigestKind) -> Result<Constants, FragmentError> {
    Ok(programs::fragment(settings_of(kind), &path(kind)?, POSITION, &key(kind))?)
}

/// Why there is no fragment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FragmentError {
    /// The library refuses the path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// There are no constants.
    #[error(transparent)]
    Constants(#[from] ConstantsError),
}

/// The library's fragment of every other epoch.
#[derive(Clone, Debug)]
pub struct Reference {
    frames: Frames,
    key: DigestKey,
    begun: Begun,
    path: Path,
    parities: [Fragment; 2],
    passed: u64,
}

impl Reference {
    /// Before the first frame of a program with these constants.
    ///
    /// # Errors
    ///
    /// [`FragmentError`] if path or settings are not possible.
    pub fn new(constants: &Constants) -> Result<Self, FragmentError> {
        let kind = constants.kind();
        let empty = Fragment::new(settings_of(kind)).map_err(ConstantsError::from)?;
        let (frames, parities) = (Frames::new(constants), [empty.clone(), empty]);
        Ok(Self { frames, key: key(kind), begun: Begun::default(), path: path(kind)?, parities, passed: 0 })
    }
}

impl model::Reference for Reference {
    fn process(&mut self, captured: &Captured) {
        let packet = self.frames.count(captured);
        self.begun.take(captured);
        let Some(packet) = packet else { return };
        let flow = identity::flow(&packet, &self.key);
        if self.path.select(flow).contains(POSITION) {
            self.parities[self.begun.parity()].insert(flow, 1);
        } else {
            self.passed += 1;
        }
    }

    fn registers(&self) -> Registers {
        let mut registers = Registers::new();
        self.frames.put(&mut registers);
        self.begun.put(&mut registers);
        registers.insert("load".to_owned(), self.parities.iter().map(Fragment::load).collect());
        registers.insert("passed".to_owned(), vec![self.passed]);
        for fragment in &self.parities {
            put_counters(fragment, &mut registers);
        }
        registers
    }
}

/// Adds the counters, from their encoding (`synopses/src/disaggregated/codec.rs`).
fn put_counters(fragment: &Fragment, registers: &mut Registers) {
    let encoded = fragment.encode();
    let mut reader = Reader::of(&encoded);
    reader.number();
    let (counters, rows) = (reader.number() as usize, reader.number() as usize);
    // Epoch, seed, load.
    reader.number();
    reader.skip(8);
    reader.number();
    let (mut all, mut at) = (vec![0; counters * rows], 0);
    for _ in 0..reader.number() {
        at += reader.number() as usize;
        all[at] = reader.number();
        at += 1;
    }
    for (row, counts) in all.chunks(counters).enumerate() {
        registers.entry(format!("row{row}")).or_default().extend(counts);
    }
}
