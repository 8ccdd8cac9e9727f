//! The boundaries of `docs/ARCHITECTURE.md`, held by a table: a path prefix, the text that must not stand
//! there outside comments, strings and `#[cfg(test)]`, and what to do instead.

mod rules;
mod source;

use rules::{PURE, PURE_BY_TOKIOS_CLOCK, RULES, covers, is_boundary, is_pure};
use source::{code_of, lines_with, sources};

#[test]
fn modules_keep_their_boundaries() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let code = code_of(&text);
        for rule in RULES.iter().filter(|rule| covers(rule, &path)) {
            for word in rule.forbidden {
                found.extend(lines_with(&code, word).map(|line| {
                    format!(
                        "src/{path}:{line}: `{}` is not allowed here: {}",
                        word.trim(),
                        rule.instead
                    )
                }));
            }
        }
    }
    assert!(
        found.is_empty(),
        "{} boundary violations (the table is in tests/it/architecture/rules.rs):\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn modules_are_named_files_and_re_export_by_name() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        if path.ends_with("/mod.rs") {
            found.push(format!(
                "src/{path}: write parent.rs beside parent/, not mod.rs"
            ));
        }
        for (n, line) in code_of(&text).lines().enumerate() {
            let line = line.trim_start();
            if line.starts_with("pub use") && line.contains("::*") {
                found.push(format!(
                    "src/{path}:{}: re-export by name, not by glob",
                    n + 1
                ));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// SQLite would take `?1` too; PostgreSQL does not.
#[test]
fn statements_number_what_is_bound_as_both_databases_do() {
    let statements = sources()
        .into_iter()
        .filter(|(path, _)| path.starts_with("hub/store/sql/"));
    let mut found = Vec::new();
    for (path, text) in statements {
        for (n, line) in text.lines().enumerate() {
            let bound = |(at, _): (usize, &str)| {
                let before = line[..at].ends_with([' ', '(']);
                before || line[at + 1..].starts_with(|c: char| c.is_ascii_digit())
            };
            if line.match_indices('?').any(bound) {
                found.push(format!("src/{path}:{}: write $1, not ?", n + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A row whose file is gone would guard nothing.
#[test]
fn every_pure_module_exists() {
    let files: Vec<_> = sources().into_iter().map(|(path, _)| path).collect();
    let gone: Vec<_> = PURE
        .iter()
        .chain(PURE_BY_TOKIOS_CLOCK)
        .filter(|prefix| {
            !files
                .iter()
                .any(|f| f.strip_prefix(*prefix).is_some_and(is_boundary))
        })
        .collect();
    assert!(
        gone.is_empty(),
        "no such file, correct the table PURE: {gone:?}"
    );
}

/// A module that says of itself that it only decides is held to it.
#[test]
fn every_module_that_calls_itself_pure_has_a_row() {
    let calls_itself_pure = |text: &str| {
        let about = text.lines().take_while(|line| line.starts_with("//!"));
        let mut words = about.flat_map(|line| line.split(|c: char| !c.is_alphanumeric()));
        words.any(|word| word == "Pure")
    };
    let missing: Vec<_> = sources()
        .into_iter()
        .filter(|(path, text)| calls_itself_pure(text) && !is_pure(path))
        .map(|(path, _)| path)
        .collect();
    assert!(
        missing.is_empty(),
        "add a row to the table PURE, or say what else the module does: {missing:?}"
    );
}

#[test]
fn code_is_what_is_left_without_comments_strings_and_tests() {
    let source = r##"
let a = "tokio \" tokio"; // tokio
/* tokio /* tokio */ tokio */ let b = 'x'; let c: &'static str = r#"tokio "tokio" "#;
#[cfg(test)]
mod tests { fn t() { tokio } }
fn after<'a>() { b'"'; '"'; '\''; code }
#[cfg(test)]
use tokio;
#[cfg(test)]
#[path = "x"]
mod more;
fn last() { end }
"##;
    let code = code_of(source);
    assert_eq!(code.lines().count(), source.lines().count());
    assert!(!code.contains("tokio"), "{code}");
    assert!(
        code.contains("code") && code.contains("end") && code.contains("&'static str"),
        "{code}"
    );
}

#[test]
fn words_match_whole() {
    let lines = |code, word| lines_with(code, word).collect::<Vec<_>>();
    assert_eq!(lines("use tokio::x;\nmy_tokio;\ntokio_util", "tokio"), [1]);
    assert_eq!(lines("kube::Client;\n\nx::kube::Client", "kube::"), [1]);
    assert_eq!(lines("crate::clock::now()", "clock::now"), [1]);
    assert_eq!(
        lines(
            "use crate::hubris;\nuse crate::hub::x;\ncrate::hub;",
            "crate::hub"
        ),
        [2, 3]
    );
    assert_eq!(lines("pub async fn f()", "async "), [1]);
}
