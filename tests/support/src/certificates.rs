//! Certificates for tests: authorities, what they sign, and what signs itself.

use core::fmt;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};

/// A day, at whose midnight (UTC) a certificate begins or ends: year, month, day.
pub type Day = (i32, u8, u8);

/// An authority with a key of its own. Two with the same name are two authorities, as after a renewal.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// A new authority with this common name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, new_key()).expect("an authority can sign itself"))
    }

    /// The authority's certificate.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Writes the authority's certificate to `name.pem` in `folder`. Returns that file's path.
    pub fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(format!("{name}.pem"));
        std::fs::write(&path, self.pem()).expect("the folder is there");
        path
    }
}

/// Whom a certificate is for, and for how long: without more, from 1975 until 4096. It is for servers and for clients.
#[derive(Debug)]
pub struct Subject {
    params: CertificateParams,
    /// The distinguished name, if it is not rcgen's own.
    distinguished: Option<DistinguishedName>,
}

impl Subject {
    /// A subject with these names: IP addresses, URIs (which have a colon), and names of hosts.
    #[must_use]
    pub fn new(names: &[&str]) -> Self {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        Self { params, distinguished: None }
    }

    /// With this common name.
    #[must_use]
    pub fn common_name(self, name: &str) -> Self {
        self.distinguished(DnType::CommonName, name)
    }

    /// Of this organization.
    #[must_use]
    pub fn organization(self, name: &str) -> Self {
        self.distinguished(DnType::OrganizationName, name)
    }

    fn distinguished(mut self, kind: DnType, name: &str) -> Self {
        self.distinguished.get_or_insert_default().push(kind, name);
        self
    }

    /// Valid from one day until another.
    #[must_use]
    pub fn valid(mut self, from: Day, until: Day) -> Self {
        self.params.not_before = date_time_ymd(from.0, from.1, from.2);
        self.params.not_after = date_time_ymd(until.0, until.1, until.2);
        self
    }

    /// It was valid until 2020.
    #[must_use]
    pub fn expired(self) -> Self {
        self.valid((2000, 1, 1), (2020, 1, 1))
    }

    /// A certificate of `authority`, with a new key.
    #[must_use]
    pub fn signed_by(self, authority: &Authority) -> Certificate {
        let (params, key) = (self.params(), new_key());
        let signed = params.signed_by(&key, &authority.0).expect("an authority can sign");
        Certificate { signed, key }
    }

    /// A certificate that is its own authority, with a new key.
    #[must_use]
    pub fn self_signed(self) -> Certificate {
        let (params, key) = (self.params(), new_key());
        let signed = params.self_signed(&key).expect("a key can sign");
        Certificate { signed, key }
    }

    fn params(self) -> CertificateParams {
        let Self { mut params, distinguished } = self;
        if let Some(name) = distinguished {
            params.distinguished_name = name;
        }
        params
    }
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Certificate {
    signed: rcgen::Certificate,
    key: KeyPair,
}

impl Certificate {
    /// The certificate in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.signed.pem()
    }

    /// Its key in PEM, as PKCS #8.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The certificate in DER.
    #[must_use]
    pub fn der(&self) -> Vec<u8> {
        self.signed.der().to_vec()
    }

    /// Its key in DER, as PKCS #8.
    #[must_use]
    pub fn key_der(&self) -> Vec<u8> {
        self.key.serialize_der()
    }

    /// Writes the certificate to `name.pem` and the key to `name.key`, which is for its owner only.
    pub fn write(&self, folder: &Path, name: &str) {
        let key = folder.join(format!("{name}.key"));
        std::fs::write(folder.join(format!("{name}.pem")), self.pem()).expect("the folder is there");
        std::fs::write(&key, self.key_pem()).expect("the folder is there");
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&key, owner_only).expect("the file is ours");
    }
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has random numbers")
}

fn alternative(name: &str) -> SanType {
    match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) if name.contains(':') => SanType::URI(name.try_into().expect("a URI is ASCII")),
        Err(_) => SanType::DnsName(name.try_into().expect("a name of a host is ASCII")),
    }
}
