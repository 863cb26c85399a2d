//! No circle of files is longer than two, such as a parent and its child: whoever reads one of them would have to read
//! all.
//!
//! A file names another one if it imports what the other defines, or writes a path to it. Names are followed through
//! `pub use`, of any visibility and with `as`, to the file that defines them. A `pub use` itself names nothing: it
//! passes on. Globs (`pub use a::*`) are not followed: what comes by one counts as defined where the glob stands. A
//! module that is imported as a whole counts as named itself, whatever is then taken from it. Parents and children are
//! files like any others. A module within a file is part of it. Tests do not count.
//!
//! A circle is shown with all that it cannot be told apart from: its *block*, the largest set of files around it that
//! hangs together without any one of them. A set of files of which each reaches each has a circle of more than two
//! exactly if one of its blocks has more than two files.

mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::{files, root};
use tokens::{length, path, tokens};

/// The most files in a circle.
const LONGEST: usize = 2;
/// The most times that a name is passed on. A name that two files pass on to each other would be followed for ever.
const MAX_HOPS: usize = 16;

/// A module by its path within the crate; empty for the root.
type Module = Vec<String>;
/// Which files each file names.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// The modules of a crate, and the paths that stand in them.
#[derive(Debug, Default)]
struct Modules {
    /// The modules that are files.
    files: BTreeSet<Module>,
    /// All modules; for each the names that it passes on by `pub use`, with their paths.
    passed_on: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
    /// The paths that stand in a module, imported or in place.
    paths: BTreeSet<(Module, Vec<String>)>,
}

impl Modules {
    /// Those of the crate in `source`. Programs beside a library are crates of their own.
    fn of(source: &Path) -> Self {
        let is_library = source.join("lib.rs").is_file();
        let is_other_crate =
            |file: &Path| file.starts_with(source.join("bin")) || (is_library && file == source.join("main.rs"));
        let is_test = |part: &String| part == "tests" || part == "testing" || part.ends_with("_tests");
        let mut modules = Self::default();
        // Those that are made from proto files, too: they define what others name.
        for file in files(source).into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        {
            let module = module_of(&file, source);
            if !is_other_crate(&file) && !module.iter().any(is_test) {
                modules.read(module, &fs::read_to_string(&file).expect("Rust files are text"));
            }
        }
        modules
    }

    /// Reads the text of the file that is `module`.
    fn read(&mut self, module: Module, text: &str) {
        self.files.insert(module.clone());
        self.passed_on.entry(module.clone()).or_default();
        let tokens = tokens(text);
        // `module` becomes that within the file that a token stands in; `outside` has the depths at which those began.
        let (mut module, mut depth, mut outside) = (module, 0, Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            at += match &tokens[at..] {
                ["#", "[", "cfg", "(", "test", ")", "]", after @ ..] => 7 + module_of_tests(after),
                ["mod", name, "{", ..] => {
                    module.push((*name).to_owned());
                    self.passed_on.entry(module.clone()).or_default();
                    outside.push(depth);
                    depth += 1;
                    3
                }
                ["{", ..] => {
                    depth += 1;
                    1
                }
                ["}", ..] => {
                    depth -= 1;
                    if outside.pop_if(|outer| *outer == depth).is_some() {
                        module.pop();
                    }
                    1
                }
                // Captures of a type: `impl Trait + use<'_>`.
                ["use", "<", ..] => 1,
                ["use", after @ ..] => 1 + self.import(&module, is_public(&tokens[..at]), after),
                // Of another crate, or of a type.
                ["::", after @ ..] => 1 + length(path(after).len()),
                rest => {
                    let path = path(rest);
                    if path.len() > 1 {
                        self.paths.insert((module.clone(), owned(&path)));
                    }
                    length(path.len()).max(1)
                }
            };
        }
    }

    /// Takes up the import that `rest` begins with. Returns how many tokens it has.
    fn import(&mut self, module: &Module, is_public: bool, rest: &[&str]) -> usize {
        let end = rest.iter().position(|token| *token == ";").unwrap_or(rest.len());
        let mut imports = Vec::new();
        // With `::` before it, a path is of another crate.
        if rest.first() != Some(&"::") {
            expand(&rest[..end], &[], &mut imports);
        }
        for (name, mut path) in imports {
            if !is_public {
                path.pop_if(|last| *last == "*");
                self.paths.insert((module.clone(), owned(&path)));
            } else if name != "*" {
                self.passed_on.entry(module.clone()).or_default().insert(name.to_owned(), owned(&path));
            }
        }
        end
    }

    /// The module in which `path` begins if it stands in `module`, and its names from there; `None` if it is of another
    /// crate, or of a name that the module defines.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<(Module, Vec<String>)> {
        let is_relative = |name: &&String| matches!(name.as_str(), "crate" | "self" | "super");
        let mut base = if path.first()? == "crate" { Module::new() } else { module.to_vec() };
        let (relative, names) = path.split_at(path.iter().take_while(is_relative).count());
        for _ in relative.iter().filter(|name| *name == "super") {
            base.pop();
        }
        let is_here = !relative.is_empty() || self.passed_on.contains_key(&child(module, path.first()?));
        is_here.then(|| (base, names.to_vec()))
    }

    /// The file that defines what `path` names if it stands in `module`; `None` if it is of another crate.
    fn definition(&self, module: &[String], path: &[String]) -> Option<&Module> {
        let (mut module, mut names) = self.absolute(module, path)?;
        let mut hops = 0;
        while let Some((name, after)) = names.split_first() {
            let inner = child(&module, name);
            if self.passed_on.contains_key(&inner) {
                (module, names) = (inner, after.to_vec());
            } else if hops < MAX_HOPS
                && let Some(path) = self.passed_on.get(&module).and_then(|names| names.get(name))
                && let Some((base, mut further)) = self.absolute(&module, path)
            {
                further.extend_from_slice(after);
                (module, names) = (base, further);
                hops += 1;
            } else {
                break;
            }
        }
        self.file(&module)
    }

    /// The file that `module` is, or is in.
    fn file(&self, module: &[String]) -> Option<&Module> {
        (0..=module.len()).rev().find_map(|end| self.files.get(&module[..end]))
    }

    /// Which files each file names.
    fn graph(&self) -> Graph {
        let mut graph: Graph = self.files.iter().map(|file| (file.clone(), BTreeSet::new())).collect();
        for (module, path) in &self.paths {
            let (from, to) = (self.file(module), self.definition(module, path));
            if let (Some(from), Some(to)) = (from, to)
                && from != to
            {
                graph.entry(from.clone()).or_default().insert(to.clone());
            }
        }
        graph
    }
}

fn module_of(file: &Path, source: &Path) -> Module {
    let inner = file.strip_prefix(source).expect("a source is in its folder").with_extension("");
    let mut path: Module = inner.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    path.pop_if(|last| matches!(last.as_str(), "lib" | "main" | "mod"));
    path
}

fn child(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

fn owned(path: &[&str]) -> Vec<String> {
    path.iter().map(|&name| name.to_owned()).collect()
}

/// How many tokens the module has that `#[cfg(test)]` stands before; 0 if it stands before something else.
fn module_of_tests(after: &[&str]) -> usize {
    // Further attributes and `pub` may come first.
    let Some(start) = after.iter().position(|token| matches!(*token, "mod" | "{" | "}" | ";")) else { return 0 };
    let ["mod", _, "{", inner @ ..] = &after[start..] else { return 0 };
    let mut depth = 1;
    let end = inner.iter().position(|token| {
        depth += i32::from(*token == "{") - i32::from(*token == "}");
        depth == 0
    });
    start + 3 + end.map_or(inner.len(), |end| end + 1)
}

/// Whether a `use` after these tokens passes on: after `pub`, or `pub(…)`.
fn is_public(before: &[&str]) -> bool {
    match before {
        [.., "pub"] => true,
        [inner @ .., ")"] => {
            inner.iter().rposition(|token| *token == "(").is_some_and(|open| inner[..open].ends_with(&["pub"]))
        }
        _ => false,
    }
}

/// The names that the tree of a `use` brings in, each with its path: `a::{self, b as c}` brings in `a`, and `c`, which
/// is `a::b`. `outer` stands before the tree.
fn expand<'text>(tree: &[&'text str], outer: &[&'text str], imports: &mut Vec<(&'text str, Vec<&'text str>)>) {
    let names = |tokens: &[&'text str]| tokens.iter().copied().filter(|token| *token != "::").collect::<Vec<_>>();
    let Some(open) = tree.iter().position(|token| *token == "{") else {
        let (tree, alias) = if let [path @ .., "as", alias] = tree { (path, Some(*alias)) } else { (tree, None) };
        let mut path = [outer, &names(tree)[..]].concat();
        if path.len() > 1 {
            path.pop_if(|last| *last == "self");
        }
        imports.extend(path.last().copied().map(|last| (alias.unwrap_or(last), path)));
        return;
    };
    let outer = [outer, &names(&tree[..open])[..]].concat();
    let inner = tree.get(open + 1..tree.len() - 1).unwrap_or_default();
    let mut depth = 0;
    let is_comma = |token: &&'text str| {
        depth += i32::from(*token == "{") - i32::from(*token == "}");
        depth == 0 && *token == ","
    };
    for tree in inner.split(is_comma).filter(|tree| !tree.is_empty()) {
        expand(tree, &outer, imports);
    }
}

/// What can be reached from `from`.
fn reached<'a>(graph: &'a Graph, from: &'a Module) -> BTreeSet<&'a Module> {
    let (mut met, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(graph.get(next).into_iter().flatten().filter(|other| met.insert(*other)));
    }
    met
}

/// The blocks with more files than a circle may have.
fn circles(graph: &Graph) -> Vec<BTreeSet<&Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = graph.keys().map(|file| (file, reached(graph, file))).collect();
    let mut sets: BTreeSet<BTreeSet<&Module>> = BTreeSet::new();
    for (file, others) in &reach {
        sets.insert(others.iter().copied().filter(|other| reach[other].contains(file)).collect());
    }
    let blocks = sets.into_iter().flat_map(|files| blocks(files, graph));
    blocks.filter(|block| block.len() > LONGEST).collect()
}

/// The blocks of `files`, which hang together: they are divided wherever one file alone holds parts together.
fn blocks<'a>(files: BTreeSet<&'a Module>, graph: &Graph) -> Vec<BTreeSet<&'a Module>> {
    for &joint in &files {
        let parts = parts(&files, joint, graph);
        if parts.len() > 1 {
            let with_joint = parts.into_iter().map(|part| part.into_iter().chain([joint]).collect::<BTreeSet<_>>());
            return with_joint.flat_map(|part| blocks(part, graph)).collect();
        }
    }
    vec![files]
}

/// What `files` fall apart into without `joint`.
fn parts<'a>(files: &BTreeSet<&'a Module>, joint: &Module, graph: &Graph) -> Vec<BTreeSet<&'a Module>> {
    let names = |from: &Module, to: &Module| graph.get(from).is_some_and(|named| named.contains(to));
    let mut left: BTreeSet<&Module> = files.iter().copied().filter(|file| *file != joint).collect();
    let mut parts = Vec::new();
    while let Some(first) = left.pop_first() {
        let (mut part, mut open) = (BTreeSet::from([first]), vec![first]);
        while let Some(file) = open.pop() {
            let (near, far): (BTreeSet<&Module>, BTreeSet<&Module>) =
                left.into_iter().partition(|other| names(file, other) || names(other, file));
            left = far;
            open.extend(&near);
            part.extend(near);
        }
        parts.push(part);
    }
    parts
}

fn title(module: &[String]) -> String {
    if module.is_empty() { "(root)".to_owned() } else { module.join("::") }
}

#[test]
fn no_circle_of_files_is_longer_than_a_parent_and_its_child() {
    let mut long = Vec::new();
    let roots = files(&root()).into_iter().filter(|file| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs"));
    let folders: BTreeSet<_> = roots.filter_map(|file| Some(file.parent()?.to_path_buf())).collect();
    for source in folders {
        let graph = Modules::of(&source).graph();
        for circle in circles(&graph) {
            long.push(format!("{}: {} files", source.display(), circle.len()));
            for file in &circle {
                let named = graph[*file].iter().filter(|other| circle.contains(other));
                let named: Vec<_> = named.map(|other| title(other)).collect();
                long.push(format!("    {} -> {}", title(file), named.join(", ")));
            }
        }
    }

    assert!(long.is_empty(), "put what they share into a file of its own:\n{}", long.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate of these files, each as the names of its files.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let mut modules = Modules::default();
        for (name, text) in files {
            let module = name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
            modules.read(module, text);
        }
        let graph = modules.graph();
        let names =
            |circle: BTreeSet<&Module>| circle.into_iter().map(|file| title(file)).collect::<Vec<_>>().join(" ");
        circles(&graph).into_iter().map(names).collect()
    }

    #[test]
    fn three_siblings_are_a_circle_however_they_name_each_other() {
        let files = [
            ("", "mod a;\nmod b;\nmod c;"),
            ("a", "use crate::{b::B, d};"),
            ("b", "use super::{\n    c::{self, C},\n};"),
            ("c", "fn f() { crate::a::g() }"),
        ];

        assert_eq!(found(&files), ["a b c"]);
    }

    #[test]
    fn what_is_passed_on_leads_to_the_file_that_defines_it() {
        // `c` has A by the root, which has it by the parent, where it has another name. The parent is in no circle.
        let files = [
            ("", "mod p;\nmod c;\npub use p::Other as Third;"),
            ("p", "mod a;\nmod b;\npub use a::A;\npub(super) use self::a::A as Other;\npub(crate) use b::B;"),
            ("p::a", "use super::B;"),
            ("p::b", "use crate::c::C;"),
            ("c", "fn f() -> crate::Third {}"),
        ];

        assert_eq!(found(&files), ["c p::a p::b"]);
    }

    #[test]
    fn a_parent_and_two_children_are_a_circle_if_one_child_names_the_other() {
        let files = [
            ("", "mod p;"),
            ("p", "mod a;\nmod b;\nuse a::A;\npub struct P;"),
            ("p::a", "use super::b::B;"),
            ("p::b", "use super::P;"),
        ];

        assert_eq!(found(&files), ["p p::a p::b"]);
    }

    #[test]
    fn a_parent_may_name_each_child_and_each_child_its_parent() {
        let files = [
            ("", "mod p;"),
            ("p", "mod a;\nmod b;\nuse a::A;\npub struct P;\nfn f() { b::g() }"),
            ("p::a", "use super::P;"),
            ("p::b", "fn g(of: super::P) {}"),
        ];

        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn circles_that_share_one_file_are_two() {
        let files = [
            ("a", "use crate::b::B;\nuse crate::d::D;"),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::A;"),
            ("d", "use crate::e::E;"),
            ("e", "use crate::a::A;"),
        ];

        assert_eq!(found(&files), ["a b c", "a d e"]);
    }

    #[test]
    fn a_module_within_a_file_is_part_of_it() {
        let files = [
            ("a", "pub mod inner {\n    use super::A;\n    pub struct Inner;\n}\nuse crate::b::B;"),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::inner::Inner;"),
        ];

        assert_eq!(found(&files), ["a b c"]);
        // There `super` is the file, and not its parent.
        let parent = ("", "use b::B;");
        assert_eq!(found(&[parent, ("a", "mod inner { use super::A; }"), ("b", "use crate::a::A;")]).len(), 0);
    }

    #[test]
    fn tests_comments_texts_other_crates_and_what_is_passed_on_name_nothing() {
        for last in [
            "// use crate::a::A;",
            "const TEXT: &str = \"crate::a::A\";",
            "#[cfg(test)]\n#[expect(unused)]\npub(crate) mod examples {\n    use crate::a::A;\n    fn f() {}\n}",
            "use ::a::A;\nuse a::B;\nfn f() { ::a::g() }",
            "pub use crate::a::A;",
            "pub(in crate) use crate::a::{A, B as D};",
        ] {
            let circle = |last: &str| found(&[("a", "use crate::b::B;"), ("b", "use crate::c::C;"), ("c", last)]);

            assert_eq!(circle(last), Vec::<String>::new(), "{last}");
            let with_one = format!("{last}\nuse crate::a::A;");
            assert_eq!(circle(&with_one), ["a b c"], "{with_one}");
        }
    }
}
