//! CPU time in nanoseconds, from two incomplete sources. Pure.
//!
//! A thread's scheduler statistics are exact, but do not separate user from kernel time and vanish with the thread. The
//! process's clock ticks do both, in steps of 10 ms. So the time of the threads counts, but never less than the ticks
//! prove. It is divided by the ratio of the recent ticks.

/// Weight of a new ratio, per tick.
const WEIGHT: f64 = 0.1;

/// CPU time of one process so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    user_ns: u64,
    system_ns: u64,
    user_ticks: u64,
    system_ticks: u64,
    system_share: f64,
}

impl CpuTime {
    /// All ticks so far count as time.
    pub fn new(user_ticks: u64, system_ticks: u64, tick_ns: u64) -> Self {
        let total = (user_ticks + system_ticks).max(1);
        Self {
            user_ns: user_ticks.saturating_mul(tick_ns),
            system_ns: system_ticks.saturating_mul(tick_ns),
            user_ticks,
            system_ticks,
            system_share: system_ticks as f64 / total as f64,
        }
    }

    /// Threads ran for `ran_ns` since the last call; the ticks are now these.
    pub fn advance(&mut self, ran_ns: u64, user_ticks: u64, system_ticks: u64, tick_ns: u64) {
        let user = user_ticks.saturating_sub(self.user_ticks);
        let system = system_ticks.saturating_sub(self.system_ticks);
        if user + system > 0 {
            let share = system as f64 / (user + system) as f64;
            // The more ticks, the better they tell the ratio.
            let weight = (WEIGHT * (user + system) as f64).min(1.0);
            self.system_share += weight * (share - self.system_share);
        }
        (self.user_ticks, self.system_ticks) = (user_ticks.max(self.user_ticks), system_ticks.max(self.system_ticks));
        let proved = (self.user_ticks + self.system_ticks).saturating_mul(tick_ns);
        let missing = proved.saturating_sub(self.total_ns().saturating_add(ran_ns));
        let more = ran_ns.saturating_add(missing);
        let system = ((more as f64 * self.system_share) as u64).min(more);
        self.system_ns = self.system_ns.saturating_add(system);
        self.user_ns = self.user_ns.saturating_add(more - system);
    }

    /// Nanoseconds in user mode.
    pub const fn user_ns(&self) -> u64 {
        self.user_ns
    }

    /// Nanoseconds in the kernel.
    pub const fn system_ns(&self) -> u64 {
        self.system_ns
    }

    fn total_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 10_000_000;

    #[test]
    fn time_below_a_tick_counts() {
        let mut time = CpuTime::new(100, 0, TICK);
        time.advance(1234, 100, 0, TICK);

        assert_eq!(time.user_ns() + time.system_ns(), 100 * TICK + 1234);
    }

    #[test]
    fn threads_that_ended_are_made_up_for_by_ticks() {
        let mut time = CpuTime::new(0, 0, TICK);
        time.advance(0, 5, 5, TICK);

        assert_eq!((time.user_ns(), time.system_ns()), (5 * TICK, 5 * TICK));
    }

    #[test]
    fn time_is_divided_as_ticks_are_and_never_goes_back() {
        let mut time = CpuTime::new(0, 0, TICK);
        let mut last = (0, 0);
        for step in 1..=1000 {
            time.advance(TICK, step * 3 / 4, step / 4, TICK);
            assert!(time.user_ns() >= last.0 && time.system_ns() >= last.1);
            last = (time.user_ns(), time.system_ns());
        }

        let share = last.1 as f64 / (last.0 + last.1) as f64;
        assert!((share - 0.25).abs() < 0.05, "{share}");
        assert!(last.0 + last.1 >= 998 * TICK);
    }

    #[test]
    fn ticks_that_go_back_are_not_believed() {
        let mut time = CpuTime::new(100, 100, TICK);
        time.advance(5, 0, 0, TICK);

        assert_eq!(time.user_ns() + time.system_ns(), 200 * TICK + 5);
    }
}
