//! Services of buffered traces that have spans of one service only. In a trace's entry a byte stands for it, which was
//! padding before: when such a trace gives way or ages, its spans are counted by service without reading them.

use crate::id::ServiceId;

/// The number of the service that all buffered spans of a trace are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SoleService(u8);

impl SoleService {
    /// Its spans are of several services, or of one without a number: they have to be read.
    pub(super) const NONE: Self = Self(0);
}

/// What a number stands for, and of how many traces it is.
#[derive(Clone, Copy, Debug)]
struct NumberedService {
    service: ServiceId,
    traces: u32,
}

/// Which services have a number: at most 255 at a time, 2 KiB. One without a trace gives its number to the next.
#[derive(Debug)]
pub(super) struct SoleServices {
    /// By number. The first one stands for no service.
    all: Vec<NumberedService>,
    /// The number that was given out last: spans of a service come together.
    last: usize,
}

impl SoleServices {
    const NUMBERS: usize = 1 << u8::BITS;

    /// No service has a number. Allocates for all that may.
    pub(super) fn new() -> Self {
        let mut all = Vec::with_capacity(Self::NUMBERS);
        all.push(NumberedService { service: ServiceId(0), traces: 0 });
        Self { all, last: 0 }
    }

    /// The number of `service` for one more trace. O(1) for the service of the call before, else O(services).
    pub(super) fn begin(&mut self, service: ServiceId) -> SoleService {
        let Some(number) = self.number(service) else { return SoleService::NONE };
        let numbered = &mut self.all[number];
        *numbered = NumberedService { service, traces: numbered.traces + 1 };
        self.last = number;
        SoleService(number as u8)
    }

    /// One trace less has this `number`. Returns its service.
    pub(super) fn end(&mut self, number: SoleService) -> Option<ServiceId> {
        let numbered = self.all.get_mut(usize::from(number.0)).filter(|_| number != SoleService::NONE)?;
        debug_assert!(numbered.traces > 0, "it was given out");
        numbered.traces = numbered.traces.saturating_sub(1);
        Some(numbered.service)
    }

    /// Whether this `number`, which a trace has, is that of `service`.
    pub(super) fn is(&self, number: SoleService, service: ServiceId) -> bool {
        number != SoleService::NONE && self.all[usize::from(number.0)].service == service
    }

    /// Traces that have a number.
    #[cfg(test)]
    pub(super) fn traces(&self) -> usize {
        self.all.iter().map(|numbered| numbered.traces as usize).sum()
    }

    /// The number that `service` has, or one that is free.
    fn number(&mut self, service: ServiceId) -> Option<usize> {
        let has = |number: &usize| {
            let numbered = self.all[*number];
            numbered.traces > 0 && numbered.service == service
        };
        let known = Some(self.last).filter(has).or_else(|| (1..self.all.len()).find(has));
        let known = known.or_else(|| (1..self.all.len()).find(|number| self.all[*number].traces == 0));
        if known.is_none() && self.all.len() < Self::NUMBERS {
            self.all.push(NumberedService { service, traces: 0 });
            return Some(self.all.len() - 1);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_one_number_while_it_has_a_trace_and_gives_it_back() {
        let mut services = SoleServices::new();
        let (cart, bank) = (ServiceId(1), ServiceId(2));
        let numbers = [cart, bank, cart, bank].map(|service| services.begin(service));

        assert_eq!((numbers[0], numbers[1]), (numbers[2], numbers[3]));
        assert!(numbers[0] != numbers[1] && !numbers.contains(&SoleService::NONE));
        assert!(services.is(numbers[0], cart) && !services.is(numbers[0], bank));
        assert_eq!(numbers.map(|number| services.end(number)), [cart, bank, cart, bank].map(Some));
        // Both are free: the first one is given to whoever comes.
        assert_eq!(services.begin(ServiceId(3)), numbers[0]);
        assert!(services.is(numbers[0], ServiceId(3)));
    }

    #[test]
    fn services_beyond_what_a_byte_tells_apart_have_no_number_until_one_is_free() {
        let mut services = SoleServices::new();
        let numbers: Vec<_> = (0..300).map(|service| services.begin(ServiceId(service))).collect();

        assert!(numbers[..255].iter().enumerate().all(|(at, number)| services.is(*number, ServiceId(at as u32))));
        assert!(numbers[255..].iter().all(|number| *number == SoleService::NONE));
        assert!(!services.is(SoleService::NONE, ServiceId(0)) && services.end(SoleService::NONE).is_none());
        assert_eq!(services.end(numbers[7]), Some(ServiceId(7)));
        assert_eq!(services.begin(ServiceId(299)), numbers[7]);
    }
}
