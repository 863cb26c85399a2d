//! Cgroups that are not watched, since the name that their path gives them belongs to others.

use std::collections::BTreeMap;

use wire::printable;

/// Cgroups that are named in a problem.
const NAMED: usize = 4;
/// Characters of a path in a problem.
const PATH_CHARACTERS: usize = 200;

/// What one scan found of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OthersNames {
    /// Services by path, for the first few.
    named: BTreeMap<String, String>,
    /// Whether there are more.
    more: bool,
}

impl OthersNames {
    /// The cgroup `path` would be `service`.
    pub(super) fn add(&mut self, path: &str, service: String) {
        if self.named.contains_key(path) {
            return;
        }
        if self.named.len() >= NAMED {
            self.more = true;
            return;
        }
        self.named.insert(path.to_owned(), service);
    }

    /// Those that are named here and not in `before`: path and service.
    pub(super) fn beyond<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a String, &'a String)> {
        self.named.iter().filter(|(path, _)| !before.named.contains_key(*path))
    }

    /// What an operator has to know, for the status.
    pub(super) fn problem(&self) -> Option<String> {
        let (path, service) = self.named.first_key_value()?;
        let short = |path: &str| path.chars().take(PATH_CHARACTERS).collect::<String>();
        let each = self.named.iter().map(|(path, service)| format!("/{} as {service}", short(path)));
        let more = self.more.then(|| "more".to_owned());
        let all = each.chain(more).collect::<Vec<_>>().join(", ");
        let rule = format!("{{cgroup: /{}, services: [{service}]}}", short(path));
        let text = format!(
            "sources.cgroups: not watched, since services.identities gives the name to others: {all}; a rule that fits \
             is {rule}"
        );
        Some(printable::line(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named_in_one_printable_line_however_many_there_are() {
        let mut others = OthersNames::default();
        assert_eq!(others.problem(), None);
        for number in 0..1_000 {
            others.add(&format!("shop/\u{1b}[2J{}-{number:04}", "x".repeat(1_000)), "payment".to_owned());
        }

        let problem = others.problem().unwrap();

        assert!(problem.starts_with("sources.cgroups: not watched") && problem.contains(", more; a rule"), "{problem}");
        assert!(problem.len() < 2_000 && !problem.contains('\u{1b}'), "{problem}");
    }
}
