//! The address that opens the page once: a token, and the incident that it leads to, if one is wanted.

use wire::incident::IncidentId;

use crate::sessions::Secret;

/// What the query of such an address says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invitation {
    pub(crate) token: Secret,
    incident: Option<IncidentId>,
}

impl Invitation {
    /// Reads `token=…`, or `token=…&incident=…`, and nothing else.
    pub(crate) fn parse(query: &str) -> Option<Self> {
        let (token, incident) = match query.split_once("&incident=") {
            Some((token, id)) => (token, Some(id.parse().ok()?)),
            None => (query, None),
        };
        Some(Self { token: Secret::parse(token.strip_prefix("token=")?)?, incident })
    }

    /// The page that an exchanged token answers with. It goes on by itself, and not by a redirect: a browser that comes
    /// from a link of another site would not show the new cookie there (SameSite=Strict).
    pub(crate) fn page(&self) -> String {
        let to = self.incident.map_or_else(|| "/".to_owned(), |id| format!("/#/incident/{id}"));
        format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>uview</title>\
             <link rel=\"icon\" href=\"data:,\"><meta http-equiv=\"refresh\" content=\"0;url={to}\">\
             <p><a href=\"{to}\">uview</a></p></html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INCIDENT: &str = "&incident=20261127-064215-123";

    fn invitation(token: &str, more: &str) -> Option<Invitation> {
        Invitation::parse(&format!("{token}{more}"))
    }

    #[test]
    fn it_leads_to_the_page_or_to_the_incident_that_it_names() {
        let token = format!("token={}", "0f".repeat(32));

        let [plain, named] = ["", INCIDENT].map(|more| invitation(&token, more).unwrap());

        assert_eq!(plain.token.text(), "0f".repeat(32));
        assert!(plain.page().contains("content=\"0;url=/\""), "{}", plain.page());
        assert_eq!(named.token.text(), "0f".repeat(32));
        assert!(named.page().contains("content=\"0;url=/#/incident/20261127-064215-123\""), "{}", named.page());
    }

    #[test]
    fn nothing_else_that_an_address_says_gets_into_the_page() {
        let token = format!("token={}", "0f".repeat(32));

        for more in [
            "&incident=",
            "&incident=7",
            "&incident=../x",
            "&incident=20261127-064215-123\"><script>",
            "&incident=20261127-064215-123&incident=20261127-064215-123",
            "&to=/api/map",
        ] {
            assert!(invitation(&token, more).is_none(), "{more}");
        }
        for wrong in ["", "token=", "token=0f", &token[6..]] {
            assert!(invitation(wrong, "").is_none() && invitation(wrong, INCIDENT).is_none(), "{wrong}");
        }
    }
}
