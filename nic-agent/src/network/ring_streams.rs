//! The streams of one ring. New parts, other filters and ends reach the ring through a queue that is looked at between
//! two blocks of packets; they take effect between two intervals of the stream, so that each interval that is written
//! is of one filter and complete. Nothing is allocated or freed for a packet; ended parts are freed elsewhere.

use packets::{Frame, View, parse};
use wire::time::UnixNanos;

use super::flow_stream::FlowStream;
use super::fragment::FragmentStream;
use super::frame_info::FrameInfo;
use super::one_way_stream::OneWayStream;
use super::part::StreamPart;
use super::pending_change::PendingChange;
use super::ring_link::{Command, Event, RingLink};
use super::stream::Stream;

/// All streams of one ring, or their shards.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) request_response: Vec<Stream>,
    one_way: Vec<OneWayStream>,
    flows: Vec<FlowStream>,
    fragment: Option<FragmentStream>,
    /// Whether any of them is about the outer packets of tunnels, and about the inner ones.
    views: [bool; 2],
    /// MTU of the interface: most bytes of a packet behind the link header.
    pub(super) mtu: u32,
    /// Merged frames since the last poll, of any stream.
    pub(super) oversized: u64,
    /// Timestamp of the last frame since the last poll.
    pub(super) last: Option<UnixNanos>,
    link: Option<RingLink>,
}

impl Streams {
    /// No streams yet; they come through `link`.
    pub(super) fn new(link: Option<RingLink>) -> Self {
        Self { mtu: u32::MAX, link, ..Self::default() }
    }

    /// Measures `part`, too.
    pub(super) fn add(&mut self, part: StreamPart) {
        match part {
            StreamPart::Delays(stream) => self.request_response.push(stream),
            StreamPart::Flows(stream) => self.flows.push(stream),
        }
        self.look_at_views();
    }

    /// Measures one end of a one-way stream, too.
    pub(super) fn add_one_way(&mut self, stream: OneWayStream) {
        self.one_way.push(stream);
        self.look_at_views();
    }

    /// Counts the packets of this fragment, too.
    pub(super) fn set_fragment(&mut self, fragment: FragmentStream) {
        self.fragment = Some(fragment);
        self.look_at_views();
    }

    fn look_at_views(&mut self) {
        let views = self.request_response.iter().map(Stream::view);
        let views = views.chain(self.one_way.iter().map(OneWayStream::view));
        let views = views.chain(self.fragment.iter().map(FragmentStream::view));
        let mut has = [false; 2];
        views.chain(self.flows.iter().map(FlowStream::view)).for_each(|view| has[view as usize] = true);
        self.views = has;
    }

    /// Passes a frame to all streams. It is parsed at most once for each view.
    #[inline]
    pub(super) fn insert(&mut self, frame: &Frame<'_>) {
        let info = FrameInfo { merged: frame.is_merged(self.mtu) };
        self.oversized += u64::from(info.merged);
        let parsed = |view| self.views[view as usize].then(|| parse(frame, view));
        let packets = [View::Outer, View::Inner].map(parsed);
        for stream in &mut self.request_response {
            packets[stream.view() as usize].iter().for_each(|packet| stream.insert(packet, info));
        }
        for stream in &mut self.one_way {
            packets[stream.view() as usize].iter().for_each(|packet| stream.insert(packet, info));
        }
        for stream in &mut self.flows {
            packets[stream.view() as usize].iter().for_each(|packet| stream.insert(packet, info));
        }
        if let Some(fragment) = &mut self.fragment {
            packets[fragment.view() as usize].iter().for_each(|packet| fragment.insert(packet, info));
        }
    }

    /// Whether anything is measured with other agents.
    pub(super) const fn has_shared(&self) -> bool {
        !self.one_way.is_empty() || self.fragment.is_some()
    }

    /// Adds frames of the interface that the kernel dropped to what is measured with other agents. That was noticed at
    /// `noticed`, and since the last call.
    pub(super) fn add_dropped_to_shared(&mut self, frames: u64, noticed: UnixNanos) {
        if frames > 0 {
            self.one_way.iter_mut().for_each(|stream| stream.add_dropped(frames, noticed));
            self.fragment.iter_mut().for_each(|fragment| fragment.add_dropped(frames, noticed));
        }
    }

    /// Ends intervals that are measured with other agents.
    pub(super) fn poll_shared(&mut self, read: UnixNanos) {
        self.one_way.iter_mut().for_each(|stream| stream.poll(read));
        self.fragment.iter_mut().for_each(|fragment| fragment.poll(read));
    }

    /// Whether an interval of a stream that is measured here alone has ended.
    pub(super) fn end_is_due(&self, now: UnixNanos) -> bool {
        self.request_response.iter().any(|stream| stream.is_due(now))
            || self.flows.iter().any(|stream| stream.is_due(now))
    }

    /// Ends those intervals. `dropped`: frames of the interface that the kernel dropped since the last call.
    pub(super) fn end_intervals(&mut self, now: UnixNanos, dropped: u64) {
        for stream in &mut self.request_response {
            stream.add_dropped(dropped);
            stream.end_interval(now);
        }
        for stream in &mut self.flows {
            stream.add_dropped(dropped);
            stream.end_interval(now);
        }
        self.return_ended();
    }

    /// Takes the changes that are queued. Called between blocks of packets.
    pub(super) fn take_commands(&mut self) {
        while let Some(Ok(command)) = self.link.as_ref().map(|link| link.commands.try_recv()) {
            match command {
                Command::Add(part) => self.add(*part),
                Command::Filter(name, filter) => {
                    self.pending(&name).for_each(|pending| pending.set_filter(filter.clone()));
                }
                Command::End(name) => self.pending(&name).for_each(PendingChange::end),
            }
        }
    }

    /// The interface was not read until `now`: packets since the last one may be missing.
    pub(super) fn unread_until(&mut self, now: UnixNanos) {
        self.one_way.iter_mut().for_each(|stream| stream.unread_until(now));
        self.fragment.iter_mut().for_each(|fragment| fragment.unread_until(now));
    }

    /// The interface cannot be read at `now`.
    pub(super) fn unreadable(&mut self, now: UnixNanos) {
        self.unread_until(now);
        self.take_commands();
        self.all_pending().for_each(PendingChange::unreadable);
        self.return_ended();
    }

    fn all_pending(&mut self) -> impl Iterator<Item = &mut PendingChange> {
        let delays = self.request_response.iter_mut().map(|stream| &mut stream.pending);
        delays.chain(self.flows.iter_mut().map(|stream| &mut stream.pending))
    }

    fn pending<'a>(&'a mut self, name: &'a str) -> impl Iterator<Item = &'a mut PendingChange> {
        self.all_pending().filter(move |pending| pending.name() == name)
    }

    /// Gives parts back that have ended: freeing them takes time, and unregisters their metrics.
    fn return_ended(&mut self) {
        let before = self.request_response.len() + self.flows.len();
        while let Some(at) = self.request_response.iter().position(|stream| stream.pending.is_over()) {
            let part = StreamPart::Delays(self.request_response.swap_remove(at));
            self.give_back(part);
        }
        while let Some(at) = self.flows.iter().position(|stream| stream.pending.is_over()) {
            let part = StreamPart::Flows(self.flows.swap_remove(at));
            self.give_back(part);
        }
        if self.request_response.len() + self.flows.len() != before {
            self.look_at_views();
        }
    }

    fn give_back(&self, part: StreamPart) {
        // Without anybody who takes it, the agent ends.
        drop(self.link.as_ref().map(|link| link.events.send(Event::Ended(Box::new(part)))));
    }
}

#[cfg(test)]
mod tests;
