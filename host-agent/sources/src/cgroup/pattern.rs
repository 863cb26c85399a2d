//! Which cgroups are read, and as which service.

/// Longest name of a service.
const MAX_NAME_BYTES: usize = 128;
/// Most folders of a pattern.
const MAX_DEPTH: usize = 16;

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// A folder is empty, or would leave the hierarchy.
    #[error("pattern {pattern:?} has the folder {folder:?}: write folders from the root on, as system.slice/*.service")]
    Folder {
        /// The pattern as given.
        pattern: String,
        /// The folder in question.
        folder: String,
    },
    /// Too many folders.
    #[error("pattern {pattern:?} has {folders} folders, more than {MAX_DEPTH}")]
    Depth {
        /// The pattern as given.
        pattern: String,
        /// Number of its folders.
        folders: usize,
    },
    /// The service has a field that the pattern does not fill.
    #[error(
        "service {service:?} has {field:?}: fields are {{name}} and {{1}} to {{{stars}}}, for the stars of the pattern"
    )]
    Field {
        /// The service as given.
        service: String,
        /// What is in braces, or a brace alone.
        field: String,
        /// The stars of the pattern.
        stars: usize,
    },
    /// The service would have no name.
    #[error("service {service:?} has no letter, digit or field")]
    NoName {
        /// The service as given.
        service: String,
    },
}

/// A part of a service's name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// What a star stands for, by its number; the last folder if there is no star.
    Star(usize),
}

/// Paths of cgroups with stars, each for any text within a folder's name, and the name of their service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    folders: Vec<FolderPattern>,
    service: Vec<Piece>,
    stars: usize,
}

/// A pattern of one folder's name: texts with a star between each two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderPattern(Vec<String>);

impl FolderPattern {
    /// The name, if it has no star.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [name] => Some(name),
            _ => None,
        }
    }

    /// What the stars stand for in `name`, each as short as possible but the last. `None` if it does not match.
    #[must_use]
    pub fn stars<'a>(&self, name: &'a str) -> Option<Vec<&'a str>> {
        let (first, others) = self.0.split_first()?;
        let Some((last, middle)) = others.split_last() else { return (name == first).then(Vec::new) };
        let mut rest = name.strip_prefix(first.as_str())?.strip_suffix(last.as_str())?;
        let mut stars = Vec::with_capacity(others.len());
        for text in middle {
            let (star, after) = rest.split_once(text.as_str())?;
            stars.push(star);
            rest = after;
        }
        stars.push(rest);
        Some(stars)
    }
}

impl Pattern {
    /// The cgroups `pattern`, such as `system.slice/*.service`, as `service`: text with `{name}` for what the last star
    /// stands for, and `{1}`, `{2}`, … for each star.
    ///
    /// # Errors
    ///
    /// [`PatternError`] with what is wrong.
    pub fn new(pattern: &str, service: &str) -> Result<Self, PatternError> {
        let folders: Vec<&str> = pattern.trim_matches('/').split('/').collect();
        let wrong = |folder: &&&str| folder.is_empty() || **folder == "." || **folder == "..";
        if let Some(folder) = folders.iter().find(wrong) {
            return Err(PatternError::Folder { pattern: pattern.to_owned(), folder: (*folder).to_owned() });
        }
        if folders.len() > MAX_DEPTH {
            return Err(PatternError::Depth { pattern: pattern.to_owned(), folders: folders.len() });
        }
        let folder = |name: &&str| FolderPattern(name.split('*').map(str::to_owned).collect());
        let folders: Vec<FolderPattern> = folders.iter().map(folder).collect();
        let stars = folders.iter().map(|folder| folder.0.len() - 1).sum();
        Ok(Self { folders, service: pieces(service, stars)?, stars })
    }

    /// Its folders, from the root on.
    #[must_use]
    pub fn folders(&self) -> &[FolderPattern] {
        &self.folders
    }

    /// The service of the cgroup at `path`. `None` if the pattern does not match, or no letter is left of the name.
    #[must_use]
    pub fn service(&self, path: &str) -> Option<String> {
        let names: Vec<&str> = path.split('/').collect();
        if names.len() != self.folders.len() {
            return None;
        }
        let mut stars = Vec::with_capacity(self.stars);
        for (folder, name) in self.folders.iter().zip(&names) {
            stars.extend(folder.stars(name)?);
        }
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Star(at) => (*stars.get(*at).or(names.last()).unwrap_or(&"")).to_owned(),
        };
        allowed(&self.service.iter().map(piece).collect::<String>())
    }
}

fn pieces(service: &str, stars: usize) -> Result<Vec<Piece>, PatternError> {
    let wrong = |field: &str| PatternError::Field { service: service.to_owned(), field: field.to_owned(), stars };
    let mut pieces = Vec::new();
    let mut rest = service;
    while let Some((text, after)) = rest.split_once('{') {
        let (field, after) = after.split_once('}').ok_or_else(|| wrong("{"))?;
        pieces.push(Piece::Text(text.to_owned()));
        let star = match field {
            "name" => stars.saturating_sub(1),
            number => {
                let number: Option<usize> = number.parse().ok().filter(|number| (1..=stars).contains(number));
                number.ok_or_else(|| wrong(field))? - 1
            }
        };
        pieces.push(Piece::Star(star));
        rest = after;
    }
    if rest.contains('}') {
        return Err(wrong("}"));
    }
    pieces.push(Piece::Text(rest.to_owned()));
    let names = |piece: &Piece| match piece {
        Piece::Text(text) => text.contains(|c: char| c.is_ascii_alphanumeric()),
        Piece::Star(_) => true,
    };
    if pieces.iter().any(names) {
        return Ok(pieces);
    }
    Err(PatternError::NoName { service: service.to_owned() })
}

/// `name` with letters that a service's or a replica's name may have. `None` if nothing is left.
#[must_use]
pub fn allowed(name: &str) -> Option<String> {
    let letter = |c: char| if c.is_ascii_alphanumeric() || "_.-/:".contains(c) { c } else { '-' };
    let name: String = name.chars().map(letter).skip_while(|c| !c.is_ascii_alphanumeric()).collect();
    // All of it is ASCII now.
    let name = name.get(..MAX_NAME_BYTES).unwrap_or(&name);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn service(pattern: &str, service: &str, path: &str) -> Option<String> {
        Pattern::new(pattern, service).unwrap().service(path)
    }

    #[test]
    fn a_star_is_any_text_within_a_folder_and_names_the_service() {
        for (pattern, name, path, expected) in [
            ("system.slice/*.service", "{name}", "system.slice/redis.service", Some("redis")),
            ("system.slice/*.service", "{name}", "system.slice/redis.socket", None),
            ("system.slice/*.service", "{name}", "system.slice/a.service/b.service", None),
            ("system.slice/*.service", "{name}", "system.slice/.service", None),
            ("/kubepods/*/pod*/*", "{1}-{name}", "kubepods/burstable/pod17/abc", Some("burstable-abc")),
            ("kube*.slice/a-*-b-*.scope", "{2}.{3}", "kubepods.slice/a-x-b-y-b-z.scope", Some("x.y-b-z")),
            ("payment", "{name}", "payment", Some("payment")),
            ("shop/payment", "till", "shop/payment", Some("till")),
            ("*", "{name}", "dev-disk\\x2dby.mount", Some("dev-disk-x2dby.mount")),
            ("*", "{name}", "-.slice", Some("slice")),
        ] {
            assert_eq!(service(pattern, name, path).as_deref(), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_meant_is_refused_with_what_to_write() {
        for (pattern, service, expected) in [
            ("", "x", "has the folder \"\""),
            ("a//b", "x", "has the folder \"\""),
            ("a/../b", "x", "has the folder \"..\""),
            ("a/*", "{pod}", "has \"pod\": fields are {name} and {1} to {1}"),
            ("a/*", "{2}", "has \"2\""),
            ("a/*", "{name", "has \"{\""),
            ("a/*", "name}", "has \"}\""),
            ("a/*", "-", "no letter, digit or field"),
            ("a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q", "x", "17 folders"),
        ] {
            let error = Pattern::new(pattern, service).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_matches_has_a_name_that_a_service_may_have(path in "[a-z.*{}/ ü-]{0,40}", star in "[a-z*-]{1,9}") {
            if let Some(name) = Pattern::new(&star, "{name}").unwrap().service(&path) {
                prop_assert!(name.len() <= MAX_NAME_BYTES && name.starts_with(|c: char| c.is_ascii_alphanumeric()));
            }
        }

        #[test]
        fn a_folder_matches_what_its_stars_stand_for(texts in prop::collection::vec("[ab]{0,2}", 1..5), star in "[abc]{0,3}") {
            let folder = FolderPattern(texts.clone());
            let name = texts.join(&star);
            let stars = folder.stars(&name).unwrap();
            let filled: String = texts.iter().zip(stars.iter().map(|star| (*star).to_owned()).chain([String::new()]))
                .flat_map(|(text, star)| [text.clone(), star]).collect();
            prop_assert_eq!(filled, name);
        }
    }
}
