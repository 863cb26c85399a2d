//! What the usual annotations of a pod say about its Prometheus endpoint. They choose a port and a path of the pod's
//! own address, and nothing else: no annotation makes the agent ask another one.

use core::net::{IpAddr, SocketAddr};

use crate::pod::{Pod, Stage};

const SCRAPE: &str = "prometheus.io/scrape";
const PORT: &str = "prometheus.io/port";
const PATH: &str = "prometheus.io/path";
const SCHEME: &str = "prometheus.io/scheme";
/// The path without an annotation.
const USUAL_PATH: &str = "/metrics";

/// What the annotations of a pod ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScrapeRequest {
    /// Nothing, or not to be scraped.
    #[default]
    None,
    /// To be scraped.
    Endpoint {
        /// The port; `None`: the pod's first port with a name, as a list of containers has it.
        port: Option<u16>,
        /// The path, with its query; it begins with a slash.
        path: String,
        /// Whether it speaks HTTPS.
        is_https: bool,
    },
    /// To be scraped, in a way that makes no sense: which annotation is wrong, and what is wanted.
    Refused(&'static str),
}

/// An endpoint that is scraped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The service of its pod.
    pub service: String,
    /// The pod, and the port: `payment-x2x7k:9102`.
    pub instance: String,
    /// Where it is: always the pod's own address.
    pub url: String,
}

impl ScrapeRequest {
    /// The path that is asked for.
    pub(crate) fn path(&self) -> Option<&str> {
        if let Self::Endpoint { path, .. } = self { Some(path) } else { None }
    }
}

/// Reads annotations, which `annotation` finds by their keys.
pub(crate) fn of_annotations(annotation: impl Fn(&str) -> Option<String>) -> ScrapeRequest {
    if annotation(SCRAPE).as_deref() != Some("true") {
        return ScrapeRequest::None;
    }
    let port = match annotation(PORT).map(|port| port.parse::<u16>()) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => return ScrapeRequest::Refused("prometheus.io/port has to be a number from 1 to 65535"),
    };
    let path = annotation(PATH).unwrap_or_else(|| USUAL_PATH.to_owned());
    if !is_path(&path) {
        return ScrapeRequest::Refused("prometheus.io/path has to begin with one slash, of visible ASCII characters");
    }
    let is_https = match annotation(SCHEME).as_deref() {
        None | Some("http") => false,
        Some("https") => true,
        Some(_) => return ScrapeRequest::Refused("prometheus.io/scheme has to be http or https"),
    };
    ScrapeRequest::Endpoint { port, path, is_https }
}

/// Whether `path` stays on the address that it is asked of.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("//") && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

impl Pod {
    /// The endpoint that its annotations name.
    ///
    /// # Errors
    ///
    /// What to change, if they ask for one that cannot be scraped.
    pub fn annotated(&self) -> Result<Option<Endpoint>, &'static str> {
        let (port, path, is_https) = match &self.scrape {
            ScrapeRequest::None => return Ok(None),
            ScrapeRequest::Refused(why) => return Err(why),
            ScrapeRequest::Endpoint { port, path, is_https } => (*port, path, *is_https),
        };
        if self.has_host_network {
            return Err("its address is the node's, so that its port may be of others: name it in sources.prometheus");
        }
        let Some(port) = port.or_else(|| self.ports.first().map(|(_, port)| *port)) else {
            return Err("prometheus.io/port is missing, and no container names a port");
        };
        Ok(self.endpoint(port, path, is_https))
    }

    /// The endpoint at `port`; `None` while it has no address, is leaving or over, or is one of uview's own.
    pub(crate) fn endpoint(&self, port: u16, path: &str, is_https: bool) -> Option<Endpoint> {
        let is_there = !matches!(self.stage, Stage::Leaving | Stage::Over) && !self.is_own;
        let address: IpAddr = *self.addresses.first().filter(|_| is_there)?;
        let scheme = if is_https { "https" } else { "http" };
        Some(Endpoint {
            service: self.service.clone(),
            instance: format!("{}:{port}", self.name),
            url: format!("{scheme}://{}{path}", SocketAddr::new(address, port)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn asked(annotations: &[(&str, &str)]) -> ScrapeRequest {
        let find =
            |key: &str| annotations.iter().find(|(known, _)| *known == key).map(|(_, value)| (*value).to_owned());
        of_annotations(find)
    }

    #[test]
    fn annotations_choose_port_path_and_scheme_of_the_pods_own_address() {
        let scrape = asked(&[(SCRAPE, "true"), (PORT, "9102"), (PATH, "/stats?a=b"), (SCHEME, "https")]);
        let annotated = Pod { scrape, addresses: vec!["10.1.0.7".parse().unwrap()], ..pod(1) };
        let usual =
            Pod { scrape: asked(&[(SCRAPE, "true")]), ports: vec![("web".to_owned(), 80)], ..annotated.clone() };
        let six = Pod { addresses: vec!["fd00::7".parse().unwrap()], ..usual.clone() };
        let url = |pod: &Pod| pod.annotated().unwrap().unwrap().url;

        let endpoint = annotated.annotated().unwrap().unwrap();
        assert_eq!((endpoint.service.as_str(), endpoint.instance.as_str()), ("shop/payment", "payment-1:9102"));
        assert_eq!(url(&annotated), "https://10.1.0.7:9102/stats?a=b");
        assert_eq!(
            (url(&usual), url(&six)),
            ("http://10.1.0.7:80/metrics".into(), "http://[fd00::7]:80/metrics".into())
        );
    }

    #[test]
    fn a_pod_that_does_not_ask_or_has_ended_is_not_scraped() {
        let scrape = asked(&[(SCRAPE, "true"), (PORT, "80")]);
        let asking = Pod { scrape, addresses: vec!["10.1.0.7".parse().unwrap()], ..pod(1) };

        assert!(asking.annotated().unwrap().is_some());
        assert_eq!(asked(&[(SCRAPE, "false"), (PORT, "80")]), ScrapeRequest::None);
        for quiet in [
            Pod { stage: Stage::Over, ..asking.clone() },
            Pod { is_own: true, ..asking.clone() },
            Pod { stage: Stage::Leaving, ..asking.clone() },
            Pod { addresses: Vec::new(), ..asking },
        ] {
            assert_eq!(quiet.annotated(), Ok(None));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_is_wanted() {
        for (key, value, expected) in [
            (PORT, "0", "from 1 to 65535"),
            (PORT, "web", "from 1 to 65535"),
            (PATH, "metrics", "begin with one slash"),
            (PATH, "//10.9.9.9/metrics", "begin with one slash"),
            (PATH, "/a b", "visible ASCII"),
            (SCHEME, "gopher", "http or https"),
        ] {
            let ScrapeRequest::Refused(why) = asked(&[(SCRAPE, "true"), (key, value)]) else {
                panic!("{key}: {value}")
            };
            assert!(why.contains(expected), "{why}");
        }
        let scrape = asked(&[(SCRAPE, "true")]);
        let nowhere = Pod { scrape: scrape.clone(), addresses: vec!["10.1.0.7".parse().unwrap()], ..pod(1) };
        assert!(nowhere.annotated().unwrap_err().contains("prometheus.io/port is missing"));
        let shared = Pod { has_host_network: true, ..nowhere };
        assert!(shared.annotated().unwrap_err().contains("the node's"));
    }
}
