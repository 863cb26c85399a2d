//! What is sampled.

/// What a sample is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A share of a second on a processor, in user space.
    ProcessorTime,
    /// A page fault.
    PageFaults,
    /// A thread that gave the processor up: it waits for a lock, a disk, a peer or the processor itself.
    Waiting,
}

impl Event {
    /// What to sample where the metric `name` leads an alarm; `None`: a stack would not explain it.
    #[must_use]
    pub fn of_metric(name: &str) -> Option<Self> {
        // A process that waits for a processor, or is throttled, is looked at on the processor: that is what it waits
        // to go on with.
        match name {
            "process.cpu.time"
            | "process.cpu.wait_time"
            | "process.cpu.run_queue_latency"
            | "container.cpu.time"
            | "container.cpu.throttled_time"
            | "container.cpu.throttled_periods"
            | "container.cpu.pressure" => Some(Self::ProcessorTime),
            "process.paging.faults" | "container.paging.faults" => Some(Self::PageFaults),
            "process.disk.wait_time"
            | "process.disk.wait_latency"
            | "process.context_switches"
            | "container.io.pressure" => Some(Self::Waiting),
            _ => None,
        }
    }

    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ProcessorTime => "processor time",
            Self::PageFaults => "page faults",
            Self::Waiting => "waiting",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_that_a_stack_explains_are_sampled() {
        assert_eq!(Event::of_metric("process.cpu.time"), Some(Event::ProcessorTime));
        assert_eq!(Event::of_metric("process.paging.faults"), Some(Event::PageFaults));
        assert_eq!(Event::of_metric("process.disk.wait_time"), Some(Event::Waiting));
        assert_eq!(Event::of_metric("http.server.request.duration"), None);
        assert_eq!(Event::of_metric("process.memory.usage"), None);
    }
}
