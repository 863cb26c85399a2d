//! Certificates, keys and authorities.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use webpki::EndEntityCert;

use super::{Inspection, Level};
use crate::access::{Identity, ROLE_SCHEME, Role};
use crate::certificate::Validity;
use crate::error::chain;
use crate::tls::{ClientTls, OutwardTls, ServerTls, TlsError, certificates, read};

/// A certificate that ends within this many days is worth a warning.
const SOON_DAYS: i64 = 14;
const DAY_S: i64 = 86_400;
/// Mode bits: others than owner and group may read.
const EVERYBODY_READS: u32 = 0o004;
const RENEW: &str = "renew it; agents take over new files without a restart";

impl Inspection {
    /// Checks the certificate of a listener, in the section `key`.
    pub fn server_tls(&mut self, key: &str, tls: &ServerTls) {
        self.listener(key, tls, None);
    }

    /// Checks the certificate of a listener that clients have to know as a peer, too, in the section `key`.
    pub fn peer_tls(&mut self, key: &str, tls: &ServerTls) {
        self.listener(key, tls, Some(Role::Peer));
    }

    fn listener(&mut self, key: &str, tls: &ServerTls, role: Option<Role>) {
        let before = self.count(Level::Error);
        let name = format!("{key}.certificate");
        let names = self.chain(&name, &tls.certificate).as_deref().and_then(names);
        match (names, role) {
            (Some(names), Some(role)) => self.role(name, &names, role),
            (Some(names), None) if names.is_empty() => {
                let advice = "clients look for the host's name there: -addext 'subjectAltName=DNS:host.example'";
                self.warning(name, "the certificate has no name (subjectAltName)", advice);
            }
            _ => {}
        }
        self.key(&format!("{key}.key"), &tls.key);
        if let Some(authority) = &tls.client_ca {
            self.authority(&format!("{key}.client_ca"), authority);
        }
        if self.count(Level::Error) == before {
            self.whole(&format!("{key}.key"), tls.library().err());
        }
    }

    /// Checks the certificate of a client, in the section `key`. With a `role`, also that the other end can see it.
    pub fn client_tls(&mut self, key: &str, tls: &ClientTls, role: Option<Role>) {
        let before = self.count(Level::Error);
        self.authority(&format!("{key}.ca"), &tls.ca);
        self.own(key, tls.certificate.as_deref(), tls.key.as_deref(), role);
        if self.count(Level::Error) == before {
            self.whole(key, tls.load().err());
        }
    }

    /// Checks the certificates for a server that is not an agent, in the section `key`.
    pub fn outward_tls(&mut self, key: &str, tls: &OutwardTls) {
        let before = self.count(Level::Error);
        if let Some(authority) = &tls.ca {
            self.authority(&format!("{key}.ca"), authority);
        }
        self.own(key, tls.certificate.as_deref(), tls.key.as_deref(), None);
        if self.count(Level::Error) == before {
            self.whole(key, tls.load().err());
        }
    }

    /// Checks a file with authorities, the value of `key`. One that is valid is enough: others may be there until
    /// all have certificates of the next one.
    pub fn authority(&mut self, key: &str, path: &Path) {
        let Some(found) = self.certificates(key, path) else { return };
        let read: Vec<_> = found.iter().filter_map(|certificate| Validity::of(certificate)).collect();
        let is_valid = |validity: &&Validity| (validity.from_s..=validity.until_s).contains(&self.now_s);
        let (count, valid) = (read.iter().filter(is_valid).count(), read.iter().filter(is_valid));
        // The first that ends, or, if there is none, the one that was or will be valid nearest to now.
        let shown = valid.min_by_key(|validity| validity.until_s).or(read.iter().max_by_key(|end| end.until_s));
        let Some(&shown) = shown else { return self.no_certificate(key, path) };
        self.validity(key, path, shown);
        if (1..found.len()).contains(&count) {
            let others = found.len() - count;
            let what = format!("{others} of {} certificates in {} cannot be used now", found.len(), path.display());
            self.warning(key, what, "remove those that have expired");
        }
    }

    /// The own certificate of a client.
    fn own(&mut self, key: &str, certificate: Option<&Path>, secret: Option<&Path>, role: Option<Role>) {
        let name = format!("{key}.certificate");
        let names = certificate.and_then(|path| self.chain(&name, path)).as_deref().and_then(names);
        if let Some(secret) = secret {
            self.key(&format!("{key}.key"), secret);
        }
        if let (Some(role), Some(names)) = (role, names) {
            self.role(name, &names, role);
        }
    }

    /// Whether the other end can see a role in a certificate with `names`, the value of `key`.
    fn role(&mut self, key: String, names: &[String], role: Role) {
        let uri = format!("{ROLE_SCHEME}{}", role.name());
        if names.contains(&uri) {
            self.ok(key, format!("it has the role {}", role.name()));
        } else if names.is_empty() {
            let advice = format!("-addext 'subjectAltName=URI:{uri}'");
            self.warning(key, "the certificate has no name, so that nobody can give it a role", advice);
        } else {
            let advice = format!("{} of the other end must list one of its names", role.access_key());
            self.warning(key, format!("the certificate lacks the URI {uri}"), advice);
        }
    }

    /// What the TLS library says about all files of a section together.
    fn whole(&mut self, key: &str, error: Option<TlsError>) {
        if let Some(error) = error {
            self.error(key, chain(&error), "name files that belong together");
        }
    }

    /// Reads a file with certificates.
    fn certificates(&mut self, key: &str, path: &Path) -> Option<Vec<CertificateDer<'static>>> {
        match read(path).and_then(|pem| certificates(&pem, path)) {
            Ok(found) => Some(found),
            Err(error) => {
                self.error(key, chain(&error), readable(&error));
                None
            }
        }
    }

    fn no_certificate(&mut self, key: &str, path: &Path) {
        self.error(key, format!("{} has something that is no certificate", path.display()), "replace the file");
    }

    /// Reads a file with a chain, and says until when it is valid.
    fn chain(&mut self, key: &str, path: &Path) -> Option<Vec<CertificateDer<'static>>> {
        let found = self.certificates(key, path)?;
        let ends = found.iter().map(|certificate| Validity::of(certificate));
        // A chain ends with the first of its certificates that does.
        let Some(validity) = ends.min_by_key(|validity| validity.map(|validity| validity.until_s)).flatten() else {
            self.no_certificate(key, path);
            return None;
        };
        self.validity(key, path, validity);
        Some(found)
    }

    fn validity(&mut self, key: &str, path: &Path, validity: Validity) {
        let (shown, days) = (path.display(), (validity.until_s - self.now_s) / DAY_S);
        if validity.until_s < self.now_s {
            let ago = (self.now_s - validity.until_s) / DAY_S;
            self.error(key, format!("{shown} expired {ago} days ago"), RENEW);
        } else if validity.from_s > self.now_s {
            let wait = (validity.from_s - self.now_s).div_euclid(DAY_S) + 1;
            let advice = "is this machine's clock right?";
            self.error(key, format!("{shown} is not valid before {wait} days from now"), advice);
        } else if days < SOON_DAYS {
            self.warning(key, format!("{shown} expires in {days} days"), RENEW);
        } else {
            self.ok(key, format!("{shown} is valid for {days} days"));
        }
    }

    /// Checks a private key.
    fn key(&mut self, key: &str, path: &Path) {
        let read = read(path).and_then(|pem| {
            PrivateKeyDer::from_pem_slice(&pem).map(drop).map_err(|_| TlsError::NoKey(path.to_owned()))
        });
        let shown = path.display();
        match read {
            Err(error) => self.error(key, chain(&error), readable(&error)),
            Ok(()) if std::fs::metadata(path).is_ok_and(|data| data.mode() & EVERYBODY_READS != 0) => {
                self.warning(key, format!("everybody on this machine can read {shown}"), format!("chmod o-r {shown}"));
            }
            Ok(()) => self.ok(key, format!("{shown} is a private key")),
        }
    }
}

/// The names in the first certificate of a chain.
fn names(chain: &[CertificateDer<'_>]) -> Option<Vec<String>> {
    let certificate = EndEntityCert::try_from(chain.first()?).ok()?;
    let names = certificate.valid_dns_names().chain(certificate.valid_uri_names());
    match Identity::of_certificate(names.map(str::to_owned)) {
        Identity::Certificate(names) => Some(names),
        Identity::User { .. } | Identity::Account(_) | Identity::Anyone => None,
    }
}

fn readable(error: &TlsError) -> &'static str {
    match error {
        TlsError::Read { .. } => "name a file that the agent's user can read",
        TlsError::NoKey(_) => "a PEM file with a line `-----BEGIN PRIVATE KEY-----`",
        _ => "a PEM file with a line `-----BEGIN CERTIFICATE-----`",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use support::certificates::{Day, Subject};

    use super::*;

    /// Midnight of 2026-01-01.
    const NOW_S: i64 = 1_767_225_600;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Writes `name.pem`, valid from 2025 until `until`, and `name.key`.
        fn certificate(&self, name: &str, until: Day, names: &[&str]) {
            Subject::new(names).valid((2025, 1, 1), until).self_signed().write(self.0.path(), name);
        }

        fn server(&self, certificate: &str, key: &str, ca: &str) -> Vec<(Level, String)> {
            let [certificate, key, ca] = [certificate, key, ca].map(|name| self.path(name));
            found(|to| to.server_tls("tls", &ServerTls { certificate, key, client_ca: Some(ca) }))
        }
    }

    fn found(inspect: impl FnOnce(&mut Inspection)) -> Vec<(Level, String)> {
        let mut inspection = Inspection::new(NOW_S);
        inspect(&mut inspection);
        inspection
            .findings()
            .iter()
            .map(|finding| (finding.level, format!("{} {}", finding.key, finding.what)))
            .collect()
    }

    fn levels(found: &[(Level, String)]) -> Vec<Level> {
        found.iter().map(|(level, _)| *level).collect()
    }

    #[test]
    fn a_certificate_ends_in_time_soon_or_has_ended() {
        let files = Files::new();
        files.certificate("long", (2026, 1, 15), &["a.example"]);
        files.certificate("soon", (2026, 1, 14), &["a.example"]);
        files.certificate("over", (2025, 12, 30), &["a.example"]);
        let level = |name: &str| {
            let all = files.server(&format!("{name}.pem"), &format!("{name}.key"), "long.pem");
            all.into_iter().next().unwrap()
        };

        let [long, soon, over] = ["long", "soon", "over"].map(level);

        assert!(long.0 == Level::Ok && long.1.ends_with("valid for 14 days"), "{long:?}");
        assert!(soon.0 == Level::Warning && soon.1.ends_with("expires in 13 days"), "{soon:?}");
        assert!(over.0 == Level::Error && over.1.ends_with("expired 2 days ago"), "{over:?}");
    }

    #[test]
    fn every_wrong_file_of_a_section_is_named_at_once() {
        let files = Files::new();
        files.certificate("a", (2030, 1, 1), &["a.example"]);
        files.certificate("b", (2030, 1, 1), &[]);
        std::fs::write(files.path("empty"), "").unwrap();

        let wrong = files.server("missing", "empty", "a.key");
        assert_eq!(levels(&wrong), [Level::Error; 3], "{wrong:?}");
        let pair = files.server("a.pem", "b.key", "a.pem");
        assert_eq!(levels(&pair), [Level::Ok, Level::Ok, Level::Ok, Level::Error], "{pair:?}");
        assert!(pair[3].1.contains("cannot be used with the key"), "{pair:?}");
        let nameless = files.server("b.pem", "b.key", "a.pem");
        assert_eq!(levels(&nameless), [Level::Ok, Level::Warning, Level::Ok, Level::Ok], "{nameless:?}");
    }

    #[test]
    fn a_key_that_everybody_can_read_is_worth_a_warning() {
        let files = Files::new();
        files.certificate("a", (2030, 1, 1), &["a.example"]);
        std::fs::set_permissions(files.path("a.key"), std::fs::Permissions::from_mode(0o644)).unwrap();

        let found = files.server("a.pem", "a.key", "a.pem");

        assert_eq!(levels(&found), [Level::Ok, Level::Warning, Level::Ok], "{found:?}");
    }

    #[test]
    fn a_clients_certificate_needs_a_name_by_which_it_gets_its_role() {
        let files = Files::new();
        files.certificate("ca", (2030, 1, 1), &["ca.example"]);
        files.certificate("worker", (2030, 1, 1), &["uview:worker"]);
        files.certificate("named", (2030, 1, 1), &["nic.example"]);
        files.certificate("nameless", (2030, 1, 1), &[]);
        let role = |name: &str| {
            let [certificate, key] = ["pem", "key"].map(|end| Some(files.path(&format!("{name}.{end}"))));
            let tls = ClientTls { ca: files.path("ca.pem"), domain: None, certificate, key };
            found(|to| to.client_tls("control.tls", &tls, Some(Role::Worker))).pop().unwrap()
        };

        let [worker, named, nameless] = ["worker", "named", "nameless"].map(role);

        assert_eq!(worker.0, Level::Ok, "{worker:?}");
        assert!(named.0 == Level::Warning && named.1.contains("lacks the URI uview:worker"), "{named:?}");
        assert!(nameless.0 == Level::Warning && nameless.1.contains("has no name"), "{nameless:?}");
    }

    #[test]
    fn a_listener_of_peers_needs_a_name_by_which_callers_know_it_for_one() {
        let files = Files::new();
        files.certificate("ca", (2030, 1, 1), &["ca.example"]);
        files.certificate("peer", (2030, 1, 1), &["uview:peer", "node-1"]);
        files.certificate("named", (2030, 1, 1), &["node-1"]);
        let role = |name: &str| {
            let [certificate, key] = ["pem", "key"].map(|end| files.path(&format!("{name}.{end}")));
            let tls = ServerTls { certificate, key, client_ca: Some(files.path("ca.pem")) };
            found(|to| to.peer_tls("coherence.tls", &tls)).swap_remove(1)
        };

        let [peer, named] = ["peer", "named"].map(role);

        assert!(peer.0 == Level::Ok && peer.1.ends_with("it has the role peer"), "{peer:?}");
        assert!(named.0 == Level::Warning && named.1.contains("lacks the URI uview:peer"), "{named:?}");
    }

    #[test]
    fn one_authority_of_several_that_is_valid_is_enough() {
        let files = Files::new();
        files.certificate("long", (2030, 1, 1), &[]);
        files.certificate("over", (2025, 12, 30), &[]);
        let text = |name: &str| std::fs::read_to_string(files.path(name)).unwrap();
        let (long, over) = (text("long.pem"), text("over.pem"));
        let unreadable = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let authority = |text: String| {
            std::fs::write(files.path("ca.pem"), text).unwrap();
            found(|to| to.authority("tls.client_ca", &files.path("ca.pem")))
        };

        let [both, other, none, nothing] =
            [format!("{over}{long}"), format!("{long}{unreadable}"), format!("{over}{over}"), unreadable.to_owned()]
                .map(authority);

        for found in [&both, &other] {
            assert_eq!(levels(found), [Level::Ok, Level::Warning], "{found:?}");
            assert!(found[0].1.contains("is valid for 1461 days"), "{found:?}");
            assert!(found[1].1.contains("1 of 2 certificates"), "{found:?}");
        }
        assert!(levels(&none) == [Level::Error] && none[0].1.ends_with("expired 2 days ago"), "{none:?}");
        assert_eq!(levels(&nothing), [Level::Error], "{nothing:?}");
    }

    #[test]
    fn a_chain_ends_with_the_first_of_its_certificates() {
        let files = Files::new();
        files.certificate("long", (2030, 1, 1), &["a.example"]);
        files.certificate("over", (2025, 12, 30), &[]);
        let text = ["long.pem", "over.pem"].map(|name| std::fs::read_to_string(files.path(name)).unwrap()).concat();
        std::fs::write(files.path("chain.pem"), text).unwrap();

        let found = files.server("chain.pem", "long.key", "long.pem");

        assert!(found[0].0 == Level::Error && found[0].1.ends_with("expired 2 days ago"), "{found:?}");
    }

    #[test]
    fn half_a_pair_is_an_error() {
        let files = Files::new();
        files.certificate("a", (2030, 1, 1), &["a.example"]);
        let tls = OutwardTls {
            certificate: Some(files.path("a.pem")),
            ca: Some(files.path("a.pem")),
            ..OutwardTls::default()
        };

        let found = found(|to| to.outward_tls("otlp.upstream.tls", &tls));

        assert!(
            found.iter().any(|(level, what)| *level == Level::Error && what.contains("one is missing")),
            "{found:?}"
        );
    }
}
