//! Names, units and groups of the columns.

use wire::metric::Group;

/// Unit of a time that is kept in microseconds.
pub const MICROSECONDS: &str = "us";
/// Unit of a counter with fractions that is kept in thousandths.
const THOUSANDTHS: &str = "10*-3";

/// What a name says about relevance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Errors, failures, and what is lost.
    Errors,
    /// Requests and how long they take.
    Requests,
    /// Whether something works.
    Health,
    /// None of these subjects.
    Other,
}

const ERRORS: [&str; 35] = [
    "error",
    "errors",
    "err",
    "errs",
    "fail",
    "fails",
    "failed",
    "failure",
    "failures",
    "exception",
    "exceptions",
    "panic",
    "panics",
    "timeout",
    "timeouts",
    "rejected",
    "dropped",
    "drops",
    "retries",
    "retry",
    "refused",
    "lost",
    "aborted",
    "denied",
    "fatal",
    "restarts",
    "oom",
    "conflicts",
    "corrupt",
    "deadlocks",
    "discarded",
    "evicted",
    "killed",
    "stalled",
    "throttled",
];
const REQUESTS: [&str; 22] = [
    "request",
    "requests",
    "req",
    "response",
    "responses",
    "duration",
    "latency",
    "http",
    "grpc",
    "rpc",
    "queries",
    "query",
    "commands",
    "messages",
    "jobs",
    "transactions",
    "connections",
    "queue",
    "pending",
    "inflight",
    "flight",
    "calls",
];
const HEALTH: [&str; 7] = ["up", "healthy", "health", "ready", "leader", "available", "connected"];

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['_', ':', '.', '-', '/'])
}

/// What `name` is about.
pub fn subject(name: &str) -> Subject {
    let has = |list: &[&str]| words(name).any(|word| list.contains(&word.to_ascii_lowercase().as_str()));
    if has(&ERRORS) {
        Subject::Errors
    } else if has(&REQUESTS) {
        Subject::Requests
    } else if has(&HEALTH) {
        Subject::Health
    } else {
        Subject::Other
    }
}

/// Whether the target is an exporter: a process beside the service that it tells about. By convention those say which
/// build they are, as `redis_exporter_build_info`.
pub fn is_exporter(name: &str) -> bool {
    name.ends_with("exporter_build_info")
}

/// Whether a metric is about the process that serves the endpoint, as client libraries add it by themselves.
pub fn is_of_process(name: &str) -> bool {
    ["go_", "process_", "promhttp_", "python_gc_", "python_info"].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a gauge of this name and size is a time of day, which always rises and tells nothing.
pub fn is_time_of_day(name: &str, value: f64) -> bool {
    // 2001 to 2286, in seconds, milliseconds or nanoseconds.
    let plausible = [1.0, 1e3, 1e9].iter().any(|unit| (1e9..1e10).contains(&(value / unit)));
    plausible && words(name).any(|word| ["timestamp", "time", "at", "seen", "start"].contains(&word))
}

/// The group of a metric: a coarse classifier for explanations.
pub fn group(name: &str) -> Group {
    let has = |list: &[&str]| words(name).any(|word| list.contains(&word));
    if has(&["cpu", "threads", "goroutines", "gomaxprocs"]) {
        Group::Cpu
    } else if has(&["memory", "mem", "memstats", "heap", "rss", "gc", "alloc", "allocs", "jvm"]) {
        Group::Memory
    } else if has(&["network", "net", "tcp", "udp", "sockets", "receive", "transmit"]) {
        Group::Network
    } else if has(&["disk", "fs", "filesystem", "fds", "io", "wal", "fsync"]) {
        Group::Io
    } else {
        Group::Service
    }
}

/// The unit of a gauge or histogram, in UCUM: the one that is stated, or that the name ends with; else empty.
pub fn unit<'u>(name: &str, stated: Option<&'u str>) -> &'u str {
    let stem = ["_total", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    let word = stated.or_else(|| stem.rsplit('_').next()).unwrap_or_default();
    match ucum(word) {
        // What is stated and is no word of Prometheus is UCUM.
        "" => stated.unwrap_or_default(),
        unit => unit,
    }
}

/// The UCUM of a unit in a word; else empty.
fn ucum(word: &str) -> &'static str {
    match word {
        "seconds" => "s",
        "milliseconds" | "ms" => "ms",
        "microseconds" => MICROSECONDS,
        "nanoseconds" => "ns",
        "bytes" => "By",
        "ratio" => "1",
        "celsius" => "Cel",
        "volts" => "V",
        "amperes" => "A",
        "joules" => "J",
        "grams" => "g",
        "meters" => "m",
        _ => "",
    }
}

/// Unit of a counter, and the factor by which it is kept in whole numbers.
pub fn counter_unit<'u>(name: &str, stated: Option<&'u str>, has_fractions: bool) -> (&'u str, f64) {
    match unit(name, stated) {
        "s" => (MICROSECONDS, 1e6),
        _ if has_fractions => (THOUSANDTHS, 1e3),
        unit => (unit, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_are_about() {
        assert_eq!(subject("http_requests_total"), Subject::Requests);
        assert_eq!(subject("http_request_errors_total"), Subject::Errors);
        assert_eq!(subject("redis_up"), Subject::Health);
        assert_eq!(subject("go_goroutines"), Subject::Other);
        assert_eq!(subject("setup_interrupts"), Subject::Other, "words are whole");
        assert_eq!(group("go_memstats_heap_inuse_bytes"), Group::Memory);
        assert_eq!(group("process_cpu_seconds_total"), Group::Cpu);
        assert_eq!(group("http_requests_total"), Group::Service);
    }

    #[test]
    fn a_time_of_day_is_known_by_name_and_size() {
        assert!(is_time_of_day("go_memstats_last_gc_time_seconds", 1.7e9));
        assert!(is_time_of_day("job_last_success_timestamp_ms", 1.7e12));
        assert!(!is_time_of_day("go_memstats_alloc_bytes", 1.7e9));
        assert!(!is_time_of_day("queue_time_seconds", 3.0));
    }

    #[test]
    fn times_are_counted_in_microseconds_and_other_fractions_in_thousandths() {
        assert_eq!(counter_unit("process_cpu_seconds_total", None, true), ("us", 1e6));
        assert_eq!(counter_unit("rpc_duration_seconds_sum", None, false), ("us", 1e6));
        assert_eq!(counter_unit("node_energy_joules_total", None, true), ("10*-3", 1e3));
        assert_eq!(counter_unit("bytes_read_total", None, false), ("", 1.0));
        assert_eq!(counter_unit("read_bytes_total", None, false), ("By", 1.0));
        assert_eq!(unit("queue", Some("seconds")), "s");
        assert_eq!(counter_unit("cpu.time", Some("s"), true), ("us", 1e6));
        assert_eq!(counter_unit("http.requests", Some("{request}"), false), ("{request}", 1.0));
    }
}
