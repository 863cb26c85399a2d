//! What the host agent's log says of a service: the containers that it reads, and versions that were new. Pure.
//!
//! The status says how many replicas there are, and not which.

use std::collections::BTreeSet;

use serde_json::Value;

/// Says that a container is read from now on.
const READ: &str = "cgroup is read";
/// Says that one is read no more.
const LEFT: &str = "cgroup not read any more";
/// Says that a pod is the first of its version.
const VERSION: &str = "a new version";

/// Groups of the containers that are read as replicas of `service`, by their paths.
pub fn containers(log: &str, service: &str) -> BTreeSet<String> {
    let mut read = BTreeSet::new();
    for line in lines(log) {
        let Some(path) = field(&line, "path") else { continue };
        if says(&line, LEFT) {
            read.remove(path);
        } else if says(&line, READ) && field(&line, "service") == Some(service) {
            read.insert(path.to_owned());
        }
    }
    read
}

/// Versions of `service` that were new, each with the one before it, in order.
pub fn versions(log: &str, service: &str) -> Vec<(String, String)> {
    let of = lines(log).filter(|line| says(line, VERSION) && field(line, "service") == Some(service));
    of.filter_map(|line| Some((field(&line, "from")?.to_owned(), field(&line, "to")?.to_owned()))).collect()
}

/// The lines of a log that are JSON, as the chart has agents write them.
fn lines(log: &str) -> impl Iterator<Item = Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn says(line: &Value, message: &str) -> bool {
    field(line, "message").is_some_and(|said| said.contains(message))
}

fn field<'a>(line: &'a Value, name: &str) -> Option<&'a str> {
    line[name].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the agent writes it in a cluster.
    const LOG: &str = r#"{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"cgroup is read","path":"kubepods/besteffort/poda1/c1","service":"shop/frontend","files":13}
{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"cgroup is read","path":"kubepods/besteffort/podb1/c2","service":"shop/frontend","files":13}
{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"cgroup is read","path":"kubepods/besteffort/podc1/c3","service":"shop/cart","files":13}
{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"a new version; its pods join when they have started","service":"shop/frontend","from":"1","to":"1.1"}
{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"a new version; its pods join when they have started","service":"shop/cart","from":"1","to":"7"}
{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"cgroup not read any more","path":"kubepods/besteffort/poda1/c1","error":"the cgroup has vanished"}
{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"cgroup is read","path":"kubepods/besteffort/podd2/c4","service":"shop/frontend","files":13}
{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"cgroup is not read","path":"kubepods/besteffort/pode2/c5","service":"shop/frontend","error":"x"}
what some other program says: cgroup is read
{"timestamp":"2026-11-30T09:00:00.000001Z","level":"INFO","message":"a new version; its pods join when they have started","service":"shop/frontend","from":"1.1","to":"1.2"}
"#;

    #[test]
    fn containers_are_those_that_are_read_still() {
        let frontends = ["kubepods/besteffort/podb1/c2", "kubepods/besteffort/podd2/c4"];

        assert_eq!(containers(LOG, "shop/frontend"), BTreeSet::from(frontends.map(str::to_owned)));
        assert_eq!(containers(LOG, "shop/cart"), BTreeSet::from(["kubepods/besteffort/podc1/c3".to_owned()]));
        assert!(containers(LOG, "shop/front").is_empty());
    }

    #[test]
    fn versions_are_those_of_the_service_in_order() {
        assert_eq!(
            versions(LOG, "shop/frontend"),
            [("1", "1.1"), ("1.1", "1.2")].map(|(from, to)| (from.to_owned(), to.to_owned()))
        );
        assert!(versions(LOG, "shop/store").is_empty());
    }
}
