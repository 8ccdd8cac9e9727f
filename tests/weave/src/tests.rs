//! Source and list → what is woven, and errors → what is not.

use std::collections::BTreeMap;

use super::list::{Genre, Place, Span};
use super::*;

/// A change where `at` is first found in the source.
fn change(source: &str, genre: Genre, at: &str, replacement: &str) -> Change {
    let before = &source[..source.find(at).unwrap()];
    let line = before.split('\n').next_back().unwrap();
    let start = Place {
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
    };
    Change {
        name: format!("{genre:?} {at} {replacement}"),
        file: "src/it.rs".to_owned(),
        span: Span { start },
        replacement: replacement.to_owned(),
        genre,
    }
}

/// What comes of the source with changes by (genre, where, replacement), and of each change.
fn woven(source: &str, changes: &[(Genre, &str, &str)]) -> (String, Vec<State>) {
    let of = |&(genre, at, by): &(Genre, &str, &str)| change(source, genre, at, by);
    let changes: Vec<Change> = changes.iter().map(of).collect();
    let mut states = vec![State::Woven; changes.len()];
    let sources = BTreeMap::from([("src/it.rs".to_owned(), source.to_owned())]);
    let mut files = weave(&sources, &changes, &mut states).unwrap();
    let text = files.remove("src/it.rs").map(|woven| woven.text);
    (text.unwrap_or_default(), states)
}

/// The text where all changes are woven.
fn text(source: &str, changes: &[(Genre, &str, &str)]) -> String {
    let (text, states) = woven(source, changes);
    assert_eq!(states, vec![State::Woven; changes.len()]);
    text
}

#[test]
fn a_function_returns_the_value_of_its_change_first() {
    let source = "/// ä\nfn f(a: u8) -> u8 {\n    // Why.\n    let b = a;\n    b\n}\n";
    assert_eq!(
        text(
            source,
            &[(Genre::FnValue, "let", "0"), (Genre::FnValue, "let", "1")]
        ),
        "/// ä\nfn f(a: u8) -> u8 {\n    // Why.\n    \
         if crate::changed::is(1) { return 0; } if crate::changed::is(2) { return 1; } let b = a;\n    b\n}\n"
    );
}

#[test]
fn iterators_of_two_types_are_given_as_one() {
    let source = "fn f(a: &[u8]) -> impl Iterator<Item = &u8> { a.iter() }";
    let changes = [
        (Genre::FnValue, "a.iter", "::std::iter::empty()"),
        (Genre::FnValue, "a.iter", "::std::iter::once(&0)"),
    ];
    assert_eq!(
        text(source, &changes),
        "fn f(a: &[u8]) -> impl Iterator<Item = &u8> { \
         if crate::changed::is(1) { return crate::changed::Either::Changed(::std::iter::empty()); } \
         if crate::changed::is(2) { return crate::changed::Either::Kept(crate::changed::Either::Changed(::std::iter::once(&0))); } \
         crate::changed::Either::Kept(crate::changed::Either::Kept({ a.iter() })) }"
    );
}

#[test]
fn a_hidden_type_that_two_returns_would_have_to_share_is_left_apart() {
    let early = "fn f(a: bool) -> impl Iterator<Item = u8> { if a { return g(); } h() }";
    let empty = "::std::iter::empty()";
    let first = [(Genre::FnValue, "if a", empty)];
    assert_eq!(woven(early, &first), (early.to_owned(), vec![State::Apart]));
    let inner = "fn f() -> Option<impl Iterator<Item = u8>> { g() }";
    let first = [(Genre::FnValue, "g()", "None")];
    assert_eq!(woven(inner, &first), (inner.to_owned(), vec![State::Apart]));
}

#[test]
fn equality_is_flipped_and_only_once_written() {
    let source = "fn f() -> bool { a() == b() }";
    assert_eq!(
        text(source, &[(Genre::BinaryOperator, "==", "!=")]),
        "fn f() -> bool { crate::changed::flip(1, a() == b()) }"
    );
    let source = "fn f() -> bool { !a() }";
    assert_eq!(
        text(source, &[(Genre::UnaryOperator, "!", "")]),
        "fn f() -> bool { crate::changed::flip(1, !a()) }"
    );
}

#[test]
fn and_and_or_ask_their_right_side_only_where_it_decides() {
    let source = "fn f() -> bool { a && b || c }";
    let changes = [
        (Genre::BinaryOperator, "||", "&&"),
        (Genre::BinaryOperator, "&&", "||"),
    ];
    assert_eq!(
        text(source, &changes),
        "fn f() -> bool { (if crate::changed::flip(1, \
         (if crate::changed::flip(2, a) { (b) } else { crate::changed::is(2) })\
         ) { !crate::changed::is(1) } else { (c) }) }"
    );
}

#[test]
fn a_chain_with_let_has_only_its_other_operands_changed() {
    let source = "fn f() { if a == b && let Some(c) = d && e {} }";
    let changes = [
        (Genre::BinaryOperator, "==", "!="),
        (Genre::BinaryOperator, "&& let", "||"),
        (Genre::BinaryOperator, "&& e", "||"),
    ];
    assert_eq!(
        woven(source, &changes),
        (
            "fn f() { if crate::changed::flip(1, a == b) && let Some(c) = d && e {} }".to_owned(),
            vec![State::Woven, State::Unviable, State::Unviable]
        )
    );
}

#[test]
fn other_operators_stand_beside_the_changed_ones_and_are_woven_once() {
    let source = "fn f() -> bool { a + 1 < b }";
    let changes = [
        (Genre::BinaryOperator, "<", "=="),
        (Genre::BinaryOperator, "<", ">"),
        (Genre::BinaryOperator, "+", "-"),
    ];
    assert_eq!(
        text(source, &changes),
        "fn f() -> bool { (match crate::changed::which(&[1, 2]) { \
         0 => ((match crate::changed::which(&[3]) { 0 => (a + 1), _ => (a) - (1) }) < b), \
         1 => (a + 1) == (b), _ => (a + 1) > (b) }) }"
    );
    assert_eq!(
        text("fn f() { a += b; }", &[(Genre::BinaryOperator, "+=", "-=")]),
        "fn f() { (match crate::changed::which(&[1]) { 0 => (a += b), _ => (a) -= (b) }); }"
    );
    assert_eq!(
        text("fn f() -> i8 { -a }", &[(Genre::UnaryOperator, "-a", "")]),
        "fn f() -> i8 { (match crate::changed::which(&[1]) { 0 => (-a), _ => (a) }) }"
    );
}

#[test]
fn arms_and_guards_are_changed_by_guards() {
    let source = "fn f() { match a { Some(1) | None => {} Some(b) if b == c => {} _ => {} } }";
    let changes = [
        (Genre::MatchArm, "Some(1)", ""),
        (Genre::MatchArmGuard, "b == c", "true"),
        (Genre::MatchArmGuard, "b == c", "false"),
        (Genre::BinaryOperator, "==", "!="),
    ];
    assert_eq!(
        text(source, &changes),
        "fn f() { match a { Some(1) | None if !crate::changed::is(1) => {} \
         Some(b) if (crate::changed::is(2) || ((!crate::changed::is(3) && (\
         crate::changed::flip(4, b == c))))) => {} _ => {} } }"
    );
}

#[test]
fn an_arm_without_which_the_others_do_not_suffice_is_left_apart() {
    let source = "fn f() { match a { true => {} _ if b => {} false => {} } }";
    let changes = [(Genre::MatchArm, "true", "")];
    assert_eq!(
        woven(source, &changes),
        (source.to_owned(), vec![State::Apart])
    );
}

#[test]
fn a_field_is_taken_from_the_base() {
    let source = "fn f() -> S { S { a: 1, b, ..g() } }";
    let changes = [
        (Genre::StructField, "a: 1", ""),
        (Genre::StructField, "b,", ""),
    ];
    assert_eq!(
        text(source, &changes),
        "fn f() -> S { S { a: (match crate::changed::which(&[1]) { 0 => (1), _ => (g()).a }), \
         b: (match crate::changed::which(&[2]) { 0 => (b), _ => (g()).b }), ..g() } }"
    );
    let source = "fn f() -> S { S { a: 1, ..Default::default() } }";
    assert_eq!(
        text(source, &[(Genre::StructField, "a: 1", "")]),
        "fn f() -> S { S { a: (match crate::changed::which(&[1]) { 0 => (1), _ => <S>::default().a }), \
         ..Default::default() } }"
    );
}

#[test]
fn what_the_compiler_evaluates_is_left_apart() {
    let source = "const A: u8 = 1 + 2;\nconst fn f() -> bool { 1 == 2 }\n";
    let changes = [
        (Genre::BinaryOperator, "+", "-"),
        (Genre::FnValue, "1 ==", "true"),
        (Genre::BinaryOperator, "==", "!="),
        (Genre::Other, "A", ""),
    ];
    let apart = vec![State::Apart; changes.len()];
    assert_eq!(woven(source, &changes), (source.to_owned(), apart));
}

/// An error of the compiler at this part of the text.
fn message(text: &str, at: &str, code: &str) -> String {
    let start = text.find(at).unwrap();
    let span = format!(
        r#"{{"file_name":"src/it.rs","byte_start":{start},"byte_end":{},"is_primary":true,"expansion":null}}"#,
        start + at.len()
    );
    // As for what a macro makes: the span is in another file, and comes from here.
    let made = format!(
        r#"{{"file_name":"vec.rs","byte_start":0,"byte_end":1,"is_primary":true,"expansion":{{"span":{span}}}}}"#
    );
    format!(
        "{{\"reason\":\"build-finished\"}}\n{{\"reason\":\"compiler-message\",\"message\":{{\"level\":\"error\",\
         \"code\":{{\"code\":\"{code}\"}},\"spans\":[{made}],\"rendered\":\"{code} at {at}\"}}}}\n"
    )
}

/// What an error at this part of the text makes of the changes.
fn after(source: &str, changes: &[(Genre, &str, &str)], at: &str, code: &str) -> Vec<State> {
    let (text, mut states) = woven(source, changes);
    let of = |&(genre, at, by): &(Genre, &str, &str)| change(source, genre, at, by);
    let changes: Vec<Change> = changes.iter().map(of).collect();
    let sources = BTreeMap::from([("src/it.rs".to_owned(), source.to_owned())]);
    let files = weave(&sources, &changes, &mut states).unwrap();
    leave_out(&message(&text, at, code), &files, &changes, &mut states).unwrap();
    states
}

#[test]
fn an_error_is_of_the_innermost_change_around_it() {
    use State::{Apart, Unviable, Woven};
    let source = "fn f() -> T { a + 1 < b }";
    let changes = [
        (Genre::FnValue, "a + 1", "Default::default()"),
        (Genre::BinaryOperator, "<", "=="),
        (Genre::BinaryOperator, "<", ">"),
        (Genre::BinaryOperator, "+", "-"),
    ];
    let states = |at, code| after(source, &changes, at, code);
    assert_eq!(
        states("Default::", "E0277"),
        [Unviable, Woven, Woven, Woven]
    );
    assert_eq!(
        states("Default::", "E0308"),
        [Unviable, Woven, Woven, Woven]
    );
    assert_eq!(states("Default::", "E0283"), [Apart, Woven, Woven, Woven]);
    assert_eq!(
        states("(a + 1) == (b)", "E0369"),
        [Woven, Unviable, Woven, Woven]
    );
    assert_eq!(
        states("(a + 1) == (b)", "E0308"),
        [Woven, Apart, Woven, Woven]
    );
    assert_eq!(
        states("(a) - (1)", "E0369"),
        [Woven, Woven, Woven, Unviable]
    );
    assert_eq!(states("< b", "E0382"), [Woven, Apart, Apart, Woven]);
    assert_eq!(states("fn f() -> T", "E0282"), [Apart; 4]);
}

#[test]
fn an_error_of_a_function_that_gives_an_iterator_is_first_that_of_its_other_items() {
    use State::{Apart, Woven};
    let source = "fn f() -> impl Iterator<Item = &u8> { a().filter(|b| c == b) }";
    let changes = [
        (Genre::BinaryOperator, "==", "!="),
        (Genre::FnValue, "a()", "::std::iter::empty()"),
        (Genre::FnValue, "a()", "::std::iter::once(b())"),
    ];
    let states = |n: usize| after(source, &changes[..n], "impl Iterator", "E0271");
    assert_eq!(states(3), [Woven, Woven, Apart]);
    assert_eq!(states(2), [Woven, Apart]);
    assert_eq!(states(1), [Apart]);
}

#[test]
fn an_error_that_no_change_explains_is_shown() {
    let source = "fn f() {}\nfn g() -> u8 { 1 }\n";
    let changes = [change(source, Genre::FnValue, "1", "0")];
    let sources = BTreeMap::from([("src/it.rs".to_owned(), source.to_owned())]);
    let mut states = vec![State::Woven];
    let files = weave(&sources, &changes, &mut states).unwrap();
    let said = message(source, "f()", "E0001");
    let error = leave_out(&said, &files, &changes, &mut states).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no change is where the compiler sees an error; look at it yourself:\nE0001 at f()"
    );
}

#[test]
fn states_are_read_as_they_were_written() {
    let source = "fn f() -> u8 { 1 }";
    let changes = ["0", "2", "3"].map(|by| change(source, Genre::FnValue, "1", by));
    let states = [State::Woven, State::Apart, State::Unviable];
    let text = list::print(&changes, &states);
    assert_eq!(
        text,
        "1\twoven\tFnValue 1 0\n2\tapart\tFnValue 1 2\n3\tunviable\tFnValue 1 3\n"
    );
    assert_eq!(list::parse(&text, &changes).unwrap(), states);
    assert!(list::parse(&text, &changes[1..]).is_err());
}

#[test]
fn the_list_is_that_of_cargo_mutants() {
    let list = r#"[{"name": "src/a.rs:2:5: replace f -> u8 with 0", "package": "a", "file": "src/a.rs",
        "function": {"function_name": "f", "return_type": "-> u8", "span": {"start": {"line": 1, "column": 1},
        "end": {"line": 3, "column": 2}}}, "span": {"start": {"line": 2, "column": 5}, "end": {"line": 2, "column": 6}},
        "replacement": "0", "genre": "FnValue"}, {"name": "b", "file": "src/b.rs", "function": null,
        "span": {"start": {"line": 1, "column": 1}}, "replacement": "", "genre": "Unheard"}]"#;
    let list: Vec<Change> = serde_json::from_str(list).unwrap();
    let read = list
        .iter()
        .map(|c| {
            (
                c.file.as_str(),
                c.genre,
                c.span.start.line,
                c.span.start.column,
            )
        })
        .collect::<Vec<_>>();
    assert_eq!(
        read,
        [
            ("src/a.rs", Genre::FnValue, 2, 5),
            ("src/b.rs", Genre::Other, 1, 1)
        ]
    );
}
