//! What the host agent's log says of a service: the containers that it reads, and versions that were new. Pure.
//!
//! The status says how many replicas there are, and not which.

use std::collections::BTreeSet;

/// Says that a container is read from now on.
const READ: &str = "cgroup is read";
/// Says that one is read no more.
const LEFT: &str = "cgroup not read any more";
/// Says that a pod is the first of its version.
const VERSION: &str = "a new version";

/// Groups of the containers that are read as replicas of `service`, by their paths.
pub fn containers<'a>(log: &'a str, service: &str) -> BTreeSet<&'a str> {
    let mut read = BTreeSet::new();
    for line in log.lines() {
        let Some(path) = field(line, "path") else { continue };
        if line.contains(LEFT) {
            read.remove(path);
        } else if line.contains(READ) && field(line, "service") == Some(service) {
            read.insert(path);
        }
    }
    read
}

/// Versions of `service` that were new, each with the one before it, in order.
pub fn versions<'a>(log: &'a str, service: &str) -> Vec<(&'a str, &'a str)> {
    let of = log.lines().filter(|line| line.contains(VERSION) && field(line, "service") == Some(service));
    of.filter_map(|line| Some((field(line, "from")?, field(line, "to")?))).collect()
}

/// The text of a field, which stands in quotes.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the agent writes it.
    const LOG: &str = r#"2026-11-30T09:00:00.000001Z  INFO host_agent::cgroup_metrics: cgroup is read path="kubepods/besteffort/poda1/c1" service="shop/frontend" files=13
2026-11-30T09:00:00.000002Z  INFO host_agent::cgroup_metrics: cgroup is read path="kubepods/besteffort/podb1/c2" service="shop/frontend" files=13
2026-11-30T09:00:00.000003Z  INFO host_agent::cgroup_metrics: cgroup is read path="kubepods/besteffort/podc1/c3" service="shop/cart" files=13
2026-11-30T09:10:00.000004Z  INFO host_agent::pod_watch: a new version; its pods join when they have started service="shop/frontend" from="1" to="1.1"
2026-11-30T09:10:00.000005Z  INFO host_agent::pod_watch: a new version; its pods join when they have started service="shop/cart" from="1" to="7"
2026-11-30T09:10:03.000006Z  INFO host_agent::cgroup_metrics: cgroup not read any more path="kubepods/besteffort/poda1/c1" error=the cgroup has vanished
2026-11-30T09:10:12.000007Z  INFO host_agent::cgroup_metrics: cgroup is read path="kubepods/besteffort/podd2/c4" service="shop/frontend" files=13
2026-11-30T09:20:00.000008Z  WARN host_agent::cgroup_metrics: cgroup is not read path="kubepods/besteffort/pode2/c5" service="shop/frontend" error=x
2026-11-30T09:20:00.000009Z  INFO host_agent::pod_watch: a new version; its pods join when they have started service="shop/frontend" from="1.1" to="1.2"
"#;

    #[test]
    fn containers_are_those_that_are_read_still() {
        let frontends = ["kubepods/besteffort/podb1/c2", "kubepods/besteffort/podd2/c4"];

        assert_eq!(containers(LOG, "shop/frontend"), BTreeSet::from(frontends));
        assert_eq!(containers(LOG, "shop/cart"), BTreeSet::from(["kubepods/besteffort/podc1/c3"]));
        assert!(containers(LOG, "shop/front").is_empty());
    }

    #[test]
    fn versions_are_those_of_the_service_in_order() {
        assert_eq!(versions(LOG, "shop/frontend"), [("1", "1.1"), ("1.1", "1.2")]);
        assert!(versions(LOG, "shop/store").is_empty());
    }
}
