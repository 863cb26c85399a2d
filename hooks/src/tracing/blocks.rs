//! Memory for the bytes of buffered spans: blocks of one size, chained per trace. When a trace leaves, its blocks are
//! free for any other: nothing is moved, nothing is fragmented, and the memory bound is exact.

/// Payload bytes of a block. A trace wastes half of one on average.
pub(super) const BLOCK: usize = 60;
/// Bytes of a block: its payload and the number of the next one.
pub(super) const BLOCK_COST: usize = size_of::<Block>();
const _: () = assert!(BLOCK_COST == 64, "as documented at TailBuffer");
/// Number of no block.
const NONE: u32 = u32::MAX;

/// One cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Block {
    bytes: [u8; BLOCK],
    /// Chains are circular: the last block is followed by the first. The last free block has none.
    next: u32,
}

/// The bytes of one trace, in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    last: u32,
    bytes: u32,
}

impl Chain {
    pub(super) const EMPTY: Self = Self { last: NONE, bytes: 0 };

    pub(super) const fn bytes(self) -> usize {
        self.bytes as usize
    }

    /// How many blocks the chain takes.
    pub(super) const fn blocks(self) -> usize {
        self.bytes().div_ceil(BLOCK)
    }

    /// How many more blocks the chain takes with `bytes` appended.
    pub(super) const fn growth(self, bytes: usize) -> usize {
        (self.bytes() + bytes).div_ceil(BLOCK) - self.bytes().div_ceil(BLOCK)
    }
}

/// How far a chain has been read that is needed soon, and how much of it is left. A block's line is in no cache by
/// then, and says which is next: whoever reads a few of them between other work, or several chains side by side, does
/// not wait for one after the other when they are needed. A hint: nothing follows from it, also where the chain is gone
/// meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAhead {
    block: u32,
    left: usize,
}

impl ReadAhead {
    /// Nothing is left to read.
    pub(super) const DONE: Self = Self { block: NONE, left: 0 };
    /// Blocks of one chain that are read at most: 16 KiB. More would not stay in the first two caches.
    const MAX: usize = 256;

    /// Nothing of `chain` has been read.
    pub(super) fn of(chain: Chain) -> Self {
        Self { block: chain.last, left: chain.blocks().min(Self::MAX) }
    }
}

/// All blocks, and which of them are free.
#[derive(Debug)]
pub(super) struct Blocks {
    all: Vec<Block>,
    free: u32,
    free_count: usize,
}

impl Blocks {
    /// Reserves up to `limit` blocks. The system commits memory when it is first written.
    pub(super) fn new(limit: usize) -> Result<Self, std::collections::TryReserveError> {
        let mut all = Vec::new();
        all.try_reserve_exact(limit)?;
        Ok(Self { all, free: NONE, free_count: 0 })
    }

    /// Blocks that were ever used; they are never given back.
    pub(super) const fn allocated(&self) -> usize {
        self.all.len()
    }

    pub(super) const fn free(&self) -> usize {
        self.free_count
    }

    fn next(&self, block: u32) -> u32 {
        self.all[block as usize].next
    }

    /// Takes a block that is in no chain; its `next` means nothing.
    fn take(&mut self) -> u32 {
        if self.free != NONE {
            let block = self.free;
            self.free = self.next(block);
            self.free_count -= 1;
            return block;
        }
        debug_assert!(self.all.len() < self.all.capacity(), "the caller keeps to the limit");
        self.all.push(Block { bytes: [0; BLOCK], next: NONE });
        (self.all.len() - 1) as u32
    }

    /// Appends `bytes` to `chain`. The caller has made sure that [`Chain::growth`] blocks are free or can be allocated.
    pub(super) fn append(&mut self, chain: &mut Chain, bytes: &[u8]) {
        let used = chain.bytes() % BLOCK;
        let begun = if used == 0 { 0 } else { bytes.len().min(BLOCK - used) };
        let (now, later) = bytes.split_at(begun);
        if !now.is_empty() {
            self.all[chain.last as usize].bytes[used..used + now.len()].copy_from_slice(now);
        }
        let (whole, rest) = later.as_chunks();
        for block in whole {
            self.extend(chain).bytes = *block;
        }
        if !rest.is_empty() {
            self.extend(chain).bytes[..rest.len()].copy_from_slice(rest);
        }
        chain.bytes += bytes.len() as u32;
    }

    /// Appends a block to `chain`.
    fn extend(&mut self, chain: &mut Chain) -> &mut Block {
        let last = self.take();
        let first = match chain.last {
            NONE => last,
            before => core::mem::replace(&mut self.all[before as usize].next, last),
        };
        chain.last = last;
        let block = &mut self.all[last as usize];
        block.next = first;
        block
    }

    /// Frees the blocks of `chain`. O(1).
    pub(super) fn release(&mut self, chain: Chain) {
        if chain.last == NONE {
            return;
        }
        self.free = core::mem::replace(&mut self.all[chain.last as usize].next, self.free);
        self.free_count += chain.bytes().div_ceil(BLOCK);
    }

    /// Reads up to `blocks` more of a chain, without its bytes.
    pub(super) fn read_ahead(&self, ahead: &mut ReadAhead, blocks: usize) {
        let now = blocks.min(ahead.left);
        for _ in 0..now {
            // The last free block has no next one.
            ahead.block = self.all.get(ahead.block as usize).map_or(NONE, |block| block.next);
        }
        ahead.left -= now;
    }

    /// Reads these chains side by side, without their bytes: the lines of one are on their way while another one's are
    /// waited for.
    pub(super) fn read_side_by_side(&self, chains: &mut [ReadAhead]) {
        while chains.iter().any(|chain| chain.left > 0) {
            for chain in &mut *chains {
                self.read_ahead(chain, 1);
            }
        }
        // Nobody needs what was read. The compiler is not told, or it would leave out reading it.
        core::hint::black_box(chains);
    }

    pub(super) fn read(&self, chain: Chain) -> Reader<'_> {
        let first = if chain.last == NONE { NONE } else { self.next(chain.last) };
        Reader { blocks: self, block: first, used: 0, left: chain.bytes() }
    }
}

/// Reads a chain from its beginning.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    blocks: &'a Blocks,
    block: u32,
    used: usize,
    left: usize,
}

impl Reader<'_> {
    /// Calls `piece` with the next `bytes` bytes, in pieces; with fewer where the chain ends.
    fn walk(&mut self, bytes: usize, mut piece: impl FnMut(&[u8])) {
        let mut wanted = bytes.min(self.left);
        while wanted > 0 {
            if self.used == BLOCK {
                self.block = self.blocks.next(self.block);
                self.used = 0;
            }
            let now = wanted.min(BLOCK - self.used);
            piece(&self.blocks.all[self.block as usize].bytes[self.used..self.used + now]);
            self.used += now;
            self.left -= now;
            wanted -= now;
        }
    }

    /// The next `N` bytes, or as many as are left, and their number. The reader does not move.
    pub(super) fn peek<const N: usize>(&self) -> ([u8; N], usize) {
        let (mut bytes, mut filled) = ([0; N], 0);
        self.clone().walk(N, |piece| {
            bytes[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        });
        (bytes, filled)
    }

    /// Appends the next `bytes` bytes to `into`.
    pub(super) fn copy(&mut self, bytes: usize, into: &mut Vec<u8>) {
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
                let (growth, used) = (chain.growth(length), blocks.allocated() - blocks.free());
                blocks.append(chain, &bytes);
                expected.extend(&bytes);
                prop_assert_eq!(blocks.allocated() - blocks.free(), used + growth);
            }
            for (chain, expected) in &chains {
                let mut read = Vec::new();
                blocks.read(*chain).copy(usize::MAX, &mut read);
                prop_assert_eq!(&read, expected);
            }
            let used: usize = chains.iter().map(|(chain, _)| chain.bytes().div_ceil(BLOCK)).sum();
            prop_assert_eq!(blocks.allocated() - blocks.free(), used);
        }
    }

    #[test]
    fn reading_ahead_passes_each_block_once_and_ends_also_where_the_chain_is_gone() {
        let mut blocks = Blocks::new(8).unwrap();
        let mut chain = Chain::EMPTY;
        blocks.append(&mut chain, &[7; 4 * BLOCK + 1]);
        let (mut ahead, mut passed) = (ReadAhead::of(chain), Vec::new());
        while ahead.left > 0 {
            blocks.read_ahead(&mut ahead, 1);
            passed.push(ahead.block);
        }
        assert_eq!(passed, [0, 1, 2, 3, 4]);
        blocks.read_ahead(&mut ahead, 3);
        assert_eq!((ahead.block, ahead.left), (4, 0));

        let mut chains = [ReadAhead::of(chain), ReadAhead::DONE, ReadAhead::of(Chain::EMPTY), ReadAhead::of(chain)];
        blocks.read_ahead(&mut chains[3], 2);
        blocks.release(chain);
        blocks.read_side_by_side(&mut chains);
        assert!(chains.iter().all(|chain| chain.left == 0), "{chains:?}");
    }

    #[test]
    fn reading_beyond_the_end_gives_what_there_is() {
        let mut blocks = Blocks::new(4).unwrap();
        let mut chain = Chain::EMPTY;
        blocks.append(&mut chain, &[7; 62]);

        let mut reader = blocks.read(chain);
        reader.skip(59);

        assert_eq!(reader.peek::<2>(), ([7, 7], 2));
        assert_eq!(reader.peek::<4>(), ([7, 7, 7, 0], 3));
        reader.skip(4);
        assert_eq!(reader.peek::<1>(), ([0], 0));
        assert_eq!(blocks.read(Chain::EMPTY).peek::<1>(), ([0], 0));
    }
}
