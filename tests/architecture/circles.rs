//! In each directory of sources, the files and the directories do not use each other in a circle. A directory counts as
//! one with all of its files, except inside of itself, where each of them counts by itself.
//!
//! A file uses another if it names a path into it, or a name that another file exports from it. Its own directory's
//! `mod.rs` does not count: a parent may use its children, and a child its parent. Nor does a type whose methods are in
//! several files, in a file that has some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{is_ident, is_punct, report, rows, sources_without_tests};

/// The steps of a path of modules or names, without `crate`.
type Steps = Vec<String>;

/// A path that a file names.
struct Named {
    steps: Steps,
    /// The name that the path has in this file, if it is public there.
    exported_as: Option<String>,
}

/// A file of a crate.
#[derive(Default)]
struct Module {
    named: Vec<Named>,
    /// The types to which it adds methods.
    types: BTreeSet<String>,
}

/// The files of a crate by their modules.
struct Modules(BTreeMap<Steps, Module>);

impl Modules {
    fn read(directory: &Path) -> Self {
        let mut modules = Self(BTreeMap::new());
        for source in sources_without_tests(directory) {
            let mut steps: Vec<_> = source.steps().iter().map(|step| step.replace(".rs", "")).collect();
            steps.retain(|step| !["mod", "main", "lib"].contains(&step.as_str()));
            scan(&source.tokens, modules.0.entry(steps).or_default());
        }
        let names: BTreeSet<_> = modules.0.keys().cloned().collect();
        for (here, module) in &mut modules.0 {
            module.named.retain_mut(|named| {
                let steps = absolute(here, &named.steps, &names);
                named.steps = steps.clone().unwrap_or_default();
                steps.is_some()
            });
        }
        modules
    }

    /// The file that a path leads into, through the names that files export from others.
    fn resolve(&self, path: &[String]) -> Steps {
        let Some(depth) = (0..=path.len()).rev().find(|depth| self.0.contains_key(&path[..*depth])) else {
            return Vec::new();
        };
        let (module, rest) = path.split_at(depth);
        let is_export =
            |named: &&Named| named.exported_as.is_some() && named.exported_as.as_ref() == rest.first();
        match self.0[module].named.iter().find(is_export) {
            Some(named) => self.resolve(&[&named.steps, &rest[1..]].concat()),
            None => module.to_vec(),
        }
    }

    /// For each directory, which of its entries use which others, and by what.
    fn uses(&self) -> BTreeMap<Steps, Uses> {
        let mut uses: BTreeMap<Steps, Uses> = BTreeMap::new();
        for (here, module) in &self.0 {
            for named in &module.named {
                let there = self.resolve(&named.steps);
                let common = here.iter().zip(&there).take_while(|(here, there)| here == there).count();
                let is_own = named.steps.last().is_some_and(|name| module.types.contains(name));
                if let (Some(from), Some(to), false) = (here.get(common), there.get(common), is_own) {
                    let entries = uses.entry(here[..common].to_vec()).or_default();
                    let what = format!("{} uses {}", here.join("::"), named.steps.join("::"));
                    entries.entry(from.clone()).or_default().entry(to.clone()).or_insert(what);
                }
            }
        }
        uses
    }
}

/// The path from the root of the crate; `None` for one into another crate.
fn absolute(here: &[String], steps: &[String], modules: &BTreeSet<Steps>) -> Option<Steps> {
    let supers = steps.iter().take_while(|step| *step == "super").count();
    let (base, rest) = match steps.first()?.as_str() {
        "crate" => (&here[..0], &steps[1..]),
        "self" => (here, &steps[1..]),
        "super" => (&here[..here.len().saturating_sub(supers)], &steps[supers..]),
        child if modules.contains(&[here, &[child.to_owned()]].concat()) => (here, steps),
        _ => return None,
    };
    Some([base, rest].concat())
}

/// An entry of a directory uses another; and a path that shows it.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Collects the paths and the types of a file.
fn scan(tokens: &TokenStream, found: &mut Module) {
    let trees: Vec<_> = tokens.clone().into_iter().collect();
    for (index, tree) in trees.iter().enumerate() {
        let before = trees[..index].last();
        if is_ident(tree, "use") {
            let is_public = before.is_some_and(|tree| is_ident(tree, "pub"))
                || matches!(before, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
            // A `use<…>` of a type has no semicolon.
            let end = trees[index..].iter().position(|tree| is_punct(tree, ';')).unwrap_or(1);
            read_use(&[], &trees[index + 1..index + end], is_public, found);
        } else if is_ident(tree, "impl") {
            found.types.extend(type_with_methods(&trees[index + 1..]));
        } else if ["crate", "self", "super"].iter().any(|root| is_ident(tree, root))
            && !before.is_some_and(|tree| is_punct(tree, ':') || is_ident(tree, "use"))
        {
            let steps = path(&trees[index..]);
            if steps.len() > 1 {
                found.named.push(Named { steps, exported_as: None });
            }
        } else if let TokenTree::Group(group) = tree
            && !before.is_some_and(|tree| is_punct(tree, ':'))
        {
            scan(&group.stream(), found);
        }
    }
}

/// The steps `a::b::c` at the start.
fn path(trees: &[TokenTree]) -> Steps {
    let mut steps = Vec::new();
    let mut rest = trees;
    while let [TokenTree::Ident(step), after @ ..] = rest {
        steps.push(step.to_string());
        rest = match after {
            [colon, second, after @ ..] if is_punct(colon, ':') && is_punct(second, ':') => after,
            _ => break,
        };
    }
    steps
}

/// The type of `impl Type {`, which is not `impl Trait for Type {`.
fn type_with_methods(trees: &[TokenTree]) -> Option<String> {
    let head: Vec<_> = trees.iter().take_while(|tree| !matches!(tree, TokenTree::Group(_))).collect();
    if head.iter().any(|tree| is_ident(tree, "for")) {
        return None;
    }
    let mut depth = 0;
    head.into_iter().find_map(|tree| {
        depth += i32::from(is_punct(tree, '<')) - i32::from(is_punct(tree, '>'));
        matches!(tree, TokenTree::Ident(_) if depth == 0).then(|| tree.to_string())
    })
}

/// Reads `a::b`, `a::{b, c as d}` and so on, all after `prefix`.
fn read_use(prefix: &[String], trees: &[TokenTree], is_public: bool, found: &mut Module) {
    let steps = [prefix, &path(trees)].concat();
    match trees.last() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inner: Vec<_> = group.stream().into_iter().collect();
            for part in inner.split(|tree| is_punct(tree, ',')).filter(|part| !part.is_empty()) {
                read_use(&steps, part, is_public, found);
            }
        }
        Some(name) => {
            let is_module = steps.len() > 1 && steps.last().is_some_and(|step| step == "self");
            let steps = steps[..steps.len() - usize::from(is_module)].to_vec();
            let name = if is_module { steps.last().cloned() } else { Some(name.to_string()) };
            found.named.push(Named { steps, exported_as: name.filter(|_| is_public) });
        }
        None => {}
    }
}

/// The entries that `from` leads to, over others if necessary.
fn reached_from<'a>(uses: &'a Uses, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<_> = uses.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(entry) = next.pop() {
        if reached.insert(entry.as_str()) {
            next.extend(uses.get(entry).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = rows().into_iter().filter(|row| row.floor.is_some());
    let directories =
        crates.map(|row| root.join("crates").join(row.name).join("src")).chain([root.join("src")]);
    let (mut failures, mut count) = (Vec::new(), 0);
    for directory in directories {
        for uses in Modules::read(&directory).uses().into_values() {
            for (from, others) in &uses {
                count += others.len();
                let in_circle =
                    others.iter().filter(|(to, _)| reached_from(&uses, to).contains(from.as_str()));
                let name = directory.strip_prefix(root).unwrap().display();
                failures.extend(in_circle.map(|(_, what)| format!("{name}: {what}, in a circle")));
            }
        }
    }
    assert!(count > 400, "expected more than 400 files or directories that use another, found {count}");
    report(failures);
}
