//! Which methods of the queue the model test calls: a method that it does not call is never compared with the model.
//! Which methods each part of the queue calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Group, TokenTree};

use super::{Source, is_ident, is_punct, parts_of, report, rows_in, sources_in, walk};

/// The methods that change the queue and that the model test does not call, and why.
const NOT_CALLED: &[&str] = &[
    // Memory for a change that follows; without it, the queue stays as it is.
    "make_room_for_client",
    "make_room_for_mode",
    "make_room_for_tube",
    "make_room_for_weight",
    // A start, which restores what the log has: in the simulations with crashes.
    "begin_graces",
    "finish_restore",
    "limit_cooldowns",
    "restore",
    "restore_cooldown",
    "restore_session_reservation",
    "seed",
    // A hand-over: in these and in the simulation of the protocol.
    "read_description",
    // The list of all tubes in slices: in the simulation of the protocol.
    "begin_listing",
    "give_up_listing",
    "list_next",
    // Facts about a connection, on which no other method depends: there, too.
    "connect_internal",
    "note_fields",
    // Which deaths the log has: in the tests of the rules.
    "take_kept_from_dead_tube",
    // A body that replies may still hold: in the tests of the server.
    "next_expired_body",
];

/// The public methods with `&mut self` of the queue in these directories.
fn methods(root: &Path) -> BTreeSet<String> {
    let mut methods = BTreeSet::new();
    let directories = ["operations", "rules"].map(|name| root.join("crates/queue/src").join(name));
    for source in sources_in(directories.into()) {
        each_block(&source, &mut |block| {
            walk(&block.stream(), 0, &mut |trees, _| {
                if let [public, function, TokenTree::Ident(name), rest @ ..] = trees
                    && is_ident(public, "pub")
                    && is_ident(function, "fn")
                    && let Some(arguments) = rest.iter().find(|tree| matches!(tree, TokenTree::Group(_)))
                    && arguments.to_string().replace(' ', "").starts_with("(&mutself")
                {
                    methods.insert(name.to_string());
                }
            });
        });
    }
    assert!(methods.len() > 50, "expected more than 50 methods, found {}", methods.len());
    methods
}

/// The names after `queue.` and `Queue::` in the random operations.
fn calls(root: &Path) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    for source in sources_in(vec![root.join("tests/kit/src/operations")]) {
        walk(&source.tokens, 0, &mut |trees, _| {
            let name = match trees {
                [queue, dot, name, ..] if is_ident(queue, "queue") && is_punct(dot, '.') => name,
                [queue, _, colon, name, ..] if is_ident(queue, "Queue") && is_punct(colon, ':') => name,
                _ => return,
            };
            calls.insert(name.to_string());
        });
    }
    calls
}

#[test]
fn the_model_test_calls_each_method_that_changes_the_queue() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let not_called: BTreeSet<_> = methods(root).difference(&calls(root)).cloned().collect();
    let listed: BTreeSet<_> = NOT_CALLED.iter().map(|&name| name.to_owned()).collect();
    let wrong = not_called.symmetric_difference(&listed);
    report(
        wrong.map(|name| format!("{name} is either called in tests/kit/src/operations/ or listed")).collect(),
    );
}

/// Calls `each` for every `impl Queue` of the file.
fn each_block(source: &Source, each: &mut dyn FnMut(&Group)) {
    walk(&source.tokens, 0, &mut |trees, _| {
        if let [keyword, name, TokenTree::Group(block), ..] = trees
            && is_ident(keyword, "impl")
            && is_ident(name, "Queue")
        {
            each(block);
        }
    });
}

/// Methods need no import, so their calls are checked here. Conditions are asserted everywhere, and may ask anything.
#[test]
fn a_part_of_the_queue_calls_methods_of_the_parts_that_its_row_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (sources, rows) = (parts_of(&root.join("crates/queue/src")), rows_in("crates/queue/src/lib.rs"));
    let part_of = |source: &Source| source.steps()[0].replace(".rs", "");
    let mut part_by_method = BTreeMap::new();
    for source in &sources {
        each_block(source, &mut |block| {
            walk(&block.stream(), 0, &mut |trees, depth| {
                if let [function, TokenTree::Ident(name), ..] = trees
                    && depth == 0
                    && is_ident(function, "fn")
                {
                    part_by_method.insert(name.to_string(), part_of(source));
                }
            });
        });
    }
    let (mut failures, mut count) = (Vec::new(), 0);
    for source in &sources {
        let part = part_of(source);
        let row = rows.iter().find(|row| row.name == part);
        let mut check = |trees: &[TokenTree], receiver: &str| {
            // A field has neither brackets nor constants behind it.
            let [queue, dot, TokenTree::Ident(name), behind, ..] = trees else { return };
            if !matches!(behind, TokenTree::Group(_)) && !is_punct(behind, ':') {
                return;
            }
            let Some(other) = part_by_method.get(&name.to_string()) else { return };
            if !is_ident(queue, receiver) || !is_punct(dot, '.') || *other == part || other == "conditions" {
                return;
            }
            count += 1;
            if part != "conditions" && row.is_none_or(|row| !row.may_use(other)) {
                let line = name.span().start().line;
                failures.push(source.fail(line, &format!("{part} must not call {name} of {other}")));
            }
        };
        each_block(source, &mut |block| walk(&block.stream(), 0, &mut |trees, _| check(trees, "self")));
        // The hooks of the rules take the queue as an argument.
        walk(&source.tokens, 0, &mut |trees, _| check(trees, "queue"));
    }
    assert!(count > 300, "expected more than 300 calls, found {count}");
    report(failures);
}
