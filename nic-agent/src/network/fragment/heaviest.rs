//! The flows with the largest counts of an epoch: a count-min sketch has counts, and no names.

use packets::identity::FlowKey;

/// Most flows that are remembered, and asked for at the other end.
pub(super) const MAX_FLOWS: usize = 16;

/// A flow with a large count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeavyFlow {
    pub(super) key: FlowKey,
    /// The other node of its path, by its place; `None`: it passes this fragment only.
    pub(super) peer: Option<usize>,
    /// Its count here.
    pub(super) count: u32,
}

/// The flows with the largest counts so far.
#[derive(Debug, Default)]
pub(super) struct Heaviest {
    flows: Vec<HeavyFlow>,
    /// Least count among them if there is no room, otherwise 0.
    least: u32,
}

impl Heaviest {
    /// None yet, with memory for all.
    pub(super) fn new() -> Self {
        Self { flows: Vec::with_capacity(MAX_FLOWS), least: 0 }
    }

    /// Sees the count of a flow after one of its packets. O(1), and O([`MAX_FLOWS`]) if the flow is among the heaviest.
    #[inline]
    pub(super) fn see(&mut self, flow: HeavyFlow) {
        if flow.count <= self.least {
            return;
        }
        if let Some(known) = self.flows.iter_mut().find(|known| known.key == flow.key) {
            known.count = flow.count;
        } else if self.flows.len() < MAX_FLOWS {
            self.flows.push(flow);
        } else if let Some(least) = self.flows.iter_mut().min_by_key(|known| known.count) {
            *least = flow;
        }
        if self.flows.len() == MAX_FLOWS {
            self.least = self.flows.iter().map(|known| known.count).min().unwrap_or(0);
        }
    }

    /// The flows in no particular order.
    pub(super) fn into_flows(self) -> Vec<HeavyFlow> {
        self.flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_of_many_flows_are_remembered_with_their_last_counts() {
        let key = |flow: u8| {
            let mut bytes = [0; 37];
            bytes[0] = flow;
            FlowKey::from_bytes(bytes)
        };
        let mut heaviest = Heaviest::new();
        let mut counts = [0_u32; 100];
        for round in 0_u32..200 {
            for flow in 0..100_u8 {
                // Flow 99 has 200 packets, flow 0 two.
                if round * 100 % 200 < 2 + 2 * u32::from(flow) || flow > round as u8 % 100 {
                    counts[usize::from(flow)] += 1;
                    heaviest.see(HeavyFlow { key: key(flow), peer: None, count: counts[usize::from(flow)] });
                }
            }
        }
        let mut found: Vec<_> = heaviest.into_flows().iter().map(|flow| flow.count).collect();
        found.sort_unstable();
        counts.sort_unstable();
        assert_eq!(found, counts[100 - MAX_FLOWS..]);
    }
}
