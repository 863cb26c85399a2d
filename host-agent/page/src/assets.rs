//! The page's own files. They are part of the binary: nothing is fetched from elsewhere, and nothing has to be built.

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Path of its address.
    pub path: &'static str,
    /// Its content type.
    pub content_type: &'static str,
    /// What it holds.
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($path:literal, $content_type:expr, $file:literal) => {
        Asset { path: $path, content_type: $content_type, text: include_str!(concat!("../assets/", $file)) }
    };
}

/// All files, the page itself first.
pub const ASSETS: [Asset; 19] = [
    asset!("/", "text/html; charset=utf-8", "index.html"),
    asset!("/style.css", "text/css; charset=utf-8", "style.css"),
    asset!("/app.js", SCRIPT, "app.js"),
    asset!("/elements.js", SCRIPT, "elements.js"),
    asset!("/charts.js", SCRIPT, "charts.js"),
    asset!("/feed.js", SCRIPT, "feed.js"),
    asset!("/overview.js", SCRIPT, "overview.js"),
    asset!("/service.js", SCRIPT, "service.js"),
    asset!("/traces.js", SCRIPT, "traces.js"),
    asset!("/incident.js", SCRIPT, "incident.js"),
    asset!("/flames.js", SCRIPT, "flames.js"),
    asset!("/heat.js", SCRIPT, "heat.js"),
    asset!("/map.js", SCRIPT, "map.js"),
    asset!("/metrics.js", SCRIPT, "metrics.js"),
    asset!("/network.js", SCRIPT, "network.js"),
    asset!("/graph.js", SCRIPT, "graph.js"),
    asset!("/receipt.js", SCRIPT, "receipt.js"),
    asset!("/node.js", SCRIPT, "node.js"),
    asset!("/sources.js", SCRIPT, "sources.js"),
];

/// What stands at the page's address for a browser that a link of another page leads there: it shows nothing, and goes
/// on to the page.
pub const ARRIVAL: Asset = asset!("/", "text/html; charset=utf-8", "arrival.html");
/// The script of [`ARRIVAL`], which needs no session.
pub const ARRIVAL_SCRIPT: Asset = asset!("/arrival.js", SCRIPT, "arrival.js");

/// The file at `path`.
#[must_use]
pub fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ways by which text becomes markup or code, or by which something is fetched from elsewhere.
    const FORBIDDEN: [&str; 16] = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "createContextualFragment",
        "DOMParser",
        "srcdoc",
        "eval(",
        "Function(",
        "setTimeout(\"",
        "javascript:",
        "onclick=",
        "style=",
        "http://",
        "https://",
        "import(",
    ];

    #[test]
    fn no_asset_makes_markup_or_code_of_text_or_fetches_from_elsewhere() {
        for asset in ASSETS.into_iter().chain([ARRIVAL, ARRIVAL_SCRIPT]) {
            // Names of namespaces are no addresses that are fetched.
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            for word in FORBIDDEN {
                assert!(!text.contains(word), "{} has {word}", asset.path);
            }
        }
    }

    #[test]
    fn what_the_page_names_is_there() {
        let all = ASSETS.into_iter().chain([ARRIVAL, ARRIVAL_SCRIPT]);
        let named = all.clone().flat_map(|asset| asset.text.split(['"', '\'']));
        let named = named.filter(|text| matches!(text.rsplit_once('.'), Some((_, "js" | "css"))));
        let is_there = |name: &str| all.clone().any(|asset| asset.path == name.trim_start_matches('.'));
        let missing: Vec<_> = named.filter(|name| !is_there(name)).collect();

        assert!(missing.is_empty(), "{missing:?}");
        assert!(asset("/").is_some() && asset("/../Cargo.toml").is_none());
    }
}
