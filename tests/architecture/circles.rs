//! No circle of files is longer than two: whoever reads one of them would have to read all. A parent and its children
//! may name each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::purity::{code, imports};
use crate::{files, root, sources};

/// The most files in a circle.
const LONGEST: usize = 2;

/// A module by its path within the crate; empty for the root.
type Module = Vec<String>;

fn module_of(file: &Path, source: &Path) -> Module {
    let inner = file.strip_prefix(source).expect("a source is in its folder").with_extension("");
    let mut path: Module = inner.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    path.pop_if(|last| matches!(last.as_str(), "lib" | "main" | "mod"));
    path
}

/// The modules that `text`, which is `module`, names by `crate::`, `super::` or `self::`, in imports or in place.
fn named(text: &str, module: &Module) -> Vec<Module> {
    let code = code(text);
    let mut names: Vec<String> = code.split("use ").skip(1).flat_map(imports).collect();
    for start in ["crate::", "super::"] {
        names.extend(
            code.match_indices(start).map(|(at, _)| {
                code[at..].chars().take_while(|&c| c.is_alphanumeric() || c == '_' || c == ':').collect()
            }),
        );
    }
    names.iter().filter_map(|name| absolute(name, module)).collect()
}

fn absolute(name: &str, module: &Module) -> Option<Module> {
    let mut parts = name.split("::").filter(|part| !part.is_empty()).peekable();
    let mut base = match *parts.peek()? {
        "crate" => Module::new(),
        "super" | "self" => module.clone(),
        _ => return None,
    };
    for part in parts {
        match part {
            "crate" | "self" => {}
            "super" => _ = base.pop(),
            part => base.push(part.to_owned()),
        }
    }
    Some(base)
}

/// Which other modules each module of the crate in `source` names. Parents and children do not count, tests neither.
fn graph(source: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let is_test = |module: &Module| module.iter().any(|part| part == "tests" || part == "testing");
    let all = sources(source).into_iter().map(|(file, text)| (module_of(&file, source), text));
    let texts: BTreeMap<Module, String> = all.filter(|(module, _)| !is_test(module)).collect();
    let file_of = |path: &Module| (0..=path.len()).rev().find_map(|end| texts.get_key_value(&path[..end]));
    let mut graph = BTreeMap::new();
    for (module, text) in &texts {
        let others = named(text, module).into_iter().filter_map(|path| Some(file_of(&path)?.0.clone()));
        let is_other = |other: &Module| !other.starts_with(module) && !module.starts_with(other);
        graph.insert(module.clone(), others.filter(is_other).collect());
    }
    graph
}

/// What can be reached from `from`.
fn reached<'a>(graph: &'a BTreeMap<Module, BTreeSet<Module>>, from: &'a Module) -> BTreeSet<&'a Module> {
    let (mut met, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(graph.get(next).into_iter().flatten().filter(|other| met.insert(*other)));
    }
    met
}

/// Sets of modules that reach each other, the first one first.
fn circles(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<&Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reached(graph, module))).collect();
    let mut circles: BTreeSet<Vec<&Module>> = BTreeSet::new();
    for (module, others) in &reach {
        let circle: Vec<&Module> = others.iter().copied().filter(|other| reach[other].contains(module)).collect();
        circles.extend((circle.len() > 1).then_some(circle));
    }
    circles.into_iter().collect()
}

#[test]
fn no_circle_of_files_is_longer_than_two() {
    let mut long = Vec::new();
    let roots = files(&root()).into_iter().filter(|file| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs"));
    let folders: BTreeSet<_> = roots.filter_map(|file| Some(file.parent()?.to_path_buf())).collect();
    for source in folders {
        let graph = graph(&source);
        for circle in circles(&graph).into_iter().filter(|circle| circle.len() > LONGEST) {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            long.push(format!("{}: {}", source.display(), names.join(", ")));
        }
    }

    assert!(long.is_empty(), "put what they share into a file of its own:\n{}", long.join("\n"));
}

#[test]
fn circles_are_found_however_modules_are_named() {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let text = "use crate::{clock, node::Node};\nuse super::b::B;\nfn f() { crate::socket::open(); super::super::x() }\n// crate::no\n";

    let names: BTreeSet<_> = named(text, &module("a::c")).into_iter().map(|path| path.join("::")).collect();

    for name in ["clock", "node::Node", "a::b::B", "socket::open", "x"] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "d2")];
    let mut graph: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in edges {
        graph.entry(module(from)).or_default().insert(module(to));
        graph.entry(module(to)).or_default();
    }
    let found: Vec<String> = circles(&graph).iter().map(|circle| format!("{circle:?}")).collect();
    assert_eq!(found, [r#"[["a"], ["b"], ["c"]]"#]);
}
