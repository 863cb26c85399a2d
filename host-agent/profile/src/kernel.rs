//! Perf events of the kernel: one for each thread, with a ring of samples.

use core::fmt;
use std::io;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

use crate::event::Event;
use crate::stacks::MAX_FRAMES;

/// Bytes of a ring. It takes the samples of 100 ms several times over, and is locked in memory, of which the kernel
/// lends each user half a megabyte for each processor.
const RING: usize = 32 << 10;
/// What one sample may stand for.
const MAX_PERIOD: u64 = 1 << 32;
/// From here on, an entry of a stack is no address but says of what kind the next ones are (`PERF_CONTEXT_MAX`).
const MARKS: u64 = 0_u64.wrapping_sub(4_095);

/// Samples of one thread.
pub(crate) struct Thread {
    sampler: Sampler,
    event: Event,
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").finish_non_exhaustive()
    }
}

impl Thread {
    /// Samples the thread `id` from now on, `frequency_hz` times for each second of `event`.
    ///
    /// # Errors
    ///
    /// The kernel's: there is no such thread, no right, or nothing to do it with.
    pub(crate) fn open(id: u32, event: Event, frequency_hz: u32) -> io::Result<Self> {
        // In the kernel, too: a call that takes long is shown by who called it. Without the right, in user space only.
        Self::with(id, event, frequency_hz, false).or_else(|error| match event {
            Event::ProcessorTime | Event::PageFaults if is_refusal(&error) => Self::with(id, event, frequency_hz, true),
            _ => Err(error),
        })
    }

    fn with(id: u32, event: Event, frequency_hz: u32, only_user: bool) -> io::Result<Self> {
        let id = id.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut builder = Builder::new(match event {
            Event::ProcessorTime => Software::CPU_CLOCK,
            Event::PageFaults => Software::PAGE_FAULTS,
            Event::Waiting => Software::CONTEXT_SWITCHES,
        });
        builder
            .observe_pid(id)
            .any_cpu()
            .exclude_kernel(only_user)
            .exclude_callchain_kernel(true)
            .sample_frequency(u64::from(frequency_hz))
            .sample(SampleFlag::IP | SampleFlag::CALLCHAIN | SampleFlag::PERIOD)
            .sample_max_stack(MAX_FRAMES as u16);
        let mut sampler = builder.build()?.sampled(RING)?;
        sampler.enable()?;
        Ok(Self { sampler, event })
    }

    /// Calls `each` with the stack of each sample since the last call, the innermost address first, and what it counts
    /// for: how many page faults, say, it stands for. Returns how many samples were lost.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&[u64], u64)) -> u64 {
        let (mut lost, mut stack) = (0, Vec::with_capacity(MAX_FRAMES));
        while let Some(record) = self.sampler.next_record() {
            match record.parse_record() {
                Ok(Record::Sample(sample)) => {
                    stack.clear();
                    let chain = sample.callchain().unwrap_or_default();
                    stack.extend(chain.iter().copied().filter(|address| *address < MARKS));
                    // A sample of time stands for itself; its period is in nanoseconds.
                    let period = sample.period().filter(|_| self.event != Event::ProcessorTime);
                    each(&stack, period.unwrap_or(1).clamp(1, MAX_PERIOD));
                }
                Ok(Record::Lost(record)) => lost += record.lost,
                Ok(Record::LostSamples(record)) => lost += record.lost,
                // Others say when the kernel slowed sampling down.
                Ok(_) => {}
                Err(_) => lost += 1,
            }
        }
        lost
    }
}

/// Whether the kernel said that this must not be done here.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
    // NotFound: the kernel was built without such events; a thread that is gone is another error.
    matches!(error.kind(), PermissionDenied | Unsupported | NotFound)
}
