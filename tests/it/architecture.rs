//! The boundaries of `docs/ARCHITECTURE.md`, held by a table: a path prefix, the text that must not stand
//! there outside comments, strings and `#[cfg(test)]`, and what to do instead.

use std::fs;
use std::path::{Path, PathBuf};

/// Files whose path below `src/` begins with one of `at`, but with none of `but`, hold none of `forbidden`.
struct Rule {
    at: &'static [&'static str],
    but: &'static [&'static str],
    forbidden: &'static [&'static str],
    instead: &'static str,
}

/// Decide here, act elsewhere. A new pure module adds its prefix.
const PURE: &[&str] = &[
    "address",
    "agent/engine",
    "agent/enroll/told",
    "agent/forward/subjects/form",
    "agent/forward/subjects/role",
    "agent/gate",
    "agent/identity",
    "agent/link/cap",
    "agent/plan",
    "assertion",
    "backoff",
    "bundle",
    "heal",
    "hub/access",
    "hub/adoption/values",
    "hub/api/grants/asked",
    "hub/assertion",
    "hub/audit/chain",
    "hub/audit/refusals",
    "hub/auth/role",
    "hub/auth/word",
    "hub/catalog",
    "hub/githost/embedded/push",
    "hub/image",
    "hub/incident",
    "hub/fleet",
    "hub/story",
    "hub/githost/hostkeys",
    "hub/githost/rotation",
    "hub/login/pending",
    "hub/login/rate",
    "hub/lost/fault",
    "hub/notify/board",
    "hub/notify/letter",
    "hub/oidc/claims",
    "hub/oidc/discovery",
    "hub/oidc/token",
    "hub/serve/forwarded",
    "hub/signers",
    "hub/proxy/exit",
    "hub/proxy/rewrite",
    "hub/registration",
    "hub/rotation",
    "hub/selector",
    "hub/twin/fault",
    "hub/twin/takeovers",
    "keys",
    "kubeapi",
    "manifests",
    "secret",
    "ssh/known_hosts",
    "ssh/lsrefs",
    "trust",
    "tunnel/budget",
    "tunnel/credit",
    "tunnel/session",
    "tunnel/websocket",
    "wire",
    "yaml",
];

/// What all parts stand on; it knows none of them.
const FOUNDATION: &[&str] = &[
    "address",
    "assertion",
    "backoff",
    "clock",
    "heal",
    "keys",
    "kubeapi",
    "lifetime",
    "secret",
    "ssh",
    "telemetry",
    "trust",
    "yaml",
];

const EFFECTS: &[&str] = &[
    "async ",
    ".await",
    "tokio",
    "tokio_util",
    "reqwest",
    "std::fs",
    "std::net::Tcp",
    "std::env",
    "std::process",
    "std::thread",
    "getrandom",
    "Instant::now",
    "SystemTime",
    "now_utc",
    "now_local",
    "now_v7",
    "new_v4",
    "clock::boot",
    "clock::now",
    "clock::random",
    "clock::unit",
    "kube::Client",
    "kube::Api",
    "tracing",
];

const RULES: &[Rule] = &[
    Rule {
        at: PURE,
        but: &[],
        forbidden: EFFECTS,
        instead: "this module is pure: take time, randomness and what was read as arguments, return what to do, \
                  and let the caller at the edge do it",
    },
    Rule {
        at: &["wire"],
        but: &[],
        forbidden: &[
            "crate::",
            "time::",
            "uuid::",
            "serde_json",
            "http::",
            "sha2",
            "base64",
        ],
        instead: "wire imports std, serde, bytes, thiserror and itself; parse further where the value is used",
    },
    Rule {
        at: &["tunnel"],
        but: &[],
        forbidden: &["crate::agent", "crate::hub", "crate::client", "crate::cli"],
        instead: "the line serves both ends and knows neither: pass what it needs as an argument",
    },
    Rule {
        at: &["agent"],
        but: &[],
        forbidden: &["crate::hub", "crate::cli"],
        instead: "agent and hub share only wire, tunnel, client and the foundation: move the shared part there",
    },
    Rule {
        at: &["hub"],
        but: &[],
        forbidden: &["crate::agent", "crate::cli"],
        instead: "agent and hub share only wire, tunnel, client and the foundation: move the shared part there",
    },
    Rule {
        at: &["client"],
        but: &[],
        forbidden: &["crate::agent", "crate::hub", "crate::cli"],
        instead: "the client speaks wire types and knows neither end",
    },
    Rule {
        at: FOUNDATION,
        but: &[],
        forbidden: &[
            "crate::agent",
            "crate::hub",
            "crate::cli",
            "crate::client",
            "crate::tunnel",
        ],
        instead: "the foundation imports no part: turn the dependency round",
    },
    // One owner per technology.
    Rule {
        at: &[""],
        but: &["hub/store"],
        forbidden: &["sqlx"],
        instead: "SQL lives in hub/store/*: add a function with a domain name there",
    },
    Rule {
        at: &[""],
        but: &["hub/git"],
        forbidden: &["git2"],
        instead: "git2 lives in hub/git: add a function there, called inside spawn_blocking",
    },
    Rule {
        at: &[""],
        but: &["ssh"],
        forbidden: &["russh"],
        instead: "russh lives in ssh: add what is missing there",
    },
    Rule {
        at: &[""],
        but: &["yaml"],
        forbidden: &["serde_saphyr"],
        instead: "YAML is read and printed by crate::yaml, within its budget",
    },
    Rule {
        at: &[""],
        but: &[
            "hub.rs",
            "hub/api",
            "hub/auth",
            "hub/proxy",
            "hub/serve",
            "hub/ui",
        ],
        forbidden: &["axum"],
        instead: "axum lives in hub/api*, hub/proxy and hub/ui*; elsewhere take http types, or serve with hyper",
    },
    Rule {
        at: &[""],
        but: &["agent", "cli/agent"],
        forbidden: &["kube::", "kube_runtime"],
        instead: "the Kubernetes client belongs to the agent's IO modules; plain JSON or k8s-openapi types are fine anywhere",
    },
    Rule {
        at: &["agent/forward/exchange", "agent/forward/send", "agent/gate"],
        but: &[],
        forbidden: &["kube::", "kube_client", "Api<"],
        instead: "no request of the line reaches the installer's client: send through forward::upstream",
    },
    Rule {
        at: &["agent/forward/upstream"],
        but: &[],
        forbidden: &["kube::Client", "Api<", "auth_info", "identity_pem"],
        instead: "requests of the line carry the token of linesman-line only: take address and CA of the configuration, no credential",
    },
    Rule {
        at: &["tunnel", "agent", "hub", "client", "cli"],
        but: &["tunnel/driver", "agent/link", "hub/api/tunnel"],
        forbidden: &["tungstenite"],
        instead: "WebSocket lives in tunnel/driver, agent/link and hub/api/tunnel",
    },
    Rule {
        at: &[""],
        but: &["client", "agent/caller", "hub/githost", "hub/oidc"],
        forbidden: &["reqwest"],
        instead: "HTTP calls go through crate::client and agent/caller (to a hub) or hub/githost (to a Git host)",
    },
    Rule {
        at: &[""],
        // What calls go through is the environment's to say, to reqwest as well.
        but: &["cli", "client/proxy"],
        forbidden: &["clap", "std::env"],
        instead: "cli reads flags and environment, and passes validated configuration on",
    },
];

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
        "{} boundary violations (the table is in tests/it/architecture.rs):\n{}",
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

fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let path = file
                .strip_prefix(&root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let text = fs::read_to_string(&file).unwrap();
            (path, text)
        })
        .filter(|(path, _)| !path.ends_with("/tests.rs") && !path.contains("/tests/"))
        .collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// `agent/plan` covers `agent/plan.rs` and `agent/plan/…`, not `agent/planet.rs`.
fn covers(rule: &Rule, path: &str) -> bool {
    let begins = |prefixes: &[&str]| {
        prefixes
            .iter()
            .any(|p| path.strip_prefix(p).is_some_and(is_boundary_of(p)))
    };
    begins(rule.at) && !begins(rule.but)
}

fn is_boundary_of(prefix: &str) -> impl Fn(&str) -> bool {
    let whole = prefix.is_empty() || Path::new(prefix).extension().is_some();
    move |rest| whole || is_boundary(rest)
}

fn is_boundary(rest: &str) -> bool {
    rest.starts_with(['.', '/'])
}

/// One-based numbers of the lines that hold `word`, not as part of a longer identifier or path.
fn lines_with<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.lines().enumerate().filter_map(move |(n, line)| {
        let hit = line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            // `time::` is the crate, not `std::time::`; `clock::now` is also `crate::clock::now`.
            let inner = |c| part(c) || (c == ':' && word.ends_with("::"));
            let free = word.starts_with('.') || !before.is_some_and(inner);
            free && (!word.ends_with(part) || word.ends_with("Tcp") || !after.is_some_and(part))
        });
        hit.then_some(n + 1)
    })
}

/// The source with comments, strings and `#[cfg(test)]` items blanked; line numbers stay.
fn code_of(source: &str) -> String {
    without_tests(&without_text(source))
}

fn without_text(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = text_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

/// Where the comment, string or character literal that begins at `at` ends; `at` if none does.
fn text_end(chars: &[char], at: usize) -> usize {
    let get = |n: usize| chars.get(n).copied().unwrap_or('\n');
    let word_before = at > 0 && (get(at - 1).is_alphanumeric() || get(at - 1) == '_');
    match get(at) {
        '/' if get(at + 1) == '/' => (at..chars.len())
            .find(|n| chars[*n] == '\n')
            .unwrap_or(chars.len()),
        '/' if get(at + 1) == '*' => block_end(chars, at),
        '"' => quoted_end(chars, at),
        'r' if !word_before || get(at - 1) == 'b' => raw_end(chars, at).unwrap_or(at),
        // A character, not a lifetime: an escape, or one character and the closing quote.
        '\'' if get(at + 1) == '\\' => (at + 3..chars.len())
            .find(|n| chars[*n] == '\'')
            .map_or(chars.len(), |n| n + 1),
        '\'' if get(at + 2) == '\'' => at + 3,
        _ => at,
    }
}

fn block_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut n = at;
    while n + 1 < chars.len() {
        match (chars[n], chars[n + 1]) {
            ('/', '*') => (depth, n) = (depth + 1, n + 2),
            ('*', '/') => (depth, n) = (depth - 1, n + 2),
            _ => n += 1,
        }
        if depth == 0 {
            return n;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], at: usize) -> usize {
    let mut n = at + 1;
    while n < chars.len() {
        match chars[n] {
            '\\' => n += 2,
            '"' => return n + 1,
            _ => n += 1,
        }
    }
    chars.len()
}

fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let closes = |n: &usize| {
        chars[*n] == '"'
            && chars[n + 1..]
                .iter()
                .take(hashes)
                .filter(|c| **c == '#')
                .count()
                == hashes
    };
    (at + 2 + hashes..chars.len())
        .find(closes)
        .map(|n| n + 1 + hashes)
}

fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let end = item_end(&out, start);
        let blank: String = out[start..end]
            .chars()
            .map(|c| if c == '\n' { '\n' } else { ' ' })
            .collect();
        out.replace_range(start..end, &blank);
    }
    out
}

/// The end of the item that begins with an attribute at `start`: its closing brace, or its semicolon.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0_i32;
    for (n, c) in code[start..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth == 0 && c == '}' {
                    return start + n + 1;
                }
            }
            ';' if depth == 0 => return start + n + 1,
            _ => {}
        }
    }
    code.len()
}
