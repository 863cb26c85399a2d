//! The driver of the Rust client: see the library's documentation for its commands.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::thread;
use std::time::Duration;

use client::{
    Cause, Client, Connection, Counter, EnteredSpan, Gauge, Handle, Histogram, Limits, Registration, Scale, Service,
    ShardedCounter, Span, SpanKind, TraceContext, TraceId, UpDownCounter,
};

/// A handle under its name in the list.
enum Metric {
    Counter(Counter),
    Sharded(ShardedCounter),
    UpDownCounter(UpDownCounter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// What the driver holds.
#[derive(Default)]
struct Driver {
    client: Option<Client>,
    metrics: HashMap<String, Metric>,
    spans: HashMap<String, Span>,
    entered: HashMap<String, EnteredSpan>,
    /// The child of a fork ends at `exit`.
    forked: bool,
}

/// A command that cannot be carried out, in words.
type Problem = String;

fn main() {
    let mut driver = Driver::default();
    // One read per command: none may be left in a buffer at a fork.
    let mut lines = stdin().lock();
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if driver.forked && line.trim() == "exit" {
            return;
        }
        let reply = driver.reply(line.trim()).unwrap_or_else(|problem| format!("error {problem}"));
        let mut out = stdout().lock();
        if writeln!(out, "{reply}").and_then(|()| out.flush()).is_err() {
            return;
        }
        line.clear();
    }
}

impl Driver {
    fn reply(&mut self, line: &str) -> Result<String, Problem> {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["open", name, ref options @ ..] => self.open(name, options),
            ["counter" | "sharded" | "updown" | "gauge" | "histogram", handle, name, ref options @ ..] => {
                self.register(words[0], handle, name, options)
            }
            ["add" | "set" | "observe", handle, value] => self.write(handle, value),
            ["threads", handle, threads, times] => self.threads(handle, number(threads)?, number(times)?),
            ["get", handle] => self.get(handle),
            ["release", handle] => Ok(ok(self.metrics.remove(handle).is_some())),
            ["remove", handle] => self.remove(handle),
            ["span", handle, name, ref options @ ..] => self.begin(handle, name, options),
            ["attribute" | "integer" | "event" | "fail" | "keep" | "context", handle, ref rest @ ..] => {
                self.say(words[0], handle, rest)
            }
            ["enter", handle] => {
                let within = self.spans.get(handle).ok_or_else(|| format!("no span {handle}"))?.enter();
                Ok(ok(self.entered.insert(handle.to_owned(), within).is_none()))
            }
            ["leave", handle] => Ok(ok(self.entered.remove(handle).is_some() && self.spans.remove(handle).is_some())),
            ["end", handle] => Ok(ok(self.spans.remove(handle).is_some())),
            ["trigger", trace, reason] => {
                let trace = trace.parse::<TraceId>().map_err(|error| error.to_string())?;
                self.client()?.trigger(trace, reason);
                Ok("ok".to_owned())
            }
            ["subject", metric, text] => {
                self.client()?.set_subject(metric, text);
                Ok("ok".to_owned())
            }
            ["status"] => self.status(),
            ["fork"] => self.fork(),
            ["close"] => Ok(ok(self.client.take().is_some())),
            _ => Err("no such command".to_owned()),
        }
    }

    fn client(&self) -> Result<&Client, Problem> {
        self.client.as_ref().ok_or_else(|| "no client is open".to_owned())
    }

    fn open(&mut self, name: &str, options: &[&str]) -> Result<String, Problem> {
        let (mut service, mut limits) = (Service::new(name), Limits::default());
        for option in options {
            let (key, value) = option.split_once('=').ok_or("an option is KEY=VALUE")?;
            match key {
                "socket" => service = service.socket(value),
                "instance" => service = service.instance(value),
                "series" => limits.series = number(value)?,
                "label_sets" => limits.label_sets_per_metric = number(value)?,
                "regions" => limits.regions = number(value)?,
                _ => service = service.label(label(key)?, value),
            }
        }
        self.client = Some(client::connect(service.limits(limits)));
        Ok("ok".to_owned())
    }

    fn register(&mut self, kind: &str, handle: &str, name: &str, options: &[&str]) -> Result<String, Problem> {
        let client = self.client()?;
        let (metric, cause) = match kind {
            "counter" => registered(client.counter(name), options, Metric::Counter)?,
            "sharded" => registered(client.sharded_counter(name), options, Metric::Sharded)?,
            "updown" => registered(client.up_down_counter(name), options, Metric::UpDownCounter)?,
            "gauge" => registered(client.gauge(name), options, Metric::Gauge)?,
            _ => {
                let (mut parts, mut sub_bits, mut max_bits) = (1, 2, 32);
                let mut rest = Vec::new();
                for option in options {
                    match option.split_once('=') {
                        Some(("parts", value)) => parts = number(value)?,
                        Some(("sub_bits", value)) => sub_bits = number(value)?,
                        Some(("max_bits", value)) => max_bits = number(value)?,
                        _ => rest.push(*option),
                    }
                }
                let scale = Scale::new(sub_bits, max_bits).map_err(|error| error.to_string())?;
                registered(client.histogram(name).parts_per_unit(parts).scale(scale), &rest, Metric::Histogram)?
            }
        };
        self.metrics.insert(handle.to_owned(), metric);
        Ok(cause.map_or_else(|| "ok".to_owned(), |cause| format!("detached {cause}")))
    }

    fn metric(&self, handle: &str) -> Result<&Metric, Problem> {
        self.metrics.get(handle).ok_or_else(|| format!("no handle {handle}"))
    }

    fn write(&self, handle: &str, value: &str) -> Result<String, Problem> {
        match self.metric(handle)? {
            Metric::Counter(counter) => counter.add(number(value)?),
            Metric::Sharded(counter) => counter.add(number(value)?),
            Metric::UpDownCounter(counter) => counter.add(number(value)?),
            Metric::Gauge(gauge) => gauge.set(number(value)?),
            Metric::Histogram(histogram) => histogram.observe(number(value)?),
        }
        Ok("ok".to_owned())
    }

    fn threads(&self, handle: &str, threads: usize, times: usize) -> Result<String, Problem> {
        let metric = self.metric(handle)?;
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..times {
                        match metric {
                            Metric::Counter(counter) => counter.add(1),
                            Metric::Sharded(counter) => counter.add(1),
                            Metric::UpDownCounter(counter) => counter.add(1),
                            Metric::Gauge(gauge) => gauge.add(1.0),
                            Metric::Histogram(histogram) => histogram.observe(1),
                        }
                    }
                });
            }
        });
        Ok("ok".to_owned())
    }

    fn get(&self, handle: &str) -> Result<String, Problem> {
        Ok(match self.metric(handle)? {
            Metric::Counter(counter) => format!("ok {}", counter.get()),
            Metric::Sharded(counter) => format!("ok {}", counter.get()),
            Metric::UpDownCounter(counter) => format!("ok {}", counter.get()),
            Metric::Gauge(gauge) => format!("ok {}", gauge.get()),
            Metric::Histogram(histogram) => format!("ok {} {}", histogram.count(), histogram.sum()),
        })
    }

    fn begin(&mut self, handle: &str, name: &str, options: &[&str]) -> Result<String, Problem> {
        let mut span = self.client()?.span(name);
        let (mut parent, mut state) = (None, None);
        for option in options {
            match option.split_once('=').ok_or("an option is KEY=VALUE")? {
                ("kind", value) => {
                    span.set_kind(SpanKind::named(value).ok_or_else(|| format!("no kind of span {value}"))?);
                }
                ("traceparent", value) => parent = Some(value),
                ("tracestate", value) => state = Some(value),
                (_, value) => {
                    let above = self.spans.get(value).and_then(Span::context).ok_or("no such span")?;
                    span.set_parent(&above);
                }
            }
        }
        let caller = TraceContext::extract(|name| if name == "traceparent" { parent } else { state });
        if let Some(caller) = caller {
            span.set_parent(&caller);
        }
        self.spans.insert(handle.to_owned(), span);
        Ok("ok".to_owned())
    }

    fn say(&mut self, what: &str, handle: &str, words: &[&str]) -> Result<String, Problem> {
        let span = self.spans.get_mut(handle).ok_or_else(|| format!("no span {handle}"))?;
        match (what, words) {
            ("attribute", [key, text]) => span.set_text(key, text),
            ("integer", [key, value]) => span.set_integer(key, number(value)?),
            ("event", [name, attributes @ ..]) => {
                let mut event = span.event(name);
                for attribute in attributes {
                    let (key, value) = attribute.split_once('=').ok_or("an attribute is KEY=VALUE")?;
                    match (value.parse(), value.parse(), value.parse()) {
                        (Ok(number), ..) => event.set_integer(key, number),
                        (_, Ok(number), _) => event.set_float(key, number),
                        (.., Ok(is_true)) => event.set_bool(key, is_true),
                        _ => event.set_text(key, value),
                    };
                }
            }
            ("fail", [text]) => span.fail(text),
            ("keep", [reason]) => span.keep(reason),
            _ => {
                let mut parent = String::new();
                span.context().ok_or("no context")?.inject(|name, value| {
                    if name == "traceparent" {
                        value.clone_into(&mut parent);
                    }
                });
                return Ok(format!("ok {parent}"));
            }
        }
        Ok("ok".to_owned())
    }

    fn remove(&mut self, handle: &str) -> Result<String, Problem> {
        let metric = self.metrics.remove(handle);
        let client = self.client()?;
        match metric.ok_or_else(|| format!("no handle {handle}"))? {
            Metric::Counter(counter) => client.remove(counter),
            Metric::Sharded(counter) => client.remove(counter),
            Metric::UpDownCounter(counter) => client.remove(counter),
            Metric::Gauge(gauge) => client.remove(gauge),
            Metric::Histogram(histogram) => client.remove(histogram),
        }
        Ok("ok".to_owned())
    }

    fn status(&self) -> Result<String, Problem> {
        let status = self.client()?.status();
        let connection = match status.connection {
            Connection::Off => "off",
            Connection::Waiting { .. } => "waiting",
            Connection::Registering => "registering",
            Connection::Registered { .. } => "registered",
            _ => "unknown",
        };
        let problems: Vec<_> = status.problems.iter().map(ToString::to_string).collect();
        Ok(format!(
            "ok connection={connection} series={} detached={} regions={} connections={} forked={} problems={}",
            status.series,
            status.detached,
            status.regions,
            status.connections,
            u8::from(status.forked),
            problems.join("; "),
        ))
    }

    fn fork(&mut self) -> Result<String, Problem> {
        match fork()? {
            0 => {
                self.forked = true;
                Ok("ok".to_owned())
            }
            child => {
                let child = rustix::process::Pid::from_raw(child);
                let ended = rustix::process::waitpid(child, rustix::process::WaitOptions::empty());
                match ended.map_err(|error| error.to_string())? {
                    Some((_, status)) if status.exit_status() == Some(0) => Ok("ok".to_owned()),
                    other => Err(format!("the child ended with {other:?}")),
                }
            }
        }
    }
}

/// The process id of the child; 0 in the child.
#[expect(unsafe_code, reason = "a fork without exec has no safe interface")]
fn fork() -> Result<i32, Problem> {
    // SAFETY: takes nothing and gives back a number. The child calls what is not safe after a fork in general: the C
    // library of this platform makes its allocator usable there, the client says that it is, and this thread holds no
    // lock but that of standard input, which it goes on holding.
    let process = unsafe { libc::fork() };
    if process < 0 { Err(std::io::Error::last_os_error().to_string()) } else { Ok(process) }
}

/// Registers with the options that all kinds have.
fn registered<H: Handle>(
    mut registration: Registration<'_, H>,
    options: &[&str],
    metric: fn(H) -> Metric,
) -> Result<(Metric, Option<Cause>), Problem> {
    for option in options {
        let (key, value) = option.split_once('=').ok_or("an option is KEY=VALUE")?;
        registration = match key {
            "unit" => registration.unit(value),
            "aggregation" => registration.aggregation(value),
            "every" => registration.read_every(Duration::from_millis(number(value)?)),
            _ => registration.label(label(key)?, value),
        };
    }
    let (handle, cause) = registration.register_with_cause();
    Ok((metric(handle), cause))
}

fn label(key: &str) -> Result<&str, Problem> {
    key.strip_prefix("label:").ok_or_else(|| format!("no option {key}"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn ok(holds: bool) -> String {
    if holds { "ok" } else { "error there is none" }.to_owned()
}
