//! Handles to metrics. Each begins with its slot, which the header's inline functions write.
#![expect(unsafe_code, reason = "symbols without mangled names")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use client::{Cause, Counter, Gauge, Histogram, ShardedCounter, UpDownCounter};

use crate::arguments::{MetricOptions, Text};
use crate::outcome::{Misuse, Outcome, guarded, guarded_or};
use crate::service::ServiceHandle;

/// `uview_histogram`: a histogram's handle, of which C sees nothing.
#[derive(Debug)]
pub struct HistogramHandle {
    handle: Histogram,
}

/// Where a handle goes: NULL if the call was wrong.
type HandlePlace<'a, T> = Option<&'a mut MaybeUninit<Option<Box<T>>>>;

/// Puts a registered handle into its place.
fn put<T>(place: &mut MaybeUninit<Option<Box<T>>>, handle: T, cause: Option<Cause>) -> Outcome {
    place.write(Some(Box::new(handle)));
    cause.map_or(Outcome::Done, |cause| Outcome::Detached(cause.to_string()))
}

/// The functions of a kind whose value is one slot.
macro_rules! one_slot {
    ($what:literal, $handle:ident, $of:ty, $start:ident, $register:ident, $remove:ident, $release:ident) => {
        #[doc = concat!("`", $what, "`: C sees its slot.")]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $handle {
            /// The slot, which lives as long as `handle`.
            slot: *const AtomicU64,
            handle: $of,
        }

        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $register(
            service: Option<&ServiceHandle>,
            name: Text,
            options: Option<&MetricOptions>,
            registered: HandlePlace<'_, $handle>,
        ) -> c_int {
            guarded(|| {
                let place = registered.ok_or(Misuse::Null("registered"))?;
                place.write(None);
                let service = service.ok_or(Misuse::Null("service"))?;
                let mut registration = service.client.$start(name.required("name")?);
                if let Some(options) = options {
                    registration = options.apply(registration)?;
                }
                let (handle, cause) = registration.register_with_cause();
                Ok(put(place, $handle { slot: handle.as_atomic(), handle }, cause))
            })
        }

        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $remove(service: Option<&ServiceHandle>, handle: Option<Box<$handle>>) {
            guarded_or((), || {
                if let (Some(service), Some(handle)) = (service, handle) {
                    service.client.remove(handle.handle);
                }
            });
        }

        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $release(handle: Option<Box<$handle>>) {
            guarded_or((), || drop(handle));
        }
    };
}

one_slot!(
    "uview_counter",
    CounterHandle,
    Counter,
    counter,
    uview_register_counter,
    uview_counter_remove,
    uview_counter_release
);
one_slot!(
    "uview_up_down",
    UpDownHandle,
    UpDownCounter,
    up_down_counter,
    uview_register_up_down,
    uview_up_down_remove,
    uview_up_down_release
);
one_slot!("uview_gauge", GaugeHandle, Gauge, gauge, uview_register_gauge, uview_gauge_remove, uview_gauge_release);

/// `uview_sharded`: a counter that many threads add to, of which C sees nothing.
#[derive(Debug)]
pub struct ShardedHandle {
    handle: ShardedCounter,
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_register_sharded(
    service: Option<&ServiceHandle>,
    name: Text,
    options: Option<&MetricOptions>,
    registered: HandlePlace<'_, ShardedHandle>,
) -> c_int {
    guarded(|| {
        let place = registered.ok_or(Misuse::Null("registered"))?;
        place.write(None);
        let service = service.ok_or(Misuse::Null("service"))?;
        let mut registration = service.client.sharded_counter(name.required("name")?);
        if let Some(options) = options {
            registration = options.apply(registration)?;
        }
        let (handle, cause) = registration.register_with_cause();
        Ok(put(place, ShardedHandle { handle }, cause))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_sharded_remove(service: Option<&ServiceHandle>, counter: Option<Box<ShardedHandle>>) {
    guarded_or((), || {
        if let (Some(service), Some(counter)) = (service, counter) {
            service.client.remove(counter.handle);
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_sharded_release(counter: Option<Box<ShardedHandle>>) {
    guarded_or((), || drop(counter));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_register_histogram(
    service: Option<&ServiceHandle>,
    name: Text,
    options: Option<&MetricOptions>,
    registered: HandlePlace<'_, HistogramHandle>,
) -> c_int {
    guarded(|| {
        let place = registered.ok_or(Misuse::Null("registered"))?;
        place.write(None);
        let service = service.ok_or(Misuse::Null("service"))?;
        let mut registration = service.client.histogram(name.required("name")?);
        if let Some(options) = options {
            registration =
                options.apply(registration)?.parts_per_unit(options.parts_per_unit()).scale(options.scale()?);
        }
        let (handle, cause) = registration.register_with_cause();
        Ok(put(place, HistogramHandle { handle }, cause))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_histogram_remove(
    service: Option<&ServiceHandle>,
    histogram: Option<Box<HistogramHandle>>,
) {
    guarded_or((), || {
        if let (Some(service), Some(histogram)) = (service, histogram) {
            service.client.remove(histogram.handle);
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_histogram_release(histogram: Option<Box<HistogramHandle>>) {
    guarded_or((), || drop(histogram));
}

// No guard from here on: these functions have nothing that panics, and are to take nanoseconds.

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_sharded_add(counter: Option<&ShardedHandle>, count: u64) {
    if let Some(counter) = counter {
        counter.handle.add(count);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_sharded_get(counter: Option<&ShardedHandle>) -> u64 {
    counter.map_or(0, |counter| counter.handle.get())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_histogram_observe(histogram: Option<&HistogramHandle>, value: u64) {
    if let Some(histogram) = histogram {
        histogram.handle.observe(value);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_histogram_observe_ns(histogram: Option<&HistogramHandle>, ns: u64) {
    if let Some(histogram) = histogram {
        histogram.handle.observe_duration(Duration::from_nanos(ns));
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_histogram_count(histogram: Option<&HistogramHandle>) -> u64 {
    histogram.map_or(0, |histogram| histogram.handle.count())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_histogram_sum(histogram: Option<&HistogramHandle>) -> u64 {
    histogram.map_or(0, |histogram| histogram.handle.sum())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn uview_gauge_add(gauge: Option<&GaugeHandle>, difference: f64) {
    if let Some(gauge) = gauge {
        gauge.handle.add(difference);
    }
}
