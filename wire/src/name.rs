//! Names and label sets: checked once, where they are created, and bounded, since they come from untrusted services.

use core::fmt;

/// Why a name or label set is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a {what} must not be empty")]
    Empty {
        /// Kind of name.
        what: &'static str,
    },
    /// The name is too long.
    #[error("a {what} of {bytes} bytes is longer than {limit}")]
    TooLong {
        /// Kind of name.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// Largest allowed length.
        limit: usize,
    },
    /// A character that would break a metric system.
    #[error("{what} {name:?} has {character:?} at byte {at}: {rule}")]
    Character {
        /// Kind of name.
        what: &'static str,
        /// The name as given.
        name: String,
        /// The character that is not allowed.
        character: char,
        /// Its byte offset in the name.
        at: usize,
        /// The allowed characters.
        rule: &'static str,
    },
    /// More labels than a series may have.
    #[error("{found} labels are more than {limit}")]
    TooManyLabels {
        /// Number of labels.
        found: usize,
        /// Largest allowed number.
        limit: usize,
    },
    /// A label name occurs twice.
    #[error("label {0:?} is given twice")]
    DuplicateLabel(String),
}

struct Rule {
    what: &'static str,
    limit: usize,
    text: &'static str,
    first: fn(char) -> bool,
    rest: fn(char) -> bool,
}

impl Rule {
    fn check(&self, name: &str) -> Result<(), NameError> {
        if name.is_empty() {
            return Err(NameError::Empty { what: self.what });
        }
        if name.len() > self.limit {
            return Err(NameError::TooLong { what: self.what, bytes: name.len(), limit: self.limit });
        }
        let wrong = name.char_indices().find(|&(at, c)| !(if at == 0 { (self.first)(c) } else { (self.rest)(c) }));
        match wrong {
            None => Ok(()),
            Some((at, character)) => {
                Err(NameError::Character { what: self.what, name: name.to_owned(), character, at, rule: self.text })
            }
        }
    }
}

fn name_rest(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-/:".contains(c)
}

fn no_control(c: char) -> bool {
    !c.is_control()
}

const SERVICE: Rule = Rule {
    what: "service name",
    limit: 128,
    text: "letters, digits and _ . - / : are allowed, a letter or digit first",
    first: |c| c.is_ascii_alphanumeric(),
    rest: name_rest,
};

const METRIC: Rule = Rule {
    what: "metric name",
    limit: 255,
    text: "letters, digits and _ . - / : are allowed, a letter first (the rule of OpenTelemetry, and : for Prometheus)",
    first: |c| c.is_ascii_alphabetic() || c == '_',
    rest: name_rest,
};

const LABEL_KEY: Rule = Rule {
    what: "label name",
    limit: 128,
    text: "letters, digits and _ . - / : are allowed, a letter or _ first",
    first: |c| c.is_ascii_alphabetic() || c == '_',
    rest: name_rest,
};

const LABEL_VALUE: Rule = Rule {
    what: "label value",
    limit: 256,
    text: "control characters are not allowed",
    first: no_control,
    rest: no_control,
};

const UNIT: Rule = Rule {
    what: "unit",
    limit: 63,
    text: "printable ASCII is allowed (UCUM)",
    first: |c| c.is_ascii_graphic(),
    rest: |c| c.is_ascii_graphic(),
};

const FORMULA: Rule = Rule {
    what: "expression",
    limit: 256,
    text: "printable ASCII is allowed",
    first: |c| c.is_ascii_graphic(),
    rest: |c| c.is_ascii_graphic() || c == ' ',
};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $rule:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks `name` and keeps a copy.
            ///
            /// # Errors
            ///
            /// [`NameError`] if it is empty, too long or has a character that is not allowed.
            pub fn new(name: &str) -> Result<Self, NameError> {
                $rule.check(name)?;
                Ok(Self(name.into()))
            }

            /// The name as given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )+};
}

names! {
    /// A service's name, as in `service.name`: what one LMAP watches on a node. 1 to 128 bytes.
    ServiceName, SERVICE;
    /// Name of a replica of a service, as in `service.instance.id`. 1 to 128 bytes.
    InstanceName, SERVICE;
    /// A metric's name without labels. 1 to 255 bytes.
    MetricName, METRIC;
    /// A metric's unit in UCUM (`s`, `By`, `{request}`). 1 to 63 bytes.
    Unit, UNIT;
    /// The text of an expression, such as `max - min`. Whether it can be computed is not known. 1 to 256 bytes.
    Formula, FORMULA;
}

impl ServiceName {
    /// Whether it has a namespace, as those of workloads of pods do: `shop/payment`.
    #[must_use]
    pub fn has_namespace(&self) -> bool {
        self.0.contains('/')
    }
}

/// The label set of a series or of a service: at most 16 pairs, sorted by key, no key twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Vec<(Box<str>, Box<str>)>);

impl Labels {
    /// How many labels a set may have.
    pub const LIMIT: usize = 16;

    /// Checks and sorts `pairs`.
    ///
    /// # Errors
    ///
    /// [`NameError`] for too many pairs, a key twice, or a key or value that is not allowed (an empty value is).
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, NameError> {
        let mut labels: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (key, value) in pairs {
            LABEL_KEY.check(key)?;
            if !value.is_empty() {
                LABEL_VALUE.check(value)?;
            }
            labels.push((key.into(), value.into()));
            if labels.len() > Self::LIMIT {
                return Err(NameError::TooManyLabels { found: labels.len(), limit: Self::LIMIT });
            }
        }
        labels.sort();
        if let Some(twice) = labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(NameError::DuplicateLabel(twice[0].0.to_string()));
        }
        Ok(Self(labels))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// Pairs in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl fmt::Display for Labels {
    /// `{key="value",…}`, or nothing if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        for (at, (key, value)) in self.iter().enumerate() {
            write!(f, "{}{key}={value:?}", if at == 0 { '{' } else { ',' })?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_break_a_metric_system_are_refused_with_the_place_and_the_rule() {
        assert!(MetricName::new("http.server.request.duration").is_ok());
        assert_eq!(MetricName::new(""), Err(NameError::Empty { what: "metric name" }));
        assert!(matches!(MetricName::new("9lives"), Err(NameError::Character { at: 0, character: '9', .. })));
        assert!(matches!(ServiceName::new("pay\nment"), Err(NameError::Character { at: 3, .. })));
        assert!(matches!(MetricName::new(&"a".repeat(256)), Err(NameError::TooLong { bytes: 256, limit: 255, .. })));
    }

    #[test]
    fn labels_are_sorted_and_no_key_stands_twice() {
        let labels = Labels::new([("route", "/pay"), ("method", "GET")]).unwrap();

        assert_eq!(labels.to_string(), r#"{method="GET",route="/pay"}"#);
        assert_eq!(labels.get("route"), Some("/pay"));
        assert_eq!(Labels::new([("a", "1"), ("a", "2")]), Err(NameError::DuplicateLabel("a".into())));
        assert!(Labels::new((0..17).map(|_| ("a", ""))).is_err());
    }
}
