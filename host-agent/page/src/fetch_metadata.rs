//! Where a request comes from, as browsers say it (W3C, Fetch Metadata). Other programs say nothing.

/// The headers `Sec-Fetch-…` of a request; `None` unless there is exactly one of the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchMetadata<'a> {
    /// `Sec-Fetch-Site`: whether the same origin asks, the same site, another one, or a person (`none`).
    pub site: Option<&'a str>,
    /// `Sec-Fetch-Mode`: `navigate` for what becomes a document.
    pub mode: Option<&'a str>,
    /// `Sec-Fetch-Dest`: `document` for that of a tab; that of a frame has another word.
    pub destination: Option<&'a str>,
}

impl FetchMetadata<'_> {
    /// Whether no other page asks. Pages at other ports of this machine are the same site, and others all the same.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.site.is_none_or(|site| site == "same-origin" || site == "none")
    }

    /// Whether another page leads a whole tab here, such as by a link that somebody clicks.
    #[must_use]
    pub fn is_link(&self) -> bool {
        !self.is_own() && self.mode == Some("navigate") && self.destination == Some("document")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_another_page_is_told_from_all_else_that_it_can_ask_for() {
        let of = |site, mode, destination| {
            let from = FetchMetadata { site: Some(site), mode: Some(mode), destination: Some(destination) };
            (from.is_own(), from.is_link())
        };

        for site in ["cross-site", "same-site", "something-new"] {
            assert_eq!(of(site, "navigate", "document"), (false, true), "{site}");
            for (mode, destination) in [
                ("navigate", "iframe"),
                ("navigate", "object"),
                ("no-cors", "document"),
                ("no-cors", "script"),
                ("no-cors", "image"),
                ("cors", "empty"),
                ("websocket", "empty"),
            ] {
                assert_eq!(of(site, mode, destination), (false, false), "{site} {mode} {destination}");
            }
        }
        for site in ["same-origin", "none"] {
            assert_eq!(of(site, "navigate", "document"), (true, false), "{site}");
        }
        let other_program = FetchMetadata::default();
        assert!(other_program.is_own() && !other_program.is_link());
        let old_browser = FetchMetadata { site: Some("cross-site"), ..FetchMetadata::default() };
        assert!(!old_browser.is_own() && !old_browser.is_link());
    }
}
