//! Where the bytes of waiting spans lie: blocks of one size, chained per trace. A trace leaves in the middle of others, and its blocks are
//! at once good for any other: nothing is moved, nothing is fragmented, and the bound is exact.

/// Bytes of a block. A trace wastes half of one on average.
pub(super) const BLOCK: usize = 128;
/// What a block takes: its bytes and the number of the next one.
pub(super) const BLOCK_COST: usize = BLOCK + size_of::<u32>();
/// No block.
const NONE: u32 = u32::MAX;

/// The bytes of one trace, in the order in which they came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    first: u32,
    last: u32,
    bytes: u32,
}

impl Chain {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE, bytes: 0 };

    pub(super) const fn bytes(self) -> usize {
        self.bytes as usize
    }

    /// How many blocks it would take more with `bytes` at its end.
    pub(super) const fn growth(self, bytes: usize) -> usize {
        (self.bytes() + bytes).div_ceil(BLOCK) - self.bytes().div_ceil(BLOCK)
    }
}

/// All blocks that there are, and which are free.
#[derive(Debug)]
pub(super) struct Blocks {
    data: Vec<[u8; BLOCK]>,
    next: Vec<u32>,
    free: u32,
    free_count: usize,
}

impl Blocks {
    /// Room for up to `limit` blocks; memory is taken from the system when it is first written.
    pub(super) fn new(limit: usize) -> Result<Self, std::collections::TryReserveError> {
        let (mut data, mut next) = (Vec::new(), Vec::new());
        data.try_reserve_exact(limit)?;
        next.try_reserve_exact(limit)?;
        Ok(Self { data, next, free: NONE, free_count: 0 })
    }

    /// Blocks that were ever used; they stay.
    pub(super) const fn made(&self) -> usize {
        self.data.len()
    }

    pub(super) const fn free(&self) -> usize {
        self.free_count
    }

    fn take(&mut self) -> u32 {
        if self.free != NONE {
            let block = self.free;
            self.free = self.next[block as usize];
            self.free_count -= 1;
            self.next[block as usize] = NONE;
            return block;
        }
        debug_assert!(self.data.len() < self.data.capacity(), "the caller keeps to the limit");
        self.data.push([0; BLOCK]);
        self.next.push(NONE);
        (self.data.len() - 1) as u32
    }

    /// Puts `bytes` at the end of `chain`. The caller has made sure that there are [`Chain::growth`] blocks free or to be made.
    pub(super) fn append(&mut self, chain: &mut Chain, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = chain.bytes() % BLOCK;
            if used == 0 {
                let block = self.take();
                match chain.last {
                    NONE => chain.first = block,
                    last => self.next[last as usize] = block,
                }
                chain.last = block;
            }
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - used));
            self.data[chain.last as usize][used..used + now.len()].copy_from_slice(now);
            chain.bytes += now.len() as u32;
            bytes = later;
        }
    }

    /// Gives the blocks of `chain` back. O(1).
    pub(super) fn release(&mut self, chain: Chain) {
        if chain.first == NONE {
            return;
        }
        self.next[chain.last as usize] = self.free;
        self.free = chain.first;
        self.free_count += chain.bytes().div_ceil(BLOCK);
    }

    pub(super) const fn read(&self, chain: Chain) -> Reader<'_> {
        Reader { blocks: self, block: chain.first, used: 0, left: chain.bytes() }
    }
}

/// Reads a chain from its beginning.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    blocks: &'a Blocks,
    block: u32,
    used: usize,
    left: usize,
}

impl Reader<'_> {
    /// Calls `piece` with the next `bytes` bytes, in pieces. Fewer, where the chain ends.
    fn walk(&mut self, bytes: usize, mut piece: impl FnMut(&[u8])) {
        let mut wanted = bytes.min(self.left);
        while wanted > 0 {
            if self.used == BLOCK {
                self.block = self.blocks.next[self.block as usize];
                self.used = 0;
            }
            let now = wanted.min(BLOCK - self.used);
            piece(&self.blocks.data[self.block as usize][self.used..self.used + now]);
            self.used += now;
            self.left -= now;
            wanted -= now;
        }
    }

    /// The next `N` bytes, or `None` if fewer are left.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.left < N {
            return None;
        }
        let (mut array, mut filled) = ([0; N], 0);
        self.walk(N, |piece| {
            array[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        });
        Some(array)
    }

    /// Puts the next `bytes` bytes into `into`, in place of what it held.
    pub(super) fn copy(&mut self, bytes: usize, into: &mut Vec<u8>) {
        into.clear();
        self.walk(bytes, |piece| into.extend_from_slice(piece));
    }

    pub(super) fn skip(&mut self, bytes: usize) {
        self.walk(bytes, |_| ());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Chains that grow and go in any order read back what was written, and no block is lost or given twice.
        #[test]
        fn chains_keep_their_bytes(steps in proptest::collection::vec((0..8_usize, 0..400_usize, any::<bool>()), 1..200)) {
            let mut blocks = Blocks::new(8 * 200 * 4).unwrap();
            let mut chains: Vec<(Chain, Vec<u8>)> = vec![(Chain::EMPTY, Vec::new()); 8];
            for (at, (chain, length, release)) in steps.into_iter().enumerate() {
                let (chain, expected) = &mut chains[chain];
                if release {
                    blocks.release(*chain);
                    (*chain, *expected) = (Chain::EMPTY, Vec::new());
                }
                let bytes: Vec<u8> = (0..length).map(|i| (i * 31 + at) as u8).collect();
                let (growth, used) = (chain.growth(length), blocks.made() - blocks.free());
                blocks.append(chain, &bytes);
                expected.extend(&bytes);
                prop_assert_eq!(blocks.made() - blocks.free(), used + growth);
            }
            for (chain, expected) in &chains {
                let mut read = Vec::new();
                blocks.read(*chain).copy(usize::MAX, &mut read);
                prop_assert_eq!(&read, expected);
            }
            let used: usize = chains.iter().map(|(chain, _)| chain.bytes().div_ceil(BLOCK)).sum();
            prop_assert_eq!(blocks.made() - blocks.free(), used);
        }
    }

    #[test]
    fn reading_beyond_the_end_gives_what_there_is() {
        let mut blocks = Blocks::new(4).unwrap();
        let mut chain = Chain::EMPTY;
        blocks.append(&mut chain, &[7; 130]);

        let mut reader = blocks.read(chain);
        reader.skip(127);

        assert_eq!(reader.array::<2>(), Some([7, 7]));
        assert_eq!(reader.array::<2>(), None);
        assert_eq!(reader.array::<1>(), Some([7]));
    }
}
